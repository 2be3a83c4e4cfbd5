//! UDP.

use super::*;

/// A bound socket of a process; the kernel's until it is read.
fn bound(process: &Process) -> (RawFd, u16) {
    bound_with(process, libc::SOCK_NONBLOCK)
}

fn bound_with(process: &Process, flags: i32) -> (RawFd, u16) {
    let (fd, port) = with_port(process, flags);
    process.on_bind(fd);
    (fd, port)
}

/// A socket to which the kernel has given a port with its first datagram: bind(2) was not called.
fn never_bound(process: &Process) -> (RawFd, u16) {
    with_port(process, libc::SOCK_NONBLOCK)
}

fn with_port(process: &Process, flags: i32) -> (RawFd, u16) {
    let fd = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM | flags, 0).unwrap().into_raw_fd();
    process.on_socket(fd, libc::AF_INET, libc::SOCK_DGRAM | flags, 0);
    let (name, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
    syscall::bind(fd, &name[..len]).unwrap();
    (fd, crate::address::local_of(fd).unwrap().port())
}

/// The same, after a read.
pub(super) fn claimed(process: &Process) -> RawFd {
    let (fd, _) = bound(process);
    assert!(receive(process, fd, &mut [0; 8], 0).is_none());
    fd
}

fn receive(process: &Process, fd: RawFd, room: &mut [u8], flags: i32) -> Option<(Received, SocketAddr)> {
    let mut name = [0; 28];
    let mut buffers = [IoSliceMut::new(room)];
    let mut request = Receive { buffers: &mut buffers, name: Some(&mut name), control: None, flags };
    match process.receive(fd, &mut request) {
        Verdict::Done(received) => {
            let received = received.unwrap();
            Some((received, decode(&name[..received.name_len], libc::AF_INET).unwrap()))
        }
        Verdict::Kernel => None,
    }
}

fn send(process: &Process, fd: RawFd, to: SocketAddr, data: &[u8]) -> bool {
    let (name, len) = encode(to, libc::AF_INET);
    let request = Send { buffers: &[IoSlice::new(data)], name: Some(&name[..len]), control: None, flags: 0 };
    match process.send(fd, &request) {
        Verdict::Done(sent) => sent == Ok(data.len()),
        Verdict::Kernel => false,
    }
}

/// Puts a datagram from the right to the left onto the wire, because at first neither side knows the route to the other.
fn inject(pair: &Pair, from: u16, to: u16, data: &[u8]) {
    inject_all(pair, from, to, &[data]);
}

/// The same with several, of one flow, that arrive together.
fn inject_all(pair: &Pair, from: u16, to: u16, all: &[&[u8]]) {
    let mut state = pair.right.lock();
    let now = pair.right.now();
    state.attach(now);
    let stack = state.queue.stack().unwrap();
    let socket = stack.udp_bind(&stack::udp::UdpBind::new(SocketAddr::new(RIGHT, from))).unwrap();
    let to = Some(SocketAddr::new(LEFT, to));
    let send = stack::udp::UdpSend { to, hop: Some(Hop::default()), ..Default::default() };
    all.iter().for_each(|data| stack.udp_send_to(socket, &send, data, now).unwrap());
    state.turn(now);
}

#[test]
fn a_datagram_is_answered_the_way_it_came() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    let mut room = [0; 64];
    assert!(receive(&pair.left, left, &mut room, 0).is_none(), "the kernel is asked, as nothing is there");
    let stranger = SocketAddr::new(RIGHT, 9999);
    assert!(!send(&pair.left, left, stranger, b"?"), "whose way nobody knows, the kernel sends to");
    inject(&pair, 9999, port, b"hello");
    pair.settle();
    let (received, from) = receive(&pair.left, left, &mut room, 0).unwrap();
    assert_eq!((received.len, from), (5, stranger));
    assert!(send(&pair.left, left, stranger, b"hi"));
}

