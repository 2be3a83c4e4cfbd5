//! epoll and poll.

use std::ops::RangeInclusive;

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT,
    EPOLLRDHUP,
};

use super::*;
use crate::epoll::Item;
use crate::request::PollFd;

#[test]
fn by_level_it_is_told_until_it_is_read() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    assert_eq!(pair.left.ready(epfd), []);
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN)]);
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN)]);
    pair.left.recv(left, &mut [0; 8], 0).unwrap();
    assert_eq!(pair.left.ready(epfd), []);
}

#[test]
fn by_edge_it_is_told_once_for_each_arrival() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET).unwrap();
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLOUT)]);
    assert_eq!(pair.left.ready(epfd), []);
    for _ in 0..2 {
        pair.right.send_all(right, b"x").unwrap();
        pair.settle();
        assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN | EPOLLOUT)], "both, as on Linux");
        assert_eq!(pair.left.ready(epfd), []);
    }
    pair.right.shut_down(right);
    pair.settle();
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN | EPOLLOUT | EPOLLRDHUP)]);
}

#[test]
fn who_polls_an_instance_learns_of_what_another_threads_turn_brings() {
    let pair = Pair::new();
    let ((left, right), (other, peer)) = (pair.connected(), pair.connected());
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    let poll = |fd| {
        let mut fds = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
        done(pair.left.poll(&mut fds, Some(PATIENCE), None))
    };
    std::thread::scope(|scope| {
        // The first one that sleeps is the driver; the other sees only its own events.
        let driver = scope.spawn(|| poll(other));
        pair.left.until_asleep(1);
        let onlooker = scope.spawn(|| poll(epfd));
        pair.left.until_asleep(2);
        pair.right.send_all(right, b"x").unwrap();
        pair.settle();
        assert_eq!(onlooker.join().unwrap(), Ok(1));
        pair.right.send_all(peer, b"x").unwrap();
        pair.settle();
        assert_eq!(driver.join().unwrap(), Ok(1));
    });
}

#[test]
fn one_shot_is_silent_until_it_is_modified() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN | EPOLLONESHOT).unwrap();
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN)]);
    pair.right.send_all(right, b"y").unwrap();
    pair.settle();
    assert_eq!(pair.left.ready(epfd), []);
    pair.left.watch(epfd, EPOLL_CTL_MOD, left, EPOLLIN | EPOLLONESHOT).unwrap();
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN)]);
}

#[test]
fn errors_of_epoll_ctl_are_linuxs() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let epfd = pair.left.epoll();
    let watch = |op| pair.left.watch(epfd, op, left, EPOLLIN);
    assert_eq!(watch(EPOLL_CTL_MOD), Err(Errno(libc::ENOENT)));
    assert_eq!(watch(EPOLL_CTL_DEL), Err(Errno(libc::ENOENT)));
    assert_eq!(watch(EPOLL_CTL_ADD), Ok(()));
    assert_eq!(watch(EPOLL_CTL_ADD), Err(Errno(libc::EEXIST)));
    assert_eq!(watch(EPOLL_CTL_DEL), Ok(()));
    assert_eq!(watch(77), Err(Errno(libc::EINVAL)));
}

#[test]
fn a_listener_is_ready_when_somebody_has_connected() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, listener, EPOLLIN).unwrap();
    assert_eq!(pair.left.ready(epfd), []);
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let _ = pair.right.connect_to(right, address);
    pair.settle();
    assert_eq!(pair.left.ready(epfd), [(listener, EPOLLIN)]);
    pair.left.accept4(listener, 0).unwrap();
    assert_eq!(pair.left.ready(epfd), []);
}

#[test]
fn what_came_by_the_kernel_is_told_with_the_rest() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, listener, EPOLLIN).unwrap();
    let local = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    until_readable(listener);
    assert_eq!(pair.left.ready(epfd), [(listener, EPOLLIN)]);
    let fd = pair.left.accept4(listener, 0).unwrap();
    assert!(!pair.left.table.is_ours(fd));
    drop(local);
}

