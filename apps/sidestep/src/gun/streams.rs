//! One load over connections: the loop around `gun::Streams`.

use clock::{Duration, Instant};
use engine::Clock;
use gun::streams::{Fault, Pace, Setup, Speech, Streams};
use gun::{Schedule, Summary};

use super::core::Core;
use super::load::{AWAKE_BEFORE, Fire, Load, SLEEP_MAX};
use super::sockets::{Progress, Sockets, Target, Wire};
use super::stop::Stop;
use super::text::Live;

/// Octets that are read at a time.
const READ_MAX: usize = 64 * 1024;
/// Connections are opened before the load begins, but not for longer than this.
const WARM_UP_MAX: Duration = Duration::from_secs(3);

/// A server and what is said to it, for one load after the other.
pub(crate) struct StreamRange {
    pub(crate) target: Target,
    pub(crate) speech: Speech,
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
    pub(crate) is_kept: bool,
    pub(crate) timeout: Duration,
    /// Questions of DNS that earlier loads have asked.
    pub(crate) asked: u64,
    /// Set when the load is to end.
    pub(crate) stop: Stop,
}

impl Fire for StreamRange {
    fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }

    fn fire(&mut self, load: &Load, mut live: Live) -> anyhow::Result<Summary> {
        let clock = Clock::start();
        let setup = Setup {
            speech: self.speech.clone(),
            connections: self.connections,
            pipeline: self.pipeline,
            is_kept: self.is_kept,
            timeout: self.timeout,
            within: load.within,
            asked: self.asked,
        };
        let streams = Streams::new(setup, clock.now());
        let buffer = vec![0; READ_MAX];
        let mut driver = Driver { target: &self.target, streams, sockets: Sockets::new()?, buffer, clock };
        driver.warm_up(self.timeout.min(WARM_UP_MAX), &self.stop)?;
        let start = driver.clock.now();
        let end = start + load.length;
        let pace = match load.rate {
            _ if self.is_stopped() => Pace::Closed(start), // Stopped before it began, it sends nothing.
            0 => Pace::Closed(end),
            rate => Pace::Open(Schedule::new(start, rate, load.length)),
        };
        driver.streams.begin(pace, start);
        let core = Core::watch();
        let sent_until = driver.send(end, &self.stop, &mut live)?;
        driver.streams.tally().end_sending(sent_until);
        driver.streams.tally().on_waited(core.waited());
        // A request waits so long for a connection, and then so long for its answer.
        driver.wait_for_answers(self.timeout * 2, &self.stop)?;
        live.end();
        driver.end();
        self.asked = driver.streams.asked();
        Ok(driver.streams.finish(load.rate, sent_until.since(start)))
    }
}

struct Driver<'r> {
    target: &'r Target,
    streams: Streams,
    sockets: Sockets,
    buffer: Vec<u8>,
    clock: Clock,
}

