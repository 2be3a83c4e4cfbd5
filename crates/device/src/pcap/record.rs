//! Writing down what passes through a device.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use clock::{Duration, Instant};
use frame::Frame;

use super::capture::ETHERNET;
use super::classic::NANOSECOND_MAGIC;
use crate::{Burst, Capabilities, Device, DeviceCounters};

/// Writes every frame that `D` receives or accepts for transmission to `W`, as a pcap file with nanoseconds.
///
/// Frames are written as the engine sees them: with transmit checksum offload, their checksums are unfinished. Writing
/// takes place within the turn of the engine, so `W` should buffer.
#[derive(Debug)]
pub struct PcapRecord<D, W> {
    device: D,
    /// `None` after an error.
    file: Option<W>,
    /// Time since 1970 at [`Instant::ZERO`].
    epoch: Duration,
    /// Records of the current burst, and where each ends.
    records: Vec<u8>,
    ends: Vec<usize>,
    recorded: u64,
    write_errors: u64,
}

impl<D: Device, W: Write + Send> PcapRecord<D, W> {
    /// Starts a file. `epoch` is the time since 1970 at which the instants of `now` start to count; zero if that does not matter.
    pub fn new(device: D, mut file: W, epoch: Duration) -> PcapRecord<D, W> {
        let started = file.write_all(&file_header());
        let file = started.is_ok().then_some(file);
        let write_errors = u64::from(file.is_none());
        PcapRecord { device, file, epoch, records: Vec::new(), ends: Vec::new(), recorded: 0, write_errors }
    }

    /// Number of frames written.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Number of failed writes: recording ended at the first, the device works on.
    pub fn write_errors(&self) -> u64 {
        self.write_errors
    }

    /// Ends the recording; gives back the device, and the file unless writing had failed.
    pub fn finish(mut self) -> (D, Option<W>) {
        let flushed = self.file.as_mut().map_or(Ok(()), Write::flush);
        (self.device, self.file.filter(|_| flushed.is_ok()))
    }

    /// Prepares the records of `frames`.
    fn encode(&mut self, frames: &[Frame], now: Instant) {
        self.records.clear();
        self.ends.clear();
        if self.file.is_none() {
            return;
        }
        let time = self.epoch + Duration::from_nanos(now.as_nanos());
        for frame in frames {
            let len = frame.len() as u32; // Below 2^16.
            let header = [time.as_secs() as u32, time.subsec_nanos(), len, len];
            self.records.extend_from_slice(header.map(u32::to_le_bytes).as_flattened());
            self.records.extend_from_slice(frame.bytes());
            self.ends.push(self.records.len());
        }
    }

    /// Writes the first `count` of the prepared records.
    fn write(&mut self, count: usize) {
        let (Some(file), Some(last)) = (&mut self.file, count.checked_sub(1)) else {
            return;
        };
        let written: io::Result<()> = file.write_all(&self.records[..self.ends[last]]);
        if written.is_err() {
            self.file = None;
            self.write_errors += 1;
        } else {
            self.recorded += count as u64;
        }
    }
}

impl<D: Device, W: Write + Send> Device for PcapRecord<D, W> {
    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn rx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        let before = burst.len();
        let received = self.device.rx_burst(burst, now);
        self.encode(&burst[before..], now);
        self.write(received);
        received
    }

    fn tx_burst(&mut self, burst: &mut Burst, now: Instant) -> usize {
        self.encode(burst, now);
        let sent = self.device.tx_burst(burst, now);
        self.write(sent);
        sent
    }

    fn alloc(&mut self) -> Option<Frame> {
        self.device.alloc()
    }

    fn release(&mut self, frame: Frame) {
        self.device.release(frame);
    }

    fn take_foreign(&mut self) -> Option<Frame> {
        self.device.take_foreign()
    }

    fn wait_fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        self.device.wait_fds(fds);
    }

    fn prepare_wait(&mut self) -> bool {
        self.device.prepare_wait()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    fn holds_unsent(&self) -> bool {
        self.device.holds_unsent()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}

/// The header of a little-endian file with nanoseconds: version 2.4, packets up to 65535 octets.
fn file_header() -> [u8; 24] {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&NANOSECOND_MAGIC.to_le_bytes());
    header[4..6].copy_from_slice(&2u16.to_le_bytes());
    header[6..8].copy_from_slice(&4u16.to_le_bytes());
    header[16..20].copy_from_slice(&0xffffu32.to_le_bytes());
    header[20..].copy_from_slice(&ETHERNET.to_le_bytes());
    header
}