#[test]
fn an_instance_within_another_tells_it() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let (inner, outer) = (pair.left.epoll(), pair.left.epoll());
    pair.left.watch(outer, EPOLL_CTL_ADD, inner, EPOLLIN).unwrap();
    pair.left.watch(inner, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    assert_eq!(pair.left.ready(outer), []);
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.ready(outer), [(inner, EPOLLIN)]);
    assert_eq!(pair.left.ready(inner), [(left, EPOLLIN)]);
    pair.left.recv(left, &mut [0; 8], 0).unwrap();
    assert_eq!(pair.left.ready(outer), []);
}

/// The descriptors that a call with a buffer of so many reports, call by call.
fn told_by_calls(process: &Process, epfd: RawFd, room: usize) -> Vec<Vec<RawFd>> {
    let told = (0..4).map(|_| {
        process.clock.pass(Duration::from_millis(1));
        let mut events = vec![EpollEvent::default(); room];
        let count = done(process.epoll_wait(epfd, &mut events, Some(std::time::Duration::ZERO), None));
        events[..count.unwrap()].iter().map(|it| ({ it.data }) as RawFd).collect()
    });
    told.collect()
}

#[test]
fn the_kernels_events_have_room_beside_as_many_of_ours_as_are_asked_for() {
    let pair = Pair::new();
    pair.hold();
    let (connections, pipe) = ([pair.connected(), pair.connected()], readable_pipe());
    let epfd = pair.left.epoll();
    for (left, _) in connections {
        pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLOUT).unwrap();
    }
    for has_kernel in [false, true] {
        if has_kernel {
            let event = syscall::EpollEvent { events: EPOLLIN as u32, u64: pipe as u64 };
            syscall::epoll_ctl(epfd, EPOLL_CTL_ADD, pipe, Some(event)).unwrap();
        }
        for room in [1, 2] {
            let told = told_by_calls(&pair.left, epfd, room);
            let is_told = |fd| told.iter().flatten().any(|it| *it == fd);
            assert!(told.iter().all(|call| call.len() == room), "room for {room} is used: {told:?}");
            assert_eq!(is_told(pipe), has_kernel, "room for {room}: {told:?}");
            assert!(connections.iter().all(|(left, _)| is_told(*left)), "room for {room}: {told:?}");
        }
    }
}

#[test]
fn what_a_child_has_inherited_is_the_kernels_for_an_instance_of_its_own() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    pair.make_inherited(left);
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    let _ = pair.left.ready(epfd);
    assert!(!pair.left.table.is_ours(left), "it was asked for");
}

#[test]
fn several_instances_watch_one_socket() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let both = [pair.left.epoll(), pair.left.epoll()];
    for epfd in both {
        pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN | EPOLLET).unwrap();
    }
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    for epfd in both {
        assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN)]);
    }
}

#[test]
fn a_sleeper_is_woken_by_the_thread_that_makes_the_turn() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut events = [EpollEvent::default(); 4];
            done(pair.left.epoll_wait(epfd, &mut events, None, None)).unwrap()
        });
        pair.left.until_asleep(1);
        pair.right.send_all(right, b"x").unwrap();
        while !sleeper.is_finished() {
            pair.settle();
        }
        assert_eq!(sleeper.join().unwrap(), 1);
    });
}

/// Nanoseconds that the left process' engine has counted as `name`.
fn engine_time(pair: &Pair, name: &str) -> u64 {
    let mut state = pair.left.lock();
    pair.left.turn_in_passing(&mut state, pair.left.now());
    let counts = state.queue.runtime.as_ref().unwrap().handle.counters().named();
    counts.into_iter().find(|(it, _)| it == name).unwrap().1
}

