//! What happens to servers and wires while zones change.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use dns_message::is_older;
use rustix::process::Signal;
use simnet::net::Random;

use crate::ledger::{Ledger, Run};
use crate::servers::{Fleet, Make, ORIGINS, Server};

/// Large transactions after which the differences of before are no longer known to Sidestep, which keeps 4 MiB of them.
const BURST: u64 = 180;

/// How often each has happened.
pub(crate) type Tally = BTreeMap<String, u64>;

pub(crate) struct Scene<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) ledgers: &'a [Ledger],
    pub(crate) run: &'a Run,
    pub(crate) chance: Random,
    /// Between two incidents.
    pub(crate) pause: Duration,
    /// The longest stop of a server or a wire.
    pub(crate) stop_max: Duration,
    /// Whether zones are so large that a burst is little beside them.
    pub(crate) has_bursts: bool,
    /// How long a server may take until it has again what it had.
    pub(crate) patience: Duration,
}

impl Scene<'_> {
    /// One incident after the other until it is over.
    pub(crate) fn play(mut self) -> Tally {
        let mut tally = Tally::new();
        // In an order of their own, so that a short run has one of each.
        for at in 0.. {
            self.run.sleep(self.pause);
            if self.run.is_over() {
                break;
            }
            match self.happen(at) {
                Ok(what) => *tally.entry(what).or_default() += 1,
                Err(error) => self.run.fault(format!("an incident does not end: {error}")),
            }
        }
        tally
    }

    /// Carries one out, and returns what it was.
    fn happen(&mut self, at: usize) -> io::Result<String> {
        match at % 8 {
            0 | 4 => Ok(self.cut()),
            1 => {
                let server = self.one_of(|_| true);
                self.restart(server, Signal::TERM, false)
            }
            2 => Ok(self.hang()),
            3 => {
                let server = self.one_of(Server::is_ours);
                self.restart(server, Signal::KILL, false)
            }
            5 => {
                let server = self.one_of(|_| true);
                self.stop(server, 0)
            }
            6 => {
                let server = self.one_of(|server| {
                    server.is_ours() && server.name != "sidestep" || server.make == Make::Nsd
                });
                self.restart(server, Signal::TERM, true)
            }
            _ if self.has_bursts && self.chance.one_in(2) => {
                let server = self.one_of(|server| server.name != "sidestep");
                self.stop(server, BURST)
            }
            _ => self.retransfer(),
        }
    }

    fn one_of<'f>(&mut self, fits: impl Fn(&Server) -> bool) -> &'f Server
    where
        Self: 'f,
    {
        let fitting: Vec<&Server> = self.fleet.servers.iter().filter(|server| fits(server)).collect();
        self.chance.pick(&fitting)
    }

    /// A transfer breaks off, early or late.
    fn cut(&mut self) -> String {
        let link = &self.fleet.links[self.chance.below(self.fleet.links.len() as u64) as usize];
        let octets = self.chance.magnitude(1, 1 << 20);
        link.cut_next_after(octets);
        self.run.say(&format!("{} is cut after {octets} octets", link.name));
        format!("{}: connections to be cut", link.name)
    }

    /// Nothing passes for a while.
    fn hang(&mut self) -> String {
        let link = &self.fleet.links[self.chance.below(self.fleet.links.len() as u64) as usize];
        self.run.say(&format!("{} hangs", link.name));
        link.hang(true);
        let span = self.span();
        self.run.sleep(span);
        link.hang(false);
        format!("{}: hung", link.name)
    }

    /// A server ends and starts again, also without the zones that it had from others.
    fn restart(&mut self, server: &Server, signal: Signal, forgets: bool) -> io::Result<String> {
        let what = match (signal, forgets) {
            (_, true) => "started without its files",
            (Signal::KILL, _) => "killed",
            _ => "ended",
        };
        self.with_disturbance(server, what, |_| {
            server.end(signal)?;
            if forgets {
                server.forget()?;
            }
            server.start()
        })
    }

    /// A server is stopped for a while, meanwhile perhaps with more changes than are remembered.
    fn stop(&mut self, server: &Server, burst: u64) -> io::Result<String> {
        let what = if burst > 0 { "stopped during a burst" } else { "stopped" };
        let span = self.span();
        self.with_disturbance(server, what, |scene| {
            server.signal(Signal::STOP);
            let ledger = &scene.ledgers[0];
            if burst > 0 {
                let (began, first) = (std::time::Instant::now(), ledger.current());
                ledger.burst.store(burst, Ordering::SeqCst);
                while !scene.run.is_over()
                    && began.elapsed() < scene.patience
                    && ledger.current().wrapping_sub(first) < burst as u32
                {
                    thread::sleep(Duration::from_millis(50));
                }
                scene.run.say(&format!("the burst took {:?}", began.elapsed()));
            } else {
                scene.run.sleep(span);
            }
            server.signal(Signal::CONT);
            Ok(())
        })
    }

    /// A server is told to transfer a whole zone.
    fn retransfer(&mut self) -> io::Result<String> {
        let pairs: Vec<(&Server, usize)> = self
            .fleet
            .pairs()
            .filter(|(server, zone)| !std::ptr::eq(*server, self.fleet.primary(*zone)))
            .collect();
        let (server, zone) = self.chance.pick(&pairs);
        self.with_disturbance(server, "told to retransfer", |_| server.retransfer(ORIGINS[zone]))
    }

    /// Does something to a server, and waits until it has all versions that there were then.
    fn with_disturbance(
        &mut self,
        server: &Server,
        what: &str,
        act: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<String> {
        self.run.say(&format!("{} is {what}", server.name));
        server.disturb();
        let done = act(self);
        let wanted: Vec<u32> = self.ledgers.iter().map(Ledger::current).collect();
        let back = server.zones.iter().try_for_each(|&zone| {
            server.wait_for(zone, self.patience, |serial| !is_older(serial, wanted[zone]))
        });
        server.calm();
        self.run.say(&format!("{} is back", server.name));
        done.and(back).map(|()| format!("{}: {what}", server.name))
    }

    fn span(&mut self) -> Duration {
        Duration::from_millis(self.chance.between(100, self.stop_max.as_millis() as u64))
    }
}
