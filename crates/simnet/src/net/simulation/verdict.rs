//! What a simulation came to.

use super::Simulation;
use crate::net::application::{Application, Outcome};
use crate::net::violation::{Broken, Violation, require};

impl Simulation {
    /// Segments that both hosts sent.
    pub fn segments(&self) -> u64 {
        self.observer.segments
    }

    /// Calls of all applications that moved data.
    pub fn calls(&self) -> u64 {
        self.applications().map(Application::calls).sum()
    }

    /// Connections of which both ends did all that they were to do.
    pub fn complete(&self) -> usize {
        let is_complete =
            |end: Option<&Application>| end.is_some_and(|end| *end.outcome() == Outcome::Complete);
        (0..self.connections.len()).filter(|number| self.ends(*number).into_iter().all(is_complete)).count()
    }

    /// All ends of connections that there are.
    pub fn applications(&self) -> impl Iterator<Item = &Application> {
        self.seats.iter().flat_map(|seat| seat.applications.iter().flatten())
    }

    /// Checks that nothing is left to be done, and nothing of the connections.
    pub fn check_over(&mut self) -> Result<(), Violation> {
        self.check_ends().map_err(|broken| self.violation(broken))
    }

    /// Whether a host can not go on though the network lets it.
    pub fn is_stuck(&mut self) -> bool {
        let now = [self.clock(0), self.clock(1)];
        self.seats.iter_mut().zip(now).any(|(seat, now)| seat.host.is_stuck(now))
    }

    fn check_ends(&mut self) -> Result<(), Broken> {
        for (number, connection) in self.connections.iter().enumerate() {
            let ends = self.ends(number);
            let count = ends.iter().flatten().count();
            require!(
                count == 2 || connection.may_fail(),
                "connection {number} never came to be at both ends"
            );
            ends.into_iter().flatten().try_for_each(|end| connection.check_end(number, end))?;
        }
        if self.connections.iter().any(|connection| connection.may_hang) {
            return Ok(());
        }
        self.seats.iter_mut().try_for_each(|seat| seat.host.check_empty())
    }

    /// Both ends of a connection, as far as they exist.
    pub fn ends(&self, number: usize) -> [Option<&Application>; 2] {
        let is_of_it = |application: &&Application| application.connection() == number;
        self.seats.each_ref().map(|seat| seat.applications.iter().flatten().find(is_of_it))
    }

    /// A broken rule with all that helps to understand it.
    pub(super) fn violation(&mut self, Broken(text): Broken) -> Violation {
        let at = self.elapsed();
        let clocks = self.seats.each_ref().map(|seat| self.now + seat.ahead);
        let hosts = self.seats.iter_mut().zip(clocks).map(|(seat, now)| seat.host.describe(now));
        Violation { at, text, hosts: hosts.collect() }
    }
}