#[test]
fn the_engine_sleeps_as_long_as_its_driver_whoever_makes_a_turn_meanwhile() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    pair.hold();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    let [before, after] = std::thread::scope(|scope| {
        let sleeper =
            scope.spawn(|| done(pair.left.epoll_wait(epfd, &mut [EpollEvent::default(); 4], None, None)));
        pair.left.until_asleep(1);
        let before = engine_time(&pair, "busy_ns");
        pair.pass(::clock::Duration::from_secs(5));
        let after = engine_time(&pair, "busy_ns");
        pair.right.send_all(right, b"x").unwrap();
        while !sleeper.is_finished() {
            pair.settle();
        }
        assert_eq!(sleeper.join().unwrap(), Ok(1));
        [before, after]
    });
    assert_eq!(after, before);
}

#[test]
fn a_wait_ends_in_time() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    let start = std::time::Instant::now();
    let time = std::time::Duration::from_millis(20);
    assert_eq!(done(pair.left.epoll_wait(epfd, &mut [EpollEvent::default(); 4], Some(time), None)), Ok(0));
    assert!(start.elapsed() >= time);
}

#[test]
fn poll_has_ours_and_the_kernels() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let [pipe, other] = syscall::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
    let pipe = pipe.into_raw_fd();
    let ask = |fd| PollFd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [ask(left), ask(pipe), ask(-1)];
    let now = Some(std::time::Duration::ZERO);
    assert_eq!(done(pair.left.poll(&mut fds, now, None)), Ok(0));
    pair.right.send_all(right, b"x").unwrap();
    syscall::write(other.into_raw_fd(), b"y").unwrap();
    pair.settle();
    assert_eq!(done(pair.left.poll(&mut fds, None, None)), Ok(2));
    assert_eq!(fds.map(|it| it.revents), [libc::POLLIN, libc::POLLIN, 0]);
}

#[test]
fn closing_ends_the_watch() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    pair.left.shut_down(left);
    assert_eq!(pair.left.ready(epfd), []);
}

#[test]
fn a_server_of_two_clients_answers_both_in_one_turn() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, listener, EPOLLIN).unwrap();
    let clients = [(); 2].map(|()| pair.right.tcp_socket(libc::SOCK_NONBLOCK));
    for fd in clients {
        assert_eq!(pair.right.connect_to(fd, address), Err(Errno(libc::EINPROGRESS)));
    }
    pair.settle();
    let mut served = Vec::new();
    while let Ok(fd) = pair.left.accept4(listener, libc::SOCK_NONBLOCK) {
        pair.left.watch(epfd, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET).unwrap();
        served.push(fd);
    }
    assert_eq!(served.len(), 2);
    for _ in 0..3 {
        clients.iter().for_each(|fd| assert_eq!(pair.right.send_all(*fd, b"?"), Ok(1)));
        pair.settle();
        let ready = pair.left.ready(epfd);
        assert_eq!(ready.len(), 2);
        for (fd, _) in ready {
            assert_eq!(pair.left.recv(fd, &mut [0; 8], 0), Ok(1));
            assert_eq!(pair.left.send_all(fd, b"!"), Ok(1));
        }
        assert_eq!(pair.left.ready(epfd), []);
        pair.settle();
        clients.iter().for_each(|fd| assert_eq!(pair.right.recv(*fd, &mut [0; 8], 0), Ok(1)));
    }
}

/// A descriptor of the kernel's that has something to read.
fn readable_pipe() -> RawFd {
    let [reader, writer] = syscall::pipe().unwrap();
    syscall::write(writer.into_raw_fd(), b"x").unwrap();
    reader.into_raw_fd()
}

/// Watches with data 7, also on the kernel's descriptors.
fn watch_alike(pair: &Pair, epfd: RawFd, fd: RawFd, events: i32) {
    let event = EpollEvent { events: events as u32, data: 7 };
    match pair.left.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, Some(event)) {
        Verdict::Done(result) => result.unwrap(),
        Verdict::Kernel => {
            let event = syscall::EpollEvent { events: events as u32, u64: 7 };
            syscall::epoll_ctl(epfd, EPOLL_CTL_ADD, fd, Some(event)).unwrap();
        }
    }
}

