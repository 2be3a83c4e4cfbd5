//! Stands between two wires, passes every frame on, and is no good at it: some are lost, doubled, delayed or overtaken.
//!
//! Usage: `middle_box IF IF [--seed N] [--loss P] [--duplication P] [--reordering P] [--delay-us MIN-MAX]`, in both directions
//! alike; probabilities from 0 to 1. At its end (SIGTERM) it says what it did.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Duration;
use device::fault::{FaultInjector, Faults};
use device::{Burst, Device};
use device_kernel::PacketSocket;
use engine::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGTERM;

type Error = Box<dyn std::error::Error>;
type Wire = FaultInjector<PacketSocket>;

/// Frames of each wire: a delay of some milliseconds at full speed holds thousands.
const FRAMES: usize = 8192;

fn main() -> Result<(), Error> {
    let stopping = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&stopping))?;
    let [mut left, mut right] = open(std::env::args().skip(1))?;
    let (mut rightward, mut leftward) = (Burst::new(), Burst::new());
    let clock = Clock::start();
    println!("middle_box: ready");
    while !stopping.load(Ordering::Relaxed) {
        let moved = pass_on(&mut left, &mut right, &mut rightward, &clock)
            + pass_on(&mut right, &mut left, &mut leftward, &clock);
        if moved == 0 {
            sleep([&left, &right], &clock);
        }
    }
    for wire in [&left, &right] {
        let (counts, _) = wire.counts();
        println!("middle_box: {counts:?}");
    }
    Ok(())
}

/// Moves a burst from one wire to the other; what finds no room stays in `under_way`. Returns the number of frames moved.
fn pass_on(from: &mut Wire, to: &mut Wire, under_way: &mut Burst, clock: &Clock) -> usize {
    let now = clock.now();
    if under_way.is_empty() {
        from.rx_burst(under_way, now);
    }
    let moved = to.tx_burst(under_way, now);
    while let Some(frame) = to.take_foreign() {
        from.release(frame);
    }
    moved
}

/// Until a frame comes or one that is held back is due.
fn sleep(wires: [&Wire; 2], clock: &Clock) {
    let mut fds = Vec::new();
    wires.iter().for_each(|wire| wire.wait_fds(&mut fds));
    let now = clock.now();
    let due = wires.iter().filter_map(|wire| wire.poll_timeout()).min();
    let left = due.map_or(Duration::from_millis(100), |due| due.since(now));
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let _ = poll(&mut polled, Some(&timeout)); // A signal ends the wait early.
}

fn open(mut words: impl Iterator<Item = String>) -> Result<[Wire; 2], Error> {
    let (left, right) = (words.next().ok_or("no interface")?, words.next().ok_or("no second interface")?);
    let (mut faults, mut seed) = (Faults::default(), 1);
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--seed" => seed = value.parse()?,
            "--loss" => faults.loss = value.parse()?,
            "--duplication" => faults.duplication = value.parse()?,
            "--reordering" => faults.reordering = value.parse()?,
            "--delay-us" => {
                let (min, max) = value.split_once('-').ok_or("--delay-us: MIN-MAX")?;
                faults.delay = 1.0;
                (faults.delay_min, faults.delay_max) =
                    (Duration::from_micros(min.parse()?), Duration::from_micros(max.parse()?));
            }
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let wire = |interface: &str, seed| -> Result<Wire, Error> {
        let socket = PacketSocket::open(interface, FRAMES)?;
        Ok(FaultInjector::new(socket, seed, faults, Faults::default()))
    };
    Ok([wire(&left, seed)?, wire(&right, seed ^ 1 << 32)?])
}
