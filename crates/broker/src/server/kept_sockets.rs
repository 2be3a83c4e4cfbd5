//! Sockets at the ports of outgoing connections, which we hold ourselves: no other socket gets the ports, whatever becomes of the shadows.

use std::collections::BTreeMap;

use rustix::process::{Resource, getrlimit};

use super::helpers::Theirs;
use crate::registry::ClaimKey;
use crate::shares::{Shares, User};

/// Ports that the kernel chooses from unless told otherwise (ip_local_port_range, ip(7)).
const SOURCE_PORTS: usize = 28_232;

/// See the module's page.
#[derive(Default)]
pub(super) struct KeptSockets {
    sockets: BTreeMap<ClaimKey, Theirs>,
    shares: Shares,
}

impl KeptSockets {
    /// Whether a user may have one more.
    pub(super) fn have_room(&self, user: User) -> bool {
        self.shares.have_room(max(), user, 1)
    }

    pub(super) fn insert(&mut self, claim: ClaimKey, socket: Theirs) {
        self.shares.add(socket.user(), 1);
        self.sockets.insert(claim, socket);
    }

    pub(super) fn remove(&mut self, claim: ClaimKey) -> Option<Theirs> {
        let socket = self.sockets.remove(&claim)?;
        self.shares.remove(socket.user(), 1);
        Some(socket)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

/// No more than there are ports, and no more descriptors than three quarters: the rest is for clients themselves and for what they hand
/// over.
fn max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4 * 3).unwrap_or(usize::MAX).min(SOURCE_PORTS)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::ClaimId;
    use crate::registry::ClientId;

    #[test]
    fn a_socket_is_its_users_until_it_is_removed() {
        let (mut kept, helpers) = (KeptSockets::default(), Arc::default());
        let of = |number| (ClaimId(number), ClientId(1));
        let any = std::fs::File::open("/dev/null").unwrap().into();
        kept.insert(of(7), Theirs::new(any, 1, &helpers));
        assert!(!kept.shares.have_room(2, 1, 1) && kept.shares.have_room(2, 2, 1));
        assert!(kept.remove(of(8)).is_none() && kept.remove(of(7)).is_some());
        assert!(kept.is_empty() && kept.shares.have_room(2, 1, 1));
    }
}
