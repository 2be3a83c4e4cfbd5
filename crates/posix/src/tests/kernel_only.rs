//! Options that the stack does not support: sockets stay on the kernel, or move to it.

use std::sync::atomic::Ordering;

use super::*;

/// A key for any peer: `struct tcp_md5sig`.
fn key() -> Vec<u8> {
    let mut key = vec![0; 216];
    key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    key[4..8].copy_from_slice(&[192, 0, 2, 2]);
    key[130..132].copy_from_slice(&3u16.to_ne_bytes());
    key[136..139].copy_from_slice(b"key");
    key
}

fn sign(process: &Process, fd: RawFd) {
    // A kernel without signatures says so; every kernel has the least hop limit.
    let set = done(process.setsockopt(fd, libc::SOL_TCP, libc::TCP_MD5SIG, &key()));
    if set.is_err() {
        limit_hops(process, fd).unwrap();
    }
}

fn limit_hops(process: &Process, fd: RawFd) -> Result<(), Errno> {
    done(process.setsockopt(fd, libc::SOL_IP, libc::IP_MINTTL, &1i32.to_ne_bytes()))
}

fn claims_ever(others: &Others) -> u32 {
    others.claims.load(Ordering::Relaxed)
}

#[test]
fn a_listener_that_signs_is_not_claimed() {
    let pair = Pair::new();
    let fd = pair.left.tcp_socket(libc::SOCK_NONBLOCK);
    sign(&pair.left, fd);
    syscall::listen(fd, 4).unwrap();
    pair.left.on_listen(fd, 4);
    assert!(matches!(pair.left.accept(fd, None, 0), Verdict::Kernel));
    assert_eq!(claims_ever(&pair.others), 0);
    let state = pair.left.lock();
    let why = state.socket_of(fd).and_then(|id| state.sockets.get(id)).and_then(|it| it.unclaimable.clone());
    assert!(why.is_some_and(|why| why.contains("TCP_MD5SIG") || why.contains("IP_MINTTL")));
}

#[test]
fn a_listener_for_one_processor_among_others_at_its_port_is_not_claimed() {
    let pair = Pair::new();
    for (reuse_port, is_claimed) in [(0i32, true), (1, false)] {
        let fd = pair.left.tcp_socket(libc::SOCK_NONBLOCK);
        for (option, value) in [(libc::SO_REUSEPORT, reuse_port), (libc::SO_INCOMING_CPU, 0)] {
            syscall::setsockopt(fd, libc::SOL_SOCKET, option, &value.to_ne_bytes()).unwrap();
        }
        let (name, len) = encode("0.0.0.0:0".parse().unwrap(), libc::AF_INET);
        syscall::bind(fd, &name[..len]).unwrap();
        syscall::listen(fd, 4).unwrap();
        pair.left.on_listen(fd, 4);
        assert_eq!(pair.left.accept4(fd, 0), Err(EAGAIN));
        let state = pair.left.lock();
        let socket = state.socket_of(fd).and_then(|id| state.sockets.get(id)).unwrap();
        assert_eq!(socket.claim.is_some(), is_claimed);
        assert_eq!(
            socket.unclaimable.as_ref().is_some_and(|why| why.contains("SO_INCOMING_CPU")),
            !is_claimed
        );
    }
}

#[test]
fn what_waits_at_a_listener_that_becomes_the_kernels_is_accepted() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let right = [(); 2].map(|()| pair.right.tcp_socket(libc::SOCK_NONBLOCK));
    right
        .iter()
        .for_each(|fd| assert_eq!(pair.right.connect_to(*fd, address), Err(Errno(libc::EINPROGRESS))));
    pair.settle();
    let accepted = pair.left.accept4(listener, 0).unwrap();
    assert_eq!(limit_hops(&pair.left, listener), Ok(()));
    assert!(!pair.left.table.is_ours(accepted), "what comes to its port is the kernel's now");
    let mut fds = [crate::request::PollFd { fd: listener, events: libc::POLLIN, revents: 0 }];
    assert_eq!(done(pair.left.poll(&mut fds, None, None)), Ok(1));
    let waiting = pair.left.accept4(listener, 0).unwrap();
    assert!(!pair.left.table.is_ours(waiting));
    assert!(matches!(pair.left.accept(listener, None, 0), Verdict::Kernel), "there is nothing of ours");
    assert_eq!(claims_ever(&pair.others), 1, "nor will there be");
}

#[test]
fn a_socket_that_signs_is_connected_by_the_kernel() {
    let pair = Pair::new();
    let (_, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    sign(&pair.right, fd);
    let (name, len) = encode(address, libc::AF_INET);
    assert!(matches!(pair.right.connect(fd, &name[..len]), Verdict::Kernel));
}

#[test]
fn a_connection_becomes_the_kernels_if_the_kernel_takes_the_option() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let protocol = |name: &[u8]| pair.left.setsockopt(left, libc::SOL_TCP, libc::TCP_ULP, name);
    assert_eq!(done(protocol(b"nonesuch")), Err(Errno(libc::ENOENT)));
    assert!(pair.left.table.is_ours(left));
    pair.right.send_all(right, b"data").unwrap();
    pair.settle();
    let set = pair.left.setsockopt(left, libc::SOL_IP, libc::IP_MINTTL, &255i32.to_ne_bytes());
    assert!(matches!(set, Verdict::Kernel), "it is set at the kernel's");
    assert!(!pair.left.table.is_ours(left));
    let mut room = [0; 8];
    assert_eq!(syscall::read(left, &mut room).unwrap(), 4);
}

#[test]
fn a_filter_is_the_kernels_to_attach_and_its_socket_too() {
    let pair = Pair::new();
    let fd = super::datagrams::claimed(&pair.left);
    assert_eq!(pair.others.claimed.lock().unwrap().len(), 1);
    // Where its instructions are, only the program knows.
    let set = pair.left.setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 16]);
    assert!(matches!(set, Verdict::Kernel));
    assert_eq!(pair.others.claimed.lock().unwrap().len(), 0);
}

#[test]
fn a_program_that_chooses_among_sockets_holds_for_all_of_the_port() {
    let pair = Pair::new();
    let sharing = || {
        let fd = pair.left.tcp_socket(libc::SOCK_NONBLOCK);
        syscall::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32.to_ne_bytes()).unwrap();
        fd
    };
    let listen = |fd: RawFd, port| {
        let (name, len) = encode(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), libc::AF_INET);
        syscall::bind(fd, &name[..len]).unwrap();
        syscall::listen(fd, 4).unwrap();
        pair.left.on_listen(fd, 4);
        crate::address::local_of(fd).unwrap().port()
    };
    let (first, second, third) = (sharing(), sharing(), sharing());
    let port = listen(first, 0);
    listen(second, port);
    assert_eq!(pair.left.accept4(first, 0), Err(EAGAIN));
    let set = pair.left.setsockopt(second, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &[0; 16]);
    assert!(matches!(set, Verdict::Kernel));
    listen(third, port);
    for fd in [first, second, third] {
        assert!(matches!(pair.left.accept(fd, None, 0), Verdict::Kernel));
    }
    assert_eq!(claims_ever(&pair.others), 1);
}
