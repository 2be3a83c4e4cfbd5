//! What there is only so much of for all users together: no user but root gets more than half, so none keeps all others out.

use std::collections::BTreeMap;

/// The user of a process.
pub(super) type User = u32;

const ROOT: User = 0;

/// Whether there is room for one more that is this user's, where so many are kept at most, and these users' are.
pub(super) fn has_room(max: usize, owners: impl Iterator<Item = User>, user: User) -> bool {
    let (all, own) = owners.fold((0, 0), |(all, own), owner| (all + 1, own + usize::from(owner == user)));
    fits(max, (all, own), user)
}

fn fits(max: usize, (all, own): (usize, usize), user: User) -> bool {
    all < max && (user == ROOT || own < max / 2)
}

/// How many of something each user has: as [`has_room`], where there are too many to count each time.
#[derive(Debug, Default)]
pub(super) struct Shares {
    all: usize,
    by_user: BTreeMap<User, usize>,
}

impl Shares {
    /// Whether a user can have one more, where there are `max` for all.
    pub(super) fn have_room(&self, max: usize, user: User) -> bool {
        fits(max, (self.all, self.by_user.get(&user).copied().unwrap_or_default()), user)
    }

    pub(super) fn add(&mut self, user: User) {
        self.all += 1;
        *self.by_user.entry(user).or_default() += 1;
    }

    pub(super) fn remove(&mut self, user: User) {
        let own = self.by_user.get_mut(&user).expect("it was added before");
        *own -= 1;
        self.all -= 1;
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
    fn what_was_removed_makes_room() {
        let mut shares = Shares::default();
        [1, 1, 2].into_iter().for_each(|user| shares.add(user));
        assert!(!shares.have_room(4, 1) && shares.have_room(4, 2) && shares.have_room(4, ROOT));
        shares.remove(1);
        assert!(shares.have_room(4, 1));
        [1, 2].into_iter().for_each(|user| shares.remove(user));
        assert!(shares.all == 0 && shares.by_user.is_empty());
    }
}