#[test]
fn descriptors_with_the_same_data_are_told_one_by_one() {
    let pair = Pair::new();
    let (left, _) = pair.connected();
    let epfd = pair.left.epoll();
    watch_alike(&pair, epfd, left, EPOLLOUT);
    watch_alike(&pair, epfd, readable_pipe(), EPOLLIN);
    assert_eq!(pair.left.ready(epfd), [(7, EPOLLIN), (7, EPOLLOUT)]);
}

#[test]
fn a_listener_on_both_sides_is_told_once_and_others_with_its_data_beside_it() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let epfd = pair.left.epoll();
    watch_alike(&pair, epfd, listener, EPOLLIN);
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let _ = pair.right.connect_to(right, address);
    pair.settle();
    let pipe = readable_pipe();
    watch_alike(&pair, epfd, pipe, EPOLLIN);
    assert_eq!(
        pair.left.ready(epfd),
        [(7, EPOLLIN), (7, EPOLLIN)],
        "the pipe, and the listener on the stack"
    );
    let _local = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    until_readable(listener);
    assert_eq!(pair.left.ready(epfd).len(), 2, "the listener on the stack and in the kernel is one");
    syscall::close(pipe).unwrap();
    assert_eq!(pair.left.ready(epfd), [(7, EPOLLIN)]);
}

#[test]
fn one_shot_is_not_spent_by_another_with_the_same_data() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let epfd = pair.left.epoll();
    watch_alike(&pair, epfd, listener, EPOLLIN | EPOLLONESHOT);
    let pipe = readable_pipe();
    watch_alike(&pair, epfd, pipe, EPOLLIN);
    assert_eq!(pair.left.ready(epfd), [(7, EPOLLIN)]);
    syscall::close(pipe).unwrap();
    let _local = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    until_readable(listener);
    assert_eq!(pair.left.ready(epfd), [(7, EPOLLIN)], "the listener");
    assert_eq!(pair.left.ready(epfd), [], "once");
}

/// epoll_ctl(2), as a program would call it.
fn control(pair: &Pair, epfd: RawFd, op: i32, fd: RawFd, events: i32) -> Result<(), Errno> {
    let (events, data) = (events as u32, fd as u64);
    match pair.left.epoll_ctl(epfd, op, fd, Some(EpollEvent { events, data })) {
        Verdict::Done(result) => result,
        Verdict::Kernel => {
            let event = syscall::EpollEvent { events, u64: data };
            Ok(syscall::epoll_ctl(epfd, op, fd, Some(event))?)
        }
    }
}

/// The events that the kernel's instance has.
fn at_kernel(epfd: RawFd) -> Vec<i32> {
    let mut events = [syscall::EpollEvent { events: 0, u64: 0 }; 8];
    let count = syscall::epoll_wait(epfd, &mut events, 0).unwrap();
    events[..count].iter().map(|event| { event.events } as i32).collect()
}

/// A connection that was told once, and has become the kernel's, where its peer has left it.
fn told_and_moved(pair: &Pair) -> (RawFd, RawFd) {
    let (_, left, right) = pair.accepted(0);
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, left, EPOLLIN | EPOLLONESHOT).unwrap();
    pair.right.send_all(right, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.left.ready(epfd), [(left, EPOLLIN)]);
    pair.left.pass_on(left);
    assert!(pair.left.lock().socket_of(left).is_none(), "it is the kernel's");
    syscall::close(pair.others.far_ends.lock().unwrap().pop().unwrap()).unwrap();
    (epfd, left)
}

