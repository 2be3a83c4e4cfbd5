//! Sockets that several processes or threads share.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::Ordering;

use ::clock::Duration;
use libc::{EPOLL_CTL_ADD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT};

use super::{EAGAIN, LEFT, PATIENCE, Pair, RIGHT, done, until, until_readable};
use crate::address::{encode, local_of};
use crate::broker_side::{CameOfBegun, NotMoved, RequestId};
use crate::errno::Errno;
use crate::ids::SocketId;
use crate::moves::to_kernel::Terms;
use crate::request::{EpollEvent, PollFd, Receive, Verdict};
use crate::socket::{Inherited, Place, Role};

/// Longer than what waits is left alone.
const LONG: Duration = Duration::from_millis(25);

/// A connection waits at the listener of the left process, which is returned.
fn knock(pair: &Pair) -> i32 {
    let (listener, address) = pair.listen();
    knock_at(pair, address);
    listener
}

/// A connection waits there; the right process's end of it.
fn knock_at(pair: &Pair, address: SocketAddr) -> RawFd {
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    right
}

fn left(pair: &Pair) -> u32 {
    pair.others.left.load(Ordering::Relaxed)
}

#[test]
fn what_nobody_takes_is_for_others_that_have_the_listener() {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    let listener = knock(&pair);
    pair.settle();
    assert_eq!(left(&pair), 0, "it has some time");
    pair.pass(LONG);
    pair.settle();
    assert_eq!(left(&pair), 1);
    // Waiting for more claims it again.
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
}

#[test]
fn what_others_are_to_have_waits_in_the_kernel_if_it_can() {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    let listener = knock(&pair);
    pair.settle();
    pair.pass(LONG);
    pair.settle();
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(1)));
    assert_eq!((left(&pair), pair.others.far_ends.lock().unwrap().len()), (0, 0), "nobody else gets it");
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
}

#[test]
fn what_others_are_to_have_waits_where_it_does_while_the_broker_stands_still() {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    pair.others.stands_still.store(true, Ordering::Relaxed);
    let (listener, address) = pair.listen();
    let right = knock_at(&pair, address);
    for _ in 0..4 {
        pair.pass(LONG);
        pair.settle();
    }
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(0)));
    let accepted = pair.left.accept4(listener, libc::SOCK_NONBLOCK).unwrap();
    pair.right.send_all(right, b"request").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(accepted, &mut [0; 8], 0), Ok(7), "its program has it");

    knock_at(&pair, address);
    pair.pass(LONG);
    pair.settle();
    pair.others.stands_still.store(false, Ordering::Relaxed);
    for _ in 0..8 {
        pair.pass(LONG);
        pair.settle();
    }
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(1)), "it was tried again");
}

/// A process whose broker has stopped in the middle of moving a connection that waited; the peer's end of it, and where it listens.
fn begin_and_stop() -> (Pair, RawFd, RawFd, SocketAddr) {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    pair.others.stops_in_the_middle.store(true, Ordering::Relaxed);
    let (listener, address) = pair.listen();
    let right = knock_at(&pair, address);
    pair.pass(LONG);
    pair.settle();
    assert_eq!(pair.others.begun.lock().unwrap().len(), 1);
    (pair, listener, right, address)
}

/// The broker goes on.
fn go_on(pair: &Pair, outcome: CameOfBegun) {
    pair.others.stops_in_the_middle.store(false, Ordering::Relaxed);
    *pair.others.came_of_begun.lock().unwrap() = Some(outcome);
    pair.left.lock().hear(pair.left.now());
    pair.settle();
}

#[test]
fn a_broker_that_stops_in_the_middle_of_moving_what_waits_holds_nobody_up() {
    let (pair, listener, right, address) = begin_and_stop();
    assert_eq!(pair.left.accept4(listener, libc::SOCK_NONBLOCK), Err(EAGAIN), "it is the broker's");
    let other = knock_at(&pair, address);
    let accepted = pair.left.accept4(listener, libc::SOCK_NONBLOCK).unwrap();
    pair.right.send_all(other, b"request").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(accepted, &mut [0; 8], 0), Ok(7), "others are served meanwhile");

    knock_at(&pair, address);
    pair.pass(LONG);
    pair.settle();
    assert_eq!(pair.others.begun.lock().unwrap().len(), 1, "it is asked for nothing else");
    // Its peer sends, also when the stack has forgotten that it had the connection.
    for _ in 0..5 {
        pair.right.send_all(right, b"request").unwrap();
        pair.pass(Duration::from_secs(1));
        pair.settle();
    }
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Err(EAGAIN), "nobody has reset it");

    go_on(&pair, Ok(vec![Ok(())]));
    assert_eq!(left(&pair), 0, "the kernel has it");
    for _ in 0..8 {
        pair.pass(LONG);
        pair.settle();
    }
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(1)), "the next one was offered");
}

#[test]
fn what_the_kernel_refuses_late_is_accepted_all_the_same() {
    let (pair, ..) = begin_and_stop();
    go_on(&pair, Ok(vec![Err(NotMoved::Refused)]));
    assert_eq!((left(&pair), pair.others.far_ends.lock().unwrap().len()), (1, 1), "another process has it");
}

/// What the broker refuses when the listener is gone could go nowhere.
#[test]
fn who_closes_a_listener_waits_for_what_the_broker_has_begun() {
    let (pair, listener, ..) = begin_and_stop();
    *pair.others.came_of_begun.lock().unwrap() = Some(Ok(vec![Err(NotMoved::Refused)]));
    pair.left.shut_down(listener);
    assert!(pair.others.begun.lock().unwrap().is_empty());
    assert_eq!(left(&pair), 1, "another process has it");
}

#[test]
fn what_nobody_knows_of_is_reset() {
    let (pair, _, right, _) = begin_and_stop();
    go_on(&pair, Err(NotMoved::Lost));
    assert_eq!(left(&pair), 0);
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Err(Errno(libc::ECONNRESET)));
}

