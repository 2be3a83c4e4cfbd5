//! Connections.

use super::*;

#[test]
fn what_is_sent_arrives_both_ways() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    assert_eq!(pair.right.send_all(right, b"GET /"), Ok(5));
    pair.settle();
    let mut room = [0; 64];
    assert_eq!(pair.left.recv(left, &mut room, 0), Ok(5));
    assert_eq!(&room[..5], b"GET /");
    assert_eq!(pair.left.recv(left, &mut room, 0), Err(EAGAIN));
    assert_eq!(pair.left.send_all(left, b"200"), Ok(3));
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut room, 0), Ok(3));
}

#[test]
fn the_end_of_the_stream_is_zero_octets_and_writing_on_breaks() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.right.shut_down(right);
    pair.settle();
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Ok(0));
    assert_eq!(pair.left.send_all(left, b"late"), Ok(4), "as on Linux, nobody knows yet");
    pair.settle();
    assert_eq!(pair.left.send_all(left, b"later"), Err(Errno(libc::EPIPE)));
}

#[test]
fn peeking_leaves_and_truncating_drops() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.right.send_all(right, b"abcdef").unwrap();
    pair.settle();
    let mut room = [0; 4];
    assert_eq!(pair.left.recv(left, &mut room, libc::MSG_PEEK), Ok(4));
    assert_eq!(&room, b"abcd");
    assert_eq!(pair.left.recv(left, &mut room, libc::MSG_TRUNC), Ok(4));
    assert_eq!(pair.left.recv(left, &mut room, 0), Ok(2));
    assert_eq!(&room[..2], b"ef");
}

#[test]
fn what_is_to_be_followed_waits_until_tcp_nodelay_is_set_or_set_again() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let mut room = [0; 64];
    pair.hold();
    for _ in 0..2 {
        pair.pass(Duration::from_millis(50)); // Nothing is in flight whose acknowledgement lets it go.
        pair.settle();
        assert_eq!(pair.right.send_with(right, b"held, ", libc::MSG_MORE), Ok(6));
        pair.settle();
        assert_eq!(pair.left.recv(left, &mut room, 0), Err(EAGAIN));
        done(pair.right.setsockopt(right, libc::SOL_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes())).unwrap();
        pair.settle();
        assert_eq!(pair.left.recv(left, &mut room, 0), Ok(6));
    }
    pair.right.send_with(right, b"held, ", libc::MSG_MORE).unwrap();
    pair.right.send_all(right, b"followed").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(left, &mut room, 0), Ok(14));
    assert_eq!(pair.right.option(right, libc::SOL_TCP, libc::TCP_CORK), 0);
}

#[test]
fn connecting_tells_where_it_is() {
    let pair = Pair::new();
    let (_, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EALREADY)));
    pair.settle();
    assert_eq!(pair.right.connect_to(fd, address), Ok(()));
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EISCONN)));
    assert_eq!(pair.right.peer_of(fd), address);
    assert_eq!(pair.right.option(fd, libc::SOL_SOCKET, libc::SO_ERROR), 0);
}

#[test]
fn options_of_a_listener_are_those_of_its_connections() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let set = |level, option, value: i32| {
        done(pair.left.setsockopt(listener, level, option, &value.to_ne_bytes())).unwrap();
    };
    set(libc::SOL_TCP, libc::TCP_NODELAY, 1);
    set(libc::SOL_TCP, libc::TCP_KEEPIDLE, 77);
    set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let _ = pair.right.connect_to(right, address);
    pair.settle();
    let left = pair.left.accept4(listener, 0).unwrap();
    assert_eq!(pair.left.option(left, libc::SOL_TCP, libc::TCP_NODELAY), 1);
    assert_eq!(pair.left.option(left, libc::SOL_TCP, libc::TCP_KEEPIDLE), 77);
    assert_eq!(pair.left.option(left, libc::SOL_SOCKET, libc::SO_REUSEADDR), 1);
    assert_eq!(pair.left.option(left, libc::SOL_SOCKET, libc::SO_TYPE), libc::SOCK_STREAM);
}