#[test]
fn one_shot_that_was_told_is_silent_at_the_kernel_too_until_it_is_armed_again() {
    let pair = Pair::new();
    let (epfd, left) = told_and_moved(&pair);
    assert_eq!(at_kernel(epfd), [0; 0], "not even EPOLLHUP");
    let events = EPOLLIN | EPOLLONESHOT;
    assert_eq!(control(&pair, epfd, EPOLL_CTL_ADD, left, events), Err(Errno(libc::EEXIST)));
    assert_eq!(control(&pair, epfd, EPOLL_CTL_MOD, left, EPOLLIN | EPOLLEXCLUSIVE), Err(Errno(libc::EINVAL)));
    assert_eq!(at_kernel(epfd), [0; 0], "nothing has changed");
    for _ in 0..2 {
        control(&pair, epfd, EPOLL_CTL_MOD, left, events).unwrap();
        assert_eq!(at_kernel(epfd), [EPOLLIN | libc::EPOLLHUP]);
        assert_eq!(at_kernel(epfd), [0; 0], "once");
    }
    control(&pair, epfd, EPOLL_CTL_DEL, left, 0).unwrap();
    assert_eq!(control(&pair, epfd, EPOLL_CTL_MOD, left, events), Err(Errno(libc::ENOENT)));
}

