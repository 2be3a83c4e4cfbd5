//! Local ports of connections that we made: when they rest, and when they are given back.

use clock::Instant;
use stack::ConnectionId;
use stack::tcp::State as TcpState;

use crate::broker_side::ClaimId;
use crate::process::State;
use crate::queue::KeptPort;
use crate::queue::ports::LOOK_EVERY;

/// `IP_BIND_ADDRESS_NO_PORT`.
pub(crate) const BIND_ADDRESS_NO_PORT: i32 = 24;

impl State {
    /// A connection is about to be closed. Its port is used again if the peer knows connections from it apart by their timestamps.
    pub(crate) fn decide_on_port(&mut self, claim: Option<ClaimId>, connection: ConnectionId, now: Instant) {
        let (Some(claim), Some(stack)) = (claim, self.queue.stack()) else { return };
        let is_begun = matches!(stack.state(connection), Some(TcpState::SynSent | TcpState::SynReceived));
        let has_timestamps = stack.info(connection, now).is_some_and(|info| info.timestamps);
        if is_begun || !has_timestamps {
            self.queue.resting_ports.forget(claim);
        }
    }

    /// The claim of a connection that we made ends when the stack is done with it, and not before.
    pub(crate) fn release_claim_of_connection(
        &mut self,
        claim: Option<ClaimId>,
        connection: ConnectionId,
        now: Instant,
    ) {
        let Some(claim) = claim else { return };
        if self.queue.stack().is_some_and(|stack| stack.state(connection).is_some()) {
            self.queue.kept_ports.push(KeptPort { connection, claim });
        } else if !self.queue.resting_ports.rest(claim, now) {
            self.release_claim(Some(claim));
        }
    }

    /// Has the ports rest whose connections are over by now, or gives them back, and those that have rested for long.
    pub(crate) fn release_ports(&mut self, now: Instant) {
        self.queue.spare_sockets.expire(now);
        if now < self.queue.ports_looked_at + LOOK_EVERY {
            return;
        }
        self.queue.ports_looked_at = now;
        let mut over = self.queue.resting_ports.expire(now);
        for kept in std::mem::take(&mut self.queue.kept_ports) {
            if self.queue.stack().is_some_and(|stack| stack.state(kept.connection).is_some()) {
                self.queue.kept_ports.push(kept);
            } else if !self.queue.resting_ports.rest(kept.claim, now) {
                over.push(kept.claim);
            }
        }
        self.release_claims(&over);
    }

    /// The connections have become the kernel's, and their ports with them: none of them rests.
    pub(crate) fn release_kept_ports(&mut self, is_meant: impl Fn(&KeptPort) -> bool) {
        let (meant, others): (Vec<KeptPort>, _) =
            std::mem::take(&mut self.queue.kept_ports).into_iter().partition(is_meant);
        self.queue.kept_ports = others;
        let claims: Vec<ClaimId> = meant.iter().map(|kept| kept.claim).collect();
        claims.iter().for_each(|claim| self.queue.resting_ports.forget(*claim));
        self.release_claims(&claims);
    }

    /// Another socket explicitly wants the port.
    pub(crate) fn give_back_port(&mut self, port: u16) {
        let resting = self.queue.resting_ports.take(port);
        self.release_claims(&resting);
    }

    /// All that rest are the kernel's again.
    pub(crate) fn give_back_resting_ports(&mut self) {
        let resting = self.queue.resting_ports.take_all();
        self.release_claims(&resting);
    }
}
