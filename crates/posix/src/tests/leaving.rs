//! Listeners that leave the stack.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use ::clock::Duration;

use super::{EAGAIN, LEFT, Pair, until};
use crate::address::{encode, local_of};
use crate::broker_side::ClaimId;
use crate::errno::Errno;
use crate::request::Verdict;

/// Longer than it takes until what could not leave is tried again.
const LATER: Duration = Duration::from_millis(60);

/// A connection, both ends and the listener, and a peer that connects to that.
fn connected_and_waiting(pair: &Pair) -> (RawFd, RawFd, RawFd, RawFd) {
    let (listener, left, right) = pair.accepted(libc::SOCK_NONBLOCK);
    let next = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
    assert_eq!(pair.right.connect_to(next, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    (listener, left, right, next)
}

fn claim_of(pair: &Pair, listener: RawFd) -> Option<ClaimId> {
    let state = pair.left.lock();
    state.socket_of(listener).and_then(|id| state.sockets.get(id)).and_then(|socket| socket.claim)
}

/// Another process has found that the kernel serves the listener better.
fn leave_to_kernel(pair: &Pair, listener: RawFd) {
    let claim = claim_of(pair, listener).unwrap();
    pair.left.lock().on_socket_left(claim, pair.left.now());
}

/// The broker takes nothing, and does nothing about new connections; or it goes on.
fn stop_broker(pair: &Pair, stops: bool) {
    pair.others.stands_still.store(stops, Ordering::Relaxed);
    pair.others.keeps_new.store(stops, Ordering::Relaxed);
}

/// Nobody is reset, and nothing of a listener is left on the stack.
#[track_caller]
fn assert_gone(pair: &Pair, left: RawFd, next: RawFd) {
    assert_eq!(pair.right.recv(next, &mut [0; 8], 0), Err(EAGAIN), "it is not reset");
    assert!(!pair.left.table.is_ours(left));
    assert_eq!(pair.others.gave_back.load(Ordering::Relaxed), 1);
}

/// Time goes on, and a turn is made.
fn pass(pair: &Pair, time: Duration) {
    pair.pass(time);
    pair.settle();
}

/// While the left process has its lock.
fn turn_of_right(pair: &Pair) {
    let (mut state, now) = (pair.right.lock(), pair.right.now());
    state.turn(now);
    state.queue.send_the_rest(now);
    pair.right.note_turn();
}

#[track_caller]
fn echo(pair: &Pair, left: RawFd, right: RawFd) {
    for (from, from_fd, to, to_fd) in
        [(&pair.right, right, &pair.left, left), (&pair.left, left, &pair.right, right)]
    {
        assert_eq!(from.send_all(from_fd, b"x"), Ok(1));
        pair.settle();
        assert_eq!(to.recv(to_fd, &mut [0; 8], 0), Ok(1));
    }
}

#[test]
fn a_listener_leaves_to_the_kernel_with_all_that_it_has() {
    let pair = Pair::new();
    pair.hold();
    let (listener, left, ..) = connected_and_waiting(&pair);
    leave_to_kernel(&pair, listener);
    assert!(!pair.left.table.is_ours(left));
    assert_eq!(claim_of(&pair, listener), None);
    assert!(pair.left.accept4(listener, 0).is_ok(), "who waited there is accepted all the same");
}

#[test]
fn while_the_broker_stands_still_a_listener_that_is_to_leave_goes_on() {
    for (begins_to_drain, takes_some) in [(false, false), (true, false), (true, true)] {
        let pair = Pair::new();
        pair.hold();
        let (listener, left, right, next) = connected_and_waiting(&pair);
        pair.others.keeps_new.store(!begins_to_drain, Ordering::Relaxed);
        pair.others.stands_still.store(true, Ordering::Relaxed);
        if takes_some {
            *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
        }
        leave_to_kernel(&pair, listener);
        for _ in 0..3 {
            pass(&pair, LATER);
            echo(&pair, left, right);
        }
        let accepted = pair.left.accept4(listener, libc::SOCK_NONBLOCK).expect("it waits where it did");
        echo(&pair, accepted, next);
        assert!(claim_of(&pair, listener).is_some());

        stop_broker(&pair, false);
        pass(&pair, LATER);
        assert_eq!(claim_of(&pair, listener), None, "it was tried again");
        assert!(!pair.left.table.is_ours(left) && !pair.left.table.is_ours(accepted));
        assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
        assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Err(EAGAIN), "nobody is reset");
    }
}

#[test]
fn a_listener_without_a_queue_leaves_at_once() {
    let pair = Pair::without_queues();
    let (listener, _) = pair.listen();
    pair.others.keeps_new.store(true, Ordering::Relaxed);
    leave_to_kernel(&pair, listener);
    assert_eq!(claim_of(&pair, listener), None);
    assert!(pair.left.lock().queue.leaving.is_empty(), "nobody would look at it again");
}

#[test]
fn connections_of_a_closed_listener_go_on_while_the_broker_stands_still() {
    for is_common in [true, false] {
        let pair = Pair::new();
        pair.hold();
        let (listener, left, right) = pair.accepted(libc::SOCK_NONBLOCK);
        if is_common {
            pair.left.pass_on(listener);
        }
        pair.others.stands_still.store(true, Ordering::Relaxed);
        pair.left.let_go(listener);
        for _ in 0..3 {
            pass(&pair, LATER);
            echo(&pair, left, right);
        }
        pair.others.stands_still.store(false, Ordering::Relaxed);
        pass(&pair, LATER);
        pass(&pair, LATER);
        assert!(!pair.left.table.is_ours(left), "the kernel knows whose the port is");
        assert!(pair.left.lock().queue.leaving.is_empty());
    }
}

#[test]
fn what_a_closed_connection_has_yet_to_say_is_said_while_the_broker_stands_still() {
    let pair = Pair::new();
    pair.hold();
    let (listener, left, right) = pair.accepted(libc::SOCK_NONBLOCK);
    pair.others.stands_still.store(true, Ordering::Relaxed);
    let said = pair.left.send_all(left, &[1; 60_000]).unwrap();
    assert!(said > 40_000, "more than leaves before the peer acknowledges any of it");
    pair.left.let_go(left);
    leave_to_kernel(&pair, listener);
    let (mut heard, mut room) = (0, vec![0; 60_000]);
    for _ in 0..8 {
        pass(&pair, LATER);
        heard += pair.right.recv(right, &mut room, 0).unwrap_or(0);
    }
    assert_eq!((heard, pair.right.recv(right, &mut room, 0)), (said, Ok(0)));
    pair.right.let_go(right);
    pair.others.stands_still.store(false, Ordering::Relaxed);
    pass(&pair, LATER);
    assert_eq!(claim_of(&pair, listener), None);
}

/// On Linux no SYN is refused while others listen there, and who closes a listener has accepted all before.
#[test]
fn who_comes_to_one_of_several_listeners_at_a_port_while_it_is_closed_is_left_to_the_others() {
    let pair = Pair::new();
    pair.hold();
    let (listener, left, right) = pair.accepted(libc::SOCK_NONBLOCK);
    syscall::setsockopt(listener, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32.to_ne_bytes()).unwrap();
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
    let next = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(next, address), Err(Errno(libc::EINPROGRESS)));
    pair.left.let_go(listener);
    pair.settle();
    echo(&pair, left, right);
    pass(&pair, LATER);
    assert_eq!(pair.others.left.load(Ordering::Relaxed), 1, "one of them accepts it");
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(0)), "its own is gone");
    assert_gone(&pair, left, next);
}

