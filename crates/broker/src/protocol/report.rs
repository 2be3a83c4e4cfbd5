//! A program's report about itself, for `sidestep status`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::values::Transport;

/// A program's own view. Small enough for one message: see [`ProgramReport::SOCKETS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramReport {
    /// Listeners and UDP sockets first, then connections.
    pub sockets: Vec<SocketReport>,
    /// Sockets that are not told.
    pub more: u64,
    /// Connections on the stack.
    pub accelerated: u64,
    /// Connections so far that the program accepted from the kernel: they came by loopback, by another interface, before the claim took
    /// effect, by a process that left them to this one, or to a listener that is not accelerated.
    pub accepted_from_kernel: u64,
    /// Connections so far that the program began to make by the kernel.
    pub made_by_kernel: u64,
    /// How many of them why: ends of a sentence.
    pub made_because: Vec<(String, u64)>,
    /// Connections so far that were on the stack and became the kernel's.
    pub moved_to_kernel: u64,
    /// How many of them why, as far as that was for the kernel to be faster: ends of a sentence.
    pub moved_because: Vec<(String, u64)>,
    /// Counters that are worth a look, such as drops, with the names that `sidestep counters` has.
    pub counters: Vec<(String, u64)>,
}

impl ProgramReport {
    /// Sockets of a report at most; more are only counted.
    pub const SOCKETS_MAX: usize = 200;

    /// Rewrites all texts.
    pub(crate) fn clean(&mut self, text: impl Fn(&str) -> String) {
        for socket in &mut self.sockets {
            socket.state = text(&socket.state);
            socket.why = socket.why.as_deref().map(&text);
        }
        for (name, _) in self.counters.iter_mut().chain(&mut self.made_because).chain(&mut self.moved_because)
        {
            *name = text(name);
        }
    }
}

/// A socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketReport {
    /// The program's descriptor.
    pub fd: i32,
    /// TCP or UDP.
    pub transport: Transport,
    /// Where it is bound.
    pub local: SocketAddr,
    /// The peer, if it has one.
    pub remote: Option<SocketAddr>,
    /// In the words of ss(8): `LISTEN`, `ESTAB`, `UNCONN` and so on.
    pub state: String,
    /// On the stack; for a listener, that it may have connections there.
    pub accelerated: bool,
    /// Why not, or not wholly.
    pub why: Option<String>,
}