#[test]
fn more_peers_than_a_thousand_are_answered_the_way_they_came() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    let mut room = [0; 64];
    assert!(receive(&pair.left, left, &mut room, 0).is_none());
    let peers = 10_000..11_200;
    for peer in peers.clone() {
        inject(&pair, peer, port, b"hello");
        pair.settle();
        assert!(receive(&pair.left, left, &mut room, 0).is_some());
    }
    for peer in peers {
        assert!(send(&pair.left, left, SocketAddr::new(RIGHT, peer), b"hi"), "{peer}");
        pair.settle();
    }
}

#[test]
fn datagrams_of_one_call_leave_together() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    let mut room = [0; 64];
    assert!(pair.left.datagrams(left).is_none(), "each is the kernel's");
    assert!(receive(&pair.left, left, &mut room, 0).is_none());
    inject(&pair, 9999, port, b"hello");
    pair.settle();
    assert!(receive(&pair.left, left, &mut room, 0).is_some());
    let (name, len) = encode(SocketAddr::new(RIGHT, 9999), libc::AF_INET);
    let (stranger, _) = encode(SocketAddr::new(RIGHT, 7777), libc::AF_INET);
    let mut datagrams = pair.left.datagrams(left).unwrap();
    for (name, is_own) in [(&name[..len], true), (&name[..len], true), (&stranger[..len], false)] {
        let buffers = [IoSlice::new(b"hi")];
        let sent = datagrams.send(&Send { buffers: &buffers, name: Some(name), control: None, flags: 0 });
        assert_eq!(matches!(sent, Verdict::Done(Ok(2))), is_own);
    }
}

#[test]
fn what_is_too_long_for_the_room_is_told() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    receive(&pair.left, left, &mut [0; 8], 0);
    inject(&pair, 9999, port, b"hello");
    pair.settle();
    let (peeked, _) = receive(&pair.left, left, &mut [0; 2], libc::MSG_PEEK | libc::MSG_TRUNC).unwrap();
    assert_eq!((peeked.len, peeked.flags), (5, libc::MSG_TRUNC));
    let (received, _) = receive(&pair.left, left, &mut [0; 2], 0).unwrap();
    assert_eq!((received.len, received.flags), (2, libc::MSG_TRUNC));
    assert!(receive(&pair.left, left, &mut [0; 2], 0).is_none());
}

#[test]
fn datagrams_of_one_size_come_as_one_with_their_size_to_who_wants_that() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    let on = 1i32.to_ne_bytes();
    let _ = pair.left.setsockopt(left, libc::SOL_UDP, libc::UDP_GRO, &on);
    syscall::setsockopt(left, libc::SOL_UDP, libc::UDP_GRO, &on).unwrap();
    assert!(receive(&pair.left, left, &mut [0; 8], 0).is_none(), "it is ours from now on");
    inject_all(&pair, 9999, port, &[&[1; 100], &[2; 100], &[3; 60], &[4; 100]]);
    pair.settle();
    let (mut room, mut control) = ([0; 1000], [0; 64]);
    let mut receive = || {
        let mut buffers = [IoSliceMut::new(&mut room)];
        let control = Some(&mut control[..]);
        let received =
            pair.left.receive(left, &mut Receive { buffers: &mut buffers, name: None, control, flags: 0 });
        let received = done(received).unwrap();
        (received.len, received.control_len)
    };
    let with_size = receive();
    assert_eq!(with_size.0, 260, "up to the first that is shorter");
    assert_eq!(receive().0, 100);
    // A cmsghdr of 16 octets, then the level, the kind and the size.
    let words: Vec<i32> =
        control[8..20].chunks(4).map(|word| i32::from_ne_bytes(word.try_into().unwrap())).collect();
    assert!(with_size.1 >= 20 && words == [libc::SOL_UDP, libc::UDP_GRO, 100], "{words:?}");
}

