//! Names of sockets, of epoll instances and of what they watch, for all floors.

use stack::slab::Handle;

/// What the handles of sockets are told apart by; it has no value.
#[derive(Debug)]
pub(crate) enum OfSockets {}
/// The same of epoll instances.
#[derive(Debug)]
pub(crate) enum OfEpolls {}
/// The same of what an epoll instance watches.
#[derive(Debug)]
pub(crate) enum OfItems {}

/// Names a socket.
pub(crate) type SocketId = Handle<OfSockets>;
/// Names an epoll instance.
pub(crate) type EpollId = Handle<OfEpolls>;
/// Names what one of them watches.
pub(crate) type ItemId = Handle<OfItems>;

/// The epoll instances that watch a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) epoll: EpollId,
    pub(crate) item: ItemId,
}

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Socket(SocketId),
    Epoll(EpollId),
}

/// The epoll instances that watch something: mostly one.
#[derive(Default)]
pub(crate) struct Interests {
    first: Option<Interest>,
    more: Vec<Interest>,
}

impl Interests {
    pub(crate) fn add(&mut self, interest: Interest) {
        match self.first {
            None => self.first = Some(interest),
            Some(_) => self.more.push(interest),
        }
    }

    pub(crate) fn remove(&mut self, interest: Interest) {
        if self.first == Some(interest) {
            self.first = self.more.pop();
        } else {
            self.more.retain(|other| *other != interest);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Interest> + '_ {
        self.first.iter().chain(&self.more).copied()
    }

    /// By position, for callers that cannot borrow the list.
    pub(crate) fn at(&self, place: usize) -> Option<Interest> {
        match place {
            0 => self.first,
            _ => self.more.get(place - 1).copied(),
        }
    }
}
