//! Connections that the program makes, and their local ports.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use ::clock::Duration;

use super::{Pair, RIGHT};
use crate::address::{decode, encode, local_of};
use crate::errno::Errno;
use crate::request::Verdict;
use crate::socket::udp_messages::udp_int;

/// Longer than it takes until it is looked which connections are over.
const NOTICED: Duration = Duration::from_millis(25);
/// Longer than ports rest before they are used again.
const RESTED: Duration = Duration::from_millis(105);
/// Longer than they rest at all.
const TOO_LONG: Duration = Duration::from_millis(2050);

/// Two processes for which time goes when they rest.
fn held() -> Pair {
    let pair = Pair::new();
    pair.hold();
    pair
}

/// The right process connects, and both close; the left one first. Returns from which port that was.
fn connect_and_close(pair: &Pair, listener: RawFd, address: SocketAddr) -> u16 {
    let (left, right) = connect(pair, listener, address);
    let port = port_of(pair, right);
    pair.left.shut_down(left);
    pair.settle();
    pair.right.shut_down(right);
    rest(pair);
    port
}

/// Both processes close a connection, the right one first, which then connects anew: from which port.
fn next_port(pair: &Pair, (left, right): (RawFd, RawFd), listener: RawFd, address: SocketAddr) -> u16 {
    pair.right.shut_down(right);
    pair.settle();
    pair.left.shut_down(left);
    rest(pair);
    let (_, next) = connect(pair, listener, address);
    port_of(pair, next)
}

/// Lets ports rest for long enough, from when it is noticed that their connections are over.
fn rest(pair: &Pair) {
    pair.settle();
    pair.pass(NOTICED);
    pair.settle();
    pair.pass(RESTED);
    pair.settle();
}

fn connect(pair: &Pair, listener: RawFd, address: SocketAddr) -> (RawFd, RawFd) {
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    finish_connecting(pair, right, listener, address)
}

fn finish_connecting(pair: &Pair, right: RawFd, listener: RawFd, address: SocketAddr) -> (RawFd, RawFd) {
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    assert_eq!(pair.right.connect_to(right, address), Ok(()));
    (pair.left.accept4(listener, libc::SOCK_NONBLOCK).unwrap(), right)
}

fn port_of(pair: &Pair, fd: RawFd) -> u16 {
    let mut name = [0; 28];
    let len = super::done(pair.right.getsockname(fd, &mut name)).unwrap();
    decode(&name[..len], libc::AF_INET).unwrap().port()
}

/// Claims that the right process has ever made, and those that it has.
fn claims(pair: &Pair) -> (u32, usize) {
    let others = &pair.others_of_right;
    (others.claims.load(Ordering::Relaxed), others.claimed.lock().unwrap().len())
}

#[test]
fn a_port_is_used_again_without_being_claimed_again() {
    let pair = held();
    let (listener, address) = pair.listen();
    let first = connect_and_close(&pair, listener, address);
    let (left, right) = connect(&pair, listener, address);
    assert_eq!((port_of(&pair, right), claims(&pair)), (first, (1, 1)));
    pair.right.send_all(right, b"new").unwrap();
    pair.settle();
    let mut room = [0; 8];
    assert_eq!(pair.left.recv(left, &mut room, 0), Ok(3));
    // While it is in use, the next connection needs another.
    let (_, other) = connect(&pair, listener, address);
    assert_ne!(port_of(&pair, other), first);
    assert_eq!(claims(&pair), (2, 2));
}

#[test]
fn a_port_that_was_looked_at_before_the_way_was_known_rests_as_others_do() {
    let pair = held();
    let (listener, address) = pair.listen();
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let looking = &pair.others_of_right.looking;
    looking.store(true, Ordering::Relaxed);
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    assert!(matches!(pair.right.getsockname(right, &mut [0; 28]), Verdict::Kernel));
    let port = local_of(right).unwrap().port();
    looking.store(false, Ordering::Relaxed);
    pair.right.lock().hear(pair.right.now());
    pair.settle();
    assert_eq!(pair.right.connect_to(right, address), Ok(()));
    let left = pair.left.accept4(listener, libc::SOCK_NONBLOCK).unwrap();
    pair.left.shut_down(left);
    pair.settle();
    pair.right.shut_down(right);
    rest(&pair);
    let (_, again) = connect(&pair, listener, address);
    assert_eq!((port_of(&pair, again), claims(&pair)), (port, (1, 1)));
}

