//! What waits to be sent, in order for each link.

use std::collections::VecDeque;

use crate::path::LinkId;

/// A first-in-first-out queue for each link: a link that takes nothing holds up no other one.
#[derive(Debug)]
pub(crate) struct LinkQueues<T> {
    /// By number of the link.
    queues: Vec<VecDeque<T>>,
    /// In all queues.
    len: usize,
    /// The link whose turn it is.
    turn: usize,
    /// What the front of that link's queue has sent in its turn.
    sent: u32,
}

impl<T> Default for LinkQueues<T> {
    fn default() -> LinkQueues<T> {
        LinkQueues { queues: Vec::new(), len: 0, turn: 0, sent: 0 }
    }
}

impl<T> LinkQueues<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn push(&mut self, link: LinkId, item: T) {
        let at = usize::from(link.0);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, VecDeque::new);
        }
        self.queues[at].push_back(item);
        self.len += 1;
    }

    /// The links by which something is to be sent, from the one on whose turn it is.
    #[inline]
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> + use<T> {
        let (turn, count) = (self.turn, self.queues.len());
        let waiting = if self.is_empty() { 0 } else { count };
        (0..waiting).map(move |place| LinkId(((turn + place) % count) as u16))
    }

    #[inline]
    pub(crate) fn front(&self, link: LinkId) -> Option<&T> {
        self.queues.get(usize::from(link.0))?.front()
    }

    #[inline]
    pub(crate) fn pop(&mut self, link: LinkId) -> Option<T> {
        let item = self.queues.get_mut(usize::from(link.0))?.pop_front()?;
        self.len -= 1;
        self.sent = 0;
        Some(item)
    }

    /// The front of a queue has sent so many packets; whether its turn is over behind `quantum`. Then it is the next link's.
    #[inline]
    pub(crate) fn note_sent(&mut self, link: LinkId, packets: u32, quantum: u32) -> bool {
        let at = usize::from(link.0);
        if at != self.turn {
            (self.turn, self.sent) = (at, 0);
        }
        self.sent += packets;
        let is_over = self.sent >= quantum;
        if is_over {
            (self.turn, self.sent) = ((at + 1) % self.queues.len().max(1), 0);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: LinkId = LinkId(0);
    const RIGHT: LinkId = LinkId(2);

    fn queues() -> LinkQueues<char> {
        let mut queues = LinkQueues::default();
        [(LEFT, 'a'), (RIGHT, 'x'), (LEFT, 'b')].into_iter().for_each(|(link, item)| queues.push(link, item));
        queues
    }

    #[test]
    fn what_waits_for_one_link_is_in_order_and_hides_no_other_link() {
        let mut queues = queues();
        assert_eq!((queues.front(LEFT), queues.front(RIGHT)), (Some(&'a'), Some(&'x')));
        assert_eq!((queues.pop(LEFT), queues.pop(LEFT), queues.pop(LEFT)), (Some('a'), Some('b'), None));
        assert_eq!((queues.len(), queues.pop(RIGHT), queues.is_empty()), (1, Some('x'), true));
    }

    #[test]
    fn links_take_turns() {
        let mut queues = queues();
        let first = |queues: &LinkQueues<char>| queues.links().find(|link| queues.front(*link).is_some());
        assert_eq!(first(&queues), Some(LEFT));
        assert!(!queues.note_sent(LEFT, 1, 2));
        assert_eq!(first(&queues), Some(LEFT), "it goes on");
        assert!(queues.note_sent(LEFT, 1, 2));
        assert_eq!(first(&queues), Some(RIGHT));
        assert!(queues.note_sent(RIGHT, 2, 2));
        assert_eq!(first(&queues), Some(LEFT));
    }

    #[test]
    fn nothing_waits_by_no_link() {
        assert_eq!(LinkQueues::<char>::default().links().count(), 0);
    }
}
