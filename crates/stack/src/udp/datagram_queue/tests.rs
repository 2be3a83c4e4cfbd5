use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

const CHUNKS: u32 = 64;

struct Fixture {
    store: DatagramStore,
    pool: BufferPool,
    queue: DatagramQueue,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            store: DatagramStore::new(CHUNKS),
            pool: BufferPool::new(CHUNKS),
            queue: DatagramQueue::default(),
        }
    }

    fn push(&mut self, payload: &[u8], budget: u32) -> Result<(), Refused> {
        let mut memory = Memory { store: &mut self.store, pool: &mut self.pool };
        self.queue.push(datagram(payload.len()), payload, budget, &mut memory)
    }

    fn coalesce(&mut self, payload: &[u8]) -> bool {
        let mut memory = Memory { store: &mut self.store, pool: &mut self.pool };
        self.queue.coalesce(&datagram(payload.len()), payload, u32::MAX, &mut memory)
    }

    fn pop(&mut self) -> Option<(Datagram, Vec<u8>)> {
        let len = self.queue.front(&self.store)?.len as usize;
        let mut octets = vec![0; len + 1];
        assert_eq!(self.queue.copy_front(0, &mut octets, &self.store, &self.pool), len);
        octets.truncate(len);
        let mut memory = Memory { store: &mut self.store, pool: &mut self.pool };
        self.queue.pop(&mut memory).map(|datagram| (datagram, octets))
    }

    fn front_octets(&self) -> &[u8] {
        self.queue.front_octets(&self.store, &self.pool)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.queue.clear(&mut Memory { store: &mut self.store, pool: &mut self.pool });
    }
}

fn datagram(len: usize) -> Datagram {
    Datagram {
        key: FlowKey::v4(([192, 0, 2, 1].into(), 53), ([192, 0, 2, 2].into(), 9)),
        hop: Hop::default(),
        at: Instant::ZERO,
        len: len as u32,
        segment_len: 0,
        traffic_class: 0,
        hop_limit: 64,
    }
}

#[test]
fn a_payload_that_fits_a_chunk_lies_in_one_piece() {
    let mut fixture = Fixture::new();
    let payloads = [1500, 1500, 300, 1, 2048, 2047, 5].map(|len| vec![len as u8; len]);
    for payload in &payloads {
        fixture.push(payload, u32::MAX).unwrap();
    }
    for payload in &payloads {
        assert_eq!(fixture.front_octets(), payload);
        assert_eq!(fixture.pop().unwrap().1, *payload);
    }
    assert_eq!((fixture.pool.in_use(), fixture.store.chunks, fixture.queue.charge), (0, 0, 0));
}

#[test]
fn a_longer_payload_is_whole_though_in_pieces() {
    let mut fixture = Fixture::new();
    fixture.push(&[1; 100], u32::MAX).unwrap();
    let payload: Vec<u8> = (0..9000).map(|at| at as u8).collect();
    fixture.push(&payload, u32::MAX).unwrap();
    fixture.pop();
    assert_eq!(fixture.front_octets(), &payload[..CHUNK_LEN - 100]);
    assert_eq!(fixture.pop().unwrap().1, payload);
}

#[test]
fn the_budget_holds_but_for_a_single_datagram() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.push(&[0; 1000], 10), Ok(()));
    assert_eq!(fixture.push(&[], 10), Err(Refused::Budget));
    let budget = 2 * (OVERHEAD + 1000);
    assert_eq!(fixture.push(&[0; 1001], budget), Err(Refused::Budget));
    assert_eq!(fixture.push(&[0; 1000], budget), Ok(()));
}

#[test]
fn empty_datagrams_cost_their_records() {
    let mut fixture = Fixture::new();
    let pushed = (0..1000).take_while(|_| fixture.push(&[], 20 * OVERHEAD).is_ok()).count();
    assert_eq!(pushed, 20);
    let pushed = (0..1000).take_while(|_| fixture.push(&[], u32::MAX).is_ok()).count();
    assert_eq!(pushed, CHUNKS as usize - 20);
    assert_eq!(fixture.push(&[], u32::MAX), Err(Refused::Memory));
}

