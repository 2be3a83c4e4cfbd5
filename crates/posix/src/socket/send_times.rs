//! Times of sending and of acknowledgement: `SO_TIMESTAMPING` of connections.
//!
//! Octets are counted from the first of the connection. A report contains no octets, as with `OPT_TSONLY`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::socket::settings::Settings;
use crate::socket::times::{TIMESTAMPING_NEW, TX_ACK, TX_SCHED, TX_SOFTWARE};

/// Times that wait to be told, at most; later ones are lost, as in a full error queue of Linux.
const TOLD_MAX: usize = 256;

/// What happened to octets: `ee_info` of `struct sock_extended_err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Sent = 0,
    Scheduled = 1,
    Acknowledged = 2,
}

/// The times of one connection.
#[derive(Debug, Default)]
pub(crate) struct SendTimes {
    /// The octet that numbers begin with.
    pub(crate) first: u64,
    pub(crate) due: VecDeque<Due>,
    pub(crate) told: VecDeque<(Moment, u32, Duration)>,
}

/// Octets whose times are wanted.
#[derive(Debug)]
pub(crate) struct Due {
    /// Behind the last of them.
    pub(crate) end: u64,
    pub(crate) key: u32,
    /// Which times are wanted still, by `TX_` flags.
    pub(crate) wanted: i32,
}

impl SendTimes {
    /// Whether there is something to tell.
    pub(crate) fn is_due(&self) -> bool {
        !self.told.is_empty()
    }

    /// Octets up to `sent` have left, those up to `acknowledged` arrived. Returns whether that is something to tell.
    pub(crate) fn advance(&mut self, sent: u64, acknowledged: u64, wall: Duration) -> bool {
        let before = self.told.len();
        for due in &mut self.due {
            let happened = [
                (TX_SCHED, sent, Moment::Scheduled),
                (TX_SOFTWARE, sent, Moment::Sent),
                (TX_ACK, acknowledged, Moment::Acknowledged),
            ];
            for (flag, end, moment) in happened {
                if due.wanted & flag != 0 && end >= due.end {
                    due.wanted &= !flag;
                    if self.told.len() < TOLD_MAX {
                        self.told.push_back((moment, due.key, wall));
                    }
                }
            }
        }
        self.due.retain(|due| due.wanted != 0);
        self.told.len() > before
    }
}

impl Settings {
    /// The flags of `SO_TIMESTAMPING`, and what the option was called that set them.
    pub(crate) fn stamping(&self) -> (i32, i32) {
        let options = [TIMESTAMPING_NEW, libc::SO_TIMESTAMPING];
        let flags = options.map(|option| (option, self.int(libc::SOL_SOCKET, option)));
        flags.into_iter().find(|it| it.1 != 0).unwrap_or((libc::SO_TIMESTAMPING, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_told_once_when_its_last_octet_got_there() {
        let mut times = SendTimes::default();
        times.due.push_back(Due { end: 10, key: 9, wanted: TX_SOFTWARE | TX_ACK });
        times.due.push_back(Due { end: 20, key: 19, wanted: TX_ACK });
        let wall = Duration::from_secs(1);
        assert!(!times.advance(9, 0, wall));
        assert!(times.advance(15, 3, wall) && !times.advance(20, 9, wall));
        assert!(times.advance(20, 20, wall));
        let told: Vec<_> = times.told.drain(..).map(|told| (told.0, told.1)).collect();
        assert_eq!(told, [(Moment::Sent, 9), (Moment::Acknowledged, 9), (Moment::Acknowledged, 19)]);
        assert!(times.due.is_empty());
    }
}