#[test]
fn one_shot_that_is_silent_at_the_kernel_can_be_taken_away() {
    let pair = Pair::new();
    let (epfd, left) = told_and_moved(&pair);
    control(&pair, epfd, EPOLL_CTL_DEL, left, 0).unwrap();
    for op in [EPOLL_CTL_DEL, EPOLL_CTL_MOD] {
        assert_eq!(control(&pair, epfd, op, left, EPOLLIN), Err(Errno(libc::ENOENT)));
    }
    control(&pair, epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    assert_eq!(at_kernel(epfd), [EPOLLIN | libc::EPOLLHUP]);
}

#[test]
fn another_file_with_the_number_of_a_silent_connection_is_none_of_it() {
    let pair = Pair::new();
    let (epfd, left) = told_and_moved(&pair);
    syscall::dup3(readable_pipe(), left, 0).unwrap();
    for op in [EPOLL_CTL_DEL, EPOLL_CTL_MOD] {
        assert_eq!(control(&pair, epfd, op, left, EPOLLIN), Err(Errno(libc::ENOENT)));
    }
    control(&pair, epfd, EPOLL_CTL_ADD, left, EPOLLIN).unwrap();
    assert_eq!(at_kernel(epfd), [EPOLLIN]);
}

#[test]
fn one_shot_of_a_listener_that_was_told_is_silent_whatever_the_kernel_has_of_it() {
    let pair = Pair::new();
    let (listener, address) = pair.listen();
    let epfd = pair.left.epoll();
    let events = EPOLLIN | EPOLLONESHOT;
    control(&pair, epfd, EPOLL_CTL_ADD, listener, events).unwrap();
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let _ = pair.right.connect_to(right, address);
    pair.settle();
    assert_eq!(pair.left.ready(epfd), [(listener, EPOLLIN)]);
    syscall::shutdown(listener, libc::SHUT_RDWR).unwrap(); // The kernel's alone: EPOLLHUP.
    assert_eq!(pair.left.ready(epfd), []);
    assert_eq!(control(&pair, epfd, EPOLL_CTL_ADD, listener, events), Err(Errno(libc::EEXIST)));
    control(&pair, epfd, EPOLL_CTL_MOD, listener, events).unwrap();
    assert_eq!(at_kernel(epfd).len(), 1, "there it is again");
    control(&pair, epfd, EPOLL_CTL_DEL, listener, 0).unwrap();
    assert_eq!(control(&pair, epfd, EPOLL_CTL_MOD, listener, events), Err(Errno(libc::ENOENT)));
}

/// The descriptors that an instance still tells of, as far as we know.
fn armed(process: &Process, epfd: RawFd) -> Vec<RawFd> {
    let state = process.lock();
    let epoll = state.epoll_of(epfd).and_then(|id| state.epolls.get(id)).unwrap();
    let is_armed = |item: &Item| !item.is_silent();
    epoll.items.iter().filter(|(_, item)| is_armed(item)).map(|(_, item)| item.fd).collect()
}

#[test]
fn of_two_with_the_same_data_the_one_that_was_told_is_silent() {
    let pair = Pair::new();
    let epfd = pair.left.epoll();
    let [first, second] = [pair.listen(), pair.listen()];
    // The kernel tells them in the order in which they become ready, which is not that in which they were added.
    let _peers = [second, first].map(|(listener, address)| {
        if listener == second.0 {
            watch_alike(&pair, epfd, first.0, EPOLLIN | EPOLLONESHOT);
            watch_alike(&pair, epfd, second.0, EPOLLIN | EPOLLONESHOT);
        }
        let peer = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
        until_readable(listener);
        peer
    });
    let next = || {
        let mut count = Ok(0);
        until("one is told", || {
            let now = Some(std::time::Duration::ZERO);
            count = done(pair.left.epoll_wait(epfd, &mut [EpollEvent::default()], now, None));
            count != Ok(0)
        });
        assert_eq!(count, Ok(1));
    };
    next();
    assert_eq!(armed(&pair.left, epfd), [first.0]);
    next();
    assert!(armed(&pair.left, epfd).is_empty());
    assert_eq!(pair.left.ready(epfd), [], "each once");
}

#[test]
fn one_shot_that_another_thread_has_armed_again_meanwhile_is_armed() {
    let pair: &'static Pair = Box::leak(Box::new(Pair::without_queues()));
    {
        let mut state = pair.left.lock();
        (state.attachment, state.attached) = (None, false); // All is the kernel's.
    }
    let listener = pair.left.listen_anywhere(libc::SOCK_NONBLOCK);
    let epfd = pair.left.epoll();
    pair.left.watch(epfd, EPOLL_CTL_ADD, listener, EPOLLIN | EPOLLONESHOT).unwrap();
    let port = crate::address::local_of(listener).unwrap().port();
    let _peer = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    until_readable(listener);
    let wait = || done(pair.left.epoll_wait(epfd, &mut [EpollEvent::default()], Some(PATIENCE), None));
    // The call has the event, and not the lock yet.
    super::streams::when_the_next_sleep_ends(move || {
        pair.left.watch(epfd, EPOLL_CTL_MOD, listener, EPOLLIN | EPOLLONESHOT).unwrap();
    });
    assert_eq!(wait(), Ok(1));
    assert_eq!(armed(&pair.left, epfd), [listener]);
    assert_eq!(pair.left.ready(epfd), [(listener, EPOLLIN)], "it was armed again");
    assert_eq!(pair.left.ready(epfd), []);
}

/// Three threads, each at an instance of its own that watches the same connection: so many of them are told when something arrives,
/// and the others when their time is over.
fn assert_told(expected: RangeInclusive<usize>, events: i32) {
    const LONG: Duration = Duration::from_millis(50);
    let pair = Pair::new();
    pair.hold();
    let (left, right) = pair.connected();
    let epfds = [(); 3].map(|()| pair.left.epoll());
    for epfd in epfds {
        pair.left.watch(epfd, EPOLL_CTL_ADD, left, events).unwrap();
    }
    std::thread::scope(|scope| {
        let pair = &pair;
        let wait = |epfd| {
            scope.spawn(move || {
                done(pair.left.epoll_wait(epfd, &mut [EpollEvent::default()], Some(LONG.into()), None))
            })
        };
        let waiting = epfds.map(wait);
        pair.left.until_asleep(3);
        pair.right.send_all(right, b"x").unwrap();
        pair.settle();
        until("threads are told", || {
            waiting.iter().filter(|thread| thread.is_finished()).count() >= *expected.start()
        });
        std::thread::sleep(LONG.into()); // For one too many.
        pair.pass(LONG);
        let told: usize = waiting.map(|thread| thread.join().unwrap().unwrap()).into_iter().sum();
        assert!(expected.contains(&told), "{told} threads");
    });
}

#[test]
fn of_those_who_wait_exclusively_one_is_told() {
    // And the one that drives the stack, if it is about to look for itself.
    assert_told(1..=2, EPOLLIN | EPOLLEXCLUSIVE);
    assert_told(3..=3, EPOLLIN);
}
