//! The broker's state, for `sidestep status`.

use std::collections::BTreeSet;

use clock::Instant;
use serde::{Deserialize, Serialize};
use steering::QueueSet;

use super::broker::Broker;
use super::connection::Connection;
use super::port::Port;
use crate::protocol::{News, ProgramReport, Purpose, QUEUES_MAX, Transport};
use crate::registry::{ClientId, Scope, Shadow};

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Interfaces, in the order in which they were configured.
    pub interfaces: Vec<InterfaceStatus>,
    /// Processes that are connected.
    pub programs: Vec<ProgramStatus>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// How packets come in; nothing while it is not attached.
    pub mode: Option<String>,
    /// Why it is not, or not wholly, usable.
    pub failure: Option<String>,
    /// Its queues.
    pub queues: u16,
    /// Queues that belong to a process.
    pub lent: u16,
    /// Queues of programs of a killed broker that have not come back: their libraries are of another version, or they are stopped.
    #[serde(default)]
    pub left: u16,
    /// Answers came by other queues than it says, so that who has some of its queues connects by the kernel.
    #[serde(default)]
    pub is_doubted: bool,
    /// What became of its packets.
    pub counters: Vec<(String, u64)>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Whether it wants a queue and has none: all are other processes'.
    pub waits: bool,
    /// Whether that is so because those who share queues are other users' processes.
    #[serde(default)]
    pub is_kept_apart: bool,
    /// Whether it has forbidden itself system calls (seccomp(2)): then its sockets are the kernel's.
    pub is_confined: bool,
    /// Queues that it serves, by interface.
    pub queues: Vec<(String, Vec<u16>)>,
    /// Why its profile keeps something on the kernel.
    pub profile: Option<String>,
    /// What it has claimed.
    pub claims: Vec<ClaimStatus>,
    /// What it says of itself; nothing if it never did.
    pub report: Option<ProgramReport>,
    /// The age of that, in milliseconds, if the program did not answer this request: it makes no calls, or is stopped.
    #[serde(default)]
    pub report_age_ms: Option<u64>,
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimStatus {
    /// TCP or UDP.
    pub transport: Transport,
    /// What for.
    pub purpose: Purpose,
    /// Address and port, as ss(8) writes them.
    pub local: String,
    /// Only connections that there are, no new ones.
    pub draining: bool,
}

impl Broker {
    /// Asks all programs for their reports, which come in the next turns.
    pub(super) fn ask_for_reports(&mut self, now: Instant) {
        let silent: Vec<ClientId> =
            self.connections.iter().filter(|it| self.is_left_alone(*it.0, it.1)).map(|it| *it.0).collect();
        let known = self.connections.iter_mut().filter(|(_, connection)| connection.is_program());
        known.for_each(|(client, connection)| connection.is_asked = !silent.contains(client));
        self.tell_all(&News::ReportStatus, now);
    }

    /// Whether a program has not answered yet. A program that makes no calls cannot.
    pub(super) fn awaits_reports(&self) -> bool {
        self.connections.values().any(|connection| connection.is_asked)
    }

    /// How things are, with the reports that there are.
    pub(super) fn status(&self, now: Instant) -> StatusReport {
        let interfaces = self.ports.iter().map(|port| InterfaceStatus {
            name: port.name.clone(),
            mode: port.open.as_ref().map(|open| open.path.describe()),
            failure: port.failure.clone(),
            queues: port.open.as_ref().map_or(0, |open| open.view.queues),
            lent: self.registry.queues_lent(port.link),
            left: self.registry.queues_left(port.link).len() as u16,
            is_doubted: port.spread.is_doubted(),
            counters: port.open.as_ref().map(|open| open.path.counters()).unwrap_or_default(),
        });
        let programs = self.connections.iter().filter(|(_, connection)| connection.is_program());
        let programs =
            programs.filter_map(|(client, connection)| self.program_status(*client, connection, now));
        StatusReport { interfaces: interfaces.collect(), programs: programs.collect() }
    }

    /// Whether the library has left a program alone, as it may be ended for what the stack does.
    fn is_left_alone(&self, client: ClientId, connection: &Connection) -> bool {
        let serves = |port: &Port| self.registry.queues_of(client, port.link) != QueueSet::NONE;
        !self.ports.iter().any(serves) && connection.filters.are_more_now(connection.pid)
    }

    fn program_status(
        &self,
        client: ClientId,
        connection: &Connection,
        now: Instant,
    ) -> Option<ProgramStatus> {
        let program = connection.program.clone()?;
        let queues = self.ports.iter().filter_map(|port| {
            let served = self.registry.queues_of(client, port.link);
            let numbers = (0..QUEUES_MAX).filter(|number| served.bits() >> number & 1 == 1);
            let queues: BTreeSet<u16> = numbers.map(|it| self.registry.queue_of(port.link, it)).collect();
            let queues: Vec<u16> = queues.into_iter().collect();
            (!queues.is_empty()).then(|| (port.name.clone(), queues))
        });
        let claims = self.registry.claims(client).map(|(_, shadow, draining)| ClaimStatus {
            transport: shadow.transport.into(),
            purpose: shadow.purpose,
            local: name(shadow),
            draining,
        });
        let is_confined = self.is_left_alone(client, connection);
        let said = connection.report.as_ref().filter(|_| !is_confined); // It is of before.
        let old = said.filter(|_| connection.is_asked);
        Some(ProgramStatus {
            pid: connection.pid,
            waits: self.registry.waits(client),
            is_kept_apart: self.registry.is_kept_apart(client) && !connection.options.share,
            is_confined,
            queues: queues.collect(),
            profile: connection.options.profile.reason.clone(),
            claims: claims.collect(),
            report: said.map(|(report, _)| report.clone()),
            report_age_ms: old.map(|(_, since)| now.since(*since).as_millis()),
            program,
        })
    }
}

/// Where a socket is bound: `*` for both families.
fn name(shadow: &Shadow) -> String {
    let port = shadow.bound.port;
    match shadow.bound.scope {
        Scope::Any { v4: true, v6: true } => format!("*:{port}"),
        Scope::Any { v4: true, .. } => format!("0.0.0.0:{port}"),
        Scope::Any { .. } => format!("[::]:{port}"),
        Scope::One(address) => std::net::SocketAddr::new(address, port).to_string(),
    }
}