/// A retransmitted SYN may come by another process's queue, and two processes would have the connection.
#[test]
fn who_ends_while_the_broker_stands_still_answers_peers_meanwhile() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    pair.left.pass_on(listener);
    stop_broker(&pair, true);
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            pair.left.let_go(listener);
            pair.left.before_exit();
        });
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        until("it is connected", || {
            turn_of_right(&pair);
            pair.right.send_all(right, b"request").is_ok()
        });
        assert!(!ending.is_finished());
        stop_broker(&pair, false);
        ending.join().unwrap();
        assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(1)), "others find it there");
        turn_of_right(&pair);
        assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Err(EAGAIN), "it is not reset");
    });
}

#[test]
fn who_closes_a_listener_that_is_to_leave_leaves_it_to_others() {
    let pair = Pair::new();
    pair.hold();
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    let (listener, left, right, next) = connected_and_waiting(&pair);
    pair.left.pass_on(listener);
    stop_broker(&pair, true);
    leave_to_kernel(&pair, listener);
    pair.left.let_go(listener);
    pass(&pair, LATER);
    echo(&pair, left, right);
    stop_broker(&pair, false);
    pass(&pair, LATER);
    pass(&pair, LATER);
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(1)), "who waited there");
    assert_gone(&pair, left, next);
}

/// As a worker that is replaced does it: requests that came meanwhile would be unread, and their peers reset.
#[test]
fn connections_that_are_closed_at_once_after_their_listener_have_not_moved() {
    let pair = Pair::new();
    pair.hold();
    let (listener, left_fd, right) = pair.accepted(libc::SOCK_NONBLOCK);
    pair.left.pass_on(listener);
    pair.left.let_go(listener);
    assert!(pair.left.table.is_ours(left_fd), "it is where it was");
    pair.left.let_go(left_fd);
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Ok(0), "it was not reset");
    pass(&pair, LATER);
    assert_eq!(pair.others.gave_back.load(Ordering::Relaxed), 1);
}

#[test]
fn connections_of_a_listener_that_nobody_else_has_move_some_time_after_it() {
    let pair = Pair::new();
    pair.hold();
    let (listener, left, right) = pair.accepted(libc::SOCK_NONBLOCK);
    pair.left.let_go(listener);
    assert!(pair.left.table.is_ours(left), "it may be closed next");
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Ok(1));
    pass(&pair, LATER);
    assert!(!pair.left.table.is_ours(left), "the kernel knows for whom the port is in use");
}

#[test]
fn what_was_closed_at_a_port_ends_before_the_port_is_bound_or_the_process_ends() {
    let end: [fn(&Pair, SocketAddr); 2] = [
        |pair, address| {
            let next = pair.left.tcp_socket(libc::SOCK_NONBLOCK);
            let (name, len) = encode(address, libc::AF_INET);
            assert!(matches!(pair.left.may_bind(next, &name[..len]), Verdict::Kernel));
        },
        |pair, _| pair.left.before_exit(),
    ];
    for end in end {
        for is_common in [true, false] {
            let pair = Pair::new();
            pair.hold();
            let (listener, left, _right) = pair.accepted(libc::SOCK_NONBLOCK);
            let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
            if is_common {
                pair.left.pass_on(listener);
            }
            pair.left.let_go(listener);
            assert!(pair.left.table.is_ours(left));
            end(&pair, address);
            assert!(!pair.left.table.is_ours(left), "the kernel knows whose the port is");
            assert!(pair.left.lock().queue.leaving.is_empty());
        }
    }
}
