//! Connections whose packets come by the queue of another process with the same port: see the page of `broker/src/server/strays.rs`.

use std::net::SocketAddr;

use clock::Instant;
use stack::{ConnectionId, LinkId, Stack};

use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::process::State;
use crate::socket::{Happening, Socket};

/// Strays that are asked about in a turn.
const ASKED_AT_ONCE: usize = 16;

impl State {
    /// Asks for the owners of connections whose packets came to us. The broker reads so many at once; the others wait for the next turn.
    pub(crate) fn ask_about_strays(&mut self, now: Instant) {
        for _ in 0..ASKED_AT_ONCE {
            let Some(stray) = self.queue.stack().and_then(Stack::next_stray) else { return };
            if self.has_begun((stray.local, stray.remote)) {
                continue; // Its peer sends it again, to whoever has it then.
            }
            let refused = match self.attachment() {
                Some(attachment) => attachment.begin_stray(Box::new(stray), now).err(),
                None => Some(Box::new(stray)),
            };
            if let (Some(stray), Some(stack)) = (refused, self.queue.stack()) {
                stack.reset_stray(*stray);
            }
        }
    }

    /// A segment came by another process's queue. If its connection is ours, we take it, and the connection leaves. One that cannot leave (it
    /// waits to be accepted, or the kernel refuses it) goes on so, segment by segment.
    pub(crate) fn on_strayed(
        &mut self,
        token: u64,
        (local, remote): (SocketAddr, SocketAddr),
        octets: &[u8],
        now: Instant,
    ) {
        if self.has_begun((local, remote)) {
            return; // Nor is it nobody's.
        }
        self.take_in(now); // What came before it.
        let is_ours = self.queue.stack().is_some_and(|stack| stack.on_stray(local, remote, octets, now));
        if !is_ours {
            if let Some(attachment) = self.attachment() {
                attachment.disown(token);
            }
            return;
        }
        let Some(stack) = self.queue.stack() else { return };
        let Some(connection) = stack.connection_between(local, remote) else { return };
        if stack.is_orphan(connection) {
            self.move_closed(|ends| ends == (local, remote), Terms::Offered, now);
            return;
        }
        let Some(token) = stack.token(connection) else { return };
        if let Some((id, _)) = self.sockets.at(token as u32).filter(|it| it.0.to_bits() == token) {
            let step = self.step(id, Happening::Strayed);
            let _ = self.carry_out(id, step, now); // What is lost says so when it is used.
        }
    }

    /// An interface puts packets into other queues than before: connections that rely on it go to the kernel.
    pub(crate) fn on_spread_changed(&mut self, link: LinkId, now: Instant) {
        let relies = |(id, socket): (SocketId, &Socket)| (socket.relies_on == Some(link)).then_some(id);
        let relying: Vec<SocketId> = self.sockets.iter().filter_map(relies).collect();
        for id in relying {
            let step = self.step(id, Happening::Strayed);
            let _ = self.carry_out(id, step, now); // What is lost says so when it is used.
        }
        let kept: Vec<ConnectionId> = self.queue.kept_ports.iter().map(|kept| kept.connection).collect();
        let ends: Vec<_> = match self.queue.stack() {
            Some(stack) => kept.iter().filter_map(|connection| stack.endpoints(*connection)).collect(),
            None => return,
        };
        self.move_closed(|of| ends.contains(&of), Terms::Offered, now);
    }
}