#[test]
fn who_is_about_to_be_killed_leaves_what_waits_to_others() {
    let pair = Pair::new();
    pair.hold();
    *pair.others.accept_queue.lock().unwrap() = Some(Ok(0));
    let listener = knock(&pair);
    pair.left.before_end();
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(0)), "nobody else has the listener");
    pair.others.share.store(true, Ordering::Relaxed);
    pair.left.before_end();
    assert_eq!(*pair.others.accept_queue.lock().unwrap(), Some(Ok(1)));
    assert!(pair.others.claimed.lock().unwrap().is_empty());
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
    assert_eq!(pair.others.claimed.lock().unwrap().len(), 1, "it goes on, and waits there again");
}

#[test]
fn who_ends_before_it_has_a_queue_leaves_what_others_left_to_it() {
    let pair = Pair::new();
    pair.others.share.store(true, Ordering::Relaxed);
    let (listener, _) = pair.listen();
    let mut state = pair.left.lock();
    state.queue.drop_runtime();
    let id = state.socket_of(listener).unwrap();
    let socket = state.sockets.get_mut(id).unwrap();
    socket.is_common = true; // As after a fork.
    let claim = socket.claim.unwrap();
    let [connection, _peer] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
    state.on_adopt(claim, connection, pair.left.now());
    drop(state);
    pair.left.before_exit();
    assert_eq!(left(&pair), 1);
}

#[test]
fn a_connection_that_was_lost_on_its_way_to_the_kernel_is_reset() {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    *pair.others.accept_queue.lock().unwrap() = Some(Err(NotMoved::Lost));
    let (_, address) = pair.listen();
    let right = knock_at(&pair, address);
    pair.pass(LONG);
    pair.settle();
    assert_eq!(left(&pair), 0);
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Err(Errno(libc::ECONNRESET)));
}

#[test]
fn where_the_kernel_has_no_way_to_its_accept_queues_the_second_time_is_often() {
    let pair = Pair::new();
    *pair.others.accept_queue.lock().unwrap() = Some(Err(NotMoved::Never));
    let listener = let_others_help(&pair, 1);
    assert_eq!((left(&pair), why_unclaimable(&pair, listener)), (1, None));
    let pair = Pair::new();
    *pair.others.accept_queue.lock().unwrap() = Some(Err(NotMoved::Never));
    let listener = let_others_help(&pair, 2);
    assert_eq!((left(&pair), pair.others.left_sockets.load(Ordering::Relaxed)), (2, 1));
    assert!(why_unclaimable(&pair, listener).is_some());
}

#[test]
fn what_nobody_else_can_take_stays() {
    let pair = Pair::new();
    pair.hold();
    let listener = knock(&pair);
    pair.pass(LONG);
    pair.settle();
    assert_eq!(left(&pair), 0);
    assert!(pair.left.accept4(listener, 0).is_ok());
}

#[test]
fn who_accepts_now_and_then_has_more_time_and_keeps_the_listener() {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    let listener = knock(&pair);
    assert!(pair.left.accept4(listener, 0).is_ok());
    let port = local_of(listener).unwrap().port();
    let connect = || {
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        let connected = pair.right.connect_to(right, SocketAddr::new(LEFT, port));
        assert_eq!(connected, Err(Errno(libc::EINPROGRESS)));
        pair.settle();
    };
    connect();
    pair.pass(LONG);
    pair.settle();
    assert_eq!(left(&pair), 0);
    for _ in 0..3 {
        pair.pass(LONG);
        pair.settle();
    }
    assert_eq!(left(&pair), 1, "others help out");
    connect();
    assert!(pair.left.accept4(listener, 0).is_ok());
}

/// A process accepts one of two connections, and leaves the other to others, so often.
fn let_others_help(pair: &Pair, times: u32) -> RawFd {
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    let listener = knock(pair);
    let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
    for _ in 0..times {
        assert!(pair.left.accept4(listener, 0).is_ok());
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        pair.settle();
        for _ in 0..4 {
            pair.pass(LONG);
            pair.settle();
        }
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        pair.settle();
    }
    listener
}

fn why_unclaimable(pair: &Pair, listener: RawFd) -> Option<String> {
    let state = pair.left.lock();
    let socket = state.socket_of(listener).and_then(|id| state.sockets.get(id));
    socket.and_then(|socket| socket.unclaimable.as_ref().map(ToString::to_string))
}

#[test]
fn a_listener_at_which_others_help_too_often_is_the_kernels_for_all() {
    let pair = Pair::new();
    let listener = let_others_help(&pair, 7);
    assert_eq!(pair.others.left_sockets.load(Ordering::Relaxed), 0);
    assert_eq!((left(&pair), why_unclaimable(&pair, listener)), (7, None));
    let pair = Pair::new();
    let listener = let_others_help(&pair, 8);
    assert_eq!(pair.others.left_sockets.load(Ordering::Relaxed), 1);
    assert!(why_unclaimable(&pair, listener).is_some_and(|why| why.contains("often not taken")));
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
    let state = pair.left.lock();
    let claim = state.sockets.get(state.socket_of(listener).unwrap()).unwrap().claim;
    assert_eq!(claim, None, "it is not claimed again");
}

#[test]
fn a_program_that_must_be_accelerated_keeps_such_a_listener() {
    let pair = Pair::new();
    pair.others.keeps_unsuited.store(true, Ordering::Relaxed);
    let listener = let_others_help(&pair, 20);
    assert_eq!((left(&pair), why_unclaimable(&pair, listener)), (20, None));
}

#[test]
fn what_others_get_has_the_options_of_its_listener() {
    let pair = Pair::new();
    pair.hold();
    pair.others.share.store(true, Ordering::Relaxed);
    let listener = pair.left.listen_anywhere(libc::SOCK_NONBLOCK);
    let on = 1i32.to_ne_bytes();
    syscall::setsockopt(listener, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &on).unwrap();
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
    let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
    for _ in 0..2 {
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        pair.settle();
    }
    assert!(pair.left.accept4(listener, 0).is_ok(), "it keeps the listener, and takes one");
    for _ in 0..4 {
        pair.pass(LONG);
        pair.settle();
    }
    assert_eq!(left(&pair), 1, "the other is for others");
    assert_eq!(pair.others.kept_alive.load(Ordering::Relaxed), 1);
}

