//! Connections that the kernel serves better become the kernel's.

use std::sync::atomic::Ordering;

use super::*;
use crate::address::encode;
use crate::wait::On;

/// Sends `calls` times so many octets, and reads them at the other end. The octets that were sent before a call was left to the kernel.
fn send(pair: &Pair, (left, right): (RawFd, RawFd), calls: usize, octets: usize) -> usize {
    let (data, mut room, mut sent) = (vec![7; octets], [0; 2 << 10], 0);
    for _ in 0..calls {
        let buffers = [IoSlice::new(&data)];
        let request = Send { buffers: &buffers, name: None, control: None, flags: libc::MSG_DONTWAIT };
        match pair.left.send(left, &request) {
            Verdict::Kernel => break,
            Verdict::Done(result) => sent += result.unwrap_or(0),
        }
        pair.settle();
        while pair.right.recv(right, &mut room, libc::MSG_DONTWAIT).is_ok_and(|count| count > 0) {}
        pair.settle();
    }
    sent
}

#[test]
fn a_connection_that_sends_in_bulk_moves_to_the_kernel() {
    let pair = Pair::new();
    let ends = pair.connected();
    let sent = send(&pair, ends, 1000, 64 << 10);
    assert!(!pair.left.table.is_ours(ends.0), "after {sent} octets");
    assert!((1 << 20..2 << 20).contains(&sent), "after {sent} octets");
    assert_eq!(pair.left.lock().left_to_kernel.bulk, 1);
}

#[test]
fn a_connection_that_sends_much_by_small_calls_stays() {
    let pair = Pair::new();
    let ends = pair.connected();
    assert!(send(&pair, ends, 2000, 4 << 10) > 4 << 20);
    assert!(pair.left.table.is_ours(ends.0));
}

#[test]
fn a_profile_can_keep_it_on_the_stack() {
    let pair = Pair::new();
    pair.others.keeps_unsuited.store(true, Ordering::Relaxed);
    let ends = pair.connected();
    assert!(send(&pair, ends, 200, 64 << 10) > 4 << 20);
    assert!(pair.left.table.is_ours(ends.0));
}

#[test]
fn one_that_the_kernel_does_not_take_goes_on_as_before() {
    let pair = Pair::new();
    pair.others.take_none.store(true, Ordering::Relaxed);
    let (left, right) = pair.connected();
    assert!(send(&pair, (left, right), 200, 64 << 10) > 4 << 20);
    assert!(pair.left.table.is_ours(left));
    pair.right.send_all(right, b"still here").unwrap();
    pair.settle();
    let mut room = [0; 16];
    assert_eq!(pair.left.recv(left, &mut room, libc::MSG_DONTWAIT), Ok(10));
    let left_to_kernel = pair.left.lock().left_to_kernel;
    assert_eq!((left_to_kernel.bulk, left_to_kernel.moved), (0, 0));
}

#[test]
fn one_that_the_kernel_did_not_take_is_not_offered_again() {
    let pair = Pair::new();
    pair.others.take_none.store(true, Ordering::Relaxed);
    let ends = pair.connected();
    send(&pair, ends, 50, 64 << 10);
    pair.others.take_none.store(false, Ordering::Relaxed);
    send(&pair, ends, 100, 64 << 10);
    assert!(pair.left.table.is_ours(ends.0));
}

#[test]
fn one_that_the_broker_did_not_take_in_time_is_offered_again() {
    let pair = Pair::new();
    pair.others.stands_still.store(true, Ordering::Relaxed);
    let ends = pair.connected();
    send(&pair, ends, 50, 64 << 10);
    assert!(pair.left.table.is_ours(ends.0));
    pair.others.stands_still.store(false, Ordering::Relaxed);
    send(&pair, ends, 100, 64 << 10);
    assert!(!pair.left.table.is_ours(ends.0));
}

#[test]
fn one_that_another_thread_waits_on_stays_for_now() {
    let pair = Pair::new();
    let ends = pair.connected();
    let id = pair.left.lock().socket_of(ends.0).unwrap();
    let waits_on = On::Socket(id, None);
    let waiter = pair.left.lock().begin_call(waits_on);
    assert!(send(&pair, ends, 100, 64 << 10) > 2 << 20);
    assert!(pair.left.table.is_ours(ends.0));
    pair.left.lock().end_call(waits_on, waiter.as_ref(), pair.left.now());
    send(&pair, ends, 100, 64 << 10);
    assert!(!pair.left.table.is_ours(ends.0));
}