#[test]
fn what_came_together_is_delivered_whole_if_the_kernel_is_to_have_it() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    syscall::setsockopt(left, libc::SOL_UDP, libc::UDP_GRO, &1i32.to_ne_bytes()).unwrap();
    assert!(receive(&pair.left, left, &mut [0; 8], 0).is_none(), "it is ours from now on");
    inject_all(&pair, 9999, port, &[&[7; 1000][..]; 6]);
    pair.settle();
    let set = pair.left.setsockopt(left, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 16]);
    assert!(matches!(set, Verdict::Kernel), "which alone has filters");
    let mut room = [0; 10_000];
    let of_kernel: Vec<usize> = std::iter::from_fn(|| syscall::read(left, &mut room).ok()).collect();
    assert_eq!(of_kernel, [1000; 6]);
}

#[test]
fn what_waits_is_read_though_the_socket_is_connected_to_somebody() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    let mut room = [0; 64];
    assert!(receive(&pair.left, left, &mut room, 0).is_none());
    inject_all(&pair, 9999, port, &[b"first", b"second"]);
    pair.settle();
    assert_eq!(receive(&pair.left, left, &mut room, libc::MSG_PEEK).unwrap().0.len, 5);
    let peer = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    assert_eq!(pair.left.connect_to(left, peer.local_addr().unwrap()), Ok(()));
    assert!(receive(&pair.left, left, &mut room, 0).is_none(), "it is the kernel's");
    assert!(pair.others.claimed.lock().unwrap().is_empty());
    let of_kernel: Vec<usize> = std::iter::from_fn(|| syscall::read(left, &mut room).ok()).collect();
    assert_eq!(of_kernel, [5, 6]);
}

#[test]
fn a_client_that_was_never_bound_is_ours_once_it_has_waited_often() {
    let pair = Pair::new();
    let (left, port) = never_bound(&pair.left);
    let mut room = [0; 64];
    for _ in 1..crate::socket::udp::CLIENT_WAITS {
        assert!(receive(&pair.left, left, &mut room, 0).is_none());
        assert!(pair.others.claimed.lock().unwrap().is_empty(), "so few questions are not worth a claim");
    }
    assert!(receive(&pair.left, left, &mut room, 0).is_none());
    assert_eq!(pair.others.claimed.lock().unwrap().len(), 1);
    inject(&pair, 9999, port, b"answer");
    pair.settle();
    assert_eq!(receive(&pair.left, left, &mut room, 0).unwrap().0.len, 6);
}

/// Has the shadow hear of somebody who listens nowhere: what is left is in its error queue, and says to poll(2) that it is ready.
fn put_into_error_queue(fd: RawFd) {
    let nobody = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (name, len) = encode(nobody, libc::AF_INET);
    let message =
        syscall::Message { buffers: &[IoSlice::new(b"?")], name: Some(&name[..len]), control: None };
    syscall::send_message(fd, &message, 0).unwrap();
    let mut asked = [syscall::PollFd { fd, events: 0, revents: 0 }];
    assert_eq!(syscall::ppoll(&mut asked, Some(PATIENCE), None).unwrap(), 1);
    let error = syscall::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut [0; 4]);
    assert_eq!(error.unwrap(), 4, "asking takes the error itself");
    assert_eq!(syscall::ppoll(&mut asked, Some(std::time::Duration::ZERO), None).unwrap(), 1);
}

#[test]
fn who_waits_is_not_disturbed_by_what_is_in_the_error_queue() {
    let pair = Pair::new();
    let (left, port) = bound_with(&pair.left, 0);
    syscall::setsockopt(left, libc::SOL_IP, libc::IP_RECVERR, &1i32.to_ne_bytes()).unwrap();
    assert!(receive(&pair.left, left, &mut [0; 8], libc::MSG_DONTWAIT).is_none(), "it is ours from now on");
    put_into_error_queue(left);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut room = [0; 64];
            [(); 2].map(|()| receive(&pair.left, left, &mut room, 0).map(|(received, _)| received.len))
        });
        pair.left.until_asleep(1);
        inject(&pair, 9999, port, b"stack");
        pair.left.until_asleep(1);
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.send_to(b"kernel", (Ipv4Addr::LOCALHOST, port)).unwrap();
        let mut received = reader.join().unwrap();
        received.sort_unstable();
        assert_eq!(received, [Some(5), Some(6)]);
    });
}

