//! The simulation's connections: which side begins, when, and what both ends do.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use super::application::{Application, Outcome, Plan, Step};
use super::content::Content;
use super::host::SocketNumber;
use super::random::Random;
use super::violation::{Broken, require};

/// The side that begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Opening {
    /// The client; the server listens.
    #[default]
    Client,
    /// Both at once (RFC 9293, figure 8).
    Simultaneous,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Host 0's end.
    pub client: SocketAddr,
    /// Host 1's end.
    pub server: SocketAddr,
    /// When it begins.
    pub begins: Duration,
    /// The side that begins.
    pub opening: Opening,
    /// What client and server do.
    pub plans: [Plan; 2],
    /// Names the content of its streams.
    pub key: u64,
    /// The first data is given with the call to connect (RFC 7413).
    pub early_data: bool,
    /// The hosts are set up such that it need not come to an end.
    pub may_hang: bool,
    /// The hosts are set up such that a packet that comes twice may open it twice (RFC 7413, 2.1; SYN cookies).
    pub may_repeat: bool,
}

impl Connection {
    /// What the end at `place` sends.
    pub fn content(&self, place: usize) -> Content {
        Content::new(self.key ^ (place as u64) << 63)
    }

    /// Local and remote end, as the host at `place` sees them.
    pub fn ends(&self, place: usize) -> (SocketAddr, SocketAddr) {
        if place == 0 { (self.client, self.server) } else { (self.server, self.client) }
    }

    /// Octets that the client gives with the call to connect.
    pub(super) fn early_octets(&self) -> usize {
        match self.plans[0].steps.first() {
            Some(Step::Send(octets)) if self.early_data => (*octets).min(1000) as usize,
            _ => 0,
        }
    }

    pub(super) fn application(
        &self,
        place: usize,
        number: usize,
        socket: SocketNumber,
        already_sent: u64,
        now: Instant,
        random: Random,
    ) -> Application {
        let contents = (self.content(place), self.content(1 - place));
        let expected = self.plans[1 - place].sends();
        let plan = self.plans[place].clone();
        Application::new(plan, (number, socket), contents, expected, already_sent, now, random)
    }

    /// Whether it need not succeed.
    pub(super) fn may_fail(&self) -> bool {
        self.may_hang || self.plans.iter().any(Plan::aborts)
    }

    pub(super) fn check_end(&self, number: usize, end: &Application) -> Result<(), Broken> {
        let outcome = end.outcome();
        require!(
            self.may_hang || *outcome != Outcome::Running,
            "connection {number} never ends: {}",
            end.describe()
        );
        let failed = matches!(outcome, Outcome::Failed(_));
        require!(self.may_fail() || !failed, "connection {number} failed: {}", end.describe());
        Ok(())
    }
}