#[test]
fn a_call_at_a_listener_that_another_process_made_blocking_waits_without_the_lock() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    {
        let mut state = pair.left.lock();
        let id = state.socket_of(listener).unwrap();
        state.sockets.get_mut(id).unwrap().is_common = true;
    }
    // As a process that has the same description does it.
    syscall::fcntl(listener, libc::F_SETFL, libc::O_RDWR.into()).unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| pair.left.accept4(listener, 0));
        pair.left.until_asleep(1);
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        pair.settle();
        assert!(accepting.join().unwrap().is_ok());
    });
    syscall::fcntl(listener, libc::F_SETFL, (libc::O_RDWR | libc::O_NONBLOCK).into()).unwrap();
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN), "and back");
}

#[test]
fn a_bound_socket_of_another_process_listens_on_the_stack() {
    let pair = Pair::new();
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
    let listener = syscall::socket(libc::AF_INET, kind, 0).unwrap().into_raw_fd();
    let (name, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
    syscall::bind(listener, &name[..len]).unwrap();
    pair.left.on_received(listener);
    syscall::listen(listener, 16).unwrap();
    pair.left.on_listen(listener, 16);
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    assert!(pair.left.accept4(listener, 0).is_ok());
}

#[test]
fn handshakes_under_way_are_for_who_comes_after_us() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    {
        // The SYN is answered, and the peer does not hear it yet.
        let mut state = pair.left.lock();
        state.turn(pair.left.now());
        let ids: Vec<_> = state.sockets.iter().map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| state.sockets.get_mut(id).unwrap().is_common = true);
    }
    pair.left.shut_down(listener);
    {
        let handed_on = pair.others.handed_on.lock().unwrap();
        let ours: Vec<(SocketAddr, u8)> =
            handed_on.iter().map(|handshake| (handshake.local, handshake.syn_acks)).collect();
        assert_eq!((ours, left(&pair)), (vec![(address, 1)], 0), "it is no connection yet");
    }
    pair.settle();
    assert_eq!(pair.right.option(right, libc::SOL_SOCKET, libc::SO_ERROR), 0, "it is not reset");
}

#[test]
fn who_finishes_a_handshake_while_others_are_moved_is_moved_too() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (listener, address) = pair.listen();
    let knock = move || {
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        right
    };
    let first = knock();
    pair.settle();
    // With each connection that is moved the peer finishes the handshake that it has begun, and begins another.
    let mut knocked = vec![knock()];
    pair.left.lock().turn(pair.left.now());
    let (tell, told) = std::sync::mpsc::channel();
    *pair.others.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let mut state = pair.right.lock();
        state.turn(pair.right.now());
        state.queue.send_the_rest(pair.right.now());
        drop(state);
        if knocked.len() < 4 {
            knocked.push(knock());
            tell.send(knocked.clone()).unwrap();
        }
    }));
    pair.left.pass_on(listener);
    pair.left.shut_down(listener);
    *pair.others.meanwhile.lock().unwrap() = None;
    pair.settle();
    let all = told.try_iter().last().unwrap();
    for right in [first].into_iter().chain(all) {
        assert_eq!(pair.right.option(right, libc::SOL_SOCKET, libc::SO_ERROR), 0, "it is not reset");
    }
    assert_eq!(left(pair), 5);
}

/// As when another thread starts a program at that moment, which gets the connection, too.
#[test]
fn a_connection_that_moves_before_its_thread_is_told_is_connected() {
    let pair = Pair::new();
    let (_, address) = pair.listen();
    let right = pair.right.tcp_socket(0);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| pair.right.connect_to(right, address));
        pair.right.until_asleep(1);
        pair.left.lock().turn(pair.left.now());
        let mut state = pair.right.lock();
        state.turn(pair.right.now());
        let id = state.socket_of(right).unwrap();
        state.move_to_kernel(id, Terms::Must, pair.right.now()).expect("it is connected");
        drop(state);
        assert_eq!(connecting.join().unwrap(), Ok(()));
    });
    assert!(!pair.right.table.is_ours(right));
}

#[test]
fn the_peer_of_a_connection_that_the_kernel_does_not_take_is_told() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.others.take_none.store(true, Ordering::Relaxed);
    pair.left.pass_on(left);
    pair.settle();
    let reset = Err(Errno(libc::ECONNRESET));
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), reset);
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), reset);
}

#[test]
fn a_parent_is_asked_for_some_connections_at_a_time() {
    let pair = Pair::new();
    let fds: Vec<RawFd> = (0..70).map(|_| pair.connected().0).collect();
    let ids: Vec<SocketId> = fds.iter().map(|fd| pair.make_inherited(*fd)).collect();
    pair.left.inherit_all(&ids);
    assert!(fds.iter().all(|fd| !pair.left.table.is_ours(*fd)), "all are the kernel's");
    assert_eq!(pair.others.asked_parent_at_once.load(Ordering::Relaxed), 32);
}

#[test]
fn an_inherited_connection_that_is_lost_while_it_is_watched_says_so_when_it_is_used() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let id = pair.make_inherited(left);
    pair.others.take_none.store(true, Ordering::Relaxed);
    pair.left.inherit_all(&[id]); // As poll(2) does.
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Err(Errno(libc::ECONNRESET)));
}

#[test]
fn a_connection_that_has_to_leave_goes_on_until_the_broker_takes_it() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.others.stands_still.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| pair.left.pass_on(left));
        for tries in [1, 2] {
            until("it is tried", || pair.others.tried.load(Ordering::Relaxed) >= tries);
            pair.right.send_all(right, b"x").unwrap();
            until("it goes on", || {
                pair.settle();
                pair.left.recv(left, &mut [0; 8], 0) == Ok(1)
            });
        }
        assert!(!moving.is_finished());
        pair.others.stands_still.store(false, Ordering::Relaxed);
        moving.join().unwrap();
    });
    assert!(!pair.left.table.is_ours(left));
    assert_eq!(pair.left.lock().left_to_kernel.moved, 1);
}

