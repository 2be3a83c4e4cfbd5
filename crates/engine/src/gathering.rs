//! Lets packets gather before the engine polls its devices, as interrupt moderation does in a NIC.
//!
//! Every wake-up costs some microseconds, here and at the sender whose packet caused it. At a medium load each packet causes one.
//! An engine that does not poll its devices for some tens of microseconds finds several packets behind one wake-up and
//! answers them in one burst, which saves the peer wake-ups, too.
//!
//! Whether that pays depends on the peers. Peers that send at fixed times do not notice. Peers that wait for each answer before the next
//! request only lose time. So the engine tries it, and compares spans of time with gathering and without: it must save wake-ups, and
//! must not slow the packets down.

use clock::{Duration, Instant};

/// What is counted at a time. Short, since a trial that fails costs time; long enough that the packets in it tell a rate.
const WINDOW: Duration = Duration::from_millis(20);
/// Fewer sleeps in a window are not worth a trial, nor fewer packets: they come so far apart that few would gather.
const TRIAL_MIN: u64 = 200;
/// Sleeps after which it is over if it saves no wake-ups: a peer that waits for each answer brings one packet to each.
const SLEEPS_TO_SPARE: u64 = 8;
/// Sleeps after which it is over if it slows the packets down to three quarters, as it does to few peers that wait for answers.
const SLEEPS_TO_SLOW: u64 = 32;
/// Windows between two looks at how it is without.
const HELD: u32 = 50;
/// Windows between two trials: after the first that failed, and after many.
const PAUSE_MIN: u32 = 4;
const PAUSE_MAX: u32 = 128;

/// Decides before every sleep whether the devices may wake the engine from it.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// How long packets gather; zero for never.
    span: Duration,
    mode: Mode,
    window: Window,
    /// The last window without gathering.
    without: Window,
    /// The next pause.
    pause: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The devices wake the engine, for this number of windows at least.
    Without(u32),
    /// Packets gather in this window, to see what comes of it.
    Trial,
    /// Packets gather, for this number of windows at most.
    With { left: u32, is_in_doubt: bool },
}

/// What happened in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Instant,
    length: Duration,
    arrivals: u64,
    sleeps: u64,
}

impl Gathering {
    pub(crate) fn new(span: Duration) -> Gathering {
        Gathering {
            span,
            mode: Mode::Without(0),
            window: Window::default(),
            without: Window::default(),
            pause: PAUSE_MIN,
        }
    }

    /// A turn found this number of frames.
    #[inline]
    pub(crate) fn on_arrivals(&mut self, count: usize) {
        self.window.arrivals += count as u64;
    }

    /// Until when an engine that has nothing to do now sleeps without being woken by its devices, if at all.
    pub(crate) fn until(&mut self, now: Instant) -> Option<Instant> {
        if self.span.is_zero() {
            return None;
        }
        let length = now.since(self.window.began);
        if length >= WINDOW {
            self.end_window(now, length);
        } else if self.mode == Mode::Trial && self.is_vain(length) {
            self.begin_window(now);
            self.mode = self.give_up();
        }
        (!matches!(self.mode, Mode::Without(_))).then(|| now + self.span)
    }

    /// The engine goes to sleep.
    pub(crate) fn on_sleep(&mut self) {
        self.window.sleeps += 1;
    }

    fn end_window(&mut self, now: Instant, length: Duration) {
        let window = Window { length, ..self.begin_window(now) };
        // The engine was busy or asleep for long: the window says nothing about either mode.
        if length >= 2 * WINDOW {
            self.mode = Mode::Without(0);
            return;
        }
        let pays = window.spares_wake_ups(&self.without) && window.keeps_pace(&self.without, 90);
        self.mode = match self.mode {
            Mode::Without(left) => {
                self.without = window;
                match left.checked_sub(1) {
                    Some(left) => Mode::Without(left),
                    None if window.sleeps.min(window.arrivals) >= TRIAL_MIN => Mode::Trial,
                    None => Mode::Without(0),
                }
            }
            Mode::Trial if !pays => self.give_up(),
            // A window in which the machine was elsewhere for some milliseconds says nothing.
            Mode::With { is_in_doubt, .. } if !pays && (is_in_doubt || window.arrivals == 0) => {
                self.give_up()
            }
            Mode::Trial => {
                self.pause = PAUSE_MIN;
                Mode::With { left: HELD, is_in_doubt: false }
            }
            Mode::With { left, .. } => {
                let is_in_doubt = !pays;
                left.checked_sub(1).map_or(Mode::Without(0), |left| Mode::With { left, is_in_doubt })
            }
        };
    }