#[test]
fn what_is_in_the_error_queue_makes_no_call_wait_longer_than_it_may() {
    let pair = Pair::new();
    let (left, _) = bound_with(&pair.left, 0);
    syscall::setsockopt(left, libc::SOL_IP, libc::IP_RECVERR, &1i32.to_ne_bytes()).unwrap();
    let time = [0i64, 5000].map(i64::to_ne_bytes).concat(); // A struct timeval.
    syscall::setsockopt(left, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time).unwrap();
    assert!(receive(&pair.left, left, &mut [0; 8], libc::MSG_DONTWAIT).is_none());
    put_into_error_queue(left);
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Err(EAGAIN));
}

#[test]
fn segments_that_are_too_long_together_the_kernel_refuses() {
    let pair = Pair::new();
    let (left, port) = bound(&pair.left);
    let segment_len = 1000i32.to_ne_bytes();
    syscall::setsockopt(left, libc::SOL_UDP, libc::UDP_SEGMENT, &segment_len).unwrap();
    assert!(receive(&pair.left, left, &mut [0; 8], 0).is_none(), "it is ours from now on");
    inject(&pair, 9999, port, b"hello");
    pair.settle();
    assert!(receive(&pair.left, left, &mut [0; 8], 0).is_some(), "and its way back is known");
    let (name, len) = encode(SocketAddr::new(RIGHT, 9999), libc::AF_INET);
    let data = [0; 1 << 16];
    let send = |count| {
        let buffers = [IoSlice::new(&data[..count])];
        let request = Send { buffers: &buffers, name: Some(&name[..len]), control: None, flags: 0 };
        pair.left.send(left, &request)
    };
    assert_eq!(done(send(65_507)), Ok(65_507));
    for count in [65_508, 65_536] {
        assert!(matches!(send(count), Verdict::Kernel), "{count}");
    }
    let there = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (name, len) = encode(there, libc::AF_INET);
    let of_kernel = |count| {
        let buffers = [IoSlice::new(&data[..count])];
        let message = syscall::Message { buffers: &buffers, name: Some(&name[..len]), control: None };
        syscall::send_message(left, &message, 0).map_err(|error| error.raw_os_error())
    };
    assert_eq!(of_kernel(65_507), Ok(65_507), "which takes as much itself");
    assert_eq!(of_kernel(65_508), Err(Some(libc::EMSGSIZE)));
}

#[test]
fn what_came_by_the_kernel_is_read_though_the_stack_always_has_something() {
    for looks_first in [false, true] {
        let pair = Pair::new();
        let (left, port) = bound(&pair.left);
        let mut room = [0; 64];
        assert!(receive(&pair.left, left, &mut room, 0).is_none(), "it is ours from now on");
        inject_all(&pair, 9999, port, &[&[7; 5][..]; 80]);
        pair.settle();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sender.send_to(b"kernel", (Ipv4Addr::LOCALHOST, port)).unwrap();
        until_readable(left);
        let mut next = || {
            let seen =
                looks_first.then(|| receive(&pair.left, left, &mut room, libc::MSG_PEEK).unwrap().0.len);
            let received = receive(&pair.left, left, &mut room, 0).unwrap().0.len;
            assert!(seen.is_none_or(|seen| seen == received), "it is what was looked at");
            received
        };
        let lens: Vec<usize> = (0..80).map(|_| next()).collect();
        assert_eq!(lens.iter().position(|len| *len == 6), Some(64));
    }
}