#[test]
fn who_waits_on_a_connection_that_could_not_move_gets_what_comes() {
    let pair = Pair::new();
    let (_, left, right) = pair.accepted(0);
    pair.others.stands_still.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pair.left.recv(left, &mut [0; 8], 0));
        pair.left.until_asleep(1);
        let mut state = pair.left.lock();
        let id = state.socket_of(left).unwrap();
        state.carry_out(id, crate::socket::Step::Offer, pair.left.now()).unwrap_err();
        drop(state);
        pair.right.send_all(right, b"x").unwrap();
        pair.settle();
        assert_eq!(waiting.join().unwrap(), Ok(1));
    });
    assert!(pair.left.table.is_ours(left));
}

#[test]
fn what_ended_before_the_queue_was_given_back_is_told_and_read() {
    let pair = Pair::new();
    let (listener, left, right) = pair.accepted(libc::SOCK_NONBLOCK);
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    pair.right.send_all(right, b"last").unwrap();
    pair.right.shut_down(right);
    pair.settle();
    done(pair.left.shutdown(left, libc::SHUT_WR)).unwrap();
    pair.settle();

    pair.left.pass_on(listener);
    pair.left.shut_down(listener);
    assert_eq!(pair.others.gave_back.load(Ordering::Relaxed), 1);
    assert!(pair.left.lock().queue.runtime.is_some(), "there is something to be read");
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN | EPOLLHUP)]);
    let mut room = [0; 8];
    assert_eq!(pair.left.recv(left, &mut room, 0).map(|count| room[..count].to_vec()), Ok(b"last".to_vec()));
    assert_eq!(pair.left.recv(left, &mut room, 0), Ok(0));
    pair.left.shut_down(left);
    pair.settle();
    assert!(pair.left.lock().queue.runtime.is_none());
}

#[test]
fn who_waits_for_a_queue_and_listens_no_more_wants_none() {
    for is_common in [false, true] {
        let pair = Pair::without_queues();
        let (listener, _) = pair.listen();
        if is_common {
            pair.left.pass_on(listener);
        }
        pair.left.shut_down(listener);
        assert_eq!(pair.others.gave_back.load(Ordering::Relaxed), 1);
        assert!(pair.others.claimed.lock().unwrap().is_empty());
    }
}

#[test]
fn without_a_queue_calls_wait_as_long_as_the_program_has_said() {
    const SOON: [i64; 2] = [0, 1000]; // A struct timeval.
    let pair = Pair::without_queues();
    let udp = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap().into_raw_fd();
    pair.left.on_socket(udp, libc::AF_INET, libc::SOCK_DGRAM, 0);
    let (any, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
    syscall::bind(udp, &any[..len]).unwrap();
    pair.left.on_bind(udp);
    let listener = pair.left.listen_anywhere(0);
    let time = SOON.map(i64::to_ne_bytes).concat();
    for fd in [udp, listener] {
        syscall::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time).unwrap();
    }
    assert_eq!(pair.left.recv(udp, &mut [0; 4], 0), Err(EAGAIN));
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
}

#[test]
fn a_listener_that_others_have_gives_connections_of_the_kernel_too() {
    let pair = Pair::without_queues();
    let listener = pair.left.listen_anywhere(0);
    pair.left.pass_on(listener);
    let port = local_of(listener).unwrap().port();
    let _peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    until_readable(listener);
    assert!(done(pair.left.accept(listener, None, 0)).is_ok());
}

#[test]
fn a_reader_learns_that_its_socket_was_shut_down() {
    let pair = Pair::without_queues();
    let udp = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap().into_raw_fd();
    pair.left.on_socket(udp, libc::AF_INET, libc::SOCK_DGRAM, 0);
    let (any, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
    syscall::bind(udp, &any[..len]).unwrap();
    pair.left.on_bind(udp);
    let _ = syscall::shutdown(udp, libc::SHUT_RDWR); // ENOTCONN, and it has an effect all the same.
    assert_eq!(pair.left.recv(udp, &mut [0; 4], 0), Ok(0));
}

#[test]
fn a_second_listener_at_a_port_takes_the_place_of_the_first() {
    let pair = Pair::new();
    let listen = |port: u16| {
        let fd = pair.left.tcp_socket(libc::SOCK_NONBLOCK);
        syscall::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32.to_ne_bytes()).unwrap();
        let (name, len) = encode(SocketAddr::from(([0, 0, 0, 0], port)), libc::AF_INET);
        syscall::bind(fd, &name[..len]).unwrap();
        syscall::listen(fd, 16).unwrap();
        pair.left.on_listen(fd, 16);
        assert_eq!(pair.left.accept4(fd, 0), Err(EAGAIN));
        fd
    };
    let first = listen(0);
    let port = local_of(first).unwrap().port();
    let second = listen(port);
    pair.left.shut_down(first);
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(right, SocketAddr::new(LEFT, port)), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    assert!(pair.left.accept4(second, 0).is_ok());
}

#[test]
fn what_failed_while_the_queue_was_given_back_is_told() {
    let pair = Pair::new();
    let (listener, left, _) = pair.accepted(libc::SOCK_NONBLOCK);
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    pair.others.take_none.store(true, Ordering::Relaxed);
    pair.left.pass_on(listener);
    pair.left.shut_down(listener);
    assert!(pair.left.lock().queue.runtime.is_none());
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN | EPOLLHUP | EPOLLERR)]);
}

#[test]
fn a_connection_lives_until_the_call_on_it_is_over() {
    let pair = Pair::new();
    let (_, left, right) = pair.accepted(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut room = [0; 10];
            pair.left.recv(left, &mut room, 0).map(|count| room[..count].to_vec())
        });
        pair.left.until_asleep(1);
        pair.left.shut_down(left);
        pair.settle();
        assert_eq!(pair.right.recv(right, &mut [0; 10], 0), Err(EAGAIN), "it is open");
        pair.right.send_all(right, b"late").unwrap();
        while !reader.is_finished() {
            pair.settle();
        }
        assert_eq!(reader.join().unwrap(), Ok(b"late".to_vec()));
    });
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 10], 0), Ok(0), "and closed after that");
}

/// The right process resets a connection.
fn reset(pair: &Pair, right: RawFd) {
    let at_once = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    done(pair.right.setsockopt(right, libc::SOL_SOCKET, libc::SO_LINGER, &at_once)).unwrap();
    pair.right.shut_down(right);
}

