//! The engines: one per core, each with responders of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use arc_swap::ArcSwap;
use clock::{Duration, Instant};
use dns_auth::Counters;
use dns_server::{Admission, DnsOverTcp, DnsResponder, Published};
use engine::{Application, Datagram, Engine, EngineHandle, ReturnPath, TcpServer, UdpResponder};
use stack::TcpOptions;
use steering::ListenAddress;

use super::config::{Config, DeviceChoice, Link, available_cores};
use super::options::{BusyPoll, ResponderKind};
use crate::xdp_mode::XdpMode;

/// One engine on its thread.
pub(crate) struct EngineThread {
    pub(crate) handle: EngineHandle,
    /// Of its responders.
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts one engine for each of `cores`: with a stack where there is an interface, whose TCP it answers.
pub(crate) fn start_engines(
    config: &Config,
    cores: Vec<usize>,
    published: &Arc<ArcSwap<Published>>,
    admission: &Arc<Admission>,
) -> anyhow::Result<Vec<EngineThread>> {
    let dns = || {
        let counters = Arc::new(Counters::default());
        (DnsResponder::new(published, Arc::clone(&counters)), counters)
    };
    let start = |(number, core): (usize, usize)| {
        let settings = engine_config(config, core);
        let (responder, counters) = dns();
        match (&config.device, config.responder) {
            (_, ResponderKind::Echo(least)) => {
                spawn(number, Engine::new(settings, AnyResponder::Echo(least.into())), vec![])
            }
            (DeviceChoice::Kernel(_), ResponderKind::Dns) => {
                let responder = AnyResponder::Dns(Box::new(responder));
                spawn(number, Engine::new(settings, responder), vec![counters])
            }
            (DeviceChoice::Interface(_, listens), ResponderKind::Dns) => {
                let (by_tcp, tcp_counters) = dns();
                let server = tcp_server(listens, DnsOverTcp::new(by_tcp, Arc::clone(admission)));
                let responder = AnyResponder::Dns(Box::new(responder));
                let made = Engine::with_stack(settings, responder, stack_config(config), server);
                spawn(number, made, vec![counters, tcp_counters])
            }
        }
    };
    cores.into_iter().enumerate().map(start).collect()
}

fn engine_config(config: &Config, core: usize) -> engine::Config {
    let never_sleep = config.busy_poll == BusyPoll::Always;
    let (spin, linger) = (config.spin, config.tcp_linger);
    engine::Config { spin, never_sleep, linger, core: Some(core), ..engine::Config::default() }
}

fn spawn<A: Application + 'static>(
    number: usize,
    made: io::Result<(Engine<AnyResponder, A>, EngineHandle)>,
    counters: Vec<Arc<Counters>>,
) -> anyhow::Result<EngineThread> {
    let (engine, handle) = made.context("making an engine")?;
    let thread = std::thread::Builder::new()
        .name(format!("engine-{number}"))
        .spawn(move || drop(engine.run()))
        .context("starting an engine")?;
    Ok(EngineThread { handle, counters, thread })
}

/// The cores named, else one for each queue of the interface as far as there are cores, else all. One for a port of DPDK. With
/// dispatchers all, if none are named.
pub(crate) fn engine_cores(config: &Config) -> anyhow::Result<Vec<usize>> {
    let mut cores = config.cores.clone().unwrap_or_else(available_cores);
    let DeviceChoice::Interface(link, _) = &config.device else { return Ok(cores) };
    let mode = config.xdp_mode.map(XdpMode::attach);
    if config.cores.is_none() {
        let queues = match link {
            Link::Xdp(name) => usize::from(device_xdp::queue_pairs_in(name, mode)?),
            // It gets a queue for each engine; how many it can spread flows over only the user knows.
            Link::Dpdk(..) => 1,
        };
        cores.truncate(config.sharing.useful_cores(cores.len(), queues));
    }
    config.sharing.check(cores.len(), link, mode)?;
    Ok(cores)
}

/// DNS over TCP wherever packets are claimed.
fn tcp_server(listens: &[ListenAddress], handler: DnsOverTcp) -> TcpServer<DnsOverTcp> {
    // Answers are whole; those to queries that come one by one are not to wait for each other.
    let options = TcpOptions { no_delay: true, ..TcpOptions::default() };
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let addresses = listens.iter().flat_map(|listen| {
        let addresses = listen.address.map_or(any.to_vec(), |address| vec![address]);
        addresses.into_iter().map(|address| SocketAddr::new(address, listen.port))
    });
    addresses.fold(TcpServer::new(handler).with_options(options), TcpServer::listen)
}

/// As many connections as are admitted, and as many more that are being told that they are not.
fn stack_config(config: &Config) -> stack::Config {
    const BUFFERS_EACH: usize = 192 << 10;
    let connections = config.tcp.connections_max.saturating_mul(2).clamp(4096, 1 << 20);
    let defaults = stack::Config::default();
    stack::Config {
        connections_max: connections as u32,
        buffer_memory: defaults.buffer_memory.min(connections * BUFFERS_EACH),
        ..defaults
    }
}

/// What an engine may be asked to run.
enum AnyResponder {
    /// The zones.
    Dns(Box<DnsResponder>),
    /// A bare echo, of so many octets at least.
    Echo(usize),
}

impl UdpResponder for AnyResponder {
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: Instant) {
        match self {
            AnyResponder::Dns(responder) => responder.respond(batch, now),
            AnyResponder::Echo(least) => batch.iter_mut().for_each(|datagram| echo(datagram, *least)),
        }
    }

    fn on_sample(&mut self, took: Duration) {
        match self {
            AnyResponder::Dns(responder) => responder.on_sample(took),
            AnyResponder::Echo(_) => {}
        }
    }

    fn has_late_answers(&self) -> bool {
        matches!(self, AnyResponder::Dns(responder) if responder.has_late_answers())
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        match self {
            AnyResponder::Dns(responder) => responder.late_answer(),
            AnyResponder::Echo(_) => None,
        }
    }
}

/// Answers with what came, and zeros behind it up to `least` octets.
fn echo(datagram: &mut Datagram<'_>, least: usize) {
    let len = least.min(datagram.buffer.len()).max(datagram.len);
    datagram.buffer[datagram.len..len].fill(0);
    datagram.reply = Some(len);
}
