//! An interface whose queries over UDP come by AF_XDP: an engine that the loop drives. What it receives waits for the loop, and so do answers
//! for the engine, which sends them in its next turn.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clock::{Duration, Instant};
use engine::{Datagram, Engine, EngineHandle, ReturnPath, Sleep, Step, UdpResponder};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Waker};
use native::{Interface, InterfaceConfig, Notice, Owner};
use steering::{ListenAddress, Transport};

use super::server::{Kind, token};

/// A query, who sent it, and the way back.
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) octets: Vec<u8>,
    pub(super) path: ReturnPath,
}

/// What the engine and the loop leave for each other.
#[derive(Default)]
struct Exchange {
    queries: Vec<Received>,
    answers: VecDeque<(ReturnPath, Vec<u8>)>,
}

impl UdpResponder for Exchange {
    fn respond(&mut self, batch: &mut [Datagram<'_>], _now: Instant) {
        self.queries.extend(batch.iter().map(|datagram| Received {
            from: datagram.source(),
            octets: datagram.buffer[..datagram.len].to_vec(),
            path: datagram.return_path(),
        }));
    }

    fn has_late_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        self.answers.pop_front()
    }
}

/// The engine.
pub(super) struct Port {
    engine: Engine<Exchange>,
    handle: EngineHandle,
    /// The engine found nothing to do for a while.
    may_sleep: bool,
    /// Descriptors that the loop watches.
    watched: Vec<RawFd>,
    /// Devices may have come or gone since, and their descriptors with them.
    has_changed: Arc<AtomicBool>,
}

impl Port {
    /// One without devices. `waker` wakes the loop when one is there.
    pub(super) fn new(waker: Arc<Waker>) -> io::Result<Port> {
        let (engine, handle) = Engine::new(engine::Config::default(), Exchange::default())?;
        let has_changed = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&has_changed);
        let handle = handle.nudging(move || {
            noted.store(true, Ordering::Release);
            drop(waker.wake()); // Fails only when the loop has ended.
        });
        Ok(Port { engine, handle, may_sleep: false, watched: Vec::new(), has_changed })
    }

    /// What gives it devices.
    pub(super) fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// One turn: answers go, queries come.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<Received> {
        self.may_sleep = self.engine.step(now) == Step::Sleep;
        mem::take(&mut self.engine.responder().queries)
    }

    /// Sends an answer in the next turn.
    pub(super) fn answer(&mut self, path: ReturnPath, octets: Vec<u8>) {
        self.engine.responder().answers.push_back((path, octets));
    }

    /// How long the loop may sleep for all that is known here; `None` is until a descriptor is readable. They are watched from now on.
    pub(super) fn prepare_sleep(
        &mut self,
        registry: &Registry,
        now: Instant,
    ) -> io::Result<Option<Duration>> {
        /// For a device without a descriptor.
        const GLANCE: Duration = Duration::from_millis(1);
        if !self.may_sleep || self.engine.responder().has_late_answers() {
            return Ok(Some(Duration::ZERO));
        }
        let mut wanted = Vec::new();
        let span = match self.engine.prepare_sleep(now, &mut wanted) {
            Sleep::Busy => return Ok(Some(Duration::ZERO)),
            Sleep::Unknown => Some(GLANCE),
            Sleep::Descriptors => None,
            Sleep::Until(at) => Some(at.since(now)),
        };
        if self.has_changed.swap(false, Ordering::Acquire) || wanted != self.watched {
            for old in mem::take(&mut self.watched) {
                let _ = registry.deregister(&mut SourceFd(&old)); // One that was closed is not there any more.
            }
            for new in &wanted {
                registry.register(&mut SourceFd(new), token(Kind::Port, 0), Interest::READABLE)?;
            }
            self.watched = wanted;
        }
        Ok(span)
    }

    /// Name and value of each count.
    pub(super) fn counts(&self) -> Vec<(String, u64)> {
        self.handle.counters().named()
    }
}

/// Attaches to the interface `name`: queries over UDP to `listen` come by it, and to an engine.
pub(super) fn open(name: &str, listen: &[SocketAddr], engine: EngineHandle) -> anyhow::Result<Interface> {
    let claim = |address: &SocketAddr| {
        (Transport::Udp, ListenAddress { address: Some(address.ip()), port: address.port() })
    };
    let claims = listen.iter().map(claim).collect();
    let opened = Interface::open(InterfaceConfig::new(name, claims), vec![engine], Quiet);
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
