//! One load over UDP: the loop around `gun::Gun`.

use std::any::Any;

use clock::{Duration, Instant};
use device::Device;
use engine::Clock;
use gun::{Gun, Messages, Schedule, Setup, Summary};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::Envelope;

use super::core::Core;
use super::dropped::Dropped;
use super::next_hop::NextHop;
use super::stop::Stop;
use super::text::Live;

/// A timer of the kernel may be so late: it sleeps until then before a question is due, and then waits awake.
pub(super) const AWAKE_BEFORE: Duration = Duration::from_micros(200);
/// It sleeps so long at most, to notice that it is to stop.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Questions that leave by one port in a row: a system call sends those of one socket.
const RUN: u64 = 16;

/// How much is to be sent, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// A second; 0: as much as there are answers.
    pub(crate) rate: u32,
    pub(crate) length: Duration,
    /// How long to wait for the last answers; over UDP for each.
    pub(crate) patience: Duration,
    /// What an answer may take to be in time.
    pub(crate) within: Duration,
}

/// What can send loads to a server, one after the other.
pub(crate) trait Fire {
    /// Whether the user has had enough.
    fn is_stopped(&self) -> bool;

    /// Sends a load, and waits for the last answers.
    fn fire(&mut self, load: &Load, live: Live) -> anyhow::Result<Summary>;
}

/// A device with the ways to a server, for one load after the other.
pub(crate) struct Range {
    /// The device, for people.
    pub(crate) description: String,
    /// Set when the load is to end.
    pub(crate) stop: Stop,
    /// `None` while a load has it.
    device: Option<Box<dyn Device>>,
    /// The kernel's sockets at the same ports, unless they are the device.
    sockets: Option<Box<dyn Device>>,
    ways: Vec<Envelope>,
    /// Whom the ways lead to at first, if that may change.
    next_hop: Option<NextHop>,
    queues: u16,
    /// Questions in a row by one way.
    run: u64,
    /// Questions that were sent by earlier loads.
    sent: u64,
    clock: Clock,
    /// What must live as long as the device.
    _keep: Box<dyn Any>,
}

impl Range {
    pub(super) fn new(
        device: Box<dyn Device>,
        description: String,
        ways: Vec<Envelope>,
        queues: u16,
        keep: impl Any,
    ) -> Range {
        let (stop, clock) = (Stop::default(), Clock::start());
        let (device, keep) = (Some(device), Box::new(keep));
        Range {
            description,
            stop,
            device,
            sockets: None,
            ways,
            next_hop: None,
            queues,
            run: RUN,
            sent: 0,
            clock,
            _keep: keep,
        }
    }

    /// With the kernel's sockets at the ports of its ways.
    pub(super) fn beside(self, sockets: impl Device + 'static) -> Range {
        Range { sockets: Some(Box::new(sockets)), ..self }
    }

    /// Along ways whose next hop may move.
    pub(super) fn following(self, next_hop: NextHop) -> Range {
        Range { next_hop: Some(next_hop), ..self }
    }

    /// Each way has one question before it is the next one's turn.
    pub(super) fn taking_turns(self) -> Range {
        Range { run: 1, ..self }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }

