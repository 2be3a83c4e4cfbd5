//! What there is only so much of for all users together. No user but root gets more than half, and an eighth is root's alone: so none keeps
//! all others out, and not all others keep root out.

use std::collections::BTreeMap;

/// The user of a process.
pub(crate) type User = u32;

const ROOT: User = 0;

/// Whether there is room for one more that is this user's, where so many are kept at most, and these users' are.
pub(crate) fn has_room(max: usize, owners: impl Iterator<Item = User>, user: User) -> bool {
    let (all, own) = owners.fold((0, 0), |(all, own), owner| (all + 1, own + usize::from(owner == user)));
    fits(max, (all, own), user, 1)
}

fn fits(max: usize, (all, own): (usize, usize), user: User, more: usize) -> bool {
    let is_left = |max: usize, taken: usize| more <= max.saturating_sub(taken);
    match user {
        ROOT => is_left(max, all),
        _ => is_left(max - max / 8, all) && is_left(max / 2, own),
    }
}

/// How much of something each user has: as [`has_room`], where there is too much to count each time.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    all: usize,
    by_user: BTreeMap<User, usize>,
}

impl Shares {
    /// Whether a user can have so much more, where there is `max` for all.
    pub(crate) fn have_room(&self, max: usize, user: User, more: usize) -> bool {
        fits(max, (self.all, self.by_user.get(&user).copied().unwrap_or_default()), user, more)
    }

    pub(crate) fn add(&mut self, user: User, amount: usize) {
        self.all += amount;
        *self.by_user.entry(user).or_default() += amount;
    }

    /// What was added before.
    pub(crate) fn remove(&mut self, user: User, amount: usize) {
        self.all -= amount;
        let Some(own) = self.by_user.get_mut(&user) else { return }; // It was nothing.
        *own -= amount;
        if *own == 0 {
            self.by_user.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_half_of_the_room_and_root_has_all() {
        let room = |owners: &[User], user| has_room(4, owners.iter().copied(), user);
        assert!(room(&[], 1) && room(&[1], 1) && !room(&[1, 1], 1), "half");
        assert!(room(&[1, 1], 2) && room(&[1, 1, 2], 2) && !room(&[1, 1, 2, 2], 3), "and no more than all");
        assert!(room(&[0, 0, 0], 0) && !room(&[0, 0, 0, 0], 0));
    }

    #[test]
    fn users_with_half_each_leave_an_eighth_for_root() {
        let room = |first, second, user| {
            let owners = [vec![1; first], vec![2; second]].concat();
            has_room(16, owners.into_iter(), user)
        };
        assert!(room(8, 5, 2) && !room(8, 6, 2) && !room(8, 6, 3));
        assert!(room(8, 6, ROOT) && room(8, 7, ROOT));
    }

    #[test]
    fn what_was_removed_makes_room() {
        let mut shares = Shares::default();
        [1, 1, 2].into_iter().for_each(|user| shares.add(user, 1));
        assert!(!shares.have_room(4, 1, 1) && shares.have_room(4, 2, 1) && shares.have_room(4, ROOT, 1));
        shares.remove(1, 1);
        assert!(shares.have_room(4, 1, 1));
        [1, 2].into_iter().for_each(|user| shares.remove(user, 1));
        assert!(shares.all == 0 && shares.by_user.is_empty());
    }
}
