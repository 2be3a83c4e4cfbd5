//! What runs on the engines: both ends of each connection send content and read the other's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use engine::{Connection, TcpHandler};
use stack::LinkId;
use stack::tcp::TcpError;

use crate::net::{Content, Random};

/// Ports of the clients begin here; that of a server is the same for all.
const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 7;

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    number: u16,
    pub(super) link: LinkId,
    is_v6: bool,
    /// Octets that the server and the client send.
    lengths: [u64; 2],
    /// Octets of one call.
    piece: usize,
    key: u64,
}

/// What was heard.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Connections that there are to be.
    pub(super) expected: usize,
    /// Octets that arrived at the server and at the client of each connection whose end came.
    arrived: Vec<(u16, usize, u64)>,
    /// Ends of connections, two of each.
    ended: usize,
    /// What was not as it is to be.
    violations: Vec<String>,
}

/// Talks on the connections of one engine.
pub(super) struct Talker {
    plans: Arc<Vec<Plan>>,
    ledger: Arc<Mutex<Ledger>>,
}

/// One end of a connection.
pub(super) struct Talk {
    number: u16,
    /// 0 for the server's end.
    side: usize,
    piece: usize,
    sends: Content,
    hears: Content,
    /// Octets that are to be sent, and how many are.
    len: u64,
    sent: u64,
    heard: u64,
    has_ended: bool,
}

impl Plan {
    pub(super) fn draw(number: u16, links: u16, random: &mut Random) -> Plan {
        Plan {
            number,
            link: LinkId(random.below(links.into()) as u16),
            is_v6: random.one_in(3),
            lengths: [random.magnitude(1, 400_000), random.magnitude(1, 400_000)],
            piece: random.magnitude(1, 20_000) as usize,
            key: random.bits(),
        }
    }
}

/// The server's and the client's end of a connection.
pub(super) fn endpoints(plan: &Plan) -> (SocketAddr, SocketAddr) {
    let host = |number: u8| -> IpAddr {
        match plan.is_v6 {
            true => Ipv6Addr::new(0x2001, 0xdb8, plan.link.0, 0, 0, 0, 0, number.into()).into(),
            false => Ipv4Addr::new(198, 51, plan.link.0 as u8, number).into(),
        }
    };
    let client = SocketAddr::new(host(2), CLIENT_PORT + plan.number);
    (SocketAddr::new(host(1), SERVER_PORT), client)
}

impl Ledger {
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    pub(super) fn octets(&self) -> u64 {
        self.arrived.iter().map(|(_, _, octets)| octets).sum()
    }

    /// Whether every end heard all that the other one sent.
    pub(super) fn check(&self, plans: &[Plan]) -> Result<(), String> {
        if let Some(violation) = self.violations.first() {
            return Err(violation.clone());
        }
        for plan in plans {
            for side in 0..2 {
                let expected = (plan.number, side, plan.lengths[1 - side]);
                if self.arrived.iter().filter(|arrived| **arrived == expected).count() != 1 {
                    return Err(format!("{expected:?} is not once in {:?}", self.arrived));
                }
            }
        }
        Ok(())
    }
}

impl Talker {
    pub(super) fn new(plans: Arc<Vec<Plan>>, ledger: Arc<Mutex<Ledger>>) -> Talker {
        ledger.lock().expect("nothing panicked while it was locked").expected = plans.len();
        Talker { plans, ledger }
    }

    fn complain(&self, talk: &Talk, what: &str) {
        let Talk { number, side, sent, heard, .. } = talk;
        let text = format!("connection {number}, end {side}, {sent} sent, {heard} heard: {what}");
        self.ledger.lock().expect("nothing panicked while it was locked").violations.push(text);
    }
}

impl Talk {
    /// Sends as much as there is room for.
    fn speak(&mut self, connection: &mut Connection<'_>) {
        let mut piece = vec![0; self.piece];
        while self.sent < self.len {
            let count = (self.len - self.sent).min(piece.len() as u64) as usize;
            self.sends.fill(self.sent, &mut piece[..count]);
            let taken = connection.send(&piece[..count]);
            self.sent += taken as u64;
            if taken < count {
                return;
            }
        }
        connection.finish();
        if self.has_ended {
            connection.close();
        }
    }
}

impl TcpHandler for Talker {
    type State = Talk;

    fn on_open(&mut self, connection: &mut Connection<'_>) -> Talk {
        let side = usize::from(connection.local().port() != SERVER_PORT);
        let client = if side == 0 { connection.remote() } else { connection.local() };
        let plan = &self.plans[usize::from(client.port() - CLIENT_PORT)];
        let contents = [Content::new(plan.key), Content::new(!plan.key)];
        let mut talk = Talk {
            number: plan.number,
            side,
            piece: plan.piece,
            sends: contents[side],
            hears: contents[1 - side],
            len: plan.lengths[side],
            sent: 0,
            heard: 0,
            has_ended: false,
        };
        talk.speak(connection);
        talk
    }

    fn on_data(&mut self, talk: &mut Talk, connection: &mut Connection<'_>) {
        while !connection.received().is_empty() {
            let piece = connection.received();
            let (count, wrong) = (piece.len(), talk.hears.first_difference(talk.heard, piece));
            if let Some(at) = wrong {
                self.complain(talk, &format!("another octet at {at}"));
                return connection.abort();
            }
            connection.consume(count);
            talk.heard += count as u64;
        }
    }

    fn on_writable(&mut self, talk: &mut Talk, connection: &mut Connection<'_>) {
        talk.speak(connection);
    }

    fn on_end(&mut self, talk: &mut Talk, connection: &mut Connection<'_>) {
        talk.has_ended = true;
        if talk.sent == talk.len {
            connection.close();
        }
    }

    fn on_closed(&mut self, talk: Talk, error: Option<TcpError>) {
        if let Some(error) = error {
            self.complain(&talk, &format!("{error}"));
        }
        let mut ledger = self.ledger.lock().expect("nothing panicked while it was locked");
        ledger.ended += 1;
        ledger.arrived.push((talk.number, talk.side, talk.heard));
    }
}