impl Driver<'_> {
    /// Opens the connections that are kept.
    fn warm_up(&mut self, patience: Duration, stop: &Stop) -> anyhow::Result<()> {
        let deadline = self.clock.now() + patience;
        self.act(0);
        while self.streams.is_dialling() && self.clock.now() < deadline && !stop.is_asked() {
            let count = self.sockets.sleep(Duration::from_millis(10))?;
            self.act(count);
        }
        Ok(())
    }

    /// Until the load is over; when it was.
    fn send(&mut self, end: Instant, stop: &Stop, live: &mut Live) -> anyhow::Result<Instant> {
        loop {
            let now = self.clock.now();
            if now >= end || stop.is_asked() {
                self.streams.end_load(now); // What is due is due, also if its connection comes later.
                self.streams.turn(now);
                return Ok(now);
            }
            self.turn(now, end)?;
            if let Some(second) = self.streams.tally().end_seconds(now) {
                live.show(second);
            }
        }
    }

    fn wait_for_answers(&mut self, patience: Duration, stop: &Stop) -> anyhow::Result<()> {
        let deadline = self.clock.now() + patience;
        self.act(0);
        if self.streams.has_requests() {
            stop.say_waiting();
        }
        while self.streams.has_requests() && self.clock.now() < deadline && !stop.is_urgent() {
            let count = self.sockets.sleep(Duration::from_millis(5))?;
            self.streams.tally().end_seconds(self.clock.now());
            self.act(count);
        }
        Ok(())
    }

    /// Ends the connections, of which some servers want to be told.
    fn end(&mut self) {
        let now = self.clock.now();
        self.streams.end_all(now);
        while let Some(number) = self.streams.poll_changed() {
            self.send_or_close(number, now);
        }
    }

    /// Does what there is to do, or sleeps until there is something. Counts how its time went.
    fn turn(&mut self, now: Instant, end: Instant) -> anyhow::Result<()> {
        let mut count = self.sockets.poll()?;
        let mut woken = now;
        if count == 0 {
            let idle = self.streams.next_wake().min(end).since(now).min(SLEEP_MAX);
            if idle > AWAKE_BEFORE {
                count =
                    self.sockets.sleep(Duration::from_nanos(idle.as_nanos() - AWAKE_BEFORE.as_nanos()))?;
            }
            woken = self.clock.now();
            self.streams.tally().on_time(woken.since(now), false);
        }
        let has_acted = self.act(count);
        let spent = self.clock.now().since(woken);
        self.streams.tally().on_time(spent, has_acted);
        Ok(())
    }

    /// Takes in what `count` connections have, and sends what is due. Whether there was something.
    fn act(&mut self, count: usize) -> bool {
        for at in 0..count {
            if let Some(number) = self.sockets.event(at) {
                self.take(number);
            }
        }
        let now = self.clock.now();
        self.streams.turn(now);
        let mut has_acted = count > 0;
        while let Some(number) = self.streams.poll_dial(now) {
            has_acted = true;
            if let Err(fault) = self.sockets.dial(number, self.target) {
                self.streams.on_failed(number, fault, now);
            }
        }
        while let Some(number) = self.streams.poll_changed() {
            has_acted = true;
            self.send_or_close(number, now);
        }
        has_acted
    }

    /// A connection has something: an answer, its end, room to send, or it is open.
    fn take(&mut self, number: usize) {
        let now = self.clock.now();
        let Some(wire) = self.sockets.wire(number) else { return };
        match wire.open() {
            Ok(Progress::Waits) => {}
            Ok(Progress::Opened) => {
                self.streams.on_open(number, now);
                self.read(number, now); // With TLS something may have come already.
            }
            Ok(Progress::WasOpen) => self.read(number, now),
            Err(fault) => self.fail(number, fault, now),
        }
        self.send_or_close(number, now);
    }

    fn read(&mut self, number: usize, now: Instant) {
        let Some(wire) = self.sockets.wire(number) else { return };
        let streams = &mut self.streams;
        match wire.read(&mut self.buffer, &mut |octets| streams.on_octets(number, octets, now)) {
            Ok(true) => {}
            Ok(false) => self.streams.on_close(number, now),
            Err(fault) => self.fail(number, fault, now),
        }
    }

    fn fail(&mut self, number: usize, fault: Fault, now: Instant) {
        if let Some(why) = self.sockets.wire(number).and_then(Wire::why) {
            self.streams.tally().explain(fault, &why);
        }
        self.streams.on_failed(number, fault, now);
    }

    fn send_or_close(&mut self, number: usize, now: Instant) {
        if let Some(wire) = self.sockets.wire(number) {
            self.streams.write(number, &mut |octets| wire.write(octets));
        }
        if self.streams.is_over(number) {
            self.sockets.close(number);
            return self.streams.on_dropped(number, now);
        }
        let has_output = self.streams.has_output(number);
        self.sockets.watch(number, has_output);
    }
}

/// Why nothing was answered, if one reason stands out.
pub(crate) fn reason(summary: &Summary) -> Option<String> {
    let (name, _) = summary.faults.iter().max_by_key(|(_, times)| **times)?;
    Some(summary.explained(name))
}
