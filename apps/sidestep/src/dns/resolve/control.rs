//! Questions of tools and signals, which other threads hand to the loop.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use dns_resolver::Scope;
use dns_wire::{Name, NameBuf};
use mio::Waker;
use observe::Subject;
use observe::report::{Count, NameServerReport};

use super::config::Config;

/// What the loop is to do.
pub(super) enum Command {
    /// Go on with another configuration; the cache stays.
    Reload(Box<Config>),
    /// Answer the clients that wait, and end.
    Stop,
    /// Tell the table of servers.
    Servers(Sender<Vec<NameServerReport>>),
    /// Tell the counters.
    Counters(Sender<Vec<Count>>),
    /// Drop what the cache has about a name, and tell how many entries that were.
    Flush(Box<NameBuf>, Scope, Sender<usize>),
}

/// Reaches the loop from other threads.
#[derive(Clone)]
pub(super) struct Control {
    commands: Sender<Command>,
    waker: Arc<Waker>,
}

/// How long a tool waits for the loop, which is never busy for long.
const PATIENCE: Duration = Duration::from_secs(2);

impl Control {
    pub(super) fn new(waker: Arc<Waker>) -> (Control, Receiver<Command>) {
        let (commands, receiver) = channel();
        (Control { commands, waker }, receiver)
    }

    pub(super) fn send(&self, command: Command) {
        // A loop that ended has nothing left to be told; a failing wake-up means the same.
        if self.commands.send(command).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// A loop that has ended tells nothing.
impl Subject for Control {
    fn name_servers(&self) -> Vec<NameServerReport> {
        let (sender, receiver) = channel();
        self.send(Command::Servers(sender));
        receiver.recv_timeout(PATIENCE).unwrap_or_default()
    }

    fn counters(&self) -> Vec<Count> {
        let (sender, receiver) = channel();
        self.send(Command::Counters(sender));
        receiver.recv_timeout(PATIENCE).unwrap_or_default()
    }

    fn flush(&self, name: &str, below: bool) -> Result<u64, String> {
        let scope = if below { Scope::Subtree } else { Scope::Name };
        let name = NameBuf::from_text(name.as_bytes(), Some(Name::ROOT))
            .map_err(|error| format!("{name}: {error}"))?;
        let (sender, receiver) = channel();
        self.send(Command::Flush(Box::new(name), scope, sender));
        let count = receiver.recv_timeout(PATIENCE).map_err(|_| "the resolver is about to end")?;
        Ok(count as u64)
    }
}
