//! What is known about one server address.

use clock::{Duration, Instant};

use crate::options::Selection;

/// Times of answers, smoothed as TCP does it (RFC 6298, 2), with one rule more: see [`Server::on_answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timing {
    srtt: Duration,
    rttvar: Duration,
    measured: Instant,
    /// The last measurement, if it differed much from those before.
    outlier: Option<Duration>,
}

/// Measurements nearer to the smoothed time than this are never outliers.
const OUTLIER_MIN: Duration = Duration::from_millis(5);
/// The variance counts as at least this part of the smoothed time: answers that always took the same may take a little longer once.
const VARIANCE_PART: u32 = 16;
/// How long a server is not asked over TCP after that failed. One failure says little: the connection's first packet may have been lost.
const TCP_FAILED_TTL: Duration = Duration::from_secs(30);
/// Doublings after which nothing doubles any more.
const DOUBLINGS_MAX: u32 = 10;

/// A server address.
#[derive(Clone, Debug)]
pub(super) struct Server {
    timing: Option<Timing>,
    /// Queries in a row without an answer.
    losses: u32,
    penalty: Duration,
    penalised: Instant,
    last_sent: Option<Instant>,
    /// When it was noticed, or answered last.
    pub(super) confirmed: Instant,
    /// When it answered after silence.
    came_back: Instant,
    /// When it was seen to fail with EDNS, or over TCP.
    edns_failed: Option<Instant>,
    tcp_failed: Option<Instant>,
    /// Its part of the cookie, 8 to 32 octets (RFC 7873, 4.2), once it has sent one.
    pub(super) cookie: Option<Box<[u8]>>,
    /// Tokens for queries of clients, in thousandths of a query; below zero is debt.
    tokens: i64,
    refilled: Instant,
    pub(super) counts: Counts,
}

/// What was counted of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) queries: u64,
    pub(super) probes: u64,
    pub(super) answers: u64,
    pub(super) losses: u64,
}

impl Server {
    /// One that was never asked.
    pub(super) fn new(options: &Selection, now: Instant) -> Server {
        Server {
            timing: None,
            losses: 0,
            penalty: Duration::ZERO,
            penalised: now,
            last_sent: None,
            confirmed: now,
            came_back: now,
            edns_failed: None,
            tcp_failed: None,
            cookie: None,
            tokens: burst(options),
            refilled: now,
            counts: Counts::default(),
        }
    }

    /// Whether its last query was not answered.
    pub(super) fn is_silent(&self) -> bool {
        self.losses > 0
    }

    /// How many queries in a row were not answered.
    pub(super) fn losses(&self) -> u32 {
        self.losses
    }

