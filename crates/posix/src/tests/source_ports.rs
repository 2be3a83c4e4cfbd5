//! Connections of a process that has one of two queues: the memory device puts answers into queues as a NIC does.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::clock::Duration;
use device::memory::{self, MemoryDevice};
use steering::rss::{IndirectionTable, MICROSOFT_KEY, Toeplitz};
use steering::{LocalPorts, Spread};

use super::{Pair, RIGHT};
use crate::address::{encode, local_of};
use crate::broker_side::HomePorts;
use crate::errno::Errno;
use crate::request::Verdict;

const QUEUES: u16 = 2;
/// Longer than a peer may take to answer.
const LATE: Duration = Duration::from_millis(1001);

/// The right process has one of two queues, and is told that these have its answers.
fn pair(queue: u16, told: &[u16]) -> (Pair, MemoryDevice) {
    let config = memory::Config { queues: [1, QUEUES], ..memory::Config::default() };
    let (mut left, mut right) = memory::pair(&config);
    let device = right.remove(usize::from(queue));
    let pair = Pair::with(Some(left.remove(0)), Some(device));
    pair.hold();
    tell(&pair, told);
    (pair, right.remove(0))
}

fn tell(pair: &Pair, told: &[u16]) {
    let is_home = IndirectionTable::even(QUEUES).entries().iter().map(|queue| told.contains(queue)).collect();
    let home = HomePorts {
        spread: Spread { key: MICROSOFT_KEY.to_vec(), is_home, hashes_ports: true },
        ports: LocalPorts::new(40_000..=49_999, &[]),
    };
    *pair.others_of_right.home_ports.lock().unwrap() = Some(Arc::new(home));
}

/// The queue of what `remote` sends to `local`.
fn queue_of(remote: SocketAddr, local: SocketAddr) -> u16 {
    IndirectionTable::even(QUEUES).queue(Toeplitz::new(&MICROSOFT_KEY).hash_ports(remote, local))
}

fn bound_to(pair: &Pair, local: SocketAddr) -> RawFd {
    bound_if_free(pair, local).unwrap()
}

/// `None` if somebody else on this host has the port.
fn bound_if_free(pair: &Pair, local: SocketAddr) -> Option<RawFd> {
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let (name, len) = encode(local, libc::AF_INET);
    assert!(matches!(pair.right.may_bind(fd, &name[..len]), Verdict::Kernel));
    let is_bound = syscall::bind(fd, &name[..len]).is_ok();
    if !is_bound {
        pair.right.shut_down(fd);
    }
    is_bound.then_some(fd)
}

/// Connects, and has both ends say something.
fn talk(pair: &Pair, fd: RawFd, (listener, address): (RawFd, SocketAddr)) -> RawFd {
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    assert_eq!(pair.right.connect_to(fd, address), Ok(()));
    let left = pair.left.accept4(listener, libc::SOCK_NONBLOCK).unwrap();
    let mut room = [0; 8];
    pair.right.send_all(fd, b"ask").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(left, &mut room, 0), Ok(3));
    pair.left.send_all(left, b"answer").unwrap();
    pair.settle();
    assert_eq!(pair.right.recv(fd, &mut room, 0), Ok(6));
    left
}

/// Connections that were the kernel's to make.
fn by_kernel(pair: &Pair) -> u64 {
    pair.right.lock().left_to_kernel.made()
}

/// Begins to connect, and returns whether the kernel does it. It has no way to these addresses.
fn is_kernels(pair: &Pair, fd: RawFd, address: SocketAddr) -> bool {
    let before = by_kernel(pair);
    let _ = pair.right.connect_to(fd, address);
    by_kernel(pair) > before
}

#[test]
fn who_has_one_of_two_queues_connects_from_ports_whose_answers_come_by_it() {
    for queue in 0..QUEUES {
        let (pair, _other) = pair(queue, &[queue]);
        let (listener, address) = pair.listen();
        for _ in 0..40 {
            let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
            talk(&pair, fd, (listener, address));
            let local = local_of(fd).unwrap();
            assert_eq!((local.ip(), queue_of(address, local)), (RIGHT, queue));
            assert!((40_000..50_000).contains(&local.port()));
        }
        let counts: Vec<u64> = pair.right.lock().queue.home_ports.named().map(|(_, count)| count).to_vec();
        assert!(counts[0] >= 24 && counts[1] == 16 && counts[2..] == [0, 0], "{counts:?}");
        assert_eq!(by_kernel(&pair), 0);
    }
}

