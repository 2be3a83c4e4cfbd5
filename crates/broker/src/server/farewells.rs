//! The peers of a process that is gone without a word are told: it was killed, or has ended past what the library sees.
//!
//! The kernel closes what a process had, which tells the peers. It does not know connections of our stack. Their peers would wait for an answer until they
//! say something themselves, which the kernel answers by a reset. So the broker has them say something:
//!
//! ```text
//!   the flow is noted as the kernel's --> a segment that the peer has to acknowledge --> the acknowledgement comes to the kernel
//!     --> which has no such connection, and resets the peer
//! ```
//!
//! Sequence numbers are nobody's any more, and a reset needs the right one (RFC 5961, 3.2). A segment with a wrong one needs none: RFC 9293, 3.10.7.4, has the peer
//! acknowledge what it expects.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use clock::Instant;
use control::sock_diag::end_time_wait;
use steering::Transport;

use super::books_left::Places;
use super::broker::Broker;
use super::helpers::Theirs;
use crate::book::read;
use crate::protocol::Refusal;
use crate::registry::{Bound, ClientId};

/// Flows that are looked at in one of the broker's turns.
const AT_ONCE: usize = 256;
/// Flows of one process that are noted at most: there is room for so many, and those of others are not to be forgotten for them.
const NOTED_MAX: usize = 1 << 14;

/// Our end and the peer's.
type Ends = (SocketAddr, SocketAddr);

impl Broker {
    /// A client's connections are in this book from now on.
    pub(super) fn note_book(&mut self, client: ClientId, file: Option<Theirs>) -> Result<(), Refusal> {
        let file = file.ok_or(Refusal::NoSocket)?;
        self.connections.get_mut(&client).ok_or(Refusal::NotYours)?.book = Some(file);
        Ok(())
    }

    /// Whether there are peers that have yet to be told.
    pub(super) fn has_farewells(&self) -> bool {
        self.farewells.is_due() || self.farewells.under_way > 0
    }

    /// Has helpers tell the peers of those who are gone.
    pub(super) fn bid_farewells(&mut self) {
        for (book, places) in self.farewells.take_due() {
            self.farewells.under_way += 1;
            self.bid_farewell(book, places);
        }
    }

    fn bid_farewell(&mut self, book: Theirs, places: Places) {
        let (line, places) = (self.under_way.line_for_nobody(), Arc::new(places));
        self.helpers.have_done(book.user(), move || {
            let is_its = |(local, _): &Ends| places.iter().any(|(bound, _)| bound.covers(*local));
            let mut connections = read(book.as_fd()).unwrap_or_default(); // Who has spoilt it has peers that are not told.
            book.close();
            connections.retain(is_its);
            let mut room = NOTED_MAX;
            for some in connections.chunks(AT_ONCE) {
                let (these, places) = (some.to_vec(), Arc::clone(&places));
                let note = move |broker: &mut Broker, now| broker.note_ended(&these, &places, room, now);
                let noted = line.ask(note);
                let Some((ready, noted)) = noted else { return };
                room -= noted;
                for (local, remote) in ready {
                    // It would acknowledge what is to be reset. Without it there is nothing to end.
                    let _ = end_time_wait(local, remote);
                    let _ = tcp_repair::probe(local, remote); // One that cannot be told finds out itself.
                }
            }
            line.ask(|broker: &mut Broker, _| broker.farewells.under_way -= 1);
        });
    }

    /// What comes for these connections is the kernel's; returns those of which that is so, and for how many it had to be noted, as others have their ports.
    pub(super) fn note_ended(
        &mut self,
        connections: &[Ends],
        places: &[(Bound, u32)],
        room: usize,
        now: Instant,
    ) -> (Vec<Ends>, usize) {
        let (mut ready, mut noted) = (Vec::new(), 0);
        for &(local, remote) in connections {
            if !self.may_be_told((local, remote)) || self.is_anothers(local, places) {
                continue;
            }
            if self.registry.is_claimed(Transport::Tcp, local.port()) {
                let marks = self.registry.marks(local.port());
                let mut ports = self.ports.iter_mut();
                if noted == room || !ports.all(|port| port.add_kernel_flow(local, remote, marks)) {
                    continue;
                }
                self.registry.note_moved(local, now);
                noted += 1;
            }
            ready.push((local, remote));
        }
        self.settle_registry(now);
        (ready, noted)
    }

    /// Whether what is there by now is another user's: the process has written what it liked, and may have had the port long ago.
    fn is_anothers(&self, local: SocketAddr, places: &[(Bound, u32)]) -> bool {
        let mut there = places.iter().filter(|(bound, _)| bound.covers(local));
        there.all(|(_, owner)| self.registry.is_anothers(local, *owner))
    }

    /// Whether they are the ends of a connection from outside.
    fn may_be_told(&self, (local, remote): Ends) -> bool {
        let is_loopback = local.ip().is_loopback();
        !(is_loopback || remote.port() == 0 || remote.ip().is_multicast() || self.is_own(remote))
            && self.is_own(local)
    }
}