#[test]
fn a_port_is_not_used_again_at_once() {
    let pair = held();
    let (listener, address) = pair.listen();
    let (left, right) = connect(&pair, listener, address);
    pair.left.shut_down(left);
    pair.settle();
    pair.right.shut_down(right);
    pair.settle();
    connect(&pair, listener, address);
    assert_eq!(claims(&pair).0, 2);
}

#[test]
fn a_port_that_nobody_uses_is_given_back() {
    let pair = held();
    let (listener, address) = pair.listen();
    connect_and_close(&pair, listener, address);
    assert_eq!(claims(&pair).1, 1);
    pair.pass(TOO_LONG);
    pair.settle();
    assert_eq!(claims(&pair).1, 0);
    connect(&pair, listener, address);
    assert_eq!(claims(&pair), (2, 1));
}

#[test]
fn who_binds_may_have_the_port_that_rests() {
    let pair = held();
    let (listener, address) = pair.listen();
    let port = connect_and_close(&pair, listener, address);
    let fd = pair.right.tcp_socket(0);
    for (wanted, left) in [(0, 1), (port ^ 1, 1), (port, 0)] {
        let (name, len) = encode(SocketAddr::from(([0, 0, 0, 0], wanted)), libc::AF_INET);
        assert!(matches!(pair.right.may_bind(fd, &name[..len]), Verdict::Kernel));
        assert_eq!(claims(&pair), (1, left), "bound to port {wanted} after {port}");
    }
}

#[test]
fn a_port_does_not_rest_whose_connection_the_kernel_ends() {
    let pair = held();
    let (listener, address) = pair.listen();
    let (_, right) = connect(&pair, listener, address);
    pair.right.shut_down(right);
    pair.settle();
    assert_eq!(claims(&pair).1, 1, "the peer has not closed yet");
    pair.right.before_exec();
    assert_eq!(claims(&pair).1, 0);
}

#[test]
fn a_port_in_our_own_time_wait_is_used_again_too() {
    let pair = held();
    let (listener, address) = pair.listen();
    let (left, right) = connect(&pair, listener, address);
    let first = port_of(&pair, right);
    assert_eq!(next_port(&pair, (left, right), listener, address), first);
    assert_eq!(claims(&pair), (1, 1));
}

#[test]
fn a_port_that_the_program_chose_does_not_rest() {
    let pair = held();
    let (listener, address) = pair.listen();
    let bound = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let (name, len) = encode(SocketAddr::new(RIGHT, 0), libc::AF_INET);
    syscall::bind(bound, &name[..len]).unwrap();
    pair.right.on_bind(bound);
    let (left, right) = finish_connecting(&pair, bound, listener, address);
    pair.left.shut_down(left);
    pair.settle();
    pair.right.shut_down(right);
    pair.pass(NOTICED);
    pair.settle();
    assert_eq!(claims(&pair).1, 0);
}

/// A socket whose options let others have its port.
fn sharing(pair: &Pair) -> RawFd {
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        let _ = pair.right.setsockopt(fd, libc::SOL_SOCKET, option, &1i32.to_ne_bytes());
        syscall::setsockopt(fd, libc::SOL_SOCKET, option, &1i32.to_ne_bytes()).unwrap();
    }
    fd
}

#[test]
fn a_socket_that_may_share_its_port_and_has_none_gets_one_of_its_own() {
    let pair = held();
    let (listener, address) = pair.listen();
    let fd = sharing(&pair);
    let (left, right) = finish_connecting(&pair, fd, listener, address);
    let at_kernel = |option| {
        let mut value = [0; 4];
        syscall::getsockopt(right, libc::SOL_SOCKET, option, &mut value).unwrap();
        i32::from_ne_bytes(value)
    };
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        assert_eq!((at_kernel(option), pair.right.option(right, libc::SOL_SOCKET, option)), (0, 1));
    }
    let first = port_of(&pair, right);
    assert_eq!(next_port(&pair, (left, right), listener, address), first, "it rests like others");
}