#[test]
fn datagrams_have_half_of_the_pool() {
    let mut fixture = Fixture::new();
    let pushed = (0..1000).take_while(|_| fixture.push(&[0; 2048], u32::MAX).is_ok()).count();
    assert_eq!((pushed, fixture.pool.in_use()), (CHUNKS as usize / 2, CHUNKS / 2));
}

#[test]
fn the_last_eighth_of_the_pool_is_not_for_datagrams() {
    let mut fixture = Fixture::new();
    let mut other = ByteQueue::new();
    other.push(&mut fixture.pool, &vec![0; CHUNK_LEN * (CHUNKS as usize * 7 / 8 - 1)]);
    assert_eq!(fixture.push(&[0; 2048], u32::MAX), Ok(()));
    assert_eq!(fixture.push(&[0; 2048], u32::MAX), Err(Refused::Memory));
    other.clear(&mut fixture.pool);
}

#[test]
fn datagrams_of_one_length_are_told_together_until_a_shorter_one() {
    let mut fixture = Fixture::new();
    fixture.push(&[1; 100], u32::MAX).unwrap();
    assert!(fixture.coalesce(&[2; 100]));
    assert!(!fixture.coalesce(&[3; 101]), "a longer one begins anew");
    assert!(!fixture.coalesce(&[]), "an empty one would be lost");
    assert!(fixture.coalesce(&[4; 99]));
    assert!(!fixture.coalesce(&[5; 99]), "the shorter one was the last");
    let (datagram, octets) = fixture.pop().unwrap();
    assert_eq!((datagram.len, datagram.segment_len), (299, 100));
    assert_eq!(octets, [[1; 100].as_slice(), &[2; 100], &[4; 99]].concat());
}

#[test]
fn what_is_told_together_has_a_bound() {
    let mut fixture = Fixture::new();
    fixture.push(&[0; 10], u32::MAX).unwrap();
    assert_eq!((0..1000).filter(|_| fixture.coalesce(&[0; 10])).count(), SEGMENTS_MAX - 1);
    while fixture.pop().is_some() {}
    fixture.push(&[0; 1400], u32::MAX).unwrap();
    assert_eq!((0..1000).filter(|_| fixture.coalesce(&[0; 1400])).count(), 65535 / 1400 - 1);
}

#[test]
fn other_flows_and_headers_are_not_told_together() {
    let mut fixture = Fixture::new();
    fixture.push(&[0; 10], u32::MAX).unwrap();
    let other = FlowKey::v4(([192, 0, 2, 1].into(), 53), ([192, 0, 2, 2].into(), 10));
    for different in [
        Datagram { key: other, ..datagram(10) },
        Datagram { traffic_class: 3, ..datagram(10) },
        Datagram { hop_limit: 63, ..datagram(10) },
    ] {
        let mut memory = Memory { store: &mut fixture.store, pool: &mut fixture.pool };
        assert!(!fixture.queue.coalesce(&different, &[0; 10], u32::MAX, &mut memory));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn datagrams_come_out_as_they_went_in_and_memory_stays_in_bounds(
        steps in vec((0u8..3, prop_oneof![0usize..4, 0usize..3000, 2040usize..2060, 0usize..20_000]), 1..200),
        budget in 0u32..60_000,
    ) {
        let mut fixture = Fixture::new();
        let mut model = VecDeque::new();
        for (number, (step, len)) in steps.into_iter().enumerate() {
            let payload = vec![number as u8; len];
            if step == 0 {
                prop_assert_eq!(fixture.pop().map(|(_, octets)| octets), model.pop_front());
            } else if fixture.push(&payload, budget).is_ok() {
                model.push_back(payload);
            }
            prop_assert!(fixture.queue.charge() <= budget || model.len() == 1);
            prop_assert!(fixture.store.chunks <= CHUNKS / 2);
            prop_assert_eq!(fixture.store.chunks, fixture.pool.in_use());
            prop_assert_eq!(fixture.store.records.len() as usize, model.len());
            prop_assert!(model.front().is_none_or(|front| front.len() > CHUNK_LEN || fixture.front_octets() == front));
        }
    }
}
