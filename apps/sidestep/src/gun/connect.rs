//! `gun connect`: connections that are opened and held.

use anyhow::ensure;
use clock::{Duration, Instant};
use engine::Clock;
use gun::Schedule;
use gun::streams::{Fault, Holding};

use super::core::Core;
use super::load::{AWAKE_BEFORE, SLEEP_MAX};
use super::options::Connect;
use super::report::{Held, Report};
use super::sockets::{Kind, Progress, Sockets, Target};
use super::stop::Stop;
use super::text::Live;

/// Descriptors for all but connections.
const RESERVE: u64 = 64;
/// Octets that are read of a connection at a time, and thrown away.
const READ_MAX: usize = 16 * 1024;

/// Raises the soft limit of descriptors, if that is needed for so many connections.
pub(crate) fn raise_limit(connections: u64) -> anyhow::Result<()> {
    let needed = connections + RESERVE;
    let limit = crate::dns::raise_descriptor_limit();
    ensure!(
        limit.is_none_or(|limit| limit >= needed),
        "{connections} connections need {needed} descriptors, and this process may have {}: raise the limit (ulimit -Hn), or open fewer",
        limit.unwrap_or(0)
    );
    Ok(())
}

/// Opens the connections, holds them, and puts what came of it into `report`.
pub(crate) fn hold(options: &Connect, report: &mut Report, stop: &Stop) -> anyhow::Result<()> {
    raise_limit(options.connections.into())?;
    let clock = Clock::start();
    let start = clock.now();
    let length = Duration::from_secs_f64(f64::from(options.connections) / f64::from(options.rate));
    let schedule = Schedule::with_count(start, options.rate, options.connections.into());
    let mut driver = Driver {
        target: Target { address: options.server, kind: Kind::Tcp },
        holding: Holding::new(schedule, options.timeout, start),
        sockets: Sockets::new()?,
        buffer: vec![0; READ_MAX],
        live: Live::new(options.rate),
        clock,
        is_opening: true,
    };
    let core = Core::watch();
    // The last connection has its share of the time as the others have.
    let all_begun = start + length;
    driver.turn_until(all_begun, stop, |holding, now| holding.next_due().is_none() && now >= all_begun)?;
    let opening_ended = driver.clock.now();
    driver.holding.tally().end_sending(opening_ended);
    driver.holding.tally().on_waited(core.waited());
    driver.is_opening = false;
    let settled = opening_ended + options.timeout;
    driver.turn_until(settled, stop, |holding, _| holding.is_settled())?;
    let until = driver.clock.now() + options.duration;
    driver.turn_until(until, stop, |holding, now| now >= until || holding.held() == 0)?;
    driver.live.end();
    report.held = Some(Held { most: driver.holding.held_most(), end: driver.holding.held() });
    report.loads.push(driver.holding.finish(options.rate, opening_ended.since(start)));
    Ok(())
}

struct Driver {
    target: Target,
    holding: Holding,
    sockets: Sockets,
    buffer: Vec<u8>,
    live: Live,
    clock: Clock,
    is_opening: bool,
}

impl Driver {
    /// Goes on until it is over, which may be at `time` without anything that happens.
    fn turn_until(
        &mut self,
        time: Instant,
        stop: &Stop,
        is_over: impl Fn(&Holding, Instant) -> bool,
    ) -> anyhow::Result<()> {
        while !is_over(&self.holding, self.clock.now()) && !stop.is_asked() {
            self.turn(time)?;
        }
        Ok(())
    }

    fn turn(&mut self, until: Instant) -> anyhow::Result<()> {
        let now = self.clock.now();
        let mut count = self.sockets.poll()?;
        let mut woken = now;
        if count == 0 {
            let idle = self.holding.next_due().unwrap_or(until).since(now).min(SLEEP_MAX);
            if idle > AWAKE_BEFORE {
                count =
                    self.sockets.sleep(Duration::from_nanos(idle.as_nanos() - AWAKE_BEFORE.as_nanos()))?;
            }
            woken = self.clock.now();
            self.note_time(woken.since(now), false);
        }
        let has_acted = self.act(count);
        let now = self.clock.now();
        self.note_time(now.since(woken), has_acted);
        if let Some(second) = self.holding.tally().end_seconds(now) {
            self.live.show(second);
        }
        Ok(())
    }

    /// Connections that are held take no time: what counts is the time in which they are opened.
    fn note_time(&mut self, time: Duration, was_busy: bool) {
        if self.is_opening {
            self.holding.tally().on_time(time, was_busy);
        }
    }

    fn act(&mut self, count: usize) -> bool {
        for at in 0..count {
            if let Some(number) = self.sockets.event(at) {
                self.take(number);
            }
        }
        let now = self.clock.now();
        let has_dialled = self.dial(now);
        while let Some(number) = self.holding.poll_expired(now) {
            self.sockets.close(number);
        }
        count > 0 || has_dialled
    }

    fn dial(&mut self, now: Instant) -> bool {
        let mut has_dialled = false;
        while let Some(number) = self.holding.poll_dial(now) {
            has_dialled = true;
            if let Err(fault) = self.sockets.dial(number, &self.target) {
                self.holding.on_end(number, fault);
            }
        }
        has_dialled
    }

    fn take(&mut self, number: usize) {
        let Some(wire) = self.sockets.wire(number) else { return };
        let opened = wire.open();
        let is_open = match opened {
            Ok(Progress::Waits) => return,
            Ok(Progress::Opened) => {
                self.holding.on_open(number, self.clock.now());
                Ok(true)
            }
            Ok(Progress::WasOpen) => wire.read(&mut self.buffer, &mut |_| {}),
            Err(fault) => Err(fault),
        };
        match is_open {
            Ok(true) => return self.sockets.watch(number, false),
            Ok(false) => self.holding.on_end(number, Fault::ClosedEarly),
            Err(fault) => self.holding.on_end(number, fault),
        }
        self.sockets.close(number);
    }
}
