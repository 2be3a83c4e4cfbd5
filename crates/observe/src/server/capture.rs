//! Captures of packets.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{DeviceReport, EngineHandle, Role};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::client::Out;
use crate::filter::Filter;
use crate::protocol::{MESSAGE_MAX, Reply, write_json, write_packet};
use crate::report::{CaptureReport, InterfaceReport};
use crate::ring::{Header, RingReader, ring};

/// Octets of the ring between an engine and its capture: 80 milliseconds of 50 megabytes a second.
const RING: usize = 4 << 20;
/// Time between two polls of the rings while nothing arrives. The engine wakes nobody: that would cost a system call a packet.
const INTERVAL: Duration = Duration::from_millis(10);
/// Packets between two checks whether the capture should end.
const ROUND: usize = 1024;

/// Captures until the client shuts down its direction, or `ending`.
pub(super) fn run(
    engines: &[EngineHandle],
    filter: Filter,
    snaplen: u32,
    ending: &AtomicBool,
    out: &mut Out<'_>,
) -> io::Result<()> {
    out.get_ref().set_write_timeout(None)?; // A slow reader loses packets, not the capture.
    let mut capture = Capture::start(engines, &filter, snaplen);
    capture.announce_primaries(out)?;
    loop {
        let is_last = ending.load(Ordering::Relaxed) || wants_end(out, capture.is_idle())?;
        capture.write_round(out)?;
        if is_last {
            break;
        }
    }
    capture.stop();
    while !capture.is_idle() {
        capture.write_round(out)?;
    }
    capture.write_reports(out)
}

/// Whether the client has shut down its direction. With `wait`, waits a little for that.
fn wants_end(out: &mut Out<'_>, wait: bool) -> io::Result<bool> {
    if wait {
        out.flush()?;
    }
    let timeout =
        Timespec::try_from(if wait { INTERVAL } else { Duration::ZERO }).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(*out.get_ref(), PollFlags::IN)];
    let _ = poll(&mut fds, Some(&timeout)); // A signal ends the wait early, which does no harm.
    Ok(!fds[0].revents().is_empty())
}

struct Capture<'e> {
    engines: &'e [EngineHandle],
    readers: Vec<RingReader>,
    /// Interfaces by engine and device.
    interfaces: BTreeMap<(usize, u32), u32>,
    frame: Vec<u8>,
}

impl<'e> Capture<'e> {
    fn start(engines: &'e [EngineHandle], filter: &Filter, snaplen: u32) -> Capture<'e> {
        let snaplen = (snaplen as usize).min(MESSAGE_MAX - Header::LEN);
        let tap = |engine: &EngineHandle| {
            let (tap, reader) = ring(filter.clone(), snaplen, RING);
            engine.add_tap(Box::new(tap));
            reader
        };
        let readers = engines.iter().map(tap).collect();
        Capture { engines, readers, interfaces: BTreeMap::new(), frame: Vec::new() }
    }

    /// No more packets come, except those of the engines' current turns.
    fn stop(&self) {
        self.readers.iter().for_each(RingReader::stop);
    }

    fn is_idle(&mut self) -> bool {
        self.readers.iter_mut().all(|reader| reader.next_time().is_none())
    }

    /// Describes the interfaces whose packets can come, so that a file without packets is complete, too.
    fn announce_primaries(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        for (engine, handle) in self.engines.iter().enumerate() {
            let reports = handle.device_reports().present;
            for report in reports.iter().filter(|report| report.role == Role::Primary) {
                self.announce(engine, report.id.0, Some(report), out)?;
            }
        }
        out.flush()
    }

    /// Writes up to [`ROUND`] packets, of all engines in the order of their times.
    fn write_round(&mut self, out: &mut Out<'_>) -> io::Result<()> {
        for _ in 0..ROUND {
            let times = self.readers.iter_mut().enumerate();
            let oldest = times.filter_map(|(at, reader)| Some((reader.next_time()?, at))).min();
            let Some((_, engine)) = oldest else { break };
            self.frame.clear();
            let Some(header) = self.readers[engine].pop(&mut self.frame) else { break };
            let source = self.interface(engine, header.source, out)?;
            write_packet(out, &Header { source, ..header }, &self.frame)?;
        }
        Ok(())
    }

    fn interface(&mut self, engine: usize, device: u32, out: &mut Out<'_>) -> io::Result<u32> {
        if let Some(known) = self.interfaces.get(&(engine, device)) {
            return Ok(*known);
        }
        let reports = self.engines[engine].device_reports().present;
        let report = reports.iter().find(|report| report.id.0 == device);
        self.announce(engine, device, report, out)
    }

    /// The description of an interface's device begins with the interface's name.
    fn announce(
        &mut self,
        engine: usize,
        device: u32,
        report: Option<&DeviceReport>,
        out: &mut Out<'_>,
    ) -> io::Result<u32> {
        let interface = self.interfaces.len() as u32;
        self.interfaces.insert((engine, device), interface);
        let words = report.map_or("a device that has gone", |report| report.description.as_str());
        let name = report.and_then(|_| words.split_whitespace().next()).unwrap_or("unknown").to_owned();
        let description = format!("{words}; engine {engine}, device {device}");
        write_json(out, &Reply::Interface(InterfaceReport { interface, engine, name, description }))?;
        Ok(interface)
    }

    fn write_reports(&self, out: &mut Out<'_>) -> io::Result<()> {
        for (engine, reader) in self.readers.iter().enumerate() {
            let (passed, dropped) = reader.tally.read();
            write_json(out, &Reply::Capture(CaptureReport { engine, passed, dropped }))?;
        }
        Ok(())
    }
}