/// The kernel may have connections at that port, and these have to be known before it is taken.
#[test]
fn the_kernel_connects_from_a_port_that_the_program_chose_and_others_may_have() {
    let pair = held();
    let (listener, address) = pair.listen();
    let (_, first) = connect(&pair, listener, address);
    let bound = |ip, port| {
        let fd = sharing(&pair);
        let (name, len) = encode(SocketAddr::new(ip, port), libc::AF_INET);
        syscall::bind(fd, &name[..len]).map(|()| pair.right.on_bind(fd)).map(|()| fd)
    };
    let _ = pair.right.connect_to(bound(RIGHT, 0).unwrap(), address);
    let made = pair.right.lock().left_to_kernel.made_because();
    assert!(matches!(made[..], [(why, 1)] if why.contains("SO_REUSEADDR")), "{made:?}");
    // Were the port of the first one shared after all, there would be two connections between the same ends.
    let first = std::iter::successors(Some(first), |_| Some(connect(&pair, listener, address).1));
    let mut tried = 0;
    for first in first.take(20) {
        syscall::setsockopt(first, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()).unwrap();
        for ip in [RIGHT, Ipv4Addr::UNSPECIFIED.into()] {
            // Another test of this process may have the same number.
            let Ok(again) = bound(ip, port_of(&pair, first)) else { continue };
            assert_eq!(pair.right.connect_to(again, address), Err(Errno(libc::EADDRNOTAVAIL)));
            pair.right.shut_down(again);
            tried += 1;
        }
        if tried >= 2 {
            break;
        }
    }
    assert!(tried >= 2, "the kernel shares it from now on");
    assert_eq!(pair.right.lock().left_to_kernel.made(), 1);
}

#[test]
fn a_connection_that_moves_as_soon_as_it_is_there_is_known_to_the_peer() {
    let pair = held();
    let (listener, address) = pair.listen();
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    pair.left.lock().turn(pair.left.now());
    pair.right.lock().turn(pair.right.now());
    pair.left.lock().turn(pair.left.now());
    assert_eq!(pair.left.accept4(listener, libc::SOCK_NONBLOCK), Err(Errno(libc::EAGAIN)), "it is held");
    pair.right.pass_on(right);
    pair.left.lock().turn(pair.left.now());
    assert!(pair.left.accept4(listener, libc::SOCK_NONBLOCK).is_ok());
}

#[test]
fn a_connection_that_never_was_leaves_no_port() {
    let pair = held();
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let address = SocketAddr::new(super::LEFT, 80);
    assert_eq!(pair.right.connect_to(right, address), Err(Errno(libc::EINPROGRESS)));
    assert_eq!(claims(&pair), (1, 1));
    pair.right.shut_down(right);
    pair.pass(NOTICED);
    pair.settle();
    assert_eq!(claims(&pair), (1, 0));
}