#[test]
fn option_errors_are_the_kernels() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let set = |level, option, value: &[u8]| done(pair.left.setsockopt(left, level, option, value));
    assert_eq!(set(libc::SOL_TCP, libc::TCP_NODELAY, &[1]), Err(Errno(libc::EINVAL)));
    assert_eq!(set(libc::SOL_TCP, libc::TCP_KEEPIDLE, &0i32.to_ne_bytes()), Err(Errno(libc::EINVAL)));
    assert_eq!(set(libc::SOL_TCP, 9999, &1i32.to_ne_bytes()), Err(Errno(libc::ENOPROTOOPT)));
    let unknown = done(pair.left.getsockopt(left, libc::SOL_TCP, 9999, &mut [0; 4]));
    assert_eq!(unknown, Err(Errno(libc::ENOPROTOOPT)));
}

#[test]
fn tcp_info_tells_an_established_connection() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let mut info = [0; 512];
    let len = done(pair.left.getsockopt(left, libc::SOL_TCP, libc::TCP_INFO, &mut info)).unwrap();
    assert!(len >= 232, "{len}");
    assert_eq!(info[0], 1, "TCP_ESTABLISHED");
    assert_eq!(u32::from_ne_bytes(*info[16..].first_chunk().unwrap()), 1448, "tcpi_snd_mss");
}

#[test]
fn a_copy_of_a_descriptor_keeps_the_connection() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let copy = done(pair.left.dup(left, None, 0)).unwrap();
    pair.left.shut_down(left);
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(copy, &mut [0; 8], 0), Ok(1));
    pair.left.shut_down(copy);
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Ok(0));
}

#[test]
fn blocking_calls_wait_for_each_other() {
    let pair = Pair::new();
    let listener = pair.left.listen_anywhere(0);
    let port = crate::address::local_of(listener).unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let fd = pair.left.accept4(listener, 0).unwrap();
            let mut room = [0; 10];
            assert_eq!(pair.left.recv(fd, &mut room, libc::MSG_WAITALL), Ok(10));
            assert_eq!(pair.left.send_all(fd, &room), Ok(10));
            pair.left.shut_down(fd);
        });
        let fd = pair.right.tcp_socket(0);
        let address = SocketAddr::new(LEFT, port);
        assert_eq!(pair.right.connect_to(fd, address), Ok(()));
        assert_eq!(pair.right.send_all(fd, b"01234"), Ok(5));
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(pair.right.send_all(fd, b"56789"), Ok(5));
        let mut room = [0; 10];
        assert_eq!(pair.right.recv(fd, &mut room, libc::MSG_WAITALL), Ok(10));
        assert_eq!(&room, b"0123456789");
        assert_eq!(pair.right.recv(fd, &mut room, 0), Ok(0));
    });
}

#[test]
fn a_receive_timeout_ends_the_wait() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    done(pair.left.fcntl(left, libc::F_SETFL, 0)).unwrap();
    let time: [u8; 16] = [0i64.to_ne_bytes(), 20_000i64.to_ne_bytes()].concat().try_into().unwrap();
    done(pair.left.setsockopt(left, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)).unwrap();
    let start = std::time::Instant::now();
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Err(EAGAIN));
    assert!(start.elapsed() >= std::time::Duration::from_millis(20));
}

#[test]
fn a_megabyte_through_a_blocking_writer() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    done(pair.left.fcntl(left, libc::F_SETFL, 0)).unwrap();
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at * 7 / 5) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(pair.left.send_all(left, &data), Ok(data.len())));
        let mut got = Vec::new();
        let mut room = [0; 8192];
        while got.len() < data.len() {
            match pair.right.recv(right, &mut room, 0) {
                Ok(count) => got.extend_from_slice(&room[..count]),
                // There is no watchdog here for what the writer has left behind.
                Err(errno) => {
                    assert_eq!(errno, EAGAIN);
                    pair.settle();
                }
            }
        }
        assert!(got == data);
    });
}

#[test]
fn a_moved_connection_goes_on_behind_its_descriptor() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.right.send_all(right, b"unread").unwrap();
    pair.settle();
    pair.left.pass_on(left);
    assert!(!pair.left.table.is_ours(left));
    let mut room = [0; 8];
    assert_eq!(syscall::read(left, &mut room).unwrap(), 6, "the kernel has what was not read");
}

/// As a program's socket that may be bound to an address that this host does not have.
fn free_bind(fd: RawFd) {
    const FREE_BIND: i32 = 15;
    syscall::setsockopt(fd, libc::SOL_IP, FREE_BIND, &1i32.to_ne_bytes()).unwrap();
}

