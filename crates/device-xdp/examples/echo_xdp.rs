//! Echoes UDP packets to port 53 of an interface, in place: the fastest that anything over this device can be.
//!
//! `echo_xdp IFNAME [--queues N] [--busy-poll] [--generic] [--spin-micros N] [--rings N] [--frames N] [--frame-size N]`;
//! prints rates and counts once a second, while packets come.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_xdp::{AttachMode, BusyPoll, SteeringOptions, SteeringProgram, XdpDevice, XdpOptions};
use steering::{Claim, LocalAddress, Transport, VlanTags};
use wire::ChecksumPolicy;

type Error = Box<dyn std::error::Error>;

struct Arguments {
    interface: String,
    queues: u16,
    steering: SteeringOptions,
    options: XdpOptions,
    spin: Duration,
}

fn main() -> Result<(), Error> {
    let arguments = arguments()?;
    let mut program = SteeringProgram::attach(&arguments.interface, arguments.steering)?;
    let queues: Vec<u16> = (0..arguments.queues).collect();
    let mut device = XdpDevice::open(&mut program, &queues, &arguments.options)?;
    program.set_claims(&claims(&arguments.interface)?)?;
    println!("{}", device.capabilities().description);
    serve(&mut device, &program, arguments.spin)
}

fn serve(device: &mut XdpDevice, program: &SteeringProgram, spin: Duration) -> Result<(), Error> {
    let mut burst = Burst::new();
    let mut report = Report::default();
    let mut last_frame = Instant::now();
    let checksums =
        ChecksumPolicy { verified: false, accept_partial: device.capabilities().partial_checksums };
    loop {
        if device.rx_burst(&mut burst, clock::Instant::ZERO) == 0 {
            if last_frame.elapsed() >= spin && device.prepare_wait() {
                sleep(device)?;
            }
        } else {
            for frame in &mut burst {
                let packet = frame.bytes_mut();
                if let Ok(headers) = wire::parse_udp(packet, checksums) {
                    wire::turn_around(packet, &headers, headers.payload_range().len(), false);
                }
            }
            device.tx_burst(&mut burst, clock::Instant::ZERO);
            burst.drain(..).for_each(|frame| device.release(frame));
            if !spin.is_zero() {
                last_frame = Instant::now();
            }
        }
        report.tick(device, program)?;
    }
}

fn sleep(device: &XdpDevice) -> io::Result<()> {
    let mut fds = Vec::new();
    device.wait_fds(&mut fds);
    let mut polled: Vec<_> =
        fds.iter().map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)).collect();
    let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Default)]
struct Report {
    turns: u32,
    last: Option<Instant>,
    rx: u64,
}

impl Report {
    /// Looks at the clock every 4096 turns, and reports once a second.
    fn tick(&mut self, device: &XdpDevice, program: &SteeringProgram) -> Result<(), Error> {
        self.turns = self.turns.wrapping_add(1);
        if !self.turns.is_multiple_of(4096) {
            return Ok(());
        }
        let elapsed = self.last.get_or_insert_with(Instant::now).elapsed();
        if elapsed < Duration::from_secs(1) {
            return Ok(());
        }
        let counters = device.counters();
        let rate = (counters.rx_frames - self.rx) as f64 / elapsed.as_secs_f64();
        println!("{rate:.0} packets/s; {counters:?}; {:?}", program.counters()?);
        (self.rx, self.last) = (counters.rx_frames, Some(Instant::now()));
        Ok(())
    }
}

fn arguments() -> Result<Arguments, Error> {
    let mut words = std::env::args().skip(1);
    let usage = "usage: echo_xdp IFNAME [--queues N] [--busy-poll] [--generic] [--spin-micros N] [--rings N] [--frames N] \
                 [--frame-size N]";
    let mut arguments = Arguments {
        interface: words.next().ok_or(usage)?,
        queues: 1,
        steering: SteeringOptions::default(),
        options: XdpOptions::default(),
        spin: Duration::ZERO,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--queues" => arguments.queues = words.next().ok_or(usage)?.parse()?,
            "--busy-poll" => arguments.options.busy_poll = Some(BusyPoll::default()),
            "--generic" => arguments.steering.mode = Some(AttachMode::Generic),
            "--rings" => arguments.options.ring_entries = words.next().ok_or(usage)?.parse()?,
            "--frames" => arguments.options.frames_per_queue = words.next().ok_or(usage)?.parse()?,
            "--frame-size" => arguments.options.frame_size = Some(words.next().ok_or(usage)?.parse()?),
            "--spin-micros" => arguments.spin = Duration::from_micros(words.next().ok_or(usage)?.parse()?),
            _ => return Err(usage.into()),
        }
    }
    Ok(arguments)
}

/// Port 53 on each address that `ip` lists.
fn claims(interface: &str) -> Result<BTreeSet<Claim>, Error> {
    let listing = Command::new("ip").args(["-oneline", "address", "show", "dev", interface]).output()?;
    let listing = String::from_utf8(listing.stdout)?;
    let addresses = listing.lines().filter_map(|line| line.split_whitespace().nth(3)?.split('/').next());
    addresses
        .map(|address| {
            let local = LocalAddress { address: address.parse::<IpAddr>()?, vlan: VlanTags::default() };
            Ok(Claim { transport: Transport::Udp, local, port: 53 })
        })
        .collect()
}
