//! TCP ports on which the kernel has connections of its own beside ours.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use steering::Marks;

/// How long SYNs pass to the kernel before it is asked which connections it has: what was passed before has its socket by then.
pub(super) const MARKING: Duration = Duration::from_millis(5);
/// After a look that found none it is asked once more: SYNs were still passed while it answered.
const SECOND_LOOK: Duration = Duration::from_millis(20);
/// How often the kernel is asked again while it has some, and the grid that this falls on: so it is asked about many ports at once.
const LOOK: Duration = Duration::from_secs(10);
const LOOK_GRID: Duration = Duration::from_secs(1);
/// Notes of flows have a bit beside the epoch.
const EPOCH_MAX: u32 = u32::MAX >> 1;

/// The ports.
#[derive(Debug, Default)]
pub(super) struct PortTable {
    ports: BTreeMap<u16, Port>,
    /// How often it was found of a port that the kernel has none any more. What the steering programs have noted of flows before
    /// that is about other connections than those that may be there under the same names.
    epochs: BTreeMap<u16, u32>,
    /// The epoch of ports on which that never was.
    first_epoch: u32,
    /// Tables in which flows are noted: that of who claimed the port first.
    tables: BTreeMap<u16, u16>,
    /// Until when there may be flows without an owner, which a client will get.
    awaited: BTreeMap<u16, Instant>,
}

/// What is known of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Port {
    /// SYNs pass until the kernel was asked.
    marking: bool,
    /// When to ask the kernel.
    look_at: Instant,
}

impl PortTable {
    /// Packets to this port arrive at more queues than before: the kernel's connections must be found.
    pub(super) fn mark(&mut self, port: u16, now: Instant) {
        let state = self.ports.entry(port).or_insert(Port { marking: true, look_at: now + MARKING });
        if !state.marking {
            *state = Port { marking: true, look_at: now + MARKING };
        }
    }

    /// The kernel has, or may have, connections with this local port.
    pub(super) fn note_kernel_connections(&mut self, port: u16, now: Instant) {
        self.ports.entry(port).or_insert(Port { marking: false, look_at: next_look(now) });
    }

    /// The kernel was asked, and has or has not.
    pub(super) fn on_looked(&mut self, port: u16, found: bool, now: Instant) {
        let soon = if found { next_look(now) } else { now + SECOND_LOOK };
        let look_at = self.awaited.get(&port).map_or(soon, |until| soon.max(*until));
        if found || self.is_marking(port) || self.is_awaited(port) {
            self.ports.insert(port, Port { marking: false, look_at });
        } else {
            self.forget(port);
        }
    }

    /// No client claims the port any more, or the kernel has no connections there.
    pub(super) fn forget(&mut self, port: u16) {
        if self.ports.remove(&port).is_some() {
            let epoch = self.epochs.entry(port).or_insert(self.first_epoch);
            *epoch = epoch.wrapping_add(1) & EPOCH_MAX;
        }
    }

    /// Marks flows on this port as awaited: a client must get them until then.
    pub(super) fn await_flows(&mut self, port: u16, until: Instant, now: Instant) {
        self.note_kernel_connections(port, now);
        let latest = self.awaited.entry(port).or_insert(until);
        *latest = until.max(*latest);
    }

    /// Whether there are flows without an owner.
    pub(super) fn is_awaited(&self, port: u16) -> bool {
        self.awaited.contains_key(&port)
    }

    /// The ports of flows that no client got in time; they are no longer awaited.
    pub(super) fn stop_awaiting(&mut self, now: Instant) -> Vec<u16> {
        let over = self.awaited.iter().filter(|(_, until)| now >= **until);
        let over: Vec<u16> = over.map(|(port, _)| *port).collect();
        self.awaited.retain(|port, _| !over.contains(port));
        over
    }

    /// This user claims the port, which others have claimed before, or nobody. As long as it is claimed, or the kernel has connections,
    /// notes stay in the table where they are.
    pub(super) fn on_claimed(&mut self, port: u16, user: u32, is_first: bool) {
        if is_first && !self.has_kernel_connections(port) {
            self.tables.remove(&port);
        }
        self.tables.entry(port).or_insert_with(|| Marks::table_of(user));
    }

    /// Which notes of flows on this port count now.
    pub(super) fn marks(&self, port: u16) -> Marks {
        let epoch = self.epochs.get(&port).copied().unwrap_or(self.first_epoch);
        Marks { table: self.tables.get(&port).copied().unwrap_or_default(), epoch }
    }

    /// Epochs of ports that are not restored begin here: what was noted before, nobody knows.
    pub(super) fn begin_at(&mut self, epoch: u64) {
        self.first_epoch = epoch as u32 & EPOCH_MAX;
    }