/// What the kernel's poll(2) and ours have together.
fn polled(process: &Process, fd: RawFd) -> i16 {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let mut fds = [crate::request::PollFd { fd, events, revents: 0 }];
    match process.poll(&mut fds, Some(std::time::Duration::ZERO), None) {
        Verdict::Done(count) => assert!(count.is_ok()),
        Verdict::Kernel => {
            let mut asked = [syscall::PollFd { fd, events, revents: 0 }];
            syscall::ppoll(&mut asked, Some(std::time::Duration::ZERO), None).unwrap();
            fds[0].revents = asked[0].revents;
        }
    }
    fds[0].revents
}

#[test]
fn after_a_refusal_a_socket_may_try_again() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let nobody = SocketAddr::new(LEFT, address.port() ^ 1);
    assert_eq!(pair.right.connect_to(fd, nobody), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    assert_eq!(pair.right.connect_to(fd, nobody), Err(Errno(libc::ECONNREFUSED)), "told once");
    assert_eq!(polled(&pair.right, fd), libc::POLLOUT | libc::POLLHUP, "as a socket that is new");
    free_bind(fd);
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    pair.settle();
    assert_eq!(pair.right.connect_to(fd, address), Ok(()));
    let left = pair.left.accept4(listener, 0).unwrap();
    pair.right.send_all(fd, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Ok(1));
}

#[test]
fn connecting_to_nowhere_resets_and_leaves_a_new_socket() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, libc::EPOLL_CTL_ADD, left, libc::EPOLLIN).unwrap();
    assert_eq!(done(pair.left.connect(left, &[0; 16])), Ok(()));
    pair.settle();
    assert_eq!(pair.right.recv(right, &mut [0; 8], 0), Err(Errno(libc::ECONNRESET)));
    let over = libc::POLLOUT | libc::POLLERR | libc::POLLHUP;
    assert_eq!(polled(&pair.left, left), over);
    assert_eq!(pair.left.ready(epfd), [(left, libc::EPOLLERR | libc::EPOLLHUP)]);
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Err(Errno(libc::ECONNRESET)));
    assert_eq!(polled(&pair.left, left), libc::POLLOUT | libc::POLLHUP, "the error was told");
    // Its own again, not the one that all accepted connections share.
    let (name, len) = encode("127.0.0.1:0".parse().unwrap(), libc::AF_INET);
    assert!(matches!(pair.left.may_bind(left, &[]), Verdict::Kernel));
    syscall::bind(left, &name[..len]).unwrap();
    syscall::listen(left, 4).unwrap();
}

#[test]
fn shutting_down_before_there_is_a_connection_gives_up() {
    let pair = Pair::new();
    let fd = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let address = SocketAddr::new(LEFT, 80);
    assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    assert_eq!(done(pair.right.shutdown(fd, libc::SHUT_WR)), Ok(()));
    assert_eq!(polled(&pair.right, fd), libc::POLLOUT | libc::POLLERR | libc::POLLHUP);
    assert_eq!(pair.right.option(fd, libc::SOL_SOCKET, libc::SO_ERROR), libc::ECONNRESET);
}

#[test]
fn what_is_connected_is_not_bound_and_does_not_listen() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    assert_eq!(done(pair.left.may_bind(left, &[])), Err(Errno(libc::EINVAL)));
    assert_eq!(done(pair.right.may_bind(right, &[])), Err(Errno(libc::EINVAL)));
}

/// Whether it happens at the beginning, and what.
type Meanwhile = (bool, Box<dyn FnOnce()>);

thread_local! {
    /// What happens when this thread's next sleep begins (true) or ends, just before a handler without `SA_RESTART` runs.
    static MEANWHILE: std::cell::Cell<Option<Meanwhile>> = const { std::cell::Cell::new(None) };
}

/// Something `happens` when this thread's next sleep begins, or when it was ended by something else than a signal, and a handler of
/// `SIGUSR1` runs.
fn when_the_next_sleep(begins: bool, happens: impl FnOnce() + 'static) {
    crate::inside::on_sleep(|begins| match MEANWHILE.take() {
        Some((at, happens)) if at == begins => {
            happens();
            crate::inside::on_handler(libc::SIGUSR1, false);
        }
        later => MEANWHILE.set(later),
    });
    MEANWHILE.set(Some((begins, Box::new(happens))));
}

