//! Which server the liar asks: the fastest that is not known to be silent, if it is honest.

use super::Fault;

/// A query that is not answered within so long is given up.
const TIMEOUT_MS: u64 = 400;
/// A silent server is left alone for so long.
const LEFT_MS: u64 = 2000;
const FOR_EVER_MS: u64 = 86_400_000;

pub(super) struct Servers {
    fault: Option<Fault>,
    /// Time of the last answer, and until when it is left alone.
    known: Vec<(u64, u64)>,
}

impl Servers {
    pub(super) fn new(count: usize, fault: Option<Fault>) -> Servers {
        Servers { fault, known: vec![(0, 0); count.max(1)] }
    }

    pub(super) fn choose(&self, attempt: usize, now_ms: u64) -> usize {
        match self.fault {
            Some(Fault::WorstServer) => 0,
            Some(Fault::NeverLeaves) => self.known.len() - 1,
            _ => {
                let mut order: Vec<usize> = (0..self.known.len()).collect();
                order.sort_by_key(|server| (self.known[*server].1 > now_ms, self.known[*server].0));
                order[if self.known[order[0]].1 > now_ms { attempt % order.len() } else { 0 }]
            }
        }
    }

    pub(super) fn on_answer(&mut self, server: usize, took_ms: u64) {
        self.known[server] = (took_ms.max(1), 0);
    }

    /// Returns how long it was waited for.
    pub(super) fn on_silence(&mut self, server: usize, now_ms: u64) -> u64 {
        let left_ms = if self.fault == Some(Fault::NeverReturns) { FOR_EVER_MS } else { LEFT_MS };
        self.known[server].1 = now_ms + TIMEOUT_MS + left_ms;
        TIMEOUT_MS
    }
}
