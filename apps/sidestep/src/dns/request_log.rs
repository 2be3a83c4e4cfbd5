//! Log lines about what others want of zones: transfers, notices and updates. Whoever sends many fills no disk.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dns_server::{SpecialRequest, Wanted};
use dns_transfer::Policy;
use log::Level;

/// So many lines of a kind are written in a time; the others are counted.
const LINES_MAX: u32 = 50;
const TIME: Duration = Duration::from_secs(10);

/// What was written in the time that began last.
#[derive(Default)]
struct Budget {
    began: Option<Instant>,
    lines: u32,
    lost: u32,
}

impl Budget {
    /// Whether there is room for one more line at `now`. `Some(lost)` if a new time begins, with how many were lost in the one before.
    fn take(&mut self, now: Instant) -> (bool, u32) {
        let mut lost = 0;
        if self.began.is_none_or(|began| now.duration_since(began) >= TIME) {
            lost = std::mem::take(&mut self.lost);
            (self.began, self.lines) = (Some(now), 0);
        }
        let has_room = self.lines < LINES_MAX;
        self.lines += u32::from(has_room);
        self.lost += u32::from(!has_room);
        (has_room, lost)
    }
}

/// The log of requests: what is refused cannot hide what is done.
#[derive(Default)]
pub(crate) struct RequestLog {
    done: Mutex<Budget>,
    refused: Mutex<Budget>,
}

impl RequestLog {
    /// Writes a line about something that was done.
    pub(crate) fn done(&self, line: &dyn Display) {
        write(&self.done, Level::Info, line);
    }

    /// Writes a line about something that was not done.
    pub(crate) fn failed(&self, level: Level, line: &dyn Display) {
        write(&self.refused, level, line);
    }

    /// Writes a line about a request that is answered at once.
    pub(crate) fn special(&self, policy: &Policy, request: &SpecialRequest) {
        let SpecialRequest { zone, client, wanted, rcode } = request;
        let is_done = rcode.0 == 0;
        let what = match wanted {
            Wanted::Transfer => "transfer to",
            Wanted::Notice => "NOTIFY from",
            Wanted::Update => "update of",
            Wanted::SlowTransfer => {
                let line = format_args!(
                    "zone {zone}: transfer to {client} is ended: it takes less than 16 KiB a second"
                );
                return write(&self.refused, Level::Warn, &line);
            }
        };
        if is_done {
            return self.done(&format_args!("zone {zone}: {what} {client}"));
        }
        // Somebody has configured this server as its secondary, so one of the two has to change.
        let is_known = *wanted == Wanted::Notice && policy.has_primary_at(zone.as_name(), *client);
        let level = if is_known { Level::Warn } else { Level::Info };
        let why = match (wanted, is_known) {
            (Wanted::Notice, true) => ": it is not signed with the key of this primary",
            (Wanted::Notice, false) => ": the zone has no primary at this address",
            _ => "",
        };
        write(
            &self.refused,
            level,
            &format_args!("zone {zone}: {what} {client} is answered with {rcode}{why}"),
        );
    }
}

fn write(budget: &Mutex<Budget>, level: Level, line: &dyn Display) {
    let (has_room, lost) = budget.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
    if lost > 0 {
        log::warn!(
            "{lost} lines about requests of others were left out: more than {LINES_MAX} in {} s",
            TIME.as_secs()
        );
    }
    if has_room {
        log::log!(level, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_a_bounded_number_of_lines_and_is_counted() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let written = (0..1000).filter(|_| budget.take(now).0).count();
        assert_eq!(written as u32, LINES_MAX);
        assert_eq!(budget.take(now + TIME), (true, 1000 - LINES_MAX));
        assert_eq!(budget.take(now + TIME), (true, 0));
    }
}