#[test]
fn options_that_were_set_before_connecting_hold_after_it() {
    let pair = held();
    let (listener, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let on = 1i32.to_ne_bytes();
    for (level, option) in [(libc::SOL_TCP, libc::TCP_NODELAY), (libc::SOL_SOCKET, libc::SO_KEEPALIVE)] {
        let _ = pair.right.setsockopt(fd, level, option, &on);
        syscall::setsockopt(fd, level, option, &on).unwrap();
    }
    finish_connecting(&pair, fd, listener, address);
    assert_eq!(pair.right.option(fd, libc::SOL_TCP, libc::TCP_NODELAY), 1);
    assert_eq!(pair.right.option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
    assert_eq!(pair.right.option(fd, libc::SOL_TCP, libc::TCP_CORK), 0);
}

/// A broker that is stopped holds up no connection for long: the kernel makes it.
#[test]
fn the_kernel_connects_where_the_broker_does_not_tell_the_way() {
    let pair = Pair::new();
    let (_, address) = pair.listen();
    pair.others_of_right.looking.store(true, Ordering::Relaxed);
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    let made = || {
        pair.settle();
        pair.right.lock().left_to_kernel.made_because()
    };
    assert!(pair.right.lock().queue.own_due_at().is_some(), "who sleeps has to wake then");
    pair.pass(Duration::from_millis(2_900));
    assert_eq!(made(), []);
    pair.pass(Duration::from_millis(200));
    assert_eq!(made(), [("the broker did not tell the way to the peer, or not in time", 1)]);
    pair.others_of_right.looking.store(false, Ordering::Relaxed);
    pair.settle();
    assert_eq!(pair.right.lock().left_to_kernel.made(), 1, "the answer comes too late");
}

/// The right process connects from a port that rests, and closes: the kernel's socket behind its descriptor was not used.
fn leave_spare(
    pair: &Pair,
    (listener, address): (RawFd, SocketAddr),
    before: impl Fn(RawFd),
    after: impl Fn(),
) -> PathBuf {
    connect_and_close(pair, listener, address);
    while spare(pair).is_some() {}
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    before(right);
    let (left, right) = finish_connecting(pair, right, listener, address);
    let kernel_socket = behind(right);
    after();
    pair.left.shut_down(left);
    pair.settle();
    pair.right.shut_down(right);
    kernel_socket
}

/// What is behind a descriptor.
fn behind(fd: RawFd) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap()
}

/// socket(2) in the right process, if there is a spare one.
fn spare(pair: &Pair) -> Option<RawFd> {
    match pair.right.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0) {
        Verdict::Done(fd) => Some(fd.unwrap()),
        Verdict::Kernel => None,
    }
}

/// Sets an option to 1 in the right process, and at the kernel.
fn set(pair: &Pair, fd: RawFd, level: i32, option: i32) {
    if let Verdict::Kernel = pair.right.setsockopt(fd, level, option, &1i32.to_ne_bytes()) {
        syscall::setsockopt(fd, level, option, &1i32.to_ne_bytes()).unwrap();
    }
}

#[test]
fn an_unused_kernel_socket_is_the_next_connections_and_as_good_as_new() {
    let pair = held();
    let (listener, address) = pair.listen();
    let set_no_delay = |right| {
        set(&pair, right, libc::SOL_TCP, libc::TCP_NODELAY);
        assert_eq!(udp_int(right, libc::SOL_TCP, libc::TCP_NODELAY), Some(1));
    };
    let kernel_socket = leave_spare(&pair, (listener, address), set_no_delay, || ());
    let right = spare(&pair).expect("it was kept");
    assert_eq!((behind(right), spare(&pair)), (kernel_socket, None));
    assert_eq!(udp_int(right, libc::SOL_TCP, libc::TCP_NODELAY), Some(0));
    rest(&pair);
    let (left, right) = finish_connecting(&pair, right, listener, address);
    pair.right.send_all(right, b"new").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Ok(3));
}

#[test]
fn a_kernel_socket_of_which_others_may_know_is_not_used_again() {
    let pair = held();
    let heard = pair.listen();
    connect_and_close(&pair, heard.0, heard.1);
    assert_eq!(spare(&pair), None, "it was bound, as its port did not rest yet");

    leave_spare(&pair, heard, |right| set(&pair, right, libc::SOL_IP, libc::IP_TOS), || ());
    assert_eq!(spare(&pair), None, "its options are not those of a new one");

    let shut_down = |right| {
        assert!(matches!(pair.right.shutdown(right, libc::SHUT_RDWR), Verdict::Kernel));
        let _ = syscall::shutdown(right, libc::SHUT_RDWR); // ENOTCONN, and remembered.
    };
    leave_spare(&pair, heard, shut_down, || ());
    assert_eq!(spare(&pair), None, "nothing would be read from it");

    leave_spare(&pair, heard, |_| (), || drop(pair.right.lock().bear()));
    assert_eq!(spare(&pair), None, "a child has it, too");

    leave_spare(&pair, heard, |_| (), || ());
    pair.right.lock().queue.drop_runtime();
    assert_eq!(spare(&pair), None, "nobody would close it after a while");
}

#[test]
fn a_kernel_socket_of_another_network_namespace_is_not_used_again() {
    let pair = held();
    let heard = pair.listen();
    leave_spare(&pair, heard, |_| (), || ());
    pair.right.end_spare_sockets();
    assert_eq!(spare(&pair), None, "it may be of another network namespace");
}