#[test]
fn a_connection_that_receives_in_bulk_moves_to_the_kernel() {
    let pair = Pair::new();
    let (left, right) = pair.connected();
    let (data, mut room, mut received) = (vec![7; 6 << 10], vec![0; 64 << 10], 0);
    while received < 8 << 20 && pair.right.table.is_ours(right) {
        for _ in 0..2 {
            pair.left.send_all(left, &data).unwrap(); // Small calls at this end.
        }
        pair.settle();
        let mut buffers = [IoSliceMut::new(&mut room)];
        let mut request =
            Receive { buffers: &mut buffers, name: None, control: None, flags: libc::MSG_DONTWAIT };
        match pair.right.receive(right, &mut request) {
            Verdict::Kernel => break,
            Verdict::Done(result) => received += result.unwrap().len,
        }
    }
    assert!((1 << 20..2 << 20).contains(&received), "after {received} octets");
    assert!(!pair.right.table.is_ours(right));
    assert_eq!(pair.right.lock().left_to_kernel.bulk, 1);
}

/// Connects and accepts, has a thread sleep at the left and at the right until another one wakes it, so often, and closes both. Whether it was on the stack there
/// and there.
fn exchange_asleep(pair: &Pair, (listener, address): (RawFd, SocketAddr), wakes: (u32, u32)) -> (bool, bool) {
    let right = pair.right.tcp_socket(libc::SOCK_NONBLOCK);
    let (name, len) = encode(address, libc::AF_INET);
    let _ = pair.right.connect(right, &name[..len]);
    pair.settle();
    let left = pair.left.accept4(listener, libc::SOCK_NONBLOCK).ok();
    let sleep = |process: &Process, fd: RawFd, wakes: u32| {
        let mut state = process.lock();
        let id = state.socket_of(fd);
        let socket =
            id.and_then(|id| state.sockets.get_mut(id)).filter(|socket| socket.connection().is_some());
        socket.map(|socket| (0..wakes).for_each(|_| socket.note_sleep(true))).is_some()
    };
    let were_on_stack =
        (left.is_some_and(|left| sleep(&pair.left, left, wakes.0)), sleep(&pair.right, right, wakes.1));
    left.into_iter().for_each(|left| pair.left.shut_down(left));
    pair.right.shut_down(right);
    pair.settle();
    pair.pass(Duration::from_secs(1)); // A port may come again: the next SYN is to look newer than this one.
    were_on_stack
}

#[test]
fn a_listener_goes_to_the_kernel_when_threads_sleep_for_its_short_connections() {
    let pair = Pair::new();
    let listener = pair.listen();
    for connection in 0..64 {
        assert_eq!(exchange_asleep(&pair, listener, (4, 0)), (true, true), "connection {connection}");
    }
    assert!(!exchange_asleep(&pair, listener, (4, 0)).0);
    assert_eq!(pair.others.left_sockets.load(Ordering::Relaxed), 1);
}

#[test]
fn the_kernel_makes_connections_when_threads_sleep_for_those_that_were_made() {
    let pair = Pair::new();
    let listener = pair.listen();
    for connection in 0..64 {
        assert_eq!(exchange_asleep(&pair, listener, (0, 4)), (true, true), "connection {connection}");
    }
    assert_eq!(exchange_asleep(&pair, listener, (0, 4)), (false, false));
    assert_eq!(pair.right.lock().left_to_kernel.made(), 1);
}

#[test]
fn it_stays_if_few_sleeps_are_ended_by_others_or_the_profile_keeps_it() {
    let pair = Pair::new();
    let listener = pair.listen();
    (0..100).for_each(|_| assert_eq!(exchange_asleep(&pair, listener, (2, 2)), (true, true)));
    pair.others.keeps_unsuited.store(true, Ordering::Relaxed);
    (0..100).for_each(|_| assert_eq!(exchange_asleep(&pair, listener, (4, 0)), (true, true)));
}
