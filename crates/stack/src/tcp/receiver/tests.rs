use super::*;
use crate::buffer::CHUNK_LEN;

const IRS: SeqNum = SeqNum(u32::MAX - 1000); // The sequence space wraps soon.
const FIRST: SeqNum = SeqNum(u32::MAX - 999);
const SEGMENT: usize = 1448;

/// A receiver behind a handshake, with `limit` octets of buffer that are all offered.
fn receiver(limit: u32, scale: u8) -> Receiver {
    let mut receiver =
        Receiver::new(&TcpOptions { receive_buffer: Some(limit), ..TcpOptions::default() }, Instant::ZERO);
    receiver.on_syn(IRS, 0);
    receiver.scale = scale;
    acknowledge(&mut receiver);
    receiver
}

/// Sends an acknowledgement; the right edge of the window that the peer reads in it.
fn acknowledge(receiver: &mut Receiver) -> SeqNum {
    let window = receiver.window(true) >> receiver.scale << receiver.scale;
    receiver.on_ack_sent(window, false);
    receiver.rcv_nxt + window
}

fn release(mut receiver: Receiver, pool: &mut BufferPool) {
    receiver.queue.clear(pool);
}

fn data_at(receiver: &mut Receiver, offset: u32, len: usize, pool: &mut BufferPool) -> Received {
    receiver.accept(FIRST + offset, &vec![7; len], false, pool)
}

#[test]
fn one_octet_far_ahead_takes_no_memory_for_the_gap() {
    let mut pool = BufferPool::new(1000);
    let mut receiver = receiver(65_535, 0);
    assert!(data_at(&mut receiver, 65_000, 1, &mut pool).out_of_order);
    assert_eq!(pool.in_use(), 2, "one that the front is in, and one for the octet");
    release(receiver, &mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_range_too_many_takes_no_memory() {
    let mut pool = BufferPool::new(1000);
    let mut receiver = receiver(1 << 20, 5);
    for range in 0..Assembler::RANGES_MAX as u32 {
        assert!(!data_at(&mut receiver, 2 * range + 1, 1, &mut pool).exhausted);
    }
    let before = (pool.in_use(), receiver.queue.written());
    assert!(data_at(&mut receiver, 1 << 19, 1, &mut pool).exhausted);
    assert_eq!((pool.in_use(), receiver.queue.written()), before);
    release(receiver, &mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn the_last_eighth_of_the_memory_is_not_for_data_out_of_order() {
    let mut pool = BufferPool::new(64);
    let mut peers = [(); 40].map(|()| receiver(65_535, 0));
    for peer in &mut peers {
        for chunk in 1..30 {
            data_at(peer, chunk * CHUNK_LEN as u32, 1, &mut pool);
        }
    }
    assert!(pool.available() >= 64 / 8 - 1, "{} chunks are left", pool.available());
    let received = data_at(&mut peers[0], 0, SEGMENT, &mut pool);
    assert_eq!((received.in_order, received.exhausted), (SEGMENT as u32, false));
    peers.into_iter().for_each(|peer| release(peer, &mut pool));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_is_dropped_for_want_of_memory_is_no_longer_acknowledged_selectively_rfc_2018_section_8() {
    let mut pool = BufferPool::new(64);
    let (mut receiver, mut other) = (receiver(65_535, 0), ByteQueue::new());
    data_at(&mut receiver, 10_000, SEGMENT, &mut pool);
    data_at(&mut receiver, 10_000, 10, &mut pool);
    assert_eq!(receiver.sack_blocks().len(), 2, "the duplicate, and what it is a part of");
    other.push(&mut pool, &[0; 56 * CHUNK_LEN]);
    let received = data_at(&mut receiver, 20_000, SEGMENT, &mut pool);
    assert!(received.exhausted && received.pruned && received.out_of_order);
    assert_eq!((receiver.sack_blocks().len(), receiver.queue.chunks()), (0, 0));
    assert!(receiver.is_ack_due());
    other.clear(&mut pool);
    for offset in (0..20_000).step_by(1000) {
        assert_eq!(data_at(&mut receiver, offset, 1000, &mut pool).in_order, 1000, "the peer sends it again");
    }
    release(receiver, &mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn data_in_order_takes_the_place_of_data_out_of_order_when_memory_is_exhausted() {
    let mut pool = BufferPool::new(16);
    let (mut receiver, mut other) = (receiver(65_535, 0), ByteQueue::new());
    for chunk in 1..6 {
        data_at(&mut receiver, 2 * chunk * CHUNK_LEN as u32, 1, &mut pool);
    }
    let rest = pool.available() as usize;
    other.push(&mut pool, &vec![0; rest * CHUNK_LEN]);
    let received = data_at(&mut receiver, 0, 3 * CHUNK_LEN, &mut pool);
    assert_eq!((received.in_order, received.pruned), (3 * CHUNK_LEN as u32, true));
    assert!(!received.exhausted && receiver.assembler.is_empty());
    other.clear(&mut pool);
    release(receiver, &mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_buffer_that_nobody_reads_is_bounded_whatever_segments_the_peer_cuts() {
    let (limit, scale) = (1 << 16, 7);
    let unit = 1 << scale;
    for len in [1, 64, 127, 129, 1000, 1448] {
        let mut pool = BufferPool::new(1000);
        let mut receiver = receiver(limit, scale);
        let mut told = FIRST + limit;
        while receiver.queue.len() < 4 * limit as usize {
            let sent = told.since(receiver.rcv_nxt).min(len);
            if sent == 0 {
                break;
            }
            let next = receiver.rcv_nxt;
            let received = receiver.accept(next, &vec![7; sent as usize], false, &mut pool);
            assert_eq!(
                (received.in_order, received.outside_window),
                (sent, false),
                "what was offered is taken"
            );
            receiver.note_duplicate(next, 1); // An old octet, so that an acknowledgement goes out at once.
            let edge = acknowledge(&mut receiver);
            let back = if edge.is_before(told) { told.since(edge) } else { 0 };
            assert!(back < unit, "the edge goes back by less than a unit (RFC 7323, 2.4)");
            assert!(back == 0 || len < 536, "and not at all for a peer that sends full segments");
            told = told.max(edge);
        }
        let held = receiver.queue.len();
        assert!(held <= 2 * limit as usize, "{held} octets in segments of {len}");
        assert_eq!(receiver.window(true), 0, "the window is closed");
        receiver.queue.consume(&mut pool, held);
        assert_eq!(receiver.window(true), limit, "reading opens it");
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn a_window_that_is_read_from_is_rounded_up_and_takes_nothing_back() {
    let mut pool = BufferPool::new(1000);
    let mut receiver = receiver(1 << 16, 7);
    let mut told = FIRST + (1 << 16);
    for segment in 0..1000 {
        assert_eq!(data_at(&mut receiver, segment * 100, 100, &mut pool).in_order, 100);
        receiver.queue.consume(&mut pool, 100);
        let edge = acknowledge(&mut receiver);
        assert!(edge.is_at_or_after(told));
        told = edge;
    }
    assert_eq!(pool.in_use(), 0);
}