#[test]
fn a_port_that_another_socket_has_is_left_to_it() {
    let (pair, _other) = pair(1, &[1]);
    let (listener, address) = pair.listen();
    // All but one of those that come home are taken.
    let locals = (40_000..50_000).map(|port| SocketAddr::new(RIGHT, port));
    let home = locals.filter(|local| queue_of(address, *local) == 1);
    let free = home.filter_map(|local| Some((local.port(), bound_if_free(&pair, local)?)));
    let mut free: Vec<(u16, RawFd)> = free.take(8).collect();
    let (last, fd) = free[7];
    pair.right.shut_down(fd);
    free.truncate(7);
    let between: Vec<_> = free.windows(2).map(|ports| ports[0].0 + 1..=ports[1].0 - 1).collect();
    let behind = free[6].0 + 1..=last - 1;
    let mut told = HomePorts::clone(pair.others_of_right.home_ports.lock().unwrap().as_ref().unwrap());
    told.ports = LocalPorts::new(free[0].0..=last, &[&between[..], &[behind]].concat());
    *pair.others_of_right.home_ports.lock().unwrap() = Some(Arc::new(told));
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    talk(&pair, fd, (listener, address));
    assert_eq!(local_of(fd).unwrap().port(), last);
    assert!(is_kernels(&pair, pair.right.tcp_socket(libc::SOCK_NONBLOCK), address), "there is none left");
}

#[test]
fn a_port_of_the_programs_own_is_used_if_it_comes_home() {
    let (pair, _other) = pair(1, &[1]);
    let (listener, address) = pair.listen();
    let local = |queue| {
        let locals = (50_000..60_000).map(|port| SocketAddr::new(RIGHT, port));
        locals.into_iter().find(|local| queue_of(address, *local) == queue).unwrap()
    };
    let fd = bound_to(&pair, local(1));
    talk(&pair, fd, (listener, address));
    assert_eq!(local_of(fd), Some(local(1)));
    assert!(is_kernels(&pair, bound_to(&pair, local(0)), address));
}

#[test]
fn sockets_that_may_share_their_ports_get_one_of_their_own_that_comes_home() {
    let (pair, _other) = pair(1, &[1]);
    let (listener, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let on = 1i32.to_ne_bytes();
    let _ = pair.right.setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &on);
    syscall::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &on).unwrap();
    talk(&pair, fd, (listener, address));
    assert_eq!(queue_of(address, local_of(fd).unwrap()), 1);
}

#[test]
fn where_no_port_comes_home_the_kernel_connects() {
    let (pair, _other) = pair(0, &[]);
    let (_, address) = pair.listen();
    assert!(is_kernels(&pair, pair.right.tcp_socket(libc::SOCK_NONBLOCK), address));
    assert_eq!(pair.right.lock().queue.home_ports.counts().kernel, 1);
}

#[test]
fn a_port_that_rests_is_used_again_for_peers_whose_answers_it_brings_home() {
    let (pair, _other) = pair(1, &[1]);
    let (listener, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let left = talk(&pair, fd, (listener, address));
    let port = local_of(fd).unwrap();
    pair.left.shut_down(left);
    pair.settle();
    pair.right.shut_down(fd);
    for time in [0, 25, 105] {
        pair.pass(Duration::from_millis(time));
        pair.settle();
    }
    let claims = || pair.others_of_right.claims.load(Ordering::Relaxed);
    let mut seen = [false; 2];
    while seen != [true; 2] {
        let listens = pair.listen();
        let comes_home = queue_of(listens.1, port) == 1;
        if std::mem::replace(&mut seen[usize::from(comes_home)], true) {
            continue;
        }
        let before = claims();
        let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
        talk(&pair, fd, listens);
        assert_eq!(claims() == before, comes_home, "{} from {port}", listens.1);
    }
}

#[test]
fn who_is_not_answered_as_the_interface_says_something_else_connects_by_the_kernel() {
    let (pair, _other) = pair(0, &[1]);
    let (_, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    let local = local_of(fd).unwrap();
    pair.settle();
    assert_eq!((by_kernel(&pair), pair.others_of_right.unanswered.lock().unwrap().len()), (0, 0));
    pair.pass(LATE);
    pair.settle();
    assert_eq!(*pair.others_of_right.unanswered.lock().unwrap(), [(local, address)]);
    assert_eq!(by_kernel(&pair), 1);
    assert_eq!(pair.right.lock().queue.home_ports.counts().unanswered, 1);
}

#[test]
fn connections_go_to_the_kernel_when_the_interface_puts_packets_into_other_queues() {
    let (pair, _other) = pair(1, &[1]);
    let (listener, address) = pair.listen();
    let fds = [(); 2].map(|()| pair.right.tcp_socket(libc::SOCK_NONBLOCK));
    for fd in fds {
        talk(&pair, fd, (listener, address));
    }
    // One is closed, and its peer has not closed yet.
    pair.right.shut_down(fds[1]);
    pair.settle();
    pair.others_of_right.spread_changes.store(true, Ordering::Relaxed);
    pair.right.lock().hear(pair.right.now());
    assert_eq!(pair.others_of_right.far_ends.lock().unwrap().len(), 2, "both moved");
    assert!(pair.right.lock().socket_of(fds[0]).is_none(), "it is the kernel's");
}
