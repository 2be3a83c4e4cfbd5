//! Where it is noted which connections there are.

use std::fmt;
use std::net::SocketAddr;

use super::{ConnectionId, Stack};

/// Notes the ends of each connection, ours first, for as long as its peer may send something. It is told when connections begin and end, and not by each packet.
pub trait Book: Send {
    /// The connection at this place, below [`Config::connections_max`](crate::Config::connections_max), has these ends; or there is none any more.
    fn note(&mut self, place: u32, ends: Option<(SocketAddr, SocketAddr)>);
}

/// The book, if there is one.
#[derive(Default)]
pub(super) struct Kept(Option<Box<dyn Book>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Kept" } else { "None" })
    }
}

impl Stack {
    /// Notes connections there from now on.
    pub fn keep_book(&mut self, book: Box<dyn Book>) {
        self.book = Kept(Some(book));
        let ids: Vec<ConnectionId> = self.connections.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.note_begun(id));
    }

    /// A connection is there.
    pub(super) fn note_begun(&mut self, id: ConnectionId) {
        let (Some(book), Some(connection)) = (&mut self.book.0, self.connections.get(id)) else { return };
        if !connection.flags.flow_ended {
            book.note(id.index(), Some((connection.key.local(), connection.key.remote())));
        }
    }

    /// It is over, or not ours any more.
    pub(super) fn note_over(&mut self, id: ConnectionId) {
        if let Some(book) = &mut self.book.0 {
            book.note(id.index(), None);
        }
    }
}
