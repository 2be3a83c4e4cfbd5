//! The clients that wait for an answer.

use std::collections::BTreeMap;

use device_kernel::Peer;
use dns_front::Reply;
use dns_resolver::ClientId;
use engine::ReturnPath;

use super::core::Asked;
use super::streams::StreamId;

/// Where a client's answer goes.
pub(super) enum Place {
    Udp(usize, Peer),
    Device(ReturnPath),
    Stream(StreamId),
    Encrypted(Reply),
}

/// A client that waits for an answer.
pub(super) struct Waiting {
    pub(super) asked: Asked,
    pub(super) place: Place,
}

/// All of them.
#[derive(Default)]
pub(super) struct Clients {
    waiting: BTreeMap<ClientId, Waiting>,
    last: u64,
}

impl Clients {
    pub(super) fn add(&mut self, place: Place, asked: Asked) -> ClientId {
        self.last += 1;
        let client = ClientId(self.last);
        self.waiting.insert(client, Waiting { asked, place });
        client
    }

    pub(super) fn remove(&mut self, client: ClientId) -> Option<Waiting> {
        self.waiting.remove(&client)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
