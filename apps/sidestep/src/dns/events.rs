//! What the server waits for besides queries: signals, and zones that are loaded.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::config::Config;
use super::etcd;
use super::health::Health;
use super::line_table::LoadedLines;
use super::load::{Choice, Clients, Loaded, load_catalog};
use super::orders::{Order, Orders};
use super::parents::Outcome;
use super::pools::Pools;
use super::rebuild::Rebuilt;
use super::secondary::{Change, Publish};
use super::updates::{Pending, Queue};

/// Something that happened.
pub(crate) enum Event {
    /// SIGHUP, SIGTERM or SIGINT came.
    Signal(i32),
    /// Something became of a secondary zone.
    Secondary(Change),
    /// Something became of zones from etcd.
    Etcd(etcd::Unpublished),
    /// A client changes a zone.
    Update(Pending),
    /// An operator has something done with a zone.
    Order(Order),
    /// Hosts are up or down, and were not.
    Health,
    /// Servers of parents were asked.
    Parents(Outcome),
    /// A zone was built anew.
    Rebuilt(Box<Rebuilt>),
    /// The zones of a configuration were loaded.
    Loaded(Box<(Config, Loaded)>),
}

/// What happens, in its order.
pub(crate) struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    /// Takes signals from here on.
    pub(crate) fn start() -> io::Result<Events> {
        // Others have a meaning for SIGUSR1 and SIGUSR2: who sends them here does not want the server to end.
        let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT, SIGUSR1, SIGUSR2])?;
        let (sender, receiver) = channel();
        let events = Events { sender: sender.clone(), receiver };
        let pass_on = move || {
            let _ = signals.forever().try_for_each(|signal| match signal {
                SIGUSR1 | SIGUSR2 => {
                    log::info!(
                        "SIGUSR1 and SIGUSR2 have no meaning here: see sidestep dns stats, sidestep dns zones"
                    );
                    Ok(())
                }
                signal => sender.send(Event::Signal(signal)),
            });
        };
        thread::Builder::new().name("signals".to_owned()).spawn(pass_on)?;
        Ok(events)
    }

    /// Passes on what becomes of secondary zones.
    pub(crate) fn publisher(&self) -> Publish {
        let sender = self.sender.clone();
        Box::new(move |change| drop(sender.send(Event::Secondary(change)))) // A server that ends needs no zones.
    }

    /// Where responders leave updates.
    pub(crate) fn updates(&self) -> Queue {
        Queue::new(self.sender.clone())
    }

    /// Where what happens elsewhere is said.
    pub(crate) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Where tools leave orders.
    pub(crate) fn orders(&self) -> Orders {
        Orders::new(self.sender.clone())
    }

    /// Waits for the next one.
    pub(crate) fn next(&self) -> Event {
        self.receiver.recv().expect("a sender is here")
    }

    /// Waits for the next one, but not longer than to `until`.
    pub(crate) fn next_until(&self, until: Instant) -> Option<Event> {
        self.receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// The next one, if there is one now.
    pub(crate) fn next_waiting(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// Lets a signal come again.
    pub(crate) fn repeat(&self, signal: i32) {
        let _ = self.sender.send(Event::Signal(signal)); // The receiver is here.
    }

    /// Loads the zones of `config`, apart from those that `current` has unchanged, on a thread of its own: signals are heard meanwhile. `choice`
    /// says which zones may be read.
    pub(crate) fn load(
        &self,
        config: Config,
        current: Option<Arc<Loaded>>,
        choice: Choice,
        health: Health,
    ) -> io::Result<()> {
        let sender = self.sender.clone();
        let load = move || {
            // A panic here ends the server, as on any other thread: releases are built with `panic = "abort"`.
            let held = current.as_deref().and_then(|loaded| loaded.lines.as_ref());
            let (lines, lines_problem) = match LoadedLines::load(&config.lines, held) {
                Ok(lines) => {
                    let remarks = lines.iter().flat_map(|lines| &lines.remarks);
                    remarks.for_each(|(line, what)| log::warn!("{line}: {what}"));
                    (lines, None)
                }
                Err(error) => (held.cloned(), Some(keep_lines(&error, held))),
            };
            let pools = Pools { specs: Arc::clone(&config.pools), health };
            let loaded = load_catalog(
                &config.zones,
                current.as_deref(),
                &choice,
                config.transfers.are_allowed(),
                Clients { lines, lines_problem, pools },
            );
            drop(current);
            let _ = sender.send(Event::Loaded(Box::new((config, loaded)))); // A server that ends needs no zones.
        };
        thread::Builder::new().name("zones".to_owned()).spawn(load)?;
        Ok(())
    }
}

/// Says that lines could not be loaded, and which stay; returns what it said.
fn keep_lines(error: &anyhow::Error, held: Option<&LoadedLines>) -> String {
    let said = match held {
        Some(_) => format!("lines stay as they are, as they cannot be loaded: {error:#}"),
        None => format!("lines cannot be loaded, so every client gets what belongs to no line: {error:#}"),
    };
    log::error!("{said}");
    said
}
