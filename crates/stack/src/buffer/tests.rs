use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

fn octets(range: core::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| (at * 7 % 251) as u8).collect()
}

fn contents(queue: &mut ByteQueue, pool: &BufferPool) -> Vec<u8> {
    let mut out = vec![0; queue.len()];
    assert_eq!(queue.read_at(pool, 0, &mut out), out.len());
    out
}

#[test]
fn an_empty_queue_holds_no_chunk() {
    let mut pool = BufferPool::new(4);
    let mut queue = ByteQueue::new();
    assert_eq!((queue.push(&mut pool, b"hello"), pool.in_use()), (5, 1));
    assert_eq!(queue.front(&pool), b"hello");
    queue.consume(&mut pool, 5);
    assert_eq!((queue.chunks(), pool.in_use(), queue.front(&pool)), (0, 0, &[][..]));
}

#[test]
fn what_is_pushed_is_read_in_order() {
    let mut pool = BufferPool::new(100);
    let mut queue = ByteQueue::new();
    let data = octets(0..50_000);
    for segment in data.chunks(1448) {
        assert_eq!(queue.push(&mut pool, segment), segment.len());
    }
    let mut out = vec![0; 60_000];
    assert_eq!(queue.read(&mut pool, &mut out), data.len());
    assert_eq!(out[..data.len()], data);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_exhausted_pool_takes_what_fits() {
    let mut pool = BufferPool::new(2);
    let mut queue = ByteQueue::new();
    assert_eq!(queue.push(&mut pool, &octets(0..3 * CHUNK_LEN)), 2 * CHUNK_LEN);
    assert_eq!((queue.push(&mut pool, b"x"), pool.available()), (0, 0));
    queue.consume(&mut pool, CHUNK_LEN - 1);
    assert_eq!(queue.push(&mut pool, b"x"), 0); // The first chunk still holds an octet.
    queue.consume(&mut pool, 1);
    assert_eq!(queue.push(&mut pool, b"x"), 1);
    queue.clear(&mut pool);
    assert_eq!(pool.available(), 2);
}

#[test]
fn out_of_order_octets_become_readable_when_the_gap_is_filled() {
    let mut pool = BufferPool::new(8);
    let mut queue = ByteQueue::new();
    let data = octets(0..7000);
    queue.push(&mut pool, &data[..1000]);
    queue.write_at(&mut pool, 5000, &data[5000..]).unwrap();
    assert_eq!((queue.len(), queue.written(), queue.chunks()), (1000, 7000, 3));
    assert_eq!(queue.push(&mut pool, &data[1000..5000]), 4000);
    queue.extend_to(7000);
    assert_eq!(contents(&mut queue, &pool), data);
    queue.clear(&mut pool);
}

#[test]
fn a_gap_holds_no_chunk_until_it_is_written_to() {
    let mut pool = BufferPool::new(40);
    let mut queue = ByteQueue::new();
    let data = octets(0..33 * CHUNK_LEN);
    for at in [32, 16, 24] {
        let offset = at * CHUNK_LEN;
        assert_eq!(queue.chunks_needed(&pool, offset, CHUNK_LEN), if at == 32 { 2 } else { 1 });
        queue.write_at(&mut pool, offset, &data[offset..][..CHUNK_LEN]).unwrap();
    }
    assert_eq!((queue.chunks(), pool.in_use()), (4, 4));
    queue.write_at(&mut pool, 0, &data[..32 * CHUNK_LEN]).unwrap();
    assert_eq!((queue.chunks(), pool.in_use()), (33, 33));
    queue.extend_to(data.len());
    assert_eq!(contents(&mut queue, &pool), data);
    queue.clear(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn reading_up_to_a_gap_takes_no_chunk() {
    let mut pool = BufferPool::new(4);
    let mut queue = ByteQueue::new();
    queue.push(&mut pool, &[1; 2 * CHUNK_LEN]);
    queue.write_at(&mut pool, 5 * CHUNK_LEN, b"x").unwrap();
    queue.consume(&mut pool, 2 * CHUNK_LEN);
    assert_eq!((queue.written(), queue.chunks(), pool.in_use()), (3 * CHUNK_LEN + 1, 2, 2));
    assert_eq!(queue.push(&mut pool, &[2; 3 * CHUNK_LEN]), 3 * CHUNK_LEN);
    queue.extend_to(3 * CHUNK_LEN + 1);
    assert_eq!(contents(&mut queue, &pool), [&[2; 3 * CHUNK_LEN][..], b"x"].concat());
    queue.clear(&mut pool);
}

#[test]
fn all_in_order_octets_can_be_read_while_others_wait() {
    let mut pool = BufferPool::new(8);
    let mut queue = ByteQueue::new();
    queue.push(&mut pool, &[1; 10]);
    queue.write_at(&mut pool, 3000, &[3; 10]).unwrap();
    queue.consume(&mut pool, 10);
    assert_eq!((queue.len(), queue.written()), (0, 3000));
    assert_eq!(queue.push(&mut pool, &[2; 2990]), 2990);
    queue.extend_to(3000);
    let expected = [vec![2; 2990], vec![3; 10]].concat();
    assert_eq!(queue.slices_at(&pool, 0).collect::<Vec<_>>().concat(), expected);
    queue.consume(&mut pool, 3000);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn octets_behind_a_gap_that_do_not_fit_take_nothing() {
    let mut pool = BufferPool::new(2);
    let mut queue = ByteQueue::new();
    assert_eq!(queue.write_at(&mut pool, 2 * CHUNK_LEN - 1, b"xx"), Err(Exhausted));
    assert_eq!(queue.write_at(&mut pool, usize::MAX, b"x"), Err(Exhausted));
    assert_eq!(queue.write_at(&mut pool, 70_000 * CHUNK_LEN, b"x"), Err(Exhausted));
    assert_eq!(pool.in_use(), 0);
    assert_eq!(queue.write_at(&mut pool, 2 * CHUNK_LEN, b"x"), Ok(()));
    assert_eq!(queue.write_at(&mut pool, CHUNK_LEN, b"x"), Err(Exhausted));
    queue.discard_out_of_order(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_was_discarded_is_not_written_to_again() {
    let mut pool = BufferPool::new(8);
    let (mut queue, mut other) = (ByteQueue::new(), ByteQueue::new());
    queue.push(&mut pool, &[1; CHUNK_LEN]);
    queue.write_at(&mut pool, CHUNK_LEN + 9, &[1; 10]).unwrap();
    queue.discard_out_of_order(&mut pool);
    other.push(&mut pool, &[2; 100]); // Takes the chunk that was touched last.
    queue.push(&mut pool, &[3; 100]);
    assert_eq!(contents(&mut other, &pool), [2; 100]);
    assert_eq!(contents(&mut queue, &pool)[CHUNK_LEN..], [3; 100]);
    [queue, other].iter_mut().for_each(|queue| queue.clear(&mut pool));
}

#[test]
fn what_is_readable_stays_readable() {
    let mut pool = BufferPool::new(1);
    let mut queue = ByteQueue::new();
    queue.push(&mut pool, b"abc");
    queue.extend_to(1);
    assert_eq!(contents(&mut queue, &pool), b"abc");
    queue.clear(&mut pool);
}

#[test]
fn offsets_behind_the_end_read_nothing() {
    let mut pool = BufferPool::new(2);
    let mut queue = ByteQueue::new();
    queue.push(&mut pool, b"abc");
    let mut out = [0; 4];
    assert_eq!(queue.read_at(&pool, usize::MAX, &mut out), 0);
    assert_eq!(queue.read_at(&pool, 2, &mut out), 1);
    assert_eq!(queue.slices_at(&pool, usize::MAX).count(), 0);
    queue.consume(&mut pool, usize::MAX);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn memory_is_taken_when_first_needed_and_used_again() {
    let mut pool = BufferPool::new(1500);
    assert_eq!(pool.memory(), 0);
    let mut queue = ByteQueue::new();
    queue.push(&mut pool, b"x");
    assert_eq!(pool.memory(), 1024 * CHUNK_LEN);
    queue.push(&mut pool, &octets(0..1400 * CHUNK_LEN));
    assert_eq!(pool.memory(), 1500 * CHUNK_LEN);
    queue.clear(&mut pool);
    assert_eq!(queue.push(&mut pool, &octets(0..1500 * CHUNK_LEN)), 1500 * CHUNK_LEN);
    assert_eq!(contents(&mut queue, &pool), octets(0..1500 * CHUNK_LEN));
    queue.clear(&mut pool);
    assert_eq!((pool.memory(), pool.in_use()), (1500 * CHUNK_LEN, 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "cleared before it is dropped")]
fn dropping_a_queue_that_holds_chunks_is_a_bug() {
    let mut queue = ByteQueue::new();
    queue.push(&mut BufferPool::new(1), b"x");
}

/// What may be done to one of two queues that share a pool.
#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Consume(usize),
    ReadAt(usize, usize),
    WriteBehind(usize, usize),
    Extend,
    Discard,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![0usize..10, 0usize..5000, Just(CHUNK_LEN)];
    prop_oneof![
        5 => len().prop_map(Step::Push),
        4 => len().prop_map(Step::Consume),
        4 => (0usize..20_000, len()).prop_map(|(offset, len)| Step::ReadAt(offset, len)),
        3 => (0usize..20_000, len()).prop_map(|(offset, len)| Step::WriteBehind(offset, len)),
        2 => Just(Step::Extend),
        1 => Just(Step::Discard),
        1 => Just(Step::Clear),
    ]
}

/// A queue and what it should hold: the octets by offset (`None` in a gap), of which `len` are readable.
#[derive(Default)]
struct Modelled {
    queue: ByteQueue,
    octets: Vec<Option<u8>>,
    len: usize,
}

impl Modelled {
    fn write(&mut self, offset: usize, data: &[u8]) {
        self.octets.resize(self.octets.len().max(offset + data.len()), None);
        self.octets[offset..][..data.len()].iter_mut().zip(data).for_each(|(to, from)| *to = Some(*from));
    }

    fn apply(&mut self, pool: &mut BufferPool, step: &Step, data: &[u8]) {
        match *step {
            Step::Push(len) => {
                let room = self.queue.room(pool);
                let pushed = self.queue.push(pool, &data[..len]);
                assert_eq!(pushed, len.min(room));
                self.write(self.len, &data[..pushed]);
                self.len += pushed;
            }
            Step::Consume(count) => {
                self.queue.consume(pool, count);
                let count = count.min(self.len);
                self.octets.drain(..count);
                self.len -= count;
            }
            Step::ReadAt(offset, len) => {
                let mut out = vec![0; len];
                let count = self.queue.read_at(pool, offset, &mut out);
                assert_eq!(count, self.len.saturating_sub(offset).min(len));
                let expected = self.octets.get(offset..).unwrap_or_default();
                assert!(out[..count].iter().zip(expected).all(|(read, octet)| Some(*read) == *octet));
            }
            Step::WriteBehind(gap, len) => {
                let offset = self.len + gap;
                if self.queue.write_at(pool, offset, &data[..len]).is_ok() && len > 0 {
                    self.write(offset, &data[..len]);
                }
            }
            Step::Extend => {
                self.len += self.octets[self.len..].iter().take_while(|octet| octet.is_some()).count();
                self.queue.extend_to(self.len);
            }
            Step::Discard => {
                self.queue.discard_out_of_order(pool);
                self.octets.truncate(self.len);
            }
            Step::Clear => {
                self.queue.clear(pool);
                self.octets.clear();
                self.len = 0;
            }
        }
    }

    fn check(&mut self, pool: &BufferPool) {
        assert_eq!((self.queue.len(), self.queue.written()), (self.len, self.octets.len()));
        assert_eq!(self.queue.chunks() == 0, self.octets.is_empty());
        let runs = self.octets.split(Option::is_none).filter(|run| !run.is_empty());
        let most = 1 + runs.map(|run| run.len().div_ceil(CHUNK_LEN) + 1).sum::<usize>();
        assert!(self.queue.chunks() as usize <= most, "chunks of gaps are held");
        let pieces = self.queue.slices_at(pool, 0).collect::<Vec<_>>();
        assert_eq!(pieces.first().copied().unwrap_or_default(), self.queue.front(pool));
        assert!(pieces.concat().into_iter().map(Some).eq(self.octets[..self.len].iter().copied()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn two_queues_on_one_pool_hold_what_a_model_holds(steps in vec((any::<bool>(), any::<u8>(), step()), 1..80)) {
        let mut pool = BufferPool::new(12);
        let mut both = [Modelled::default(), Modelled::default()];
        for (which, salt, step) in &steps {
            let data = octets(usize::from(*salt)..usize::from(*salt) + 5000);
            both[usize::from(*which)].apply(&mut pool, step, &data);
            both.iter_mut().for_each(|one| one.check(&pool));
            prop_assert_eq!(pool.in_use(), both[0].queue.chunks() + both[1].queue.chunks());
        }
        both.iter_mut().for_each(|one| one.queue.clear(&mut pool));
        prop_assert_eq!(pool.in_use(), 0);
    }
}
