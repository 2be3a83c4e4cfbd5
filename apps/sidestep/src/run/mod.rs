//! `sidestep run`: an unmodified program on our stack.
//!
//! This process is the broker. It has the privileges, starts the program with our library in front of the C library, and runs until
//! the program and all its descendants have ended. If acceleration is impossible, the program runs on the kernel, and one line says why.

mod carrier;
mod executable;
mod family;
mod judgement;
mod library;
mod profile;
mod service;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::mpsc::channel;
use std::thread;

use broker::protocol::{ENVIRONMENT, IO_URING, Profile};
use broker::server::{Config, Server, TakeOver};
use clap::Args;
use clock::Duration;
use log::{Level, LevelFilter};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::logging::LogOptions;
use crate::port::PortOptions;
use crate::xdp_mode::XdpMode;
use carrier::Carrier;
pub(crate) use executable::is_go;
use executable::{Executable, NotFound};
use family::Family;
use judgement::Judgement;
pub(crate) use judgement::judge;
use service::{Found, Serving};

/// Where XDP programs stay attached if the broker is killed, if a BPF file system is mounted there, as systemd does.
const KEPT_IN: &str = "/sys/fs/bpf/sidestep";
/// The exit status that a shell returns for a missing program, and for one that it cannot execute.
const EXIT_NOT_FOUND: u8 = 127;
const EXIT_NOT_EXECUTABLE: u8 = 126;

/// The default of --gather-us without spinning: about as long as NICs moderate their interrupts.
const GATHER_US: u32 = 40;

/// Options of `sidestep run`.
#[derive(Args)]
#[command(override_usage = "sidestep run [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub(crate) struct Options {
    /// Interface to accelerate, or a port of DPDK, such as `dpdk:0000:03:00.0` or `dpdk:net_memif0,role=client`, which gets one. May be repeated
    /// [default: every interface that supports it].
    #[arg(id = "device", long, value_name = "IF|dpdk:PORT")]
    devices: Vec<String>,
    #[command(flatten)]
    port: PortOptions,
    /// What to accelerate [default: by the program's name].
    #[arg(long, value_name = "NAME")]
    profile: Option<profile::Name>,
    /// Microseconds to poll for packets before sleeping, 0 to 1000000. Higher values lower the latency and use more processor time.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    spin_us: u32,
    /// Microseconds to let packets gather before waking a sleeping call, 0 to 1000. Higher values save processor time and raise the
    /// latency [default: 40 with --spin-us 0, else 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000))]
    gather_us: Option<u32>,
    /// Octets of the largest TCP segment to announce and to send, 88 to 65535, for paths through tunnels that do not report their MTU
    /// [default: what the interface takes].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(88..))]
    mss_clamp: Option<u16>,
    /// Also admit programs of this group's members that are started elsewhere, with SIDESTEP_BROKER as --verbose prints it.
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
    /// Let the program use io_uring. What a ring does with a connection on the stack fails; with files, and sockets on the kernel, it
    /// works. Without this, programs find a kernel without io_uring, and use other calls.
    #[arg(long)]
    io_uring: bool,
    /// Use zero-copy mode, where the NIC has it, for programs with less privilege than this process, too. They see all packets of their
    /// queues then, and can hold up those that are not theirs.
    #[arg(long)]
    zero_copy: bool,
    /// Let the program share queues with programs of other users, and of root, that have this option, too. Each of them can see and change the others' packets.
    #[arg(long)]
    share: bool,
    /// Where XDP runs [default: `generic` on a veth with one queue, else `native` where the driver has it]. On a veth `native` has the peer's kernel cut all that it
    /// sends; `generic` leaves UDP on the kernel but for port 53, and takes Linux 6.15.
    #[arg(long, value_name = "MODE")]
    xdp_mode: Option<XdpMode>,
    /// Start no program: serve those of a `sidestep run` that was killed, until they have ended or this is stopped, which moves their
    /// connections to the kernel.
    #[arg(long, conflicts_with = "command")]
    take_over: bool,
    /// Start no program: be there as the broker of other `sidestep run` until this is stopped, so that those start sooner.
    #[arg(long, conflicts_with_all = ["command", "take_over"])]
    broker: bool,
    /// Report each socket that is accelerated or not, as it happens.
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    log: LogOptions,
    /// The program and its arguments.
    #[arg(required_unless_present_any = ["take_over", "broker"], trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Options {
    fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us.into())
    }

    /// Packets gather by default only if the program does not spin: that is how users ask to spare the processor.
    fn gather(&self) -> Duration {
        let default = if self.spin_us == 0 { GATHER_US } else { 0 };
        Duration::from_micros(self.gather_us.unwrap_or(default).into())
    }
}