    /// The smoothed time of its answers; `None` if it has not answered yet.
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.timing.map(|timing| timing.srtt)
    }

    /// How much its times vary.
    pub(super) fn rttvar(&self) -> Option<Duration> {
        self.timing.map(|timing| timing.rttvar.max(timing.srtt / VARIANCE_PART))
    }

    /// When it answered after silence, or was noticed.
    pub(super) fn came_back(&self) -> Instant {
        self.came_back
    }

    /// What servers are compared by: the smoothed time and the penalty. `None` if it was never measured.
    pub(super) fn score(&self, options: &Selection, now: Instant) -> Option<Duration> {
        self.timing.map(|timing| timing.srtt + self.penalty(options, now))
    }

    /// The penalty as far as it has decayed: half of it after each half-life, on a straight line between.
    pub(super) fn penalty(&self, options: &Selection, now: Instant) -> Duration {
        let half_life = options.penalty_half_life.as_nanos().max(1);
        let age = now.since(self.penalised).as_nanos();
        let halvings = age / half_life;
        if halvings > 30 {
            return Duration::ZERO;
        }
        let at_start = self.penalty.as_nanos() >> halvings;
        let part = u128::from(age % half_life) * u128::from(at_start / 2) / u128::from(half_life);
        Duration::from_nanos(at_start - part as u64)
    }

    /// How long to wait for the answer to a query that is the `tries`th to it in a row, counted from 0.
    pub(super) fn timeout(&self, options: &Selection, tries: u8) -> Duration {
        let base = match self.timing {
            None => options.timeout_unknown,
            Some(timing) => timing.srtt + 4 * self.rttvar().unwrap_or_default(),
        };
        let wait = match u32::from(tries) {
            0 => base.max(options.timeout_floor),
            tries => base.max(options.retry_floor) * (1 << (tries - 1).min(DOUBLINGS_MAX)),
        };
        wait.min(options.timeout_max)
    }

    /// A query leaves. Debt has a bound, so that a server that had far too many queries is not left alone for long.
    pub(super) fn on_sent(&mut self, is_probe: bool, options: &Selection, now: Instant) {
        self.last_sent = Some(now);
        if is_probe {
            self.counts.probes += 1;
        } else {
            self.counts.queries += 1;
            self.tokens = (self.tokens - 1000).max(-burst(options));
        }
    }

    /// An answer came after `rtt`.
    ///
    /// Two measurements in a row that are nearer to each other than to the smoothed time mean that the path has changed, and
    /// the smoothed time becomes theirs at once: a server that moved is followed after two answers, and one late packet changes little.
    pub(super) fn on_answer(&mut self, rtt: Duration, is_late: bool, options: &Selection, now: Instant) {
        self.timing = Some(match self.timing {
            None => Timing { srtt: rtt, rttvar: rtt / 2, measured: now, outlier: None },
            Some(timing) => timing.after(rtt, now),
        });
        // A late answer takes its own penalty back; another one halves what there is.
        let penalty = self.penalty(options, now);
        self.penalty = if is_late { Duration::ZERO } else { penalty / 2 };
        self.penalised = now;
        if self.losses > 0 {
            self.came_back = now;
        }
        self.losses = 0;
        self.confirmed = now;
        self.counts.answers += 1;
    }

    /// No answer came in time.
    pub(super) fn on_loss(&mut self, options: &Selection, now: Instant) {
        self.losses = self.losses.saturating_add(1);
        self.penalty = options.penalty.max(self.penalty(options, now) * 2).min(options.penalty_max);
        self.penalised = now;
        self.counts.losses += 1;
    }

    /// Whether a query of our own is due. `silent_max` is the longest pause if it is silent.
    pub(super) fn is_probe_due(&self, options: &Selection, silent_max: Duration, now: Instant) -> bool {
        let Some(last_sent) = self.last_sent else { return true };
        let follow_up = options.probe_follow_up;
        let pause = match self.timing {
            _ if self.losses > 0 => {
                (follow_up * (1 << (self.losses - 1).min(DOUBLINGS_MAX))).min(silent_max.max(follow_up))
            }
            None => options.timeout_unknown,
            Some(Timing { outlier: Some(_), .. }) => follow_up,
            Some(timing) => return now >= timing.measured + options.probe_interval,
        };
        now >= last_sent + pause
    }

    /// Tokens for queries of clients, in thousandths.
    pub(super) fn tokens(&mut self, options: &Selection, now: Instant) -> i64 {
        let micros = now.since(self.refilled).as_micros().min(10_000_000);
        let refill = (micros * u64::from(options.rate_max) / 1000) as i64;
        if refill > 0 {
            self.tokens = (self.tokens + refill).min(burst(options));
            self.refilled = now;
        }
        self.tokens
    }

    /// It cannot read queries with an OPT record.
    pub(super) fn on_edns_failed(&mut self, now: Instant) {
        self.edns_failed = Some(now);
    }

    /// It cannot be reached over TCP.
    pub(super) fn on_tcp_failed(&mut self, now: Instant) {
        self.tcp_failed = Some(now);
    }

    /// It answered over TCP.
    pub(super) fn on_tcp_answer(&mut self) {
        self.tcp_failed = None;
    }

    /// Whether queries to it have an OPT record. A failure is forgotten with time.
    pub(super) fn takes_edns(&self, options: &Selection, now: Instant) -> bool {
        self.edns_failed.is_none_or(|failed| failed + options.expiry <= now)
    }

    /// Whether it may be reached over TCP.
    pub(super) fn takes_tcp(&self, now: Instant) -> bool {
        self.tcp_failed.is_none_or(|failed| failed + TCP_FAILED_TTL <= now)
    }
}

impl Timing {
    fn after(self, rtt: Duration, now: Instant) -> Timing {
        let away = |from: Duration| if rtt > from { rtt - from } else { from - rtt };
        let deviation = away(self.srtt);
        if let Some(outlier) = self.outlier
            && away(outlier) < deviation
        {
            let srtt = (outlier + rtt) / 2;
            return Timing { srtt, rttvar: away(outlier) / 2, measured: now, outlier: None };
        }
        let is_outlier = deviation > OUTLIER_MIN.max(4 * self.rttvar.max(self.srtt / VARIANCE_PART));
        Timing {
            srtt: self.srtt - self.srtt / 8 + rtt / 8,
            rttvar: self.rttvar - self.rttvar / 4 + deviation / 4,
            measured: now,
            outlier: is_outlier.then_some(rtt),
        }
    }
}

