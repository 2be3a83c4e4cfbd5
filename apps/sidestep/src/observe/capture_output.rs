//! The output of a capture: a file, a pipe, or lines on stdout.

use std::fs::File;
use std::io::{self, BufWriter, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use observe::Header;
use observe::pcapng::{Packet, Writer};

use super::capture_text::line;

/// Writes packets until the reader is gone; later packets are dropped silently.
pub(super) struct Output {
    sink: Sink,
    stdout: Stdout,
    /// Names of the interfaces by number.
    interfaces: Vec<String>,
    snaplen: u32,
    /// The name of the output, for error messages.
    place: String,
    closed: bool,
}

enum Sink {
    Lines(BufWriter<Stdout>),
    File(Writer<BufWriter<File>>),
    Pipe(Writer<BufWriter<Stdout>>),
}

impl Output {
    /// Lines on stdout, or pcapng to the file of that name; `-` for stdout.
    pub(super) fn open(file: Option<&str>, snaplen: u32) -> anyhow::Result<Output> {
        const APPLICATION: &str = concat!("sidestep ", env!("CARGO_PKG_VERSION"));
        let place = file.filter(|file| *file != "-").unwrap_or("stdout").to_owned();
        let stdout = || BufWriter::new(io::stdout());
        let sink = match file {
            None => Sink::Lines(stdout()),
            Some("-") => Sink::Pipe(Writer::new(stdout(), APPLICATION)?),
            Some(path) => {
                let file = File::create(path).with_context(|| place.clone())?;
                Sink::File(Writer::new(BufWriter::new(file), APPLICATION)?)
            }
        };
        let stdout = io::stdout();
        Ok(Output { sink, stdout, interfaces: Vec::new(), snaplen, place, closed: false })
    }

    /// Adds an interface; returns its number for packets.
    pub(super) fn add_interface(&mut self, name: &str, description: &str) -> anyhow::Result<u32> {
        let number = self.interfaces.len() as u32;
        self.interfaces.push(name.to_owned());
        let snaplen = self.snaplen;
        self.attempt(|sink, _| match sink {
            Sink::Lines(_) => Ok(()),
            Sink::File(file) => file.add_interface(name, description, snaplen),
            Sink::Pipe(pipe) => pipe.add_interface(name, description, snaplen),
        })?;
        Ok(number)
    }

    pub(super) fn write(&mut self, interface: u32, header: &Header, frame: &[u8]) -> anyhow::Result<()> {
        let Header { time_ns, direction, original_len, .. } = *header;
        let packet = Packet { interface, time_ns, direction, original_len, frame };
        self.attempt(|sink, interfaces| match sink {
            Sink::Lines(out) => writeln!(out, "{}", line(&interfaces[interface as usize], header, frame)),
            Sink::File(file) => file.write(&packet),
            Sink::Pipe(pipe) => pipe.write(&packet),
        })
    }

    pub(super) fn write_statistics(
        &mut self,
        interface: u32,
        passed: u64,
        dropped: u64,
    ) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.attempt(|sink, _| match sink {
            Sink::Lines(_) => Ok(()),
            Sink::File(file) => file.write_statistics(interface, now_ns, passed, dropped),
            Sink::Pipe(pipe) => pipe.write_statistics(interface, now_ns, passed, dropped),
        })
    }

    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.attempt(|sink, _| match sink {
            Sink::Lines(out) => out.flush(),
            Sink::File(file) => file.flush(),
            Sink::Pipe(pipe) => pipe.flush(),
        })
    }

    /// Flushes the output. A file without packets gets an interface, because readers reject it otherwise.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        if self.interfaces.is_empty() {
            self.add_interface("none", "no interface was seen")?;
        }
        self.flush()
    }

    /// The descriptor that reports when the reader is gone, if there is one.
    pub(super) fn reader(&self) -> Option<BorrowedFd<'_>> {
        let is_file = matches!(self.sink, Sink::File(_));
        (!is_file && !self.closed).then(|| self.stdout.as_fd())
    }

    /// The reader is gone.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A reader that is gone closes the output; any other failure is an error.
    fn attempt(&mut self, write: impl FnOnce(&mut Sink, &[String]) -> io::Result<()>) -> anyhow::Result<()> {
        if self.closed {
            return Ok(());
        }
        match write(&mut self.sink, &self.interfaces) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.close();
                Ok(())
            }
            outcome => outcome.with_context(|| format!("writing to {}", self.place)),
        }
    }
}
