//! What the examples share: their command line, and a service on one core until SIGTERM or SIGINT.

use std::net::SocketAddr;

use clock::Duration;
use engine::{Config, Engine, TcpHandler, TcpServer, UdpResponder};
use native::{Interface, InterfaceConfig, Reserved};
use observe::Program;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stack::TcpOptions;
use steering::{ListenAddress, Transport};

type Error = Box<dyn std::error::Error>;

/// The command line.
pub(crate) struct Options {
    program: &'static str,
    device: String,
    listen: SocketAddr,
    core: Option<usize>,
    spin: Duration,
    busy_poll: bool,
}

const USAGE: &str = "--device IF --listen ADDR:PORT [--core N] [--spin-us N] [--busy-poll on|off]";

impl Options {
    /// Reads the command line, or ends the program with what is wrong with it.
    pub(crate) fn from_command_line(program: &'static str) -> Options {
        Options::parse(program, std::env::args().skip(1)).unwrap_or_else(|error| {
            eprintln!("{program}: {error}\nusage: {program} {USAGE}");
            std::process::exit(2)
        })
    }

    fn parse(program: &'static str, mut words: impl Iterator<Item = String>) -> Result<Options, Error> {
        let (mut device, mut listen, mut core, mut spin_us, mut busy_poll) = (None, None, None, 20, false);
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--device" => device = Some(value),
                "--listen" => {
                    listen = Some(value.parse().map_err(|_| format!("--listen: no ADDR:PORT: {value}"))?)
                }
                "--core" => core = Some(value.parse().map_err(|_| format!("--core: no number: {value}"))?),
                "--spin-us" => {
                    spin_us = value.parse().map_err(|_| format!("--spin-us: no number: {value}"))?;
                }
                "--busy-poll" => {
                    busy_poll = match value.as_str() {
                        "on" => true,
                        "off" => false,
                        _ => return Err(format!("--busy-poll: on or off, not {value}").into()),
                    }
                }
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        let device = device.ok_or("--device is missing")?;
        if device == "kernel" {
            return Err(
                "--device kernel: TCP needs an interface here, as kernel sockets bring no packets".into()
            );
        }
        let listen = listen.ok_or("--listen is missing")?;
        Ok(Options { program, device, listen, core, spin: Duration::from_micros(spin_us), busy_poll })
    }
}

/// Serves TCP by `handler`, and UDP by `responder` if there is one, until SIGTERM or SIGINT.
pub(crate) fn serve<R: UdpResponder + 'static>(
    options: &Options,
    responder: Option<R>,
    handler: impl TcpHandler<State: 'static> + 'static,
) -> Result<(), Error> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let tcp_options = TcpOptions { no_delay: true, ..TcpOptions::default() };
    let server = TcpServer::new(handler).with_options(tcp_options).listen(options.listen);
    let config = Config { spin: options.spin, core: options.core, ..Config::default() };
    let listen = ListenAddress { address: Some(options.listen.ip()), port: options.listen.port() };
    let mut listens = vec![(Transport::Tcp, listen)];
    if responder.is_some() {
        listens.push((Transport::Udp, listen));
    }
    let (engine, handle) = Engine::with_stack(config, responder, stack::Config::default(), server)?;
    let serving = std::thread::Builder::new().name("engine".to_owned()).spawn(move || drop(engine.run()))?;
    let mut port = InterfaceConfig::new(&options.device, listens);
    port.device.busy_poll = options.busy_poll.then(device_xdp::BusyPoll::default);
    let interface = Interface::open(port, vec![handle.clone()], Reserved::for_program(options.program))?;
    // A program that nobody can look at serves all the same.
    let control = observe::serve(Program::new(options.program, vec![handle.clone()]))
        .inspect_err(|error| eprintln!("{}: nobody can look at it: {error}", options.program));
    println!("{}: ready {}", options.program, interface.describe());
    signals.forever().next();
    drop(control);
    handle.stop();
    serving.join().map_err(|_| "the engine panicked")?;
    interface.stop();
    Ok(())
}
