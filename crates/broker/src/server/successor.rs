//! What a broker knows of the clients of the killed one whose place it has taken.

use std::collections::BTreeSet;

use clock::Instant;

use super::shares::User;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// The users of those that had queues.
    users: BTreeSet<User>,
    /// Until when they are waited for.
    until: Option<Instant>,
}

impl Succession {
    /// These users had queues, and are waited for until then.
    pub(super) fn note(&mut self, users: impl Iterator<Item = User>, until: Instant) {
        self.users.extend(users);
        self.until = Some(until);
    }

    pub(super) fn knows(&self, user: User) -> bool {
        self.users.contains(&user)
    }

    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}