#[test]
fn a_call_never_goes_on_with_the_connection_that_got_its_number() {
    for sends in [false, true] {
        let pair = Pair::new();
        let (listener, first, first_peer) = pair.accepted(0);
        let address = SocketAddr::new(LEFT, local_of(listener).unwrap().port());
        std::thread::scope(|scope| {
            let call = scope.spawn(|| match sends {
                true => pair.left.send_all(first, &vec![0; 64 << 20]),
                false => pair.left.recv(first, &mut [0; 10], 0),
            });
            pair.left.until_asleep(1);
            let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
            assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
            pair.settle();
            let second = pair.left.accept4(listener, 0).unwrap();
            assert_eq!(done(pair.left.dup(second, Some(first), 0)), Ok(first));
            pair.left.pass_on(first);
            let far_end = *pair.others.far_ends.lock().unwrap().last().unwrap();
            syscall::write(far_end, b"of the second").unwrap();
            reset(&pair, first_peer);
            while !call.is_finished() {
                pair.settle();
            }
            let result = call.join().unwrap();
            match sends {
                true => assert!(result.is_ok_and(|sent| sent < 64 << 20)),
                false => assert_eq!(result, Err(Errno(libc::ECONNRESET))),
            }
            assert_eq!(
                syscall::read(first, &mut [0; 64]).unwrap(),
                13,
                "the call has read nothing of the second"
            );
            let mut sent = [syscall::PollFd { fd: far_end, events: libc::POLLIN, revents: 0 }];
            let nothing = syscall::ppoll(&mut sent, Some(std::time::Duration::ZERO), None);
            assert_eq!(nothing.unwrap(), 0, "and has sent nothing there");
        });
    }
}

#[test]
fn a_call_goes_on_with_the_kernel_when_its_connection_moves_though_its_number_is_another_file() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (_, left, _) = pair.accepted(0);
    let id = pair.left.lock().socket_of(left).unwrap();
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(pair.left.recv(left, &mut [0; 10], 0)));
    pair.left.until_asleep(1);
    replace(pair, left);
    {
        let mut state = pair.left.lock();
        let now = pair.left.now();
        state.move_to_kernel(id, Terms::Must, now).unwrap();
    }
    let far_end = *pair.others.far_ends.lock().unwrap().last().unwrap();
    syscall::write(far_end, b"late").unwrap();
    assert_eq!(tells.recv_timeout(PATIENCE), Ok(Ok(4)));
    until("the kernel's socket is closed after that", || pair.left.lock().moved_in_calls.is_empty());
}

#[test]
fn sendfile_goes_on_with_its_connection_though_its_number_is_another_file() {
    /// More than the buffers of both sides take, and less than what moves to the kernel as bulk.
    const LEN: usize = 768 << 10;
    let pair = Pair::new();
    let (_, left, right) = pair.accepted(0);
    done(pair.left.setsockopt(left, libc::SOL_SOCKET, libc::SO_SNDBUF, &(32i32 << 10).to_ne_bytes()))
        .unwrap();
    let file = std::fs::File::open("/dev/zero").unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| done(pair.left.sendfile(left, file.as_raw_fd(), Some(&mut 0), LEN)));
        pair.left.until_asleep(1);
        replace(&pair, left);
        let (mut got, mut room) = (0, vec![0; 1 << 16]);
        let mut is_over = false;
        while !is_over {
            is_over = call.is_finished();
            pair.settle();
            while let Ok(count @ 1..) = pair.right.recv(right, &mut room, libc::MSG_DONTWAIT) {
                got += count;
            }
        }
        assert_eq!((got, call.join().unwrap()), (LEN, Ok(LEN)));
    });
}

#[test]
fn a_child_waits_for_a_broker_that_does_not_answer() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (left, _) = pair.connected();
    pair.make_inherited(left);
    pair.others.is_silent.store(true, Ordering::Relaxed);
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(matches!(pair.left.recv4(left), Verdict::Kernel)));
    pair.left.until_asleep(1);
    assert!(tells.try_recv().is_err(), "it is not lost");
    pair.others.is_silent.store(false, Ordering::Relaxed);
    assert_eq!(tells.recv_timeout(PATIENCE), Ok(true), "and the kernel's as soon as the broker answers");
}

/// Puts a pipe's end behind a descriptor of the left process, as Java does with what other threads use.
fn replace(pair: &Pair, fd: i32) {
    let [end, _] = syscall::pipe().unwrap();
    assert_eq!(done(pair.left.dup(end.into_raw_fd(), Some(fd), 0)), Ok(fd));
}

#[test]
fn a_connection_lives_on_for_a_call_when_its_number_becomes_something_else() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (_, left, right) = pair.accepted(0);
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(pair.left.recv(left, &mut [0; 10], 0)));
    pair.left.until_asleep(1);
    replace(pair, left);
    pair.right.send_all(right, b"late").unwrap();
    pair.settle();
    assert_eq!(tells.recv_timeout(PATIENCE), Ok(Ok(4)));
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 10], 0), Ok(0), "and it is closed after that");
}

#[test]
fn a_listener_lives_on_for_a_call_when_its_number_becomes_something_else() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let listener = pair.left.listen_anywhere(0);
    let port = local_of(listener).unwrap().port();
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(pair.left.accept4(listener, 0)));
    pair.left.until_asleep(1);
    replace(pair, listener);
    // The kernel's side of it too.
    let kernels = syscall::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap().into_raw_fd();
    let (name, len) = encode(SocketAddr::new([127, 0, 0, 1].into(), port), libc::AF_INET);
    syscall::connect(kernels, &name[..len]).unwrap();
    assert!(matches!(tells.recv_timeout(PATIENCE), Ok(Ok(_))));
}

#[test]
fn a_number_that_cannot_become_something_else_stays_what_it_was() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    assert_eq!(done(pair.left.dup(1 << 30, Some(left), 0)), Err(Errno(libc::EBADF)));
    assert_eq!(pair.left.send_all(left, b"x"), Ok(1));
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Ok(1));
}

