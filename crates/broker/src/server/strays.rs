//! Connections whose packets come by the queue of another process with the same port. The peer's kernel, or the NIC, chose another queue than
//! before, and the steering program can only give a packet to the owner of the queue that it came by. So that one asks, all others that may have the
//! connection are told, and who has it moves it to the kernel: the steering program passes what is the kernel's, whatever queue it comes by.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::registry::ClientId;

/// How long the others may take. One may be stopped, and move the connection when it goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// Strays of one client that are open at a time; what is beyond that is asked about when the peer sends again.
const OPEN_MAX: usize = 1024;

/// Those that are not settled yet.
#[derive(Default)]
pub(super) struct Strays {
    open: Vec<Open>,
    last_token: u64,
}

/// Somebody asked for the owner of a connection.
struct Open {
    token: u64,
    asker: Asker,
    ends: (SocketAddr, SocketAddr),
    /// Who has not answered yet.
    asked: BTreeSet<ClientId>,
    until: Instant,
}

/// A client, and the number of its request.
pub(super) type Asker = (ClientId, u64);

impl Strays {
    pub(super) fn ask(
        &mut self,
        asker: Asker,
        ends: (SocketAddr, SocketAddr),
        asked: BTreeSet<ClientId>,
        now: Instant,
    ) -> Option<u64> {
        if self.open.iter().filter(|open| open.asker.0 == asker.0).count() >= OPEN_MAX {
            return None;
        }
        let token = self.next_token();
        self.open.push(Open { token, asker, ends, asked, until: now + PATIENCE });
        Some(token)
    }

    /// For a question of which nobody waits for the end.
    pub(super) fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// A client does not know the connection: who asked, if nobody else is to answer.
    pub(super) fn on_unknown(&mut self, client: ClientId, token: u64) -> Option<Asker> {
        let open = self.open.iter_mut().find(|open| open.token == token)?;
        (open.asked.remove(&client) && open.asked.is_empty()).then(|| self.close(token))?
    }

    fn close(&mut self, token: u64) -> Option<Asker> {
        let place = self.open.iter().position(|open| open.token == token)?;
        Some(self.open.swap_remove(place).asker)
    }

    /// A connection has moved: who asked for it.
    pub(super) fn on_moved(&mut self, ends: (SocketAddr, SocketAddr)) -> Vec<Asker> {
        self.open.extract_if(.., |open| open.ends == ends).map(|open| open.asker).collect()
    }

    /// A client is gone: who asked for what only that one could still have had.
    pub(super) fn forget(&mut self, client: ClientId) -> Vec<Asker> {
        self.open.retain(|open| open.asker.0 != client);
        let is_nobodys = |open: &mut Open| open.asked.remove(&client) && open.asked.is_empty();
        self.open.extract_if(.., is_nobodys).map(|open| open.asker).collect()
    }

    /// Who has waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Asker> {
        self.open.extract_if(.., |open| open.until <= now).map(|open| open.asker).collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: ClientId = ClientId(1);
    const ONE: ClientId = ClientId(2);
    const OTHER: ClientId = ClientId(3);

    fn ends() -> (SocketAddr, SocketAddr) {
        ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:4000".parse().unwrap())
    }

    fn ask(strays: &mut Strays) -> u64 {
        strays.ask((ASKER, 5), ends(), BTreeSet::from([ONE, OTHER]), Instant::ZERO).unwrap()
    }

    #[test]
    fn it_is_nobodys_when_all_who_were_asked_have_said_so() {
        let mut strays = Strays::default();
        let token = ask(&mut strays);
        assert_eq!(strays.on_unknown(ONE, token), None);
        assert_eq!(strays.on_unknown(ONE, token), None, "that was said before");
        assert_eq!(strays.on_unknown(OTHER, token), Some((ASKER, 5)));
        assert_eq!(strays.on_unknown(OTHER, token), None, "it is settled");
    }

    #[test]
    fn it_is_settled_when_the_connection_moves_and_with_time() {
        let mut strays = Strays::default();
        ask(&mut strays);
        assert_eq!(strays.on_moved(ends()), [(ASKER, 5)]);
        ask(&mut strays);
        assert_eq!(strays.expire(Instant::ZERO), []);
        assert_eq!(strays.expire(strays.poll_timeout().unwrap()), [(ASKER, 5)]);
        assert_eq!(strays.poll_timeout(), None);
    }

    #[test]
    fn who_is_gone_does_not_know_it_and_does_not_ask() {
        let mut strays = Strays::default();
        let token = ask(&mut strays);
        assert_eq!(strays.forget(ONE), []);
        assert_eq!(strays.on_unknown(OTHER, token), Some((ASKER, 5)));
        ask(&mut strays);
        assert_eq!(strays.forget(ASKER), []);
        assert_eq!(strays.poll_timeout(), None);
    }

    #[test]
    fn a_client_has_so_many_open() {
        let mut strays = Strays::default();
        (0..OPEN_MAX as u64).for_each(|number| assert_eq!(ask(&mut strays), number + 1));
        let ask = |strays: &mut Strays, asker| strays.ask((asker, 1), ends(), BTreeSet::new(), Instant::ZERO);
        assert!(ask(&mut strays, ASKER).is_none() && ask(&mut strays, ONE).is_some());
    }
}
