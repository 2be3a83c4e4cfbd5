//! epoll's tokens: each client has four, of which three are used.

use crate::registry::ClientId;

pub(super) const LISTENER: u64 = 0;
pub(super) const NETLINK: u64 = 1;
pub(super) const HELPERS: u64 = 2;

pub(super) fn socket(client: ClientId) -> u64 {
    client.0 * 4
}

pub(super) fn process(client: ClientId) -> u64 {
    client.0 * 4 + 1
}

pub(super) fn control(client: ClientId) -> u64 {
    client.0 * 4 + 2
}

pub(super) fn client(token: u64) -> ClientId {
    ClientId(token / 4)
}