/// Runs the program, and returns its exit status.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    options.log.start(if options.verbose { LevelFilter::Info } else { LevelFilter::Warn });
    let program = match options.command.first().map(|name| Executable::find_whole(name)).transpose() {
        Ok(program) => program,
        Err(error) => return Ok(refuse(&error)),
    };
    let (interfaces, carrier) = carrier::open(options)?;
    let code = match &program {
        Some(program) => start(options, program, &interfaces, carrier.as_ref()),
        None if options.take_over => take_over(options, &interfaces),
        None => stay(options, &interfaces),
    };
    carrier.into_iter().for_each(Carrier::stop);
    code
}

/// Runs the program, on the kernel if it cannot be accelerated.
fn start(
    options: &Options,
    program: &Executable,
    interfaces: &[String],
    carrier: Option<&Carrier>,
) -> anyhow::Result<ExitCode> {
    let mut command = Command::new(program.path());
    command.arg0(&options.command[0]).args(&options.command[1..]);
    let reason = match prepare(options, interfaces, program) {
        Ok(prepared) => return accelerate(options, program, command, prepared, carrier),
        Err(reason) => reason,
    };
    log::warn!("{} runs on the kernel: {reason}", program.name());
    sigpipe::hand_on(&mut command);
    if carrier.is_some() {
        return wait_for(program, command, Family::adopt_orphans()?, carrier); // Its packets come by us.
    }
    let error = command.exec();
    log::error!("{}: {error}", program.path().display());
    Ok(ExitCode::from(EXIT_NOT_EXECUTABLE))
}

/// Starts the program, and waits for it and its descendants.
fn wait_for(
    program: &Executable,
    mut command: Command,
    family: Family,
    carrier: Option<&Carrier>,
) -> anyhow::Result<ExitCode> {
    if let Some(carrier) = carrier {
        carrier.keep_descriptors()?;
    }
    let code = match family.start(&mut command) {
        Ok(running) => running.wait(),
        Err(error) => {
            log::error!("{}: {error}", program.path().display());
            EXIT_NOT_EXECUTABLE
        }
    };
    Ok(ExitCode::from(code))
}

fn refuse(error: &NotFound) -> ExitCode {
    log::error!("{error}");
    ExitCode::from(match error {
        NotFound::Missing(_) | NotFound::NoFile(_) | NotFound::NoInterpreter(..) => EXIT_NOT_FOUND,
        NotFound::NotExecutable(_) => EXIT_NOT_EXECUTABLE,
    })
}

/// What a program needs to be accelerated.
struct Prepared {
    config: Config,
    broker: Found,
    library: OsString,
}

/// Otherwise the reason why the program runs on the kernel.
fn prepare(options: &Options, interfaces: &[String], program: &Executable) -> Result<Prepared, String> {
    let Judgement { profile, obstacle, library, .. } = Judgement::of(program, options.profile);
    let profile = profile?;
    if let Some(obstacle) = obstacle {
        return Err(obstacle.to_string());
    }
    let library = library?;
    let config = config(options, interfaces, profile);
    let broker = Found::search(&config)?;
    Ok(Prepared { config, broker, library: library.into_os_string() })
}

/// Whether there are options that concern all programs of a broker.
fn has_brokers_options(options: &Options) -> bool {
    options.group.is_some() || options.zero_copy || options.xdp_mode.is_some()
}

fn config(options: &Options, interfaces: &[String], profile: Profile) -> Config {
    Config {
        interfaces: interfaces.to_vec(),
        spin: options.spin(),
        gather: options.gather(),
        mss_clamp: options.mss_clamp,
        verbose: log::log_enabled!(Level::Info),
        profile,
        group: options.group,
        observed_in: Some(observe::own_directory()),
        kept_in: Some(KEPT_IN.into()),
        zero_copy: options.zero_copy,
        share: options.share,
        xdp_mode: options.xdp_mode.map(XdpMode::attach),
        take_over: if options.take_over { TakeOver::Only } else { TakeOver::IfThereIs },
    }
}

