//! The loop: an engine, and the server that is its responder. Queries that come by an interface are answered in the frames that brought them,
//! if their answers are known; other answers leave with a later turn of the engine.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clock::Duration;
use engine::{Engine, EngineHandle, Sleep, Step, UdpResponder};
use mio::unix::SourceFd;
use mio::{Events, Interest};
use native::{Interface, InterfaceConfig, Notice, Owner};
use steering::{ListenAddress, Transport};

use super::server::{Kind, Server, token};

pub(super) struct Driver {
    engine: Engine<Server>,
    handle: EngineHandle,
    /// The engine found nothing to do for a while.
    may_sleep: bool,
    /// Descriptors of devices that the loop watches.
    watched: Vec<RawFd>,
    /// Devices may have come or gone since, and their descriptors with them.
    has_changed: Arc<AtomicBool>,
}

impl Driver {
    pub(super) fn new(server: Server) -> io::Result<Driver> {
        let waker = server.waker();
        let (mut engine, handle) = Engine::new(engine::Config::default(), server)?;
        let has_changed = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&has_changed);
        let handle = handle.nudging(move || {
            noted.store(true, Ordering::Release);
            drop(waker.wake()); // Fails only when the loop has ended.
        });
        let server = engine.responder();
        if server.device().is_some() {
            server.set_engine(handle.clone());
        }
        Ok(Driver { engine, handle, may_sleep: false, watched: Vec::new(), has_changed })
    }

    pub(super) fn server(&mut self) -> &mut Server {
        self.engine.responder()
    }

    /// Attaches to the interface, if there is to be one.
    pub(super) fn open_interface(&mut self) -> anyhow::Result<Option<Interface>> {
        let handle = self.handle.clone();
        self.server().device().map(|(name, listen)| open(name, listen, handle)).transpose()
    }

    /// Serves until it is to stop.
    pub(super) fn run(mut self) {
        let has_device = self.server().device().is_some();
        self.server().start();
        let mut events = Events::with_capacity(1024);
        while !self.server().has_stopped() {
            let mut patience = self.server().patience();
            if has_device {
                // Without memory for it nothing tells when packets are there.
                let most = self.prepare_sleep().unwrap_or(Some(Duration::from_millis(1)));
                patience = most.map_or(patience, |most| most.min(patience));
            }
            self.server().turn(&mut events, patience);
            if has_device {
                self.serve_interface();
            }
        }
        self.server().finish();
    }

    /// Takes what came by the interface, and sends what is ready, for some turns or until there is nothing more.
    fn serve_interface(&mut self) {
        const TURNS: usize = 16;
        for _ in 0..TURNS {
            let now = self.server().now();
            self.may_sleep = self.engine.step(now) == Step::Sleep;
            if !self.server().has_received() {
                return;
            }
            self.server().deliver();
        }
    }

    /// How long the loop may sleep for all that the engine knows; `None` is until a descriptor is readable. They are watched from now on.
    fn prepare_sleep(&mut self) -> io::Result<Option<Duration>> {
        /// For a device without a descriptor.
        const GLANCE: Duration = Duration::from_millis(1);
        if !self.may_sleep || self.server().has_late_answers() {
            return Ok(Some(Duration::ZERO));
        }
        let now = self.server().now();
        let mut wanted = Vec::new();
        let span = match self.engine.prepare_sleep(now, &mut wanted) {
            Sleep::Busy => return Ok(Some(Duration::ZERO)),
            Sleep::Unknown => Some(GLANCE),
            Sleep::Descriptors => None,
            Sleep::Until(at) => Some(at.since(now)),
        };
        if self.has_changed.swap(false, Ordering::Acquire) || wanted != self.watched {
            let registry = self.engine.responder().registry();
            for old in mem::take(&mut self.watched) {
                let _ = registry.deregister(&mut SourceFd(&old)); // One that was closed is not there any more.
            }
            for new in &wanted {
                registry.register(&mut SourceFd(new), token(Kind::Device, 0), Interest::READABLE)?;
            }
            self.watched = wanted;
        }
        Ok(span)
    }
}

/// Attaches to the interface `name`: queries over UDP to `listen` come by it, and to an engine.
pub(in crate::dns) fn open(
    name: &str,
    listen: &[SocketAddr],
    engine: EngineHandle,
) -> anyhow::Result<Interface> {
    let claim = |address: &SocketAddr| {
        (Transport::Udp, ListenAddress { address: Some(address.ip()), port: address.port() })
    };
    let claims = listen.iter().map(claim).collect();
    let config = InterfaceConfig::new(&control::kernel_name(name), claims);
    let opened = Interface::open(config, vec![engine], Quiet);
    opened.with_context(|| format!("device {name}"))
}

/// Logs what happens. TCP is the kernel's.
struct Quiet;

impl Owner for Quiet {
    fn open_shadow(&mut self, _: SocketAddr) -> io::Result<()> {
        Ok(())
    }

    fn close_shadow(&mut self, _: SocketAddr) {}

    fn on_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Failed { .. } | Notice::NoShadow { .. } => log::warn!("{notice}"),
            _ => log::info!("{notice}"),
        }
    }
}
