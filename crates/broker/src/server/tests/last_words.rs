//! What a process has said before it ended is heard, though the broker sees the end first.

use rustix::event::epoll::EventFlags;

use super::super::token;
use super::moves::{ends, moved, token as token_of};
use super::stopped::{client_of, while_it_serves};
use super::*;

/// A child asks for a connection, and its parent gives it the kernel's socket and ends. `end` makes the broker see the end in some way.
fn inherit(end: impl FnOnce(&mut Broker, Client)) {
    let mut broker = super::returning::broker_with(&Maps::default(), None);
    let (mut parent, mut child) = (client_of(&mut broker, false), client_of(&mut broker, false));
    let (local, remote) = ends();
    let ticket = child.begin_move_for(&[parent.key], local, remote).unwrap();
    let asked = while_it_serves(&mut broker, || token_of(&next_event(&mut parent)));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    parent.give_to_child(asked, theirs.as_fd()).unwrap();
    end(&mut broker, parent);
    let mut got = UnixStream::from(while_it_serves(&mut broker, || moved(&mut child, &ticket).unwrap()));
    ours.write_all(b"x").unwrap();
    got.read_exact(&mut [0]).unwrap();
}

#[test]
fn who_ends_before_it_has_read_all_news_is_heard() {
    inherit(|broker, parent| {
        let client = *broker.connections.keys().next().unwrap();
        broker.tell(client, News::WaysChanged, Vec::new(), clock::Instant::ZERO);
        drop(parent);
    });
}

#[test]
fn who_ends_while_a_child_has_its_connection_to_the_broker_is_heard() {
    inherit(|broker, parent| {
        let client = *broker.connections.keys().next().unwrap();
        broker.serve(client, token::process(client), EventFlags::IN, clock::Instant::ZERO);
        assert!(!broker.connections.contains_key(&client), "and is gone then");
        drop(parent);
    });
}