#[test]
fn who_polls_what_another_thread_closes_looks_it_up_again() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (left, _) = pair.connected();
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut fds = [PollFd { fd: left, events: libc::POLLIN, revents: 0 }];
        let count = match pair.left.poll(&mut fds, None, None) {
            Verdict::Done(count) => count.unwrap(),
            Verdict::Kernel => 1, // Which says POLLNVAL, or what else the number is by then.
        };
        told.send(count)
    });
    pair.left.until_asleep(1);
    pair.left.shut_down(left);
    assert_eq!(tells.recv_timeout(PATIENCE), Ok(1), "it sleeps on");
}

#[test]
fn who_waits_at_an_empty_instance_learns_of_what_is_added() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let epfd = pair.left.epoll();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut events = [EpollEvent::default(); 4];
            let count = done(pair.left.epoll_wait(epfd, &mut events, Some(PATIENCE), None));
            (count, { events[0].data })
        });
        // It sleeps in the kernel by then; if not, it has nothing to learn.
        std::thread::sleep(std::time::Duration::from_millis(20));
        pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLOUT).unwrap();
        assert_eq!(waiting.join().unwrap(), (Ok(1), left as u64));
    });
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLOUT)], "the bell is not heard again");
}

#[test]
fn an_instance_that_is_closed_while_a_thread_waits_lives_until_then() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, libc::EPOLLIN).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut events = [EpollEvent::default(); 4];
            done(pair.left.epoll_wait(epfd, &mut events, Some(PATIENCE), None))
        });
        pair.left.until_asleep(1);
        pair.left.shut_down(epfd);
        pair.right.send_all(right, b"x").unwrap();
        while !waiting.is_finished() {
            pair.settle();
        }
        assert_eq!(waiting.join().unwrap(), Ok(1));
    });
}

#[test]
fn who_waits_for_a_connection_that_moves_waits_on_at_the_kernels() {
    let pair = Pair::new();
    let (_, left, _) = pair.accepted(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut room = [0; 2];
            pair.left.recv(left, &mut room, 0).map(|count| room[..count].to_vec())
        });
        let poller = scope.spawn(|| {
            let mut fds = [PollFd { fd: left, events: libc::POLLIN, revents: 0 }];
            matches!(pair.left.poll(&mut fds, None, None), Verdict::Done(Ok(1)))
        });
        pair.left.until_asleep(2);
        pair.left.pass_on(left);
        syscall::write(pair.others.far_ends.lock().unwrap()[0], b"late").unwrap();
        assert_eq!(reader.join().unwrap(), Ok(b"la".to_vec()));
        // With the rest of its time, so that the program need not start the call again.
        assert!(poller.join().unwrap());
    });
}

#[test]
fn what_a_call_has_not_sent_when_its_connection_moves_is_sent_by_the_kernel() {
    for gives_all_up in [false, true] {
        let pair = Pair::new();
        let (_, left, _) = pair.accepted(0);
        let data: Vec<u8> = (0..200_000u32).map(|at| (at >> 8) as u8 ^ at as u8).collect();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| pair.left.send_all(left, &data));
            pair.left.until_asleep(1);
            move_one_or_all(&pair, left, gives_all_up);
            assert_eq!(writer.join().unwrap(), Ok(data.len()), "all of it, and none of it twice");
        });
        let mut rest = vec![0; data.len()];
        let count = syscall::read(pair.others.far_ends.lock().unwrap()[0], &mut rest).unwrap();
        assert!(count < data.len() && rest[..count] == data[data.len() - count..], "{count} octets");
    }
}

#[test]
fn what_a_call_has_received_when_its_connection_moves_is_not_lost() {
    for gives_all_up in [false, true] {
        let pair = Pair::new();
        let (_, left, right) = pair.accepted(0);
        pair.right.send_all(right, b"first").unwrap();
        pair.settle();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut room = [0; 10];
                let mut buffers = [std::io::IoSliceMut::new(&mut room)];
                let flags = libc::MSG_WAITALL;
                let mut request = Receive { buffers: &mut buffers, name: None, control: None, flags };
                let received = pair.left.receive(left, &mut request);
                assert!(
                    matches!(received, Verdict::Done(Ok(received)) if received.len == 10),
                    "{received:?}"
                );
                room
            });
            pair.left.until_asleep(1);
            move_one_or_all(&pair, left, gives_all_up);
            syscall::write(pair.others.far_ends.lock().unwrap()[0], b"later").unwrap();
            assert_eq!(&reader.join().unwrap(), b"firstlater");
        });
    }
}

#[test]
fn who_polls_an_epoll_instance_is_told_of_what_another_thread_adds_to_it() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    let epfd = pair.left.epoll();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut fds = [PollFd { fd: epfd, events: libc::POLLIN, revents: 0 }];
            let polled = pair.left.poll(&mut fds, Some(PATIENCE), None);
            assert!(matches!(polled, Verdict::Done(Ok(1))), "{polled:?}");
        });
        pair.left.until_asleep(1);
        let event = EpollEvent { events: EPOLLIN as u32, data: 1 };
        assert!(matches!(pair.left.epoll_ctl(epfd, EPOLL_CTL_ADD, left, Some(event)), Verdict::Done(Ok(()))));
    });
}

/// The left process gives a connection to the kernel, or all that it has, with the stack.
fn move_one_or_all(pair: &Pair, fd: RawFd, all: bool) {
    if all {
        assert!(pair.left.before_confinement());
        assert!(pair.left.lock().queue.runtime.is_none());
    } else {
        pair.left.pass_on(fd);
    }
}

#[test]
fn what_comes_for_a_connection_that_has_moved_is_the_kernels() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.left.pass_on(left);
    assert_eq!(pair.others.late.load(Ordering::Relaxed), 0);
    pair.right.send_all(right, b"late").unwrap();
    pair.settle();
    assert_eq!(pair.others.late.load(Ordering::Relaxed), 1);
}

