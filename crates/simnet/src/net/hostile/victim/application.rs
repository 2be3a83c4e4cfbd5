//! What the victim's application does.

use stack::tcp::Shutdown;

use super::Victim;
use crate::net::content::Content;

impl Victim {
    /// Sends octets on a flow.
    pub fn send(&mut self, flow: usize, octets: usize) {
        if let Some(id) = self.flows[flow].id {
            let mut data = vec![0; octets];
            Content::new(1).fill(0, &mut data);
            let _ = self.stack.send(id, &data, self.now);
            self.settle(None);
        }
    }

    /// Reads octets from a flow.
    pub fn recv(&mut self, flow: usize, octets: usize) {
        if let Some(id) = self.flows[flow].id {
            let mut room = vec![0; octets];
            let count = self.stack.recv(id, &mut room, self.now).unwrap_or(0);
            self.flows[flow].unread -= count as u64;
            self.settle(None);
        }
    }

    /// Sends no more on a flow.
    pub fn shutdown(&mut self, flow: usize) {
        if let Some(id) = self.flows[flow].id {
            self.stack.shutdown(id, Shutdown::Write, self.now);
            self.settle(None);
        }
    }

    /// Closes a flow, or resets it. What still comes for it is no longer looked at.
    pub fn close(&mut self, flow: usize, abort: bool) {
        if let Some(id) = self.flows[flow].id.take() {
            self.flows[flow] = self.flows[flow].left();
            match abort {
                true => self.stack.abort(id, self.now),
                false => self.stack.close(id, self.now),
            }
            self.settle(None);
        }
    }
}
