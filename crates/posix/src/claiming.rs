//! Claims sockets when a thread waits on them: packets to them are ours from then on.

use std::os::fd::AsFd;

use clock::{Duration, Instant};

use crate::broker_side::Purpose;
use crate::ids::SocketId;
use crate::process::State;
use crate::socket::Role;

/// How long a broker that has never answered is not asked again.
const CLAIMS_AGAIN_AFTER: Duration = Duration::from_millis(100);

impl State {
    /// Asks for queues, if that was not done yet; claims take effect with the first queue.
    pub(crate) fn attach(&mut self, now: Instant) {
        if self.attached {
            return;
        }
        self.attached = self.reach();
        if let Some(attachment) = self.attachment.as_mut().filter(|_| self.attached) {
            attachment.attach();
        }
        self.hear(now);
    }

    /// Claims where a shadow is bound, once. Returns whether that is ours now, or will be with the first queue.
    pub(crate) fn claim(&mut self, id: SocketId, purpose: Purpose, now: Instant) -> bool {
        let Some(socket) = self.sockets.get(id) else { return false };
        if socket.claim.is_some() || socket.unclaimable.is_some() {
            let is_claimed = socket.claim.is_some();
            self.tell_unclaimable(now);
            return is_claimed;
        }
        let fd = socket.fd();
        let Some(local) = crate::address::local_of(fd) else { return false };
        if local.ip().is_loopback() || local.port() == 0 {
            self.note_unclaimable(id, "bound to loopback".to_owned(), now);
            return false;
        }
        if let Some(reason) = self.why_kernel_only(id, local) {
            self.note_unclaimable(id, reason.to_owned(), now);
            return false;
        }
        if self.is_to_claim_later(now) {
            self.note_news(id);
            return false;
        }
        self.attach(now);
        let is_attached = self.attached;
        let Some(attachment) = &mut self.attachment else { return false };
        if !is_attached && attachment.may_be_reached() {
            return self.claim_later(id);
        }
        if !attachment.wants(purpose) {
            self.note_unclaimable(id, "the profile leaves it to the kernel".to_owned(), now);
            return false;
        }
        let Some(shadow) = crate::descriptors::internal::copy(fd) else { return false };
        let claimed = attachment.claim(shadow.as_fd(), purpose);
        crate::descriptors::internal::close(shadow);
        match claimed {
            Ok(None) => self.claim_later(id),
            Ok(Some(claim)) => {
                if let Some(socket) = self.sockets.get_mut(id) {
                    socket.claim = Some(claim);
                    // It may have been made so, by another process too; from here on we are told.
                    let flags = syscall::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
                    socket.nonblocking = flags & libc::O_NONBLOCK != 0;
                }
                self.refresh_timeout(id);
                self.supersede_ended(local);
                self.install(id);
                self.hear(now); // Handshakes may be waiting for who claims this.
                true
            }
            Err(reason) => {
                self.note_unclaimable(id, reason, now);
                false
            }
        }
    }

    /// Whether a broker that has stopped would not answer.
    fn is_to_claim_later(&mut self, now: Instant) -> bool {
        match &mut self.attachment {
            Some(attachment) if self.attached => attachment.stands_still(),
            _ => now < self.claims_again_at,
        }
    }

    /// The broker may have been stopped: it is asked again when a thread waits there again.
    fn claim_later(&mut self, id: SocketId) -> bool {
        self.note_news(id);
        self.claims_again_at = self.clock.now() + CLAIMS_AGAIN_AFTER;
        false
    }

    /// A socket stays with the kernel for this reason.
    fn note_unclaimable(&mut self, id: SocketId, reason: String, now: Instant) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.unclaimable = Some(reason.into());
            self.has_untold = true;
        }
        self.tell_unclaimable(now);
    }

    /// A program that has no queue, and waits for nothing of ours, hears nobody who asks why: it says so when it waits.
    fn tell_unclaimable(&mut self, now: Instant) {
        if !self.attached && std::mem::take(&mut self.has_untold) {
            self.report(now);
        }
    }

    /// A thread waits for connections or datagrams at a shadow.
    pub(crate) fn claim_to_read(&mut self, id: SocketId, now: Instant) -> bool {
        match self.sockets.get_mut(id).map(|socket| &mut socket.role) {
            Some(Role::Listener { .. }) => self.claim(id, Purpose::Listener, now),
            Some(Role::Udp(udp)) => udp.note_wait() && self.claim(id, Purpose::Udp, now),
            _ => false,
        }
    }
}