    fn fire<M: Messages + Clone>(
        &mut self,
        messages: &M,
        load: &Load,
        mut live: Live,
    ) -> anyhow::Result<Summary> {
        let Load { rate, length, patience, within } = *load;
        let is_by_kernel = self.sockets.is_none();
        let setup = Setup {
            ways: self.ways.clone(),
            sockets: self.sockets.take(),
            questions: messages.clone(),
            queues: self.queues,
            run: self.run,
            sent: self.sent,
            timeout: patience,
            within,
        };
        let device = self.device.take().expect("one load has ended before the next one begins");
        let mut gun = Gun::new(device, setup, self.clock.now());
        // All memory is made: nothing is late for that.
        let start = self.clock.now();
        gun.begin(Schedule::new(start, rate, length), start);
        let core = Core::watch();
        let dropped = is_by_kernel.then(Dropped::watch);
        let sent_until = self.send(&mut gun, start + length, &mut live)?;
        gun.tally().end_sending(sent_until);
        gun.tally().on_waited(core.waited());
        let dropped = dropped.map_or(0, |dropped| dropped.since());
        let deadline = self.clock.now() + patience;
        if gun.under_way() > 0 {
            self.stop.say_waiting();
        }
        while gun.under_way() > 0 && self.clock.now() < deadline && !self.stop.is_urgent() {
            let now = self.clock.now();
            gun.end_seconds(now);
            if gun.wait(now).was_idle() {
                sleep(gun.devices(), now, Duration::from_millis(1))?;
            }
        }
        live.end();
        gun.on_dropped(dropped);
        let (summary, rest) = gun.finish(rate, sent_until.since(start));
        (self.device, self.sockets, self.sent) = (Some(rest.device), rest.sockets, rest.sent);
        Ok(summary)
    }

    /// Sends to where the next hop has moved, this load and later ones.
    fn follow_next_hop(&mut self, gun: &mut Gun<Box<dyn Device>, impl Messages>) {
        let Some(mac) = self.next_hop.as_ref().map(NextHop::mac) else { return };
        if mac != self.ways[0].destination_mac {
            self.ways.iter_mut().for_each(|way| way.destination_mac = mac);
            gun.set_next_hop(mac);
        }
    }

    /// Until the load is over; when it was.
    fn send(
        &mut self,
        gun: &mut Gun<Box<dyn Device>, impl Messages>,
        end: Instant,
        live: &mut Live,
    ) -> anyhow::Result<Instant> {
        let mut before = self.clock.now();
        let mut was_busy = false;
        let mut give_up = None;
        loop {
            let now = self.clock.now();
            gun.tally().on_time(now.since(before), was_busy);
            before = now;
            if now >= end && gun.next_due().is_none() || self.is_stopped() {
                return Ok(now);
            }
            self.follow_next_hop(gun);
            let turn = gun.turn(now);
            // A load whose generator cannot keep up ends in time all the same. One that did not run when the end came has that time from now on.
            if now >= end && now >= *give_up.get_or_insert(now + SLEEP_MAX + SLEEP_MAX) {
                return Ok(now);
            }
            was_busy = !turn.was_idle();
            if let Some(second) = gun.end_seconds(now) {
                live.show(second);
            }
            if turn.was_idle() {
                let due = gun.next_due().unwrap_or(end);
                let time = due.since(now).min(SLEEP_MAX);
                if time > AWAKE_BEFORE {
                    let time = Duration::from_nanos(time.as_nanos() - AWAKE_BEFORE.as_nanos());
                    sleep(gun.devices(), now, time)?;
                }
            }
        }
    }
}

/// Messages for a server over UDP.
pub(crate) struct Asking<M> {
    pub(crate) range: Range,
    pub(crate) messages: M,
}

impl<M: Messages + Clone> Fire for Asking<M> {
    fn is_stopped(&self) -> bool {
        self.range.is_stopped()
    }

    fn fire(&mut self, load: &Load, live: Live) -> anyhow::Result<Summary> {
        self.range.fire(&self.messages, load, live)
    }
}

/// Until a packet comes, for `time` at most, or until a device that wakes nobody wants to be asked.
fn sleep(mut devices: Vec<&mut dyn Device>, now: Instant, time: Duration) -> anyhow::Result<()> {
    if !devices.iter_mut().all(|device| device.prepare_wait()) {
        return Ok(());
    }
    let wishes = devices.iter().filter_map(|device| device.poll_timeout());
    let time = wishes.fold(time, |time, at| time.min(at.since(now)));
    let mut fds = Vec::new();
    devices.iter().for_each(|device| device.wait_fds(&mut fds));
    let mut fds: Vec<PollFd<'_>> =
        fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
