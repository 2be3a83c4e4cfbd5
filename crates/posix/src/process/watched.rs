//! What epoll instances watch: taken from the kernel, or not watched any more.

use crate::ids::{EpollId, Interest, ItemId, Target};
use crate::process::state::State;

impl State {
    pub(crate) fn remove_item(&mut self, id: EpollId, item_id: ItemId) {
        let Some(epoll) = self.epolls.get_mut(id) else { return };
        let Some(item) = epoll.items.remove(item_id) else { return };
        epoll.shadows.retain(|shadow| *shadow != item_id);
        let interest = Interest { epoll: id, item: item_id };
        match item.target {
            Target::Socket(socket) => {
                if let Some(socket) = self.sockets.get_mut(socket) {
                    socket.interests.remove(interest);
                }
            }
            Target::Epoll(inner) => {
                if let Some(inner) = self.epolls.get_mut(inner) {
                    inner.watchers.remove(interest);
                }
            }
        }
    }

    /// A call of this process waits at an instance, and at those in it, which it may have from its parent.
    pub(crate) fn begin_use(&mut self, id: EpollId) {
        let Some(epoll) = self.epolls.get_mut(id).filter(|epoll| epoll.is_unused_since_fork) else { return };
        epoll.begin_use();
        let inner: Vec<EpollId> = epoll.inner().collect();
        inner.into_iter().for_each(|inner| self.begin_use(inner));
    }

    /// The kernel is no longer to tell of a socket, which becomes the stack's alone.
    pub(crate) fn take_from_kernel(&mut self, socket: crate::ids::SocketId) {
        for place in 0.. {
            let interest = self.sockets.get(socket).and_then(|socket| socket.interests.at(place));
            let Some(Interest { epoll: id, item: item_id }) = interest else { return };
            let Some(epoll) = self.epolls.get_mut(id) else { continue };
            let (epfd, Some(item)) = (epoll.fd, epoll.items.get_mut(item_id)) else { continue };
            if std::mem::replace(&mut item.in_kernel, false) {
                // Fails if it was closed there: then the kernel does not tell of it either.
                let _ = syscall::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, item.fd, None);
                epoll.absent.forget(item.fd);
                epoll.shadows.retain(|shadow| *shadow != item_id);
            }
        }
    }

    /// All that a socket is watched for.
    pub(crate) fn drop_interests(&mut self, socket: crate::ids::SocketId) {
        while let Some(interest) = self.sockets.get(socket).and_then(|socket| socket.interests.at(0)) {
            self.remove_item(interest.epoll, interest.item);
            if let Some(socket) = self.sockets.get_mut(socket) {
                socket.interests.remove(interest);
            }
        }
    }
}
