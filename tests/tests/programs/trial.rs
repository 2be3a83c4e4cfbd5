//! [`Trial`]: one program in a laboratory of its own, on the network that `SIDESTEP_PROGRAMS` asks for, and what is found.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, ExitStatus};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Program, Running};
use lab::{BOX_INTERFACES, Child, Lab, LabError, SERVER_INTERFACE, SERVER_V4, Side};
use tests::Counters;

/// Laboratories at a time: all use the same two cores.
const TRIALS_MAX: usize = 2;
/// Nothing here takes longer, on a machine that does other work too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Time for a program to end when asked to, and for the kernel to take down what belonged to it.
const END_MAX: Duration = Duration::from_secs(60);
/// Time for a program that is ready to wait for its sockets, and for what it claims to have effect.
pub(crate) const SETTLING: Duration = Duration::from_millis(300);
/// The longest time that a program gets to have a queue.
const QUEUE_MAX: Duration = Duration::from_secs(30);
/// How long a load lasts.
pub(crate) const LOAD: Duration = Duration::from_secs(1);
/// Names the file to which each figure is appended, for the table of results.
const RESULTS: &str = "SIDESTEP_PROGRAMS_RESULTS";
/// Part of the packets that may reach the kernel although the stack is expected to take them: the first ones, before it had begun.
pub(crate) const KERNEL_SHARE_MAX: f64 = 0.1;
/// From this part of the packets on nobody but the kernel took them: on ways with loss a few of a hundred do not arrive.
const KERNEL_SHARE_ALONE: f64 = 0.85;

/// A program on trial. It runs on the server's side, whatever its role is; those it talks to run on the client's side, on the kernel.
pub(crate) struct Trial {
    pub(crate) lab: Lab,
    pub(crate) network: Network,
    name: String,
    role: &'static str,
    abstract_sockets: Vec<String>,
    /// Who started the program, if that was `sidestep run`.
    broker: Mutex<Option<u32>>,
    /// Passes packets on if there is something between the two sides.
    _middle_box: Option<Child>,
    _turn: Turn,
}

/// Who is expected to carry a program's packets under `sidestep run`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carrier {
    /// The stack, nearly all of them.
    Stack,
    /// The kernel, as far as it must be, for this reason.
    Kernel(&'static str),
    /// The one or the other, for this reason.
    Either(&'static str),
}

/// What a load found.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) errors: u64,
    /// For people, if there are errors.
    pub(crate) detail: String,
}

impl Trial {
    /// A laboratory with one queue for the server `name`; `None` if there can be no laboratory.
    pub(crate) fn of(name: &str) -> Option<Trial> {
        Trial::with_queues(name, 1)
    }

    /// With so many queues.
    pub(crate) fn with_queues(name: &str, queues: u32) -> Option<Trial> {
        Trial::make(name, "server", || Ok((Lab::with_queues(queues)?, None)))
    }

    /// With a way to the clients on which each packet takes that long.
    pub(crate) fn with_delay(name: &str, delay: Duration) -> Option<Trial> {
        let micros = delay.as_micros();
        Trial::with_box(name, &["--delay-us", &format!("{micros}-{micros}")])
    }

    /// With a way to the clients on which that part of the packets is lost.
    pub(crate) fn with_loss(name: &str, loss: &str) -> Option<Trial> {
        Trial::with_box(name, &["--loss", loss])
    }

    fn with_box(name: &str, faults: &[&str]) -> Option<Trial> {
        Trial::make(name, "server", || {
            let lab = Lab::with_box(1)?;
            let arguments = [&BOX_INTERFACES[..], faults].concat();
            let mut middle_box = lab.spawn_in(Side::Box, env!("CARGO_BIN_EXE_middle_box"), &arguments)?;
            middle_box.wait_for_line("ready", PATIENCE)?;
            Ok((lab, Some(middle_box)))
        })
    }

    /// For the client `name`.
    pub(crate) fn of_client(name: &str) -> Option<Trial> {
        Trial::make(name, "client", || Ok((Lab::new()?, None)))
    }

    /// Has `sidestep run` keep connections on the stack that the kernel would serve better.
    pub(crate) fn keeping_all(self) -> Trial {
        self.with_options(&[])
    }

    /// The same in a test, so that large transfers test the stack. Figures are taken with the default profile, as users have it.
    pub(crate) fn keeping_all_in_tests(self) -> Trial {
        if takes_figures() { self } else { self.keeping_all() }
    }

    /// The same, and has UDP on the stack too: on this network, with one queue, that takes XDP in the driver.
    pub(crate) fn with_datagrams_in_tests(self) -> Trial {
        if takes_figures() { self } else { self.with_options(&["--xdp-mode", "native"]) }
    }

