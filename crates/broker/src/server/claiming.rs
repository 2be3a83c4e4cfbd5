//! Claims: proof by the bound socket, and what is kept of it.

use clock::Instant;

use super::broker::Broker;
use super::helpers::Theirs;
use super::outcome::{Outcome, done};
use super::port::address;
use super::shadow;
use crate::protocol::{Answer, ClaimId, Claimed, News, Purpose, RELEASED_MAX, Refusal, Transport};
use crate::registry::{Bound, ClientId, Shadow};

/// Places of a claim in an answer.
const PLACES_MAX: usize = 200;

impl Broker {
    pub(super) fn examine_shadow(
        &mut self,
        (client, id): (ClientId, u64),
        (transport, purpose, again): (Transport, Purpose, Option<ClaimId>),
        socket: Theirs,
        now: Instant,
    ) -> Outcome {
        self.check_profile(client, purpose)?;
        let namespace = self.namespace;
        let look = move |socket: Theirs| {
            let shadow = shadow::examine(&socket, transport.into(), purpose, namespace)?;
            let kept = match purpose {
                Purpose::Outgoing => {
                    let holder = shadow::hold_port(&socket, &shadow.bound)?;
                    Some(socket.replaced_by(holder))
                }
                _ => {
                    socket.close(); // Before the answer: then the port is the client's to give up.
                    None
                }
            };
            // Nobody else is at a port that we hold.
            let beside = (purpose != Purpose::Outgoing).then(|| shadow::look_around(&shadow));
            Ok((shadow, beside.unwrap_or_default(), kept))
        };
        type Found = Result<(Shadow, Vec<(u64, Bound)>, Option<Theirs>), Refusal>;
        let then = move |broker: &mut Broker, found: Found, now: Instant| {
            let (shadow, beside, socket) = found?;
            let answer = broker.claim(client, (shadow, again), socket, now)?;
            if purpose != Purpose::Outgoing {
                broker.registry.note_sockets(shadow.transport, shadow.bound.port, &beside);
            }
            Ok(Some((answer, None)))
        };
        self.set_aside((client, id), move |_| look(socket), then, now)
    }

    fn claim(
        &mut self,
        client: ClientId,
        (shadow, again): (Shadow, Option<ClaimId>),
        kept: Option<Theirs>,
        now: Instant,
    ) -> Result<Answer, Refusal> {
        let purpose = shadow.purpose;
        if purpose == Purpose::Outgoing && !self.kept.have_room(self.user_of(client)) {
            return Err(Refusal::TooMany);
        }
        let claim = match again {
            Some(id) => self.registry.claim_again(client, shadow, id)?,
            None => self.registry.claim(client, shadow)?,
        };
        if purpose == Purpose::Listener && self.registry.has_others(client, claim) == Ok(true) {
            let (queues, user) = (self.accept_queues.clone(), self.user_of(client));
            self.helpers.have_done(user, move || queues.prepare());
        }
        self.offer_handshakes(client, now);
        kept.into_iter().for_each(|socket| self.kept.insert((claim, client), socket));
        let places = self.registry.places_of((claim, client)).into_iter().take(PLACES_MAX);
        let on = places.map(|(link, local)| Claimed { link, local: address(local) }).collect();
        Ok(Answer::Claimed { claim, on })
    }

    /// Ends claims, and closes their sockets, as far as we have them: when the client hears of it, the ports are free.
    pub(super) fn release(
        &mut self,
        client: ClientId,
        claims: Vec<ClaimId>,
        drain: bool,
        now: Instant,
    ) -> Outcome {
        if claims.len() > RELEASED_MAX {
            return Err(Refusal::TooMany);
        }
        if drain {
            let drained: Vec<_> =
                claims.iter().map(|claim| self.registry.drain(client, *claim, now)).collect();
            return done(drained.into_iter().collect());
        }
        let released: Vec<_> = claims.iter().map(|claim| self.registry.release(client, *claim)).collect();
        let own = claims.iter().zip(&released).filter(|(_, released)| released.is_ok());
        let holders: Vec<Theirs> = own.filter_map(|(claim, _)| self.kept.remove((*claim, client))).collect();
        // Before the kernel may give the ports to others.
        self.settle_registry(now);
        holders.into_iter().for_each(Theirs::close); // Nobody else has them, so this takes no time.
        done(released.into_iter().collect())
    }

    /// The socket of a client's claim is the kernel's from now on. The client leaves it itself; the others are told, and nobody gets it any more.
    pub(super) fn leave_socket(
        &mut self,
        client: ClientId,
        claim: ClaimId,
        now: Instant,
    ) -> Result<(), Refusal> {
        let others = self.registry.leave_socket(client, claim)?;
        for (client, claim) in others {
            self.tell(client, News::SocketLeft { claim }, Vec::new(), now);
        }
        Ok(())
    }

    fn check_profile(&self, client: ClientId, purpose: Purpose) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get(&client) else { return Ok(()) };
        let profile = &connection.options.profile;
        let wanted = match purpose {
            Purpose::Listener => profile.listeners,
            Purpose::Outgoing => profile.outgoing,
            Purpose::Udp => profile.udp,
        };
        match (wanted, &profile.reason) {
            (true, _) => Ok(()),
            (false, Some(reason)) => Err(Refusal::Profile(reason.clone())),
            (false, None) => Err(Refusal::Profile(format!("by the profile {}", profile.name))),
        }
    }
}