/// Is the broker of others, or waits for the end of the one that they have, until a signal comes.
fn stay(options: &Options, interfaces: &[String]) -> anyhow::Result<ExitCode> {
    let profile = profile::choose(options.profile, "").map_err(anyhow::Error::msg)?;
    let config = config(options, interfaces, profile);
    let broker = Found::search(&config).map_err(anyhow::Error::msg)?;
    tell_notes(options, &broker);
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let service = broker.start(config)?;
    signals.forever().next();
    service.end();
    Ok(ExitCode::SUCCESS)
}

/// What the user has asked for and does not get.
fn tell_notes(options: &Options, broker: &Found) {
    if matches!(broker, Found::Others(_)) && has_brokers_options(options) {
        log::warn!("--group, --zero-copy and --xdp-mode hold only if this `sidestep run` becomes the broker");
    }
    // The user expects interfaces with a name on the command line to work.
    let level = if options.devices.is_empty() { Level::Info } else { Level::Warn };
    broker.notes().iter().for_each(|reason| log::log!(level, "{reason}"));
}

/// Serves the programs of a broker that was killed, until they have ended or a signal comes.
fn take_over(options: &Options, interfaces: &[String]) -> anyhow::Result<ExitCode> {
    let profile = profile::choose(options.profile, "").map_err(anyhow::Error::msg)?;
    let server = Server::open(config(options, interfaces, profile))?;
    server.notes().iter().for_each(|reason| log::info!("{reason}"));
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let serving = Serving::start(server)?;
    let (over, is_over) = channel();
    let (reporter, also_over) = (serving.reporter(), over.clone());
    // Both threads end with the process at the latest. Whoever comes second is not heard.
    thread::spawn(move || {
        reporter.linger(Duration::from_nanos(u64::MAX));
        let _ = also_over.send(());
    });
    thread::spawn(move || {
        signals.forever().next();
        let _ = over.send(());
    });
    let _ = is_over.recv();
    serving.stop();
    Ok(ExitCode::SUCCESS)
}

fn accelerate(
    options: &Options,
    program: &Executable,
    mut command: Command,
    prepared: Prepared,
    carrier: Option<&Carrier>,
) -> anyhow::Result<ExitCode> {
    let Prepared { config, broker, library } = prepared;
    tell_notes(options, &broker);
    if let Some(own_calls) = program.own_calls() {
        let name = program.name();
        log::warn!("{name} runs on the kernel: {own_calls}; programs that it starts may be accelerated");
    }
    log::info!("{ENVIRONMENT}={}", broker.name());
    // The broker has the filter, too: a program with no more filters than that has set none itself.
    if options.io_uring {
        command.env(IO_URING, "1");
    } else if let Err(error) = seccomp::refuse_rings() {
        log::info!("programs may use io_uring, which passes Sidestep by: {error}");
    }
    command.env(ENVIRONMENT, broker.name()).env("LD_PRELOAD", library::in_front(&library));
    sigpipe::hand_on(&mut command);
    // From here on orphans of the program become our children: we end when the last one does.
    let family = Family::adopt_orphans()?;
    let service = broker.start(config)?;
    let code = wait_for(program, command, family, carrier);
    service.end();
    code
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn what_follows_the_program_is_its_own_and_what_precedes_it_is_not() {
        let command = |words: &[&str]| {
            let line =
                Line::try_parse_from(["run"].iter().chain(words)).map_err(|error| error.to_string())?;
            Ok::<_, String>(line.options.command.join(std::ffi::OsStr::new(" ")))
        };
        assert_eq!(command(&["nginx", "-g", "x", "--", "--device"]).unwrap(), "nginx -g x -- --device");
        assert_eq!(command(&["--device", "e", "--", "-odd", "--device"]).unwrap(), "-odd --device");
        let mistaken = command(&["--devise", "e", "--", "nginx"]).unwrap_err();
        assert!(mistaken.contains("a similar argument exists: '--device'"), "{mistaken}");
    }

    #[test]
    fn packets_gather_where_the_processor_is_to_be_spared() {
        let gather = |words: &[&str]| {
            let line = ["run"].iter().chain(words).chain(&["--", "nginx"]);
            Line::try_parse_from(line).unwrap().options.gather()
        };
        assert_eq!(gather(&[]), Duration::ZERO);
        assert_eq!(gather(&["--spin-us", "0"]), Duration::from_micros(40));
        assert_eq!(gather(&["--spin-us", "0", "--gather-us", "0"]), Duration::ZERO);
        assert_eq!(gather(&["--gather-us", "50"]), Duration::from_micros(50));
    }
}