    /// Whether a window of which this much is over can be seen to be a loss.
    fn is_vain(&self, length: Duration) -> bool {
        let window = Window { length, ..self.window };
        match window.sleeps {
            SLEEPS_TO_SPARE => !window.spares_wake_ups(&self.without),
            SLEEPS_TO_SLOW => !window.keeps_pace(&self.without, 75),
            _ => false,
        }
    }

    fn begin_window(&mut self, now: Instant) -> Window {
        std::mem::replace(&mut self.window, Window { began: now, ..Window::default() })
    }

    fn give_up(&mut self) -> Mode {
        let pause = self.pause;
        self.pause = (2 * pause).min(PAUSE_MAX);
        Mode::Without(pause)
    }
}

impl Window {
    /// Whether at least a quarter of the wake-ups was spared, packet for packet.
    fn spares_wake_ups(&self, without: &Window) -> bool {
        4 * self.sleeps * without.arrivals <= 3 * without.sleeps * self.arrivals
    }

    /// Whether packets came at least at this percentage of the rate.
    fn keeps_pace(&self, without: &Window, percent: u128) -> bool {
        let rate = |window: &Window, other: &Window| {
            u128::from(window.arrivals) * u128::from(other.length.as_nanos())
        };
        100 * rate(self, without) >= percent * rate(without, self)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    const SPAN: Duration = Duration::from_micros(80);
    /// From a request to the next of a peer that waits for its answer, if both are awake.
    const ROUND_TRIP: Duration = Duration::from_micros(50);
    const SECOND: Instant = Instant::from_nanos(1_000_000_000);

    /// What sends requests to the engine.
    enum Peers {
        /// So long apart, whatever happens to the last one.
        ByTheClock(Duration),
        /// As many as this, each waiting for its answer.
        Waiting(u32),
    }

    /// What came of a load.
    #[derive(Debug)]
    struct Outcome {
        arrivals: u64,
        sleeps: u64,
        gathered: u64,
    }

    /// One engine for a second, with turns that take no time.
    fn load(peers: &Peers, span: Duration) -> Outcome {
        load_on(&mut Gathering::new(span), Instant::ZERO..SECOND, peers)
    }

    fn load_on(gathering: &mut Gathering, time: Range<Instant>, peers: &Peers) -> Outcome {
        let mut now = time.start;
        let mut due: Vec<Instant> = match peers {
            Peers::ByTheClock(apart) => vec![now + *apart],
            Peers::Waiting(count) => (0..*count).map(|number| now + ROUND_TRIP / *count * number).collect(),
        };
        let mut outcome = Outcome { arrivals: 0, sleeps: 0, gathered: 0 };
        while now < time.end {
            let end = gathering.until(now);
            gathering.on_sleep();
            outcome.sleeps += 1;
            outcome.gathered += u64::from(end.is_some());
            let next = *due.iter().min().expect("there is always a next request");
            now = end.unwrap_or(next).max(now);
            let arrived = take(&mut due, peers, now);
            gathering.on_arrivals(arrived);
            outcome.arrivals += arrived as u64;
        }
        outcome
    }

    /// Answers what has come until `now`.
    fn take(due: &mut [Instant], peers: &Peers, now: Instant) -> usize {
        let mut arrived = 0;
        for at in due {
            while *at <= now {
                arrived += 1;
                *at = match peers {
                    Peers::ByTheClock(apart) => *at + *apart,
                    Peers::Waiting(_) => now + ROUND_TRIP,
                };
            }
        }
        arrived
    }

    #[test]
    fn peers_that_send_by_the_clock_cost_few_wake_ups() {
        let apart = Duration::from_micros(25);
        let (without, with) =
            (load(&Peers::ByTheClock(apart), Duration::ZERO), load(&Peers::ByTheClock(apart), SPAN));
        assert_eq!(without.sleeps, without.arrivals);
        assert!(with.arrivals + 4 >= without.arrivals, "nothing is lost: {with:?}");
        assert!(with.sleeps * 5 < with.arrivals * 2, "two and a half packets a wake-up: {with:?}");
    }

    #[test]
    fn a_peer_that_waits_for_each_answer_is_not_slowed_down() {
        for peers in [1, 2, 3] {
            let with = load(&Peers::Waiting(peers), SPAN);
            let without = load(&Peers::Waiting(peers), Duration::ZERO);
            assert!(with.arrivals * 100 > without.arrivals * 98, "{peers} peers: {with:?} for {without:?}");
        }
    }

    #[test]
    fn a_single_peer_notices_a_few_trials_of_eight_packets() {
        let with = load(&Peers::Waiting(1), SPAN);
        assert!(with.gathered > 0, "it was tried: {with:?}");
        assert!(with.gathered * 200 < with.arrivals, "fewer than one in two hundred: {with:?}");
    }

    #[test]
    fn at_a_low_load_packets_are_never_left_to_gather() {
        let with = load(&Peers::ByTheClock(Duration::from_micros(150)), SPAN);
        assert_eq!(with.gathered, 0);
    }

    /// Sleeps so often that other descriptors end at once; returns how many of them the devices could not have ended.
    fn woken_by_others(gathering: &mut Gathering, from: Instant, times: u64) -> usize {
        let at = |number| from + Duration::from_micros(40) * number;
        let sleeps = (1..=times as u32).map(|number| {
            let gathered = gathering.until(at(number)).is_some();
            gathering.on_sleep();
            gathered
        });
        sleeps.filter(|gathered| *gathered).count()
    }

    #[test]
    fn wake_ups_by_others_than_packets_are_no_reason() {
        assert_eq!(woken_by_others(&mut Gathering::new(SPAN), Instant::ZERO, 25_000), 0);
    }

    #[test]
    fn it_ends_with_the_packets() {
        let mut gathering = Gathering::new(SPAN);
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let by_the_clock = Peers::ByTheClock(Duration::from_micros(25));
        assert!(load_on(&mut gathering, at(0)..at(50), &by_the_clock).gathered > 100);
        let vain = woken_by_others(&mut gathering, at(50), 25_000);
        assert!(vain < 1100, "no more than a window without packets: {vain}");
        assert!(load_on(&mut gathering, at(1050)..at(1300), &by_the_clock).gathered > 100, "and begins anew");
        assert_eq!(gathering.until(at(9000)), None, "seconds without a sleep");
    }

    #[test]
    fn a_machine_that_is_elsewhere_for_some_milliseconds_is_no_reason_to_end() {
        let mut gathering = Gathering::new(SPAN);
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let by_the_clock = Peers::ByTheClock(Duration::from_micros(25));
        load_on(&mut gathering, at(0)..at(90), &by_the_clock);
        let after = load_on(&mut gathering, at(105)..at(300), &by_the_clock);
        assert_eq!(after.gathered, after.sleeps);
    }

    #[test]
    fn the_longer_it_fails_the_rarer_it_is_tried() {
        let with = load(&Peers::Waiting(1), SPAN);
        let trials = with.gathered / SLEEPS_TO_SPARE;
        assert!((3..8).contains(&trials), "4, 8, 16, 32 windows apart: {with:?}");
    }

    #[test]
    fn an_engine_told_not_to_never_lets_packets_gather() {
        assert_eq!(load(&Peers::ByTheClock(Duration::from_micros(25)), Duration::ZERO).gathered, 0);
    }
}
