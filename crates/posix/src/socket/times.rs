//! Times of reception: `SO_TIMESTAMP` and related options.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clock::Instant;

use crate::socket::control_messages::ControlWriter;

/// Options of `SOL_SOCKET` with a time as 64 bits, also where a long has fewer: the same as their older kin here.
const TIMESTAMP_NEW: i32 = 63;
const TIMESTAMPNS_NEW: i32 = 64;
pub(crate) const TIMESTAMPING_NEW: i32 = 65;

// Flags of `SO_TIMESTAMPING`.
const TX_HARDWARE: i32 = 1;
pub(crate) const TX_SOFTWARE: i32 = 1 << 1;
const RX_SOFTWARE: i32 = 1 << 3;
const SOFTWARE: i32 = 1 << 4;
pub(crate) const OPT_ID: i32 = 1 << 7;
pub(crate) const TX_SCHED: i32 = 1 << 8;
pub(crate) const TX_ACK: i32 = 1 << 9;
pub(crate) const OPT_ID_TCP: i32 = 1 << 16;
const OPT_RX_FILTER: i32 = 1 << 17;
const TX_COMPLETION: i32 = 1 << 18;
/// Those that want a time of sending.
pub(crate) const TX_ANY: i32 = TX_HARDWARE | TX_SOFTWARE | TX_SCHED | TX_ACK | TX_COMPLETION;

/// The times that a socket wants to be told; each as the option that asks, which is what the control message is called, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    simple: Option<i32>,
    stamping: Option<i32>,
    /// It wants to know when something was sent.
    pub(crate) of_sending: bool,
}

impl Times {
    /// What these options of `SOL_SOCKET` ask for.
    pub(crate) fn wanted(value_of: impl Fn(i32) -> i32) -> Times {
        let simple = [libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, TIMESTAMP_NEW, TIMESTAMPNS_NEW];
        // The older option also reports the setting of the newer one.
        let stamping = [TIMESTAMPING_NEW, libc::SO_TIMESTAMPING].map(|option| (option, value_of(option)));
        let is_software =
            |flags: i32| flags & SOFTWARE != 0 && (flags & RX_SOFTWARE != 0 || flags & OPT_RX_FILTER == 0);
        Times {
            simple: simple.into_iter().find(|option| value_of(*option) != 0),
            stamping: stamping.iter().find(|it| is_software(it.1)).map(|it| it.0),
            of_sending: stamping.iter().any(|it| it.1 & TX_ANY != 0),
        }
    }

    /// Tells when something came, as time since 1970.
    pub(crate) fn put(&self, out: &mut ControlWriter<'_>, came: Duration) {
        let seconds = came.as_secs().to_ne_bytes();
        let nanos = u64::from(came.subsec_nanos()).to_ne_bytes();
        if let Some(kind) = self.simple {
            let is_micros = matches!(kind, libc::SO_TIMESTAMP | TIMESTAMP_NEW);
            let fraction = if is_micros { u64::from(came.subsec_micros()).to_ne_bytes() } else { nanos };
            out.put(libc::SOL_SOCKET, kind, &[seconds, fraction].concat());
        }
        if let Some(kind) = self.stamping {
            put_stamping(out, kind, came);
        }
    }

    /// Whether any time must be reported.
    pub(crate) fn is_any(&self) -> bool {
        self.simple.is_some() || self.stamping.is_some()
    }
}

/// `struct scm_timestamping`: a time of the software; those of the hardware are not known.
pub(crate) fn put_stamping(out: &mut ControlWriter<'_>, kind: i32, time: Duration) {
    let (seconds, nanos) = (time.as_secs().to_ne_bytes(), u64::from(time.subsec_nanos()).to_ne_bytes());
    let none = [0; 8];
    out.put(libc::SOL_SOCKET, kind, &[seconds, nanos, none, none, none, none].concat());
}

/// What the clock on the wall said at `at`.
pub(crate) fn on_the_wall(at: Instant, now: Instant) -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    wall.saturating_sub(Duration::from(now.since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::control_messages::messages;

    #[test]
    fn a_time_is_told_in_the_unit_that_was_asked_for() {
        let came = Duration::new(1_700_000_000, 123_456_789);
        for (option, fraction) in [(libc::SO_TIMESTAMP, 123_456), (libc::SO_TIMESTAMPNS, 123_456_789u64)] {
            let mut room = [0; 64];
            let mut out = ControlWriter::new(Some(&mut room));
            Times::wanted(|it| i32::from(it == option)).put(&mut out, came);
            let (len, _) = out.finish();
            let data = [came.as_secs().to_ne_bytes(), fraction.to_ne_bytes()].concat();
            let told: Vec<_> = messages(&room[..len]).collect();
            assert_eq!(told, [Some((libc::SOL_SOCKET, option, &data[..]))]);
        }
    }

    #[test]
    fn stamping_tells_times_of_software_only_if_they_are_wanted() {
        let of = |flags| Times::wanted(|option| if option == libc::SO_TIMESTAMPING { flags } else { 0 });
        assert!(of(RX_SOFTWARE | SOFTWARE).is_any() && !of(RX_SOFTWARE).is_any());
        assert!(of(TX_SOFTWARE | SOFTWARE).of_sending && !of(RX_SOFTWARE | SOFTWARE).of_sending);
    }
}