    /// What counts in the steering programs, as a killed broker left it.
    pub(super) fn restore(&mut self, port: u16, marks: Marks) {
        self.epochs.insert(port, marks.epoch & EPOCH_MAX);
        self.tables.insert(port, marks.table);
    }

    /// Whether SYNs pass to the kernel.
    pub(super) fn is_marking(&self, port: u16) -> bool {
        self.ports.get(&port).is_some_and(|state| state.marking)
    }

    /// Whether the kernel may have connections.
    pub(super) fn has_kernel_connections(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// The ports about which to ask the kernel now.
    pub(super) fn due(&self, now: Instant) -> Vec<u16> {
        self.ports.iter().filter(|(_, state)| state.look_at <= now).map(|(port, _)| *port).collect()
    }

    /// When the next one is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.ports.values().map(|state| state.look_at).chain(self.awaited.values().copied()).min()
    }
}

/// When the kernel is asked again about a port of which it has connections.
fn next_look(now: Instant) -> Instant {
    Instant::from_nanos((now + LOOK).as_nanos().next_multiple_of(LOOK_GRID.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_marked_port_is_looked_at_twice_and_forgotten_if_nothing_is_there() {
        let mut ports = PortTable::default();
        ports.mark(80, at(0));
        assert!(ports.is_marking(80) && ports.has_kernel_connections(80));
        assert_eq!((ports.due(at(4)), ports.due(at(5))), (vec![], vec![80]));
        ports.on_looked(80, false, at(5));
        assert!(ports.has_kernel_connections(80) && !ports.is_marking(80), "a SYN may have passed meanwhile");
        assert_eq!((ports.due(at(25)), ports.marks(80).epoch), (vec![80], 0));
        ports.on_looked(80, false, at(25));
        assert!(!ports.has_kernel_connections(80));
        assert_eq!((ports.poll_timeout(), ports.marks(80).epoch, ports.marks(81).epoch), (None, 1, 0));
    }

    #[test]
    fn as_long_as_the_kernel_has_connections_it_is_asked_again() {
        let mut ports = PortTable::default();
        ports.mark(80, at(0));
        ports.on_looked(80, true, at(5));
        assert!(ports.has_kernel_connections(80) && !ports.is_marking(80));
        assert_eq!(ports.poll_timeout(), Some(at(11_000)));
    }

    #[test]
    fn ports_that_were_looked_at_within_a_second_are_looked_at_together() {
        let mut ports = PortTable::default();
        (0..10).for_each(|port| ports.on_looked(port, true, at(1 + u64::from(port) * 100)));
        assert_eq!(ports.poll_timeout(), Some(at(11_000)));
        assert_eq!(ports.due(at(11_000)).len(), 10);
    }

    #[test]
    fn notes_count_as_long_as_flows_are_awaited() {
        let mut ports = PortTable::default();
        ports.await_flows(80, at(3000), at(0));
        ports.await_flows(80, at(2000), at(0));
        ports.on_looked(80, false, at(10));
        assert!(ports.has_kernel_connections(80) && ports.is_awaited(80));
        assert_eq!((ports.stop_awaiting(at(2999)), ports.marks(80).epoch), (vec![], 0));
        assert_eq!((ports.stop_awaiting(at(3000)), ports.is_awaited(80)), (vec![80], false));
        ports.on_looked(80, false, at(3000));
        assert_eq!((ports.marks(80).epoch, ports.poll_timeout()), (1, None));
    }

    #[test]
    fn notes_of_a_port_are_where_its_first_user_has_them_as_long_as_there_may_be_some() {
        let table = |ports: &PortTable| ports.marks(80).table;
        let mut ports = PortTable::default();
        ports.on_claimed(80, 1000, true);
        let first = Marks::table_of(1000);
        assert_eq!((table(&ports), Marks::table_of(0)), (first, 0));
        ports.on_claimed(80, 1001, false);
        assert_eq!(table(&ports), first, "another one claims it, too");
        ports.note_kernel_connections(80, at(0));
        ports.on_claimed(80, 1001, true);
        assert_eq!(table(&ports), first, "nobody had it any more, but the kernel has connections");
        ports.forget(80);
        ports.on_claimed(80, 1001, true);
        assert_eq!(table(&ports), Marks::table_of(1001));
    }

    #[test]
    fn marking_again_while_marked_does_not_put_off_the_look() {
        let mut ports = PortTable::default();
        ports.mark(80, at(0));
        ports.mark(80, at(4));
        assert_eq!(ports.due(at(5)), [80]);
    }
}