    /// The same as [`Trial::keeping_all`], with more options.
    pub(crate) fn with_options(mut self, options: &[&str]) -> Trial {
        if self.network != Network::Kernel {
            self.network = Network::sidestep(&[&["--profile", "accelerate"], options].concat());
        }
        self
    }

    fn make(
        name: &str,
        role: &'static str,
        lab: impl FnOnce() -> Result<(Lab, Option<Child>), LabError>,
    ) -> Option<Trial> {
        if !lab::require_root_and_xdp() {
            return None;
        }
        let turn = Turn::wait();
        let (lab, middle_box) = lab().unwrap();
        let abstract_sockets = abstract_sockets(&lab);
        Some(Trial {
            lab,
            network: Network::wanted(),
            name: name.to_owned(),
            role,
            abstract_sockets,
            broker: Mutex::new(None),
            _middle_box: middle_box,
            _turn: turn,
        })
    }

    /// Starts the program on trial, and gives it the moment that it may take until its sockets are claimed: connections that come
    /// before are the kernel's for as long as they last.
    pub(crate) fn start(&self, program: &Program) -> Running {
        let running = program.start(&self.lab, Side::Server, &self.network);
        let running = running.unwrap_or_else(|error| panic!("{error}"));
        if self.network != Network::Kernel {
            *self.broker.lock().unwrap() = Some(running.process.pid());
            thread::sleep(SETTLING);
        }
        running
    }

    /// Runs the program on trial to its end, which has to be a good one, and returns what it wrote.
    pub(crate) fn run(&self, program: &Program) -> String {
        let mut running = self.start(program);
        let status = running.process.wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
        let output = running.process.output();
        assert!(status.success(), "{}: {status}\n{output}", self.name);
        self.assert_nothing_left(&output);
        output
    }

    /// Starts somebody whom the program on trial talks to.
    pub(crate) fn start_peer(&self, program: &Program) -> Running {
        let running = program.start(&self.lab, Side::Client, &Network::Kernel);
        running.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a client on the client's side to its end, which has to be a good one; returns what it wrote.
    pub(crate) fn ask(&self, words: &str) -> String {
        self.ask_from(Side::Client, words)
    }

    /// The same on the given side, always on the kernel.
    pub(crate) fn ask_from(&self, side: Side, words: &str) -> String {
        let mut words = words.split_whitespace();
        let mut command = self.lab.command(side, words.next().unwrap());
        finish(command.args(words))
    }

    /// Runs a script for `sh` on the client's side, the same way.
    pub(crate) fn ask_script(&self, script: &str) -> String {
        finish(self.lab.command(Side::Client, "sh").args(["-ec", script]))
    }

    /// Who runs in a namespace: process ids.
    pub(crate) fn pids(&self, side: Side) -> String {
        finish(Command::new("ip").args(["netns", "pids", self.lab.namespace(side)]))
    }

    /// Puts a load on the program: no error may come of it, and who carries the packets is compared with what is expected. With
    /// figures it is only recorded: the default profile moves large transfers to the kernel. Returns the kernel's share.
    pub(crate) fn load(&self, load: &str, carrier: Carrier, action: impl FnOnce() -> Figure) -> f64 {
        if matches!(carrier, Carrier::Stack) {
            self.wait_for_queue();
        }
        let before = Counters::of(&self.lab);
        let figure = action();
        let share = Counters::of(&self.lab).kernel_share_since(&before);
        self.record(load, carrier, &figure, share);
        assert_eq!(figure.errors, 0, "{}: {load}: {}", self.name, figure.detail);
        if let (Network::Sidestep(_), Carrier::Stack, false) = (&self.network, carrier, takes_figures()) {
            assert!(
                share <= KERNEL_SHARE_MAX,
                "{}: {load}: the kernel took {share:.3} of the packets",
                self.name
            );
        }
        share
    }

    /// What `action` returns; the stack has to take part in its traffic, or the test would show nothing of the stack.
    pub(crate) fn on_the_stack<T>(&self, action: impl FnOnce() -> T) -> T {
        self.wait_for_queue();
        let before = Counters::of(&self.lab);
        let result = action();
        let share = Counters::of(&self.lab).kernel_share_since(&before);
        println!("{}: the kernel took {share:.3} of the packets", self.name);
        if let Network::Sidestep(_) = &self.network {
            assert!(share < KERNEL_SHARE_ALONE, "{}: the kernel took {share:.3} of the packets", self.name);
        }
        result
    }

    /// Waits until a socket of the program is on the stack, for as long as that may take on a machine that does other work too. If none
    /// ever is, the kernel's share of the packets shows it.
    fn wait_for_queue(&self) {
        let Some(broker) = self.broker.lock().unwrap().map(|pid| pid.to_string()) else { return };
        let deadline = Instant::now() + QUEUE_MAX;
        let is_accelerated = || {
            let status =
                Command::new(lab::sidestep_binary()).args(["status", "--pid", &broker]).output().unwrap();
            String::from_utf8_lossy(&status.stdout).lines().any(|line| line.ends_with(" accelerated"))
        };
        let mut waited = false;
        while !is_accelerated() && Instant::now() < deadline {
            waited = true;
            thread::sleep(SETTLING / 10);
        }
        if waited {
            thread::sleep(SETTLING);
        }
    }

    fn record(&self, load: &str, carrier: Carrier, figure: &Figure, share: f64) {
        let reason = match carrier {
            Carrier::Stack => "",
            Carrier::Kernel(reason) | Carrier::Either(reason) => reason,
        };
        let (value, share) = (format!("{:.0}", figure.value), format!("{:.1}", (1.0 - share) * 100.0));
        let errors = figure.errors.to_string();
        let fields =
            [&self.name, self.role, self.network.name(), load, &value, figure.unit, &errors, &share, reason];
        let line = fields.join("\t");
        println!("{line}");
        let Some(path) = std::env::var_os(RESULTS) else { return };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).unwrap();
    }