/// A tenth of a second's queries may come at once.
fn burst(options: &Selection) -> i64 {
    i64::from(options.rate_max) * 100 + 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    fn measured(times: &[u64]) -> Server {
        let mut server = Server::new(&Selection::default(), at(0));
        times.iter().for_each(|time| server.on_answer(ms(*time), false, &Selection::default(), at(0)));
        server
    }

    #[test]
    fn the_first_timeout_is_short_and_has_a_floor() {
        let options = Selection::default();
        assert_eq!(measured(&[]).timeout(&options, 0), ms(350));
        assert_eq!(measured(&[100; 40]).timeout(&options, 0), ms(125), "the variance is a sixteenth");
        assert_eq!(measured(&[1; 40]).timeout(&options, 0), ms(20));
        assert_eq!(measured(&[1; 40]).timeout(&options, 1), ms(200));
        assert_eq!(measured(&[1; 40]).timeout(&options, 3), ms(800));
        assert_eq!(measured(&[1; 40]).timeout(&options, 200), ms(2000));
    }

    #[test]
    fn one_odd_time_changes_little_and_two_that_agree_change_all() {
        let odd = measured(&[5, 5, 5, 5, 5, 5, 180]);
        assert!(odd.srtt().unwrap() < ms(30), "{odd:?}");
        let back = measured(&[5, 5, 5, 5, 5, 5, 180, 5]);
        assert!(back.srtt().unwrap() < ms(30), "{back:?}");
        let moved = measured(&[5, 5, 5, 5, 5, 5, 180, 182]);
        assert_eq!(moved.srtt(), Some(ms(181)));
    }

    #[test]
    fn a_penalty_doubles_with_losses_and_decays() {
        let options = Selection::default();
        let mut server = measured(&[5]);
        server.on_loss(&options, at(0));
        assert_eq!(server.penalty(&options, at(0)), ms(50));
        assert_eq!(server.penalty(&options, at(1000)), Duration::from_micros(37_500));
        assert_eq!(server.penalty(&options, at(2000)), ms(25));
        assert_eq!(server.penalty(&options, at(4000)), Duration::from_micros(12_500));
        (0..10).for_each(|_| server.on_loss(&options, at(4000)));
        assert_eq!(server.penalty(&options, at(4000)), options.penalty_max);
        assert!(server.penalty(&options, at(100_000)).is_zero());
    }

    #[test]
    fn a_late_answer_takes_the_penalty_back() {
        let options = Selection::default();
        let mut server = measured(&[5]);
        server.on_loss(&options, at(0));
        assert!(server.is_silent());
        server.on_answer(ms(30), true, &options, at(30));
        assert!(!server.is_silent() && server.penalty(&options, at(30)).is_zero());
    }

    #[test]
    fn probes_of_the_silent_become_rarer_up_to_a_limit() {
        let options = Selection::default();
        let mut server = measured(&[5]);
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            server.on_sent(true, &options, now);
            server.on_loss(&options, now);
            let sent = now;
            while !server.is_probe_due(&options, options.probe_silent_max, now) {
                now += ms(50);
            }
            pauses.push((now - sent).as_millis());
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 4000]);
        server.on_sent(true, &options, now);
        assert!(!server.is_probe_due(&options, options.probe_outage_max, now + ms(450)));
        assert!(server.is_probe_due(&options, options.probe_outage_max, now + ms(500)));
    }

    #[test]
    fn the_debt_of_a_server_has_a_bound() {
        let options = Selection::default();
        let mut server = measured(&[5]);
        (0..100_000).for_each(|_| server.on_sent(false, &options, at(0)));
        assert!(server.tokens(&options, at(0)) < 0);
        assert!(server.tokens(&options, at(300)) >= 1000);
    }

    #[test]
    fn what_a_server_cannot_do_is_forgotten_with_time() {
        let options = Selection::default();
        let mut server = measured(&[5]);
        server.on_edns_failed(at(0));
        assert!(!server.takes_edns(&options, at(899_000)) && server.takes_tcp(at(0)));
        assert!(server.takes_edns(&options, at(900_000)));
        server.on_tcp_failed(at(0));
        assert!(!server.takes_tcp(at(29_000)) && server.takes_tcp(at(30_000)));
        server.on_tcp_answer();
        assert!(server.takes_tcp(at(0)));
    }
}
