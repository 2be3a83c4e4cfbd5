//! Connections that the kernel serves better are left to it.
//!
//! A call that carries little costs less here than on the kernel. Three ways to use a connection cost more:
//!
//! | use | why it costs more here |
//! | --- | --- |
//! | calls that send much | the kernel copies what a program writes once, and a file not at all; here all is copied into the send queue and to the device |
//! | calls that receive much | packets come in single segments, each of which the kernel copies into a frame |
//! | a sleep that another thread ends | one thread sleeps on the devices for all; a packet wakes that one first, and it wakes the thread that waits |
//!
//! A connection tells by what it does which kind it is. Once it has moved [`ENOUGH`] octets by large calls, or has mostly slept until
//! another thread woke it, it moves to the kernel, with all that is queued. Profiles may say that it stays.
//!
//! Connections may be too short for that. So their sleeps count together, those of one listener and those that the program has made: once
//! [`WAKES_OF_ALL`] of these were ended by other threads, and most were, the kernel has the connections that follow from the beginning.

/// Octets that a large call moves at least.
const LARGE: usize = 8 << 10;
/// Octets that a connection moves by large calls before it leaves: leaving asks the broker, and begins with a new congestion window.
const ENOUGH: u32 = 1 << 20;
/// Of so many calls one is large, if it is to leave for that.
const SHARE: u32 = 4;
/// Sleeps of a connection's threads that others end before it leaves.
const WAKES: u32 = 64;
/// The same of many connections before others go to the kernel.
const WAKES_OF_ALL: u32 = 256;
/// Connections that the program asks for their identity before others go to the kernel.
const IDENTIFIED_OF_ALL: u32 = 8;
/// After so many calls, and so many sleeps, half of what was before counts.
const PERIOD: u32 = 4096;

/// How a connection was used, of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Calls that have moved octets, in both directions.
    calls: u32,
    /// Those of them that are large, and what they have moved.
    large: u32,
    octets: u32,
    pub(crate) sleeps: Sleeps,
    /// The kernel did not take it: it is not asked again.
    pub(crate) stays: bool,
}

/// Sleeps in calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sleeps {
    all: u32,
    /// Those that another thread has ended, as something had come.
    wakes: u32,
}

impl Sleeps {
    fn note(&mut self, by_other: bool) {
        self.add(Sleeps { all: 1, wakes: u32::from(by_other) });
    }

    /// Adds those of a connection.
    pub(crate) fn add(&mut self, others: Sleeps) {
        if self.all >= PERIOD {
            (self.all, self.wakes) = (self.all / 2, self.wakes / 2);
        }
        self.all += others.all;
        self.wakes += others.wakes;
    }

    fn are_ended_by_others(self, wakes_min: u32) -> bool {
        self.wakes >= wakes_min && self.wakes > self.all / 2
    }

    /// Whether, of many connections, they say that the next ones are better left to the kernel.
    pub(crate) fn are_unsuited(self) -> bool {
        self.are_ended_by_others(WAKES_OF_ALL)
    }
}

/// How the connections were used that came from one listener, or that the program made, and that are over or have moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Experience {
    pub(crate) sleeps: Sleeps,
    /// Those that had to move as the program asked which they are.
    identified: u32,
}

impl Experience {
    pub(crate) fn note_identified(&mut self) {
        self.identified = self.identified.saturating_add(1);
    }

    /// Why the next ones are better left to the kernel, if so.
    pub(crate) fn unsuited(self) -> Option<Unsuited> {
        if self.identified >= IDENTIFIED_OF_ALL {
            return Some(Unsuited::Identified);
        }
        self.sleeps.are_unsuited().then_some(Unsuited::Threads)
    }
}

/// Why connections are better left to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsuited {
    Bulk,
    Threads,
    Identified,
}

impl Usage {
    pub(crate) fn note_call(&mut self, wanted: usize, octets: usize) {
        if self.calls == PERIOD {
            (self.calls, self.large, self.octets) = (self.calls / 2, self.large / 2, self.octets / 2);
        }
        self.calls += 1;
        if wanted >= LARGE {
            self.large += 1;
            self.octets = self.octets.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn note_sleep(&mut self, by_other: bool) {
        self.sleeps.note(by_other);
    }

    pub(crate) fn unsuited(self) -> Option<Unsuited> {
        match self {
            Usage { stays: true, .. } => None,
            Usage { octets: ENOUGH.., .. } if self.large >= self.calls / SHARE => Some(Unsuited::Bulk),
            Usage { sleeps, .. } if sleeps.are_ended_by_others(WAKES) => Some(Unsuited::Threads),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After `sleeps`, each of which another thread has ended or not.
    fn unsuited_after(sleeps: impl Iterator<Item = bool>) -> Option<Unsuited> {
        let mut usage = Usage::default();
        sleeps.for_each(|by_other| usage.note_sleep(by_other));
        usage.unsuited()
    }

    #[test]
    fn a_connection_that_sleeps_until_others_wake_it_leaves() {
        assert_eq!(unsuited_after((0..WAKES).map(|_| true)), Some(Unsuited::Threads));
        assert_eq!(unsuited_after((1..WAKES).map(|_| true)), None, "not yet");
    }

    /// Whether so many connections that slept so often, and so often were woken by others, are unsuited altogether.
    fn are_unsuited(connections: u32, all: u32, wakes: u32) -> bool {
        let mut sleeps = Sleeps::default();
        (0..connections).for_each(|_| sleeps.add(Sleeps { all, wakes }));
        sleeps.are_unsuited()
    }

    #[test]
    fn many_short_connections_count_together() {
        assert!(are_unsuited(WAKES_OF_ALL, 1, 1) && !are_unsuited(WAKES_OF_ALL - 1, 1, 1));
        assert!(are_unsuited(WAKES_OF_ALL, 3, 2) && !are_unsuited(WAKES_OF_ALL, 2, 1));
        assert!(are_unsuited(1_000_000, PERIOD, PERIOD), "and do not overflow");
    }

    #[test]
    fn a_connection_that_mostly_finds_its_packets_itself_stays() {
        assert_eq!(unsuited_after((0..100 * WAKES).map(|sleep| sleep % 3 == 0)), None);
    }

    #[test]
    fn what_a_connection_did_long_ago_does_not_count() {
        let found_itself = (0..3 * PERIOD).map(|_| false);
        let woken = (0..2 * PERIOD).map(|_| true);
        assert_eq!(unsuited_after(found_itself.chain(woken)), Some(Unsuited::Threads));
    }

    #[test]
    fn a_large_answer_among_many_small_ones_keeps_nobody_from_the_stack() {
        let mut usage = Usage::default();
        for call in 0..1_000_000 {
            let octets = if call % 8 == 0 { 2 * LARGE } else { 100 };
            usage.note_call(octets, octets);
            assert_eq!(usage.unsuited(), None);
        }
        (0..PERIOD).for_each(|_| usage.note_call(LARGE, LARGE));
        assert_eq!(usage.unsuited(), Some(Unsuited::Bulk));
    }
}
