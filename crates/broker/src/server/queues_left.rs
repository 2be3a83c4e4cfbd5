//! Queues that processes share, from a broker that leaves to whoever takes its place: without the sockets nobody else could come to share them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::protocol::QueueLeft;
use crate::registry::LinkNumber;

/// A queue, and what [`device_xdp::SharedQueue::go_on`] takes.
pub(crate) type Left = (QueueLeft, Vec<OwnedFd>);

/// What a broker has sent that has left, until it is used.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuesLeft(Arc<Mutex<Vec<Left>>>);

impl QueuesLeft {
    pub(super) fn add(&self, queue: QueueLeft, descriptors: Vec<OwnedFd>) {
        self.lock().push((queue, descriptors));
    }

    /// Those of an interface.
    pub(super) fn take(&self, link: LinkNumber) -> Vec<Left> {
        self.lock().extract_if(.., |(queue, _)| queue.link == link).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Left>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