pub(super) fn when_the_next_sleep_ends(happens: impl FnOnce() + 'static) {
    when_the_next_sleep(false, happens);
}

/// Another process may be faster at a listener that it has as well.
#[test]
fn who_waits_in_the_kernel_for_what_another_has_accepted_does_not_have_the_lock() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let listener = pair.left.listen_anywhere(0);
    let port = crate::address::local_of(listener).unwrap().port();
    let knock = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _first = knock();
    until_readable(listener);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        when_the_next_sleep(true, move || {
            syscall::accept(listener, None, 0).unwrap();
            tell.send(()).unwrap();
        });
        pair.left.accept4(listener, 0)
    });
    told.recv_timeout(PATIENCE).unwrap();
    let other = std::thread::spawn(|| drop(pair.left.lock()));
    until("another thread has the lock", || other.is_finished());
    let _second = knock(); // The thread ends.
}

/// Each of these calls would sleep for ever.
#[test]
fn a_handler_that_runs_just_before_a_sleep_ends_the_call() {
    let (done_by, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pair = Pair::without_queues(); // There is no device to be looked at now and then.
        let left = pair.left.listen_anywhere(libc::SOCK_NONBLOCK);
        when_the_next_sleep(true, || ());
        let mut fds = [crate::request::PollFd { fd: left, events: libc::POLLIN, revents: 0 }];
        let polled = done(pair.left.poll(&mut fds, None, None));
        when_the_next_sleep(true, || ());
        let epfd = pair.left.epoll();
        pair.left.watch(epfd, libc::EPOLL_CTL_ADD, left, libc::EPOLLIN).unwrap();
        let waited = done(pair.left.epoll_wait(epfd, &mut [EpollEvent::default()], None, None));
        let _ = done_by.send([polled, waited]);
    });
    let interrupted = Err(Errno(libc::EINTR));
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok([interrupted, interrupted]));
}

#[test]
fn a_handler_that_runs_when_something_else_has_ended_a_sleep_ends_the_call() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::new()));
    let (_, left, right) = pair.accepted(0);
    let patience: [u8; 16] = [10i64.to_ne_bytes(), 0i64.to_ne_bytes()].concat().try_into().unwrap();
    done(pair.left.setsockopt(left, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &patience)).unwrap();
    when_the_next_sleep_ends(|| ());
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Err(Errno(libc::EINTR)));
    when_the_next_sleep_ends(move || {
        pair.right.send_all(right, b"x").unwrap();
        pair.settle();
    });
    assert_eq!(pair.left.recv(left, &mut [0; 8], 0), Ok(1), "what came meanwhile comes first");
}

#[test]
fn a_handler_of_what_a_calls_own_mask_blocks_does_not_end_it() {
    const SHORT: Option<std::time::Duration> = Some(std::time::Duration::from_millis(20));
    let pair = Pair::new();
    let (_, left, _) = pair.accepted(0);
    let mut fds = [crate::request::PollFd { fd: left, events: libc::POLLIN, revents: 0 }];
    when_the_next_sleep_ends(|| ());
    assert_eq!(done(pair.left.poll(&mut fds, SHORT, Some(0))), Err(Errno(libc::EINTR)));
    when_the_next_sleep_ends(|| ());
    let mask = 1 << (libc::SIGUSR1 - 1);
    assert_eq!(done(pair.left.poll(&mut fds, SHORT, Some(mask))), Ok(0), "it ran when the call was over");
}

/// The right process closes a connection with a RST.
fn reset(pair: &Pair, right: RawFd) {
    let at_once: [u8; 8] = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat().try_into().unwrap();
    done(pair.right.setsockopt(right, libc::SOL_SOCKET, libc::SO_LINGER, &at_once)).unwrap();
    pair.right.shut_down(right);
    pair.settle();
}

