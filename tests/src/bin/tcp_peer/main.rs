//! Our stack over AF_XDP as a peer for tests: it does on each connection what the peer's first line asks for, and connects
//! when its control socket is told to.
//!
//! Usage: `tcp_peer --device IF --port PORT --control PATH [--core N]`

mod application;
mod behaviour;
mod control;

use std::os::unix::net::UnixListener;

use application::{Conversations, Shared};
use control::Control;
use engine::{Config, Echo, Engine};
use native::{Interface, InterfaceConfig, Reserved};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steering::{ListenAddress, Transport};

type Error = Box<dyn std::error::Error>;

struct Options {
    device: String,
    port: u16,
    control: String,
    core: Option<usize>,
}

fn main() -> Result<(), Error> {
    let options = parse(std::env::args().skip(1))?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let listener = UnixListener::bind(&options.control)?;
    let config = Config { core: options.core, ..Config::default() };
    // Tests count those that wait: none may be gone before the last has come.
    let stack_config =
        stack::Config { time_wait: clock::Duration::from_secs(3600), ..stack::Config::default() };
    let shared = Shared::default();
    let conversations = Conversations::new(options.port, shared.clone());
    let (engine, handle) = Engine::with_stack(config, None::<Echo>, stack_config, conversations)?;
    let serving = std::thread::Builder::new().name("engine".to_owned()).spawn(move || engine.run())?;
    // Of the two ports that are claimed nobody listens at the second.
    let listens = [options.port, options.port + 1]
        .map(|port| (Transport::Tcp, ListenAddress { address: None, port }))
        .to_vec();
    let port = InterfaceConfig::new(&options.device, listens);
    let interface = Interface::open(port, vec![handle.clone()], Reserved::for_program("tcp_peer"))?;
    let mut control = Control::new(interface, handle.clone(), shared);
    std::thread::spawn(move || control.serve(&listener));
    println!("tcp_peer: ready");
    signals.forever().next();
    handle.stop();
    serving.join().map_err(|_| "the engine panicked")?;
    Ok(()) // The kernel takes the interface back with the process.
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, Error> {
    let (mut device, mut port, mut control, mut core) = (None, None, None, None);
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--device" => device = Some(value),
            "--port" => port = Some(value.parse()?),
            "--control" => control = Some(value),
            "--core" => core = Some(value.parse()?),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let device = device.ok_or("--device is missing")?;
    let port = port.ok_or("--port is missing")?;
    let control = control.ok_or("--control is missing")?;
    Ok(Options { device, port, control, core })
}
