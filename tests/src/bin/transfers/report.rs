//! A few lines now and then: what all have, how slow they are, how much memory they hold.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dns_message::is_older;

use crate::ledger::{Ledger, Run};
use crate::reader::Tally;
use crate::servers::Fleet;

/// The most in the second half of a run may be above the most in the first half by so much: a part of it, and KiB.
const GROWTH_MAX: (u64, u64) = (4, 128 << 10);

/// What each server held, report by report, in KiB.
pub(crate) struct Memory {
    held: Vec<Vec<u64>>,
}

impl Memory {
    pub(crate) fn new(fleet: &Fleet) -> Memory {
        Memory { held: fleet.servers.iter().map(|server| vec![server.memory_kib()]).collect() }
    }

    /// Ours must not grow without an end.
    pub(crate) fn judge(&self, fleet: &Fleet, run: &Run) {
        for (server, held) in fleet.servers.iter().zip(&self.held) {
            let (first, second) = held.split_at(held.len().div_ceil(2));
            let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
            let (before, after) = (most(first), most(second));
            run.say(&format!(
                "memory of {}: {} MiB first, {} last, at most {} in the first half, {} in the second",
                server.name,
                held[0] >> 10,
                held[held.len() - 1] >> 10,
                before >> 10,
                after >> 10
            ));
            if server.is_ours() && after > before + before / GROWTH_MAX.0 + GROWTH_MAX.1 {
                run.fault(format!("{} has grown from {before} to {after} KiB", server.name));
            }
        }
    }
}

pub(crate) fn report(
    fleet: &Fleet,
    ledgers: &[Ledger],
    run: &Run,
    tally: &Tally,
    memory: &Mutex<Memory>,
    interval: Duration,
) {
    loop {
        run.sleep(interval);
        if run.is_over() {
            return;
        }
        let serials: Vec<u32> = ledgers.iter().map(Ledger::current).collect();
        let cuts: u64 = fleet.links.iter().map(|link| link.cuts()).sum();
        let octets: u64 = fleet.links.iter().map(|link| link.octets()).sum();
        run.say(&format!(
            "serials {serials:?}, {} looks, {} differences, {} wholes, {cuts} cuts, {} MiB over the wires",
            tally.looks.load(Ordering::Relaxed),
            tally.differences.load(Ordering::Relaxed),
            tally.wholes.load(Ordering::Relaxed),
            octets >> 20
        ));
        let held: Vec<u64> = fleet.servers.iter().map(|server| server.memory_kib()).collect();
        for (server, kib) in fleet.servers.iter().zip(&held) {
            let behind = server.zones.iter().map(|&zone| {
                // What is asked first may have a successor when the other is asked.
                let newest = ledgers[zone].current();
                let behind = |serial| if is_older(serial, newest) { newest.wrapping_sub(serial) } else { 0 };
                server.serial(zone).map_or("away".to_owned(), |serial| behind(serial).to_string())
            });
            let behind: Vec<String> = behind.collect();
            run.say(&format!(
                "  {:8} {:5} MiB, {:4} s of CPU, {} ms at most for a look, versions behind: {}",
                server.name,
                kib >> 10,
                server.cpu_time().as_secs(),
                server.slowest_ms.swap(0, Ordering::Relaxed),
                behind.join(" ")
            ));
        }
        let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.held.iter_mut().zip(held).for_each(|(all, kib)| all.push(kib));
    }
}
