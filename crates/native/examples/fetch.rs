//! Connects over our own stack, sends what stands on standard input, and prints what comes back.
//!
//! Usage: `printf 'GET / HTTP/1.0\r\n\r\n' | cargo run --release --example fetch -- --device IF --connect ADDR:PORT`

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use engine::{Config, Connection, Echo, Engine, TcpHandler, TcpServer};
use native::{Interface, InterfaceConfig, Reserved};
use stack::tcp::TcpError;
use stack::{Connect, TcpOptions};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [device, name, connect, address] = &words[..] else {
        return Err("usage: fetch --device IF --connect ADDR:PORT".into());
    };
    if (device.as_str(), connect.as_str()) != ("--device", "--connect") {
        return Err("usage: fetch --device IF --connect ADDR:PORT".into());
    }
    let mut request = Vec::new();
    std::io::stdin().read_to_end(&mut request)?;
    fetch(name, address.parse()?, request)
}

fn fetch(device: &str, remote: SocketAddr, request: Vec<u8>) -> Result<(), Error> {
    let (parts, received) = channel();
    let application = TcpServer::new(Fetch { parts });
    let (engine, handle) =
        Engine::with_stack(Config::default(), None::<Echo>, stack::Config::default(), application)?;
    let running = std::thread::spawn(move || {
        engine.run();
    });
    let interface = Interface::open(
        InterfaceConfig::new(device, Vec::new()),
        vec![handle.clone()],
        Reserved::for_program("fetch"),
    )?;
    let departure = interface.depart(remote.ip())?;
    let (local, hop) = (departure.local, departure.hop);
    let connect = move |stack: &mut stack::Stack, now| {
        let options = std::sync::Arc::new(TcpOptions::default());
        stack.tcp_connect(&Connect { local, remote, is_bound: false, hop, options, data: &request }, now)
    };
    let connection = handle.ask_stack(connect).ok_or("the engine ended")?;
    connection.map_err(|error| format!("{error:?}"))?;
    let outcome = print(&received);
    handle.stop();
    running.join().map_err(|_| "the engine panicked")?;
    drop(departure);
    interface.stop();
    outcome
}

/// What comes of the connection.
enum Part {
    Data(Vec<u8>),
    End(Option<TcpError>),
}

/// Hands on what comes, to a thread that may block.
struct Fetch {
    parts: Sender<Part>,
}

impl TcpHandler for Fetch {
    type State = ();

    fn on_open(&mut self, _: &mut Connection<'_>) {}

    fn on_data(&mut self, (): &mut (), connection: &mut Connection<'_>) {
        while !connection.received().is_empty() {
            let part = connection.received().to_vec();
            connection.consume(part.len());
            let _ = self.parts.send(Part::Data(part)); // Nobody waits for it once the program ends.
        }
    }

    fn on_closed(&mut self, (): (), error: Option<TcpError>) {
        let _ = self.parts.send(Part::End(error)); // As above.
    }
}

fn print(parts: &Receiver<Part>) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    for part in parts {
        match part {
            Part::Data(data) => out.write_all(&data)?,
            Part::End(None) => break,
            Part::End(Some(error)) => return Err(error.into()),
        }
    }
    Ok(out.flush()?)
}