#[test]
fn who_has_received_something_is_told_of_the_error_by_the_next_call() {
    let pair = Pair::new();
    let (_, left, right) = pair.accepted(0);
    let receive_all = || pair.left.recv(left, &mut [0; 20], libc::MSG_WAITALL);
    std::thread::scope(|scope| {
        let reader = scope.spawn(receive_all);
        pair.right.send_all(right, &[0; 10]).unwrap();
        pair.settle();
        pair.left.until_asleep(1);
        reset(&pair, right);
        assert_eq!(reader.join().unwrap(), Ok(10));
    });
    assert_eq!(receive_all(), Err(Errno(libc::ECONNRESET)));
    assert_eq!(receive_all(), Ok(0));
}

#[test]
fn who_fills_one_buffer_is_not_told_of_the_error_by_the_next() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.right.send_all(right, &[0; 10]).unwrap();
    pair.settle();
    reset(&pair, right);
    let (mut first, mut second) = ([0; 10], [0; 10]);
    let mut buffers = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
    let mut request = Receive { buffers: &mut buffers, name: None, control: None, flags: 0 };
    assert_eq!(done(pair.left.receive(left, &mut request)).map(|received| received.len), Ok(10));
    assert_eq!(pair.left.recv(left, &mut [0; 10], 0), Err(Errno(libc::ECONNRESET)));
}

#[test]
fn who_has_sent_something_is_told_of_the_error_by_the_next_call() {
    const ALL: usize = 8 << 20;
    let pair = Pair::new();
    let (_, left, right) = pair.accepted(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| pair.left.send_all(left, &vec![0; ALL]));
        until("some of it has come", || {
            pair.settle();
            pair.right.recv(right, &mut [0], 0) == Ok(1)
        });
        reset(&pair, right);
        while !writer.is_finished() {
            pair.settle();
        }
        assert!(matches!(writer.join().unwrap(), Ok(1..ALL)));
    });
    assert_eq!(pair.left.send_all(left, b"x"), Err(Errno(libc::ECONNRESET)));
    assert_eq!(pair.left.send_all(left, b"x"), Err(Errno(libc::EPIPE)));
}

#[test]
fn a_file_that_ends_before_the_count_is_sent_to_its_end() {
    const PIECE: usize = 64 << 10;
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let name = std::env::temp_dir().join(format!("sendfile-{}", std::process::id()));
    std::fs::write(&name, vec![7; PIECE]).unwrap();
    let file = std::fs::File::open(&name).unwrap();
    std::fs::remove_file(&name).unwrap();
    let mut offset = 0;
    let mut sent = 0;
    let mut received = 0;
    while sent < PIECE {
        let all = 4 * PIECE;
        sent += done(pair.left.sendfile(left, file.as_raw_fd(), Some(&mut offset), all)).unwrap_or(0);
        pair.settle();
        received += pair.right.recv(right, &mut [0; PIECE], 0).unwrap_or(0);
    }
    pair.settle();
    while let Ok(count) = pair.right.recv(right, &mut [0; PIECE], 0) {
        received += count;
        pair.settle();
    }
    assert_eq!(received, PIECE, "the last segment waits for more");
}

#[test]
fn no_more_is_taken_out_of_a_pipe_than_there_is_room_for() {
    const ALL: usize = 4096;
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let few = 4096i32.to_ne_bytes();
    let least = 1i32.to_ne_bytes();
    done(pair.left.setsockopt(left, libc::SOL_SOCKET, libc::SO_SNDBUF, &least)).unwrap();
    done(pair.right.setsockopt(right, libc::SOL_SOCKET, libc::SO_RCVBUF, &few)).unwrap();
    let mut sent = 0;
    while let Ok(count) = pair.left.send_all(left, &[7; ALL]) {
        sent += count;
        pair.settle();
    }
    let mut received = 0;
    let mut drain = || {
        pair.settle();
        received += pair.right.recv(right, &mut [0; 700], 0).unwrap_or(0);
        received
    };
    until("there is some room", || {
        drain();
        polled(&pair.left, left) & libc::POLLOUT != 0
    });
    let [reader, writer] = syscall::pipe().unwrap();
    syscall::write(writer.as_raw_fd(), &[7; ALL]).unwrap();
    let spliced = done(pair.left.splice(reader.as_raw_fd(), left, ALL, 0)).unwrap();
    assert!(spliced < ALL, "it waited for more room");
    let rest = syscall::read(reader.as_raw_fd(), &mut [0; ALL]).unwrap();
    assert_eq!(spliced + rest, ALL);
    until("all arrives", || drain() == sent + spliced);
}
