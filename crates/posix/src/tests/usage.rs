//! Connections that the kernel serves better become the kernel's.

use std::sync::atomic::Ordering;

use super::*;
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