#[test]
fn connections_that_are_the_kernels_are_counted() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let counted = || {
        let counted = pair.left.lock().left_to_kernel;
        (counted.accepted, counted.moved)
    };
    assert_eq!(counted(), (0, 0));
    pair.left.pass_on(left);
    assert_eq!(counted(), (0, 1));

    for flags in [libc::SOCK_NONBLOCK, 0] {
        let before = counted().0;
        let listener = pair.left.listen_anywhere(flags);
        let port = local_of(listener).unwrap().port();
        let _peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        until_readable(listener);
        pair.left.accept4(listener, 0).unwrap();
        assert_eq!(counted(), (before + 1, 1));
    }
    let (listener, _) = pair.listen();
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
    assert_eq!(counted(), (2, 1), "what is not there is not counted");
}

#[test]
fn a_socket_on_the_kernel_says_why() {
    let pair = Pair::new();
    let why = |fd| {
        let mut state = pair.left.lock();
        let id = state.socket_of(fd).unwrap();
        state.status_of(id).unwrap().why
    };
    let listener = pair.left.listen_anywhere(libc::SOCK_NONBLOCK);
    assert_eq!(why(listener).as_deref(), Some("the program has not waited there"));
    assert_eq!(pair.left.accept4(listener, 0), Err(EAGAIN));
    assert_eq!(why(listener), None);

    let udp =
        syscall::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0).unwrap().into_raw_fd();
    pair.left.on_socket(udp, libc::AF_INET, libc::SOCK_DGRAM, 0);
    let (any, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
    syscall::bind(udp, &any[..len]).unwrap();
    assert_eq!(why(udp).as_deref(), Some("a client that has not waited often"));
    pair.left.on_bind(udp);
    assert_eq!(why(udp).as_deref(), Some("the program has not waited there"));
    let (peer, len) = encode("127.0.0.1:9".parse().unwrap(), libc::AF_INET);
    done(pair.left.connect(udp, &peer[..len])).unwrap();
    assert_eq!(why(udp).as_deref(), Some("a client that has not waited often"));
}

#[test]
fn a_listener_of_a_process_that_begins_while_the_broker_stands_still_is_claimed_later() {
    for is_silent in [true, false] {
        let pair = Pair::new();
        pair.hold();
        pair.others.is_silent.store(is_silent, Ordering::Relaxed);
        pair.others.claims_none.store(true, Ordering::Relaxed);
        let (listener, epoll) = (pair.left.listen_anywhere(libc::SOCK_NONBLOCK), pair.left.epoll());
        pair.left.watch(epoll, EPOLL_CTL_ADD, listener, EPOLLIN).unwrap();
        let claimed = || {
            pair.left.ready(epoll);
            pair.others.claims.load(Ordering::Relaxed)
        };
        assert_eq!((claimed(), why_unclaimable(&pair, listener)), (0, None));
        pair.others.is_silent.store(false, Ordering::Relaxed);
        pair.others.claims_none.store(false, Ordering::Relaxed);
        pair.pass(Duration::from_millis(200));
        assert_eq!(claimed(), 1);
    }
}

#[test]
fn what_others_left_to_a_listener_before_it_had_a_queue_is_accepted() {
    let pair = Pair::new();
    let (listener, _) = pair.listen();
    let [given, _other] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
    {
        let mut state = pair.left.lock();
        let now = pair.left.now();
        let id = state.socket_of(listener).unwrap();
        let socket = state.sockets.get_mut(id).unwrap();
        let claim = socket.claim.unwrap();
        let Role::Listener { on_stack, .. } = &mut socket.role else { panic!("it listens") };
        let on_stack = on_stack.take().unwrap();
        state.queue.stack().unwrap().close_listener(on_stack, now);
        state.on_adopt(claim, given, now);
        state.install_listener(id);
    }
    assert!(pair.left.accept4(listener, 0).is_ok());
}

#[test]
fn who_comes_late_to_a_listener_that_others_have_is_not_reset() {
    let pair = Pair::new();
    // Another listener keeps the process at its queue.
    let (_, _) = pair.listen();
    let (listener, address) = pair.listen();
    pair.left.pass_on(listener);
    pair.left.shut_down(listener);
    let right = knock_at(&pair, address);
    let mut fds = [PollFd { fd: right, events: libc::POLLOUT, revents: 0 }];
    assert_eq!(
        done(pair.right.poll(&mut fds, Some(std::time::Duration::ZERO), None)),
        Ok(0),
        "it goes on asking"
    );
}

#[test]
fn what_a_program_started_beside_this_one_is_given_becomes_the_kernels() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let connect = || {
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        pair.settle();
    };
    let accept = |flags| {
        connect();
        pair.left.accept4(listener, flags).unwrap()
    };
    let (plain, kept) = (accept(0), accept(libc::SOCK_CLOEXEC));
    let (opened, closed) = (accept(libc::SOCK_CLOEXEC), accept(0));
    for (fd, flags) in [(opened, 0), (closed, libc::FD_CLOEXEC)] {
        assert!(matches!(pair.left.fcntl(fd, libc::F_SETFD, flags.into()), Verdict::Kernel));
        syscall::fcntl(fd, libc::F_SETFD, flags.into()).unwrap();
    }
    pair.left.before_spawn();
    assert_eq!(
        [plain, kept, opened, closed].map(|fd| pair.left.table.is_ours(fd)),
        [false, true, false, true]
    );
    let copy = done(pair.left.dup(kept, None, 0)).unwrap();
    pair.left.before_spawn();
    assert_eq!([kept, copy, closed].map(|fd| pair.left.table.is_ours(fd)), [false, false, true]);
}

/// A connection from this port of the right process: the descriptor of the left one, and that of the right one.
fn connected_from(pair: &Pair, port: u16, listener: i32, address: SocketAddr) -> (i32, i32) {
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    syscall::setsockopt(right, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()).unwrap();
    let (name, len) = encode(SocketAddr::new(RIGHT, port), libc::AF_INET);
    syscall::bind(right, &name[..len]).unwrap();
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    (pair.left.accept4(listener, libc::SOCK_NONBLOCK).unwrap(), right)
}

