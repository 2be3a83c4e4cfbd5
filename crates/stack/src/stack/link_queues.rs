//! What waits to be sent, in order for each link.

use std::collections::VecDeque;

use crate::path::LinkId;

/// A first-in-first-out queue for each link: a link that takes nothing holds up no other one.
#[derive(Debug)]
pub(crate) struct LinkQueues<T> {
    /// By number of the link.
    queues: Vec<Queue<T>>,
    /// In all queues.
    len: usize,
    /// The link whose turn it is, and the packets that were sent by it in its turn.
    turn: usize,
    sent: u32,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    /// Packets that the front has sent in its turn.
    sent: u32,
}

impl<T> Default for LinkQueues<T> {
    fn default() -> LinkQueues<T> {
        LinkQueues { queues: Vec::new(), len: 0, turn: 0, sent: 0 }
    }
}

impl<T> LinkQueues<T> {
    /// Items that wait for a link.
    pub(crate) fn len(&self, link: LinkId) -> usize {
        self.queues.get(usize::from(link.0)).map_or(0, |queue| queue.items.len())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn push(&mut self, link: LinkId, item: T) {
        let at = usize::from(link.0);
        if self.queues.len() <= at {
            self.queues.resize_with(at + 1, || Queue { items: VecDeque::new(), sent: 0 });
        }
        self.queues[at].items.push_back(item);
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
        self.queues.get(usize::from(link.0))?.items.front()
    }

    #[inline]
    pub(crate) fn pop(&mut self, link: LinkId) -> Option<T> {
        let queue = self.queues.get_mut(usize::from(link.0))?;
        let item = queue.items.pop_front()?;
        queue.sent = 0;
        self.len -= 1;
        Some(item)
    }

    /// So many packets were sent by a link. Behind `quantum` of them it is the next link's turn.
    #[inline]
    pub(crate) fn pass_turn(&mut self, link: LinkId, packets: u32, quantum: u32) {
        let at = usize::from(link.0);
        if at != self.turn {
            (self.turn, self.sent) = (at, 0);
        }
        self.sent += packets;
        if self.sent >= quantum {
            (self.turn, self.sent) = ((at + 1) % self.queues.len().max(1), 0);
        }
    }

    /// The front of a link's queue has sent so many packets; whether that was `quantum` of them, and others are to follow.
    #[inline]
    pub(crate) fn note_sent(&mut self, link: LinkId, packets: u32, quantum: u32) -> bool {
        self.pass_turn(link, packets, quantum);
        let Some(queue) = self.queues.get_mut(usize::from(link.0)) else { return true };
        queue.sent += packets;
        queue.sent >= quantum
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
        assert_eq!((queues.len(RIGHT), queues.pop(RIGHT), queues.is_empty()), (1, Some('x'), true));
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
    fn many_that_send_one_packet_each_do_not_keep_the_turn() {
        let mut queues = queues();
        for _ in 0..2 {
            assert!(!queues.note_sent(LEFT, 1, 2), "each is new at the front");
            queues.pop(LEFT);
        }
        queues.push(LEFT, 'c');
        let first = queues.links().find(|link| queues.front(*link).is_some());
        assert_eq!(first, Some(RIGHT));
    }

    #[test]
    fn nothing_waits_by_no_link() {
        assert_eq!(LinkQueues::<char>::default().links().count(), 0);
    }
}