    /// Ends the program on trial by SIGTERM; checks that nothing of `sidestep run` is left, and returns its status.
    pub(crate) fn end(&self, mut running: Running) -> ExitStatus {
        let status = running.stop(END_MAX).unwrap_or_else(|error| panic!("{error}"));
        self.assert_nothing_left(&running.process.output());
        status
    }

    /// Checks that the interface has no XDP program, that no abstract socket is left that was not there before, and that nobody
    /// has panicked.
    pub(crate) fn assert_nothing_left(&self, output: &str) {
        assert!(!output.contains("panicked"), "{}: {output}", self.name);
        let deadline = Instant::now() + END_MAX;
        loop {
            let has_program = has_xdp_program(&self.lab);
            let sockets: Vec<String> = abstract_sockets(&self.lab)
                .into_iter()
                .filter(|name| !self.abstract_sockets.contains(name))
                .collect();
            if !has_program && sockets.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}: left behind: XDP program: {has_program}, abstract sockets: {sockets:?}",
                self.name
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs `action` on the client's side, on the generator's core as every other client. Threads that it starts inherit both.
    pub(crate) fn inside<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        self.lab.inside(Side::Client, || {
            lab::stay_on(lab::generator_core());
            action()
        })
    }
}

impl Figure {
    /// Without errors.
    pub(crate) fn new(value: f64, unit: &'static str) -> Figure {
        Figure { value, unit, errors: 0, detail: String::new() }
    }

    /// With so many errors.
    pub(crate) fn with_errors(self, errors: u64, detail: impl Into<String>) -> Figure {
        Figure { errors, detail: detail.into(), ..self }
    }
}

impl From<tests::ExchangeTally> for Figure {
    fn from(tally: tests::ExchangeTally) -> Figure {
        let failed = tally.failed() + u64::from(tally.answered == 0);
        Figure::new(tally.rate(), "answers/s").with_errors(failed, format!("{tally:?}"))
    }
}

/// Whether each figure is kept for the table of results.
fn takes_figures() -> bool {
    std::env::var_os(RESULTS).is_some()
}

/// The server's first address.
pub(crate) fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse::<IpAddr>().unwrap(), port)
}

/// Runs a command to its end, which has to be a good one; returns what it wrote.
pub(crate) fn finish(command: &mut Command) -> String {
    let mut child = Child::spawn("a client", command).unwrap_or_else(|error| panic!("{error}"));
    let status = child.wait(PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    let output = child.output();
    assert!(status.success(), "{}: {status}\n{output}", child.command_line());
    output
}

/// The number after `label` in `text`, or zero.
pub(crate) fn number_after(text: &str, label: &str) -> f64 {
    let rest = text.split_once(label).map_or("", |(_, rest)| rest).trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().unwrap_or(0.0)
}

pub(crate) fn has_xdp_program(lab: &Lab) -> bool {
    lab.ip(Side::Server, &format!("link show {SERVER_INTERFACE}")).unwrap().contains("prog/xdp")
}

/// The names of abstract sockets in the server's namespace.
fn abstract_sockets(lab: &Lab) -> Vec<String> {
    let text = lab.inside(Side::Server, || std::fs::read_to_string("/proc/thread-self/net/unix").unwrap());
    // The name is the last of eight columns, if there is one: proc_net_unix(5).
    let names = text.lines().filter_map(|line| line.split_whitespace().nth(7));
    names.filter(|name| name.starts_with('@')).map(str::to_owned).collect()
}

/// The right to have a laboratory, one of [`TRIALS_MAX`].
pub(crate) struct Turn;

static TRIALS: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

fn trials() -> MutexGuard<'static, usize> {
    TRIALS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    pub(crate) fn wait() -> Turn {
        let mut count =
            ENDED.wait_while(trials(), |count| *count >= TRIALS_MAX).unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *trials() -= 1;
        ENDED.notify_one();
    }
}