#[test]
fn what_a_child_has_too_goes_on_when_it_is_closed_here_and_what_came_later_ends() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let (common, peer) = connected_from(&pair, 0, listener, address);
    let (before, right) = connected_from(&pair, 0, listener, address);
    let port = pair.left.peer_of(before).port();
    let child = pair.left.lock().bear();
    pair.left.shut_down(common);
    let at_once = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
    done(pair.right.setsockopt(right, libc::SOL_SOCKET, libc::SO_LINGER, &at_once)).unwrap();
    pair.right.shut_down(right);
    pair.settle();
    assert_eq!(pair.right.recv(peer, &mut [0; 8], 0), Err(EAGAIN), "the child has it");
    pair.left.shut_down(before);
    let (after, right) = connected_from(&pair, port, listener, address);
    pair.left.shut_down(after);
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Ok(0), "the child does not have this one");
    drop(child);
}

#[test]
fn what_a_child_has_too_and_was_closed_here_goes_on_until_the_broker_takes_it() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let (common, peer) = connected_from(&pair, 0, listener, address);
    let child = pair.left.lock().bear();
    pair.others.stands_still.store(true, Ordering::Relaxed);
    pair.hold();
    pair.left.shut_down(common);
    pair.settle();
    assert_eq!(pair.right.recv(peer, &mut [0; 8], 0), Err(EAGAIN));
    assert_eq!(pair.left.lock().left_to_kernel.moved, 0);
    (0..100).for_each(|_| pair.settle());
    assert_eq!(
        pair.others.tried.load(Ordering::Relaxed),
        1,
        "each time it acknowledges, and that is work for all"
    );
    pair.others.stands_still.store(false, Ordering::Relaxed);
    pair.pass(Duration::from_millis(60));
    pair.settle();
    assert_eq!(pair.left.lock().left_to_kernel.moved, 1);
    assert_eq!(pair.right.recv(peer, &mut [0; 8], 0), Err(EAGAIN), "the child has it");
    drop(child);
}

#[test]
fn a_child_gets_a_connection_with_the_options_that_its_parent_has_set() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let (fd, _) = connected_from(&pair, 0, listener, address);
    let child = pair.left.lock().bear();
    done(pair.left.setsockopt(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1i32.to_ne_bytes())).unwrap();
    let (local, remote) = (address, pair.left.peer_of(fd));
    let now = pair.left.now();
    pair.left.lock().on_child_asks(1, local, remote, now);
    assert_eq!(*pair.others.given_to_children.lock().unwrap(), [(1, true)]);
    drop(child);
}

#[test]
fn a_child_gets_a_connection_as_soon_as_the_broker_takes_it() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let (fd, right) = connected_from(&pair, 0, listener, address);
    let child = pair.left.lock().bear();
    pair.others.stands_still.store(true, Ordering::Relaxed);
    let (peer, now) = (pair.left.peer_of(fd), pair.left.now());
    pair.left.lock().on_child_asks(1, address, peer, now);
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(fd, &mut [0; 8], 0), Ok(1), "it goes on here");
    assert_eq!(pair.others.given_to_children.lock().unwrap().len(), 0);
    pair.others.stands_still.store(false, Ordering::Relaxed);
    pair.left.lock().hear(now + Duration::from_millis(60));
    assert_eq!(pair.others.given_to_children.lock().unwrap().len(), 1);
    assert!(!pair.left.table.is_ours(fd));
    drop(child);
}

#[test]
fn each_child_gets_a_connection_that_it_holds() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let (fd, _) = connected_from(&pair, 0, listener, address);
    let ends = (address, pair.left.peer_of(fd));
    let first = pair.left.lock().bear();
    let second = pair.left.lock().bear();
    let given = || {
        let before = pair.others.given_to_children.lock().unwrap().len();
        let now = pair.left.now();
        pair.left.lock().on_child_asks(1, ends.0, ends.1, now);
        pair.others.given_to_children.lock().unwrap().len() - before
    };
    assert_eq!((given(), given()), (1, 1));
    pair.left.shut_down(fd);
    assert_eq!(given(), 1, "neither has said that it has it");
    drop((first, second));
    assert_eq!(given(), 0, "they have ended");
}

#[test]
fn who_came_by_the_kernel_is_accepted_though_others_always_come_by_the_stack() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let _peer = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    until_readable(listener);
    let next = || {
        let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
        pair.settle();
        pair.left.table.is_ours(pair.left.accept4(listener, 0).unwrap())
    };
    let are_ours: Vec<bool> = (0..70).map(|_| next()).collect();
    assert_eq!(are_ours.iter().position(|is_ours| !is_ours), Some(64));
}

#[test]
fn while_a_process_forks_nothing_is_asked_of_an_ancestor() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (left, _) = pair.connected();
    let id = pair.left.lock().socket_of(left).unwrap();
    // Another thread asks again and again, and has its answer at once.
    let asking = std::thread::spawn(move || {
        for _ in 0..20_000 {
            let mut state = pair.left.lock();
            let (local, remote) = state.endpoints(id).unwrap();
            let asked = Role::Stream(Place::FromParent(Box::new(Inherited {
                local,
                remote,
                request: Some(RequestId(0)),
            })));
            let before = std::mem::replace(&mut state.sockets.get_mut(id).unwrap().role, asked);
            drop(state);
            let mut state = pair.left.lock();
            state.sockets.get_mut(id).unwrap().role = before;
            state.raise(id, EPOLLIN as u32);
        }
    });
    while !asking.is_finished() {
        let state = pair.left.await_inherited();
        let role = &state.sockets.get(id).unwrap().role;
        assert!(!matches!(role, Role::Stream(Place::FromParent(it)) if it.request.is_some()));
    }
    asking.join().unwrap();
}

#[test]
fn a_child_that_names_an_owner_of_its_connection_and_then_wants_signals_keeps_the_owner() {
    let pair = Pair::new();
    let call = |fd, command, argument| match pair.left.fcntl(fd, command, argument) {
        Verdict::Kernel => syscall::fcntl(fd, command, argument).unwrap(),
        Verdict::Done(done) => done.unwrap(),
    };
    let own = std::process::id() as i32;
    let (left, _) = pair.connected();
    pair.make_inherited(left);
    call(left, libc::F_SETOWN, own.into());
    call(left, libc::F_SETFL, libc::O_ASYNC.into());
    assert_eq!(call(left, libc::F_GETOWN, 0), own);
    call(left, libc::F_SETFL, 0);
}
