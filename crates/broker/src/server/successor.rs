//! What a broker knows of the clients of the killed one whose place it has taken.

use std::collections::BTreeSet;

use crate::shares::User;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Succession {
    /// The users of those that had queues.
    users: BTreeSet<User>,
}

impl Succession {
    /// These users had queues.
    pub(super) fn note(&mut self, users: impl Iterator<Item = User>) {
        self.users.extend(users);
    }

    pub(super) fn knows(&self, user: User) -> bool {
        self.users.contains(&user)
    }
}
