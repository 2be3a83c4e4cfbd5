//! Local ports of connections that we make with some of an interface's queues: those from which answers come by these.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clock::{Duration, Instant};
use stack::{ConnectionId, LinkId};
use steering::{Found, SourcePorts};

use crate::broker_side::HomePorts;
use crate::ids::SocketId;

/// How long a peer may take to answer before the kernel connects to it: as long as the stack takes to ask again.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Where ports are chosen, by interface and IP version.
#[derive(Default)]
pub(crate) struct HomePortTables {
    known: Known,
    /// Makes numbers that peers cannot foresee (RFC 6056).
    keys: RandomState,
    drawn: u64,
    counts: PortCounts,
    /// Connections from such ports that nobody has answered, in the order in which they began.
    unanswered: VecDeque<Unanswered>,
}

/// By interface and whether it is IPv4: what was told, and what was made of it if it is understood.
type Known = BTreeMap<(LinkId, bool), (Arc<HomePorts>, Option<SourcePorts>)>;

/// A connection that nobody has answered when this was last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) id: SocketId,
    pub(crate) connection: ConnectionId,
    since: Instant,
}

/// How ports of connections were found, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCounts {
    /// In the table.
    table: u64,
    /// By search.
    search: u64,
    /// Connections that are the kernel's to make as no free port came home, or the program's own does not.
    pub(crate) kernel: u64,
    /// The same, as the peer has not answered in time.
    pub(crate) unanswered: u64,
}

impl HomePortTables {
    /// A port of `local` to which `remote` answers by a queue of ours.
    pub(crate) fn choose(
        &mut self,
        link: LinkId,
        home: &Arc<HomePorts>,
        remote: SocketAddr,
        local: IpAddr,
    ) -> Option<u16> {
        let (keys, drawn) = (self.keys.clone(), &mut self.drawn);
        let draw = || {
            *drawn = drawn.wrapping_add(1);
            keys.hash_one(*drawn)
        };
        let (port, found) =
            table(&mut self.known, link, home, local.is_ipv4())?.choose(remote, local, draw)?;
        match found {
            Found::Table => self.counts.table += 1,
            Found::Search => self.counts.search += 1,
        }
        Some(port)
    }

    /// Whether answers of `remote` to `local` come by a queue of ours.
    pub(crate) fn comes_home(
        &mut self,
        link: LinkId,
        home: &Arc<HomePorts>,
        remote: SocketAddr,
        local: SocketAddr,
    ) -> bool {
        let table = table(&mut self.known, link, home, local.is_ipv4());
        table.is_some_and(|table| table.comes_home(remote, local))
    }

    /// A connection from such a port begins.
    pub(crate) fn on_begun(&mut self, id: SocketId, connection: ConnectionId, now: Instant) {
        self.unanswered.push_back(Unanswered { id, connection, since: now });
    }

    /// The next connection that has had time enough for an answer.
    pub(crate) fn next_late(&mut self, now: Instant) -> Option<Unanswered> {
        let is_late = |first: &Unanswered| now >= first.since + ANSWER_MAX;
        self.unanswered.front().is_some_and(is_late).then(|| self.unanswered.pop_front())?
    }

    /// When [`HomePortTables::next_late`] has something.
    pub(super) fn due(&self) -> Option<Instant> {
        self.unanswered.front().map(|first| first.since + ANSWER_MAX)
    }

    pub(crate) fn counts(&mut self) -> &mut PortCounts {
        &mut self.counts
    }

    /// Counts with their names, for the status.
    pub(crate) fn named(&self) -> [(&'static str, u64); 4] {
        let PortCounts { table, search, kernel, unanswered } = self.counts;
        [
            ("home_ports_from_table", table),
            ("home_ports_searched", search),
            ("home_ports_none", kernel),
            ("home_ports_unanswered", unanswered),
        ]
    }
}

/// Where ports are chosen, made anew if the interface, or what we have of it, is not as it was.
fn table<'t>(
    known: &'t mut Known,
    link: LinkId,
    home: &Arc<HomePorts>,
    is_ipv4: bool,
) -> Option<&'t mut SourcePorts> {
    let make = || (Arc::clone(home), SourcePorts::new(home.spread.clone(), home.ports.clone()));
    let entry = known.entry((link, is_ipv4)).or_insert_with(make);
    if !Arc::ptr_eq(&entry.0, home) && entry.0 != *home {
        *entry = make();
    }
    entry.1.as_mut()
}
