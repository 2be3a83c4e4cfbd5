//! `sidestep capture`: like tcpdump, for packets that bypass the kernel.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use observe::Header;
use observe::client::{Answer, Answering, ClientError};
use observe::protocol::{Message, Reply, Request};
use observe::report::InterfaceReport;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::capture_output::Output;
use super::{Which, filter_of};
use crate::output::complain;

/// The options of `capture`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Capture {
    #[command(flatten)]
    which: Which,

    /// Write pcapng to FILE, or to stdout for `-`. Without this option, print a line for each packet.
    #[arg(long, short, value_name = "FILE")]
    write: Option<String>,

    /// Keep at most so many octets of each packet.
    #[arg(long, short, value_name = "OCTETS", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..=262_144))]
    snaplen: u32,

    /// Stop after so many packets.
    #[arg(long, short, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Capture only matching packets, such as `tcp and port 80 and not host 192.0.2.1`. See docs/observability.md.
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

/// `sidestep capture`.
pub(crate) fn run(options: &Capture) -> anyhow::Result<ExitCode> {
    let signals = signal_pipe().context("handling signals")?;
    let request = Request::Capture { filter: filter_of(&options.filter)?, snaplen: options.snaplen };
    let answers = options.which.ask(&request)?;
    let output = Output::open(options.write.as_deref(), options.snaplen)?;
    let sessions: Vec<Session> = answers.into_iter().map(Session::new).collect();
    let names: Vec<String> = sessions.iter().map(Session::name).collect();
    complain!("sidestep: capturing at {}; Ctrl-C ends", names.join(", "));
    let left = options.count.unwrap_or(u64::MAX);
    let mut running = Running { sessions, output, signals, left, written: 0, ending: false };
    running.run()?;
    running.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes readable when SIGINT or SIGTERM comes.
fn signal_pipe() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in [SIGINT, SIGTERM] {
        pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// A capture in one program.
struct Session {
    answering: Answering,
    answer: Answer,
    /// The program's names of its interfaces, and the file's names of them.
    interfaces: Vec<(InterfaceReport, u32)>,
    passed: u64,
    dropped: u64,
    over: bool,
}

impl Session {
    fn new((answering, answer): (Answering, Answer)) -> Session {
        Session { answering, answer, interfaces: Vec::new(), passed: 0, dropped: 0, over: false }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.answering.name, self.answering.pid)
    }

    /// Its program failed; the other captures continue.
    fn give_up(&mut self, error: &ClientError) {
        complain!("sidestep: {}: {error}", self.name());
        self.over = true;
    }
}

/// All captures, and their output.
struct Running {
    sessions: Vec<Session>,
    output: Output,
    signals: UnixStream,
    /// Packets still wanted.
    left: u64,
    written: u64,
    /// The programs have been asked to end; their reports are still to come.
    ending: bool,
}

impl Running {
    fn run(&mut self) -> anyhow::Result<()> {
        loop {
            for at in 0..self.sessions.len() {
                self.take_messages(at)?;
            }
            self.output.flush()?;
            if self.output.is_closed() {
                self.end();
            }
            if self.sessions.iter().all(|session| session.over) || !self.wait()? {
                return Ok(());
            }
        }
    }

    /// Reads what has arrived of one program's answer.
    fn take_messages(&mut self, at: usize) -> anyhow::Result<()> {
        while !self.sessions[at].over && self.sessions[at].answer.has_message() {
            match self.sessions[at].answer.next_message() {
                Ok(Some(Message::Packet(header, frame))) => self.take_packet(at, &header, &frame)?,
                Ok(Some(Message::Reply(reply))) => self.take_reply(at, reply)?,
                Ok(None) => self.sessions[at].over = true,
                Err(error) => self.sessions[at].give_up(&error),
            }
        }
        Ok(())
    }

    fn take_packet(&mut self, at: usize, header: &Header, frame: &[u8]) -> anyhow::Result<()> {
        let interfaces = &self.sessions[at].interfaces;
        let interface = interfaces.iter().find(|(report, _)| report.interface == header.source);
        let (_, interface) = interface.context("a packet of an unknown interface")?;
        if self.left == 0 {
            return Ok(());
        }
        self.output.write(*interface, header, frame)?;
        self.written += 1;
        self.left -= 1;
        if self.left == 0 {
            self.end();
        }
        Ok(())
    }

    fn take_reply(&mut self, at: usize, reply: Reply) -> anyhow::Result<()> {
        let session = &mut self.sessions[at];
        match reply {
            Reply::Interface(report) => {
                let description = format!("{}; {}", session.name(), report.description);
                let number = self.output.add_interface(&report.name, &description)?;
                session.interfaces.push((report, number));
            }
            Reply::Capture(report) => {
                session.passed += report.passed;
                session.dropped += report.dropped;
                // If an engine has just one interface, its counts are that interface's.
                let mut own = session.interfaces.iter().filter(|(known, _)| known.engine == report.engine);
                if let (Some((_, number)), None) = (own.next(), own.next()) {
                    self.output.write_statistics(*number, report.passed, report.dropped)?;
                }
            }
            _ => {} // Of a later version.
        }
        Ok(())
    }

    /// Asks the programs to end their captures.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ending, true) {
            self.sessions.iter().for_each(|session| session.answer.end());
        }
    }

    /// Waits until a program has sent more, and reads it. False after a second signal: then reports are not awaited.
    fn wait(&mut self) -> anyhow::Result<bool> {
        let open = self.sessions.iter().filter(|session| !session.over);
        let mut fds: Vec<PollFd<'_>> =
            open.map(|session| PollFd::from_borrowed_fd(session.answer.fd(), PollFlags::IN)).collect();
        let programs = fds.len();
        fds.push(PollFd::new(&self.signals, PollFlags::IN));
        // Without requested events, only the end of the reader is reported.
        fds.extend(self.output.reader().map(|reader| PollFd::from_borrowed_fd(reader, PollFlags::empty())));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for packets"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let open = self.sessions.iter_mut().filter(|session| !session.over);
        for (session, _) in open.zip(&ready[..programs]).filter(|(_, ready)| **ready) {
            match session.answer.read_more() {
                Err(ClientError::CutOff | ClientError::Connection(_)) => {
                    complain!("sidestep: {} ended without a report", session.name());
                    session.over = true;
                }
                Err(error) => session.give_up(&error),
                Ok(()) => {}
            }
        }
        if ready.get(programs + 1) == Some(&true) {
            self.output.close();
        }
        let is_second = ready[programs] && self.ending;
        if ready[programs] {
            let _ = io::Read::read(&mut &self.signals, &mut [0; 16]); // One signal or more: it is all the same.
            self.end();
        }
        Ok(!is_second)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.output.finish()?;
        let dropped: u64 = self.sessions.iter().map(|session| session.dropped).sum();
        let passed: u64 = self.sessions.iter().map(|session| session.passed).sum();
        complain!(
            "sidestep: {} packets captured, {passed} passed the filter, {dropped} dropped because the capture buffer was full",
            self.written
        );
        Ok(())
    }
}
