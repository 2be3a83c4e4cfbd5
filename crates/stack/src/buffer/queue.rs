//! Chains of chunks.

use super::pool::{BufferPool, CHUNK_LEN, NONE};

/// Chunks that every writer may have, however little there is: a request or a short answer.
const MODEST: u32 = 2;

/// The pool has too few free chunks; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A first-in-first-out queue of octets, with room for octets that arrive out of order behind them.
///
/// Offsets count from the front: the first octet that was not consumed has offset 0, octets below [`ByteQueue::len`] are
/// readable, and those behind were written by [`ByteQueue::write_at`] or lie in a gap. A gap holds whatever its chunk held
/// before, so the caller declares octets readable only when all of them were written.
///
/// All functions take any offset and length: what does not exist is not read, skipped or consumed. One queue holds at most
/// [`ByteQueue::LEN_MAX`] octets, and its gaps leave out at most 128 MiB.
///
/// A chunk is taken when an octet of it is written. Those that lie wholly in a gap are left out, but for the first of the
/// queue: one octet far ahead costs two chunks, not all up to there.
///
/// The queue remembers the chunk that was touched last, so going through it in order costs nothing but the copying. Going
/// back walks from the front: 4 octets looked at per chunk.
///
/// [`ByteQueue::clear`] it before it is dropped: a queue cannot reach its pool by itself, and what it holds is lost to the
/// pool. Debug builds panic.
#[derive(Debug)]
pub struct ByteQueue {
    head: u32,
    tail: u32,
    /// Where the front is in the first chunk; below [`CHUNK_LEN`].
    start: u16,
    /// Chunks left out because they lie in a gap; zero while nothing is out of order, so that the usual case need not look
    /// for gaps.
    left_out: u16,
    /// Readable octets.
    len: u32,
    /// Octets from the front to the end of the last that was written; at least `len`. The chain has exactly the chunks
    /// needed for them, less those that are left out.
    written: u32,
    /// The chunk touched last, and how many chunks are in front of it.
    cursor: u32,
    cursor_index: u32,
}

const _: () = assert!(size_of::<ByteQueue>() <= 28);

impl ByteQueue {
    /// The most octets that a queue holds, in order or not.
    pub const LEN_MAX: usize = 1 << 31;

    /// An empty queue, which holds no chunk.
    pub const fn new() -> ByteQueue {
        ByteQueue {
            head: NONE,
            tail: NONE,
            start: 0,
            left_out: 0,
            len: 0,
            written: 0,
            cursor: NONE,
            cursor_index: 0,
        }
    }

    /// Readable octets.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no octet is readable. Octets out of order may be there nevertheless.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Octets from the front to the end of the last that was written, gaps included; at least [`ByteQueue::len`].
    #[inline]
    pub const fn written(&self) -> usize {
        self.written as usize
    }

    /// Chunks held.
    #[inline]
    pub const fn chunks(&self) -> u32 {
        self.span() - self.left_out as u32
    }

    /// Chunks from the first to the last, with those that are left out.
    #[inline]
    const fn span(&self) -> u32 {
        chunks_for(self.start, self.written)
    }

    /// Octets that [`ByteQueue::push`] takes before it needs another chunk.
    #[inline]
    pub const fn tail_room(&self) -> usize {
        self.span() as usize * CHUNK_LEN - self.start as usize - self.written as usize
    }

    /// Appends the octets of `data` that fit behind the readable ones, and returns how many that are. All fit, unless the
    /// pool is exhausted.
    ///
    /// Octets out of order at the same place are overwritten; those further back stay.
    #[inline]
    pub fn push(&mut self, pool: &mut BufferPool, data: &[u8]) -> usize {
        let data = &data[..data.len().min(self.room(pool))];
        let pushed = self.write_at(pool, self.len(), data);
        debug_assert_eq!(pushed, Ok(()));
        self.len += data.len() as u32;
        data.len()
    }

    /// Octets that [`ByteQueue::push`] would take now.
    #[inline]
    pub fn room(&self, pool: &BufferPool) -> usize {
        let chunks = self.chunks_in_front_of_gap(pool) as usize + pool.available() as usize;
        (chunks * CHUNK_LEN - self.start as usize).min(Self::LEN_MAX) - self.len()
    }

    /// Octets that a writer may push now: what the pool has above its reserve, and of that two chunks to have something in
    /// flight. Readers who do not read could hold all of it else, with what is written for them.
    #[inline]
    pub fn room_for_writer(&self, pool: &BufferPool) -> usize {
        let chunks = pool.available_above_reserve().max(MODEST.saturating_sub(self.span()));
        self.tail_room().saturating_add(chunks as usize * CHUNK_LEN)
    }

    /// Whether it has fewer chunks than every writer may have.
    #[inline]
    pub fn is_modest(&self) -> bool {
        self.span() < MODEST
    }

    /// Writes `data` at `offset`, which may be behind the readable octets and leave a gap. All chunks that it needs are taken
    /// from the pool, or none.
    #[inline]
    pub fn write_at(&mut self, pool: &mut BufferPool, offset: usize, data: &[u8]) -> Result<(), Exhausted> {
        if data.is_empty() {
            return Ok(());
        }
        self.allocate(pool, offset, offset.saturating_add(data.len()))?;
        let position = self.start as usize + offset;
        let mut written = 0;
        while written < data.len() {
            written += self.write_piece(pool, position + written, &data[written..]);
        }
        Ok(())
    }

    /// Chunks that [`ByteQueue::write_at`] would take from the pool for `len` octets at `offset`.
    pub fn chunks_needed(&self, pool: &BufferPool, offset: usize, len: usize) -> u32 {
        let end = offset.saturating_add(len).min(Self::LEN_MAX);
        if end <= offset {
            return 0;
        }
        let (first, last) = self.chunks_of(offset, end);
        let wanted = last - first + 1;
        if self.head == NONE {
            return wanted + u32::from(first > 0);
        }
        let (mut chunk, mut index) = self.at_or_before(pool, first);
        let mut held = u32::from(index == first);
        while chunk != self.tail {
            index += 1 + pool.gap(chunk);
            chunk = pool.next(chunk);
            if index > last {
                break;
            }
            held += 1;
        }
        wanted - held
    }

    /// Writes what fits into the chunk of `position`, counted from the begin of the first; returns how many octets that are.
    fn write_piece(&mut self, pool: &mut BufferPool, position: usize, data: &[u8]) -> usize {
        let chunk = self.chunk_at(pool, (position / CHUNK_LEN) as u32);
        let room = &mut pool.octets_mut(chunk)[position % CHUNK_LEN..];
        let count = data.len().min(room.len());
        room[..count].copy_from_slice(&data[..count]);
        count
    }

    /// Declares octets up to offset `len` readable, now that those before it have all been written. No further than what
    /// was written, and never back.
    #[inline]
    pub fn extend_to(&mut self, len: usize) {
        debug_assert!(len <= self.written());
        self.len = self.len.max(len.min(self.written()) as u32);
    }

    /// Copies octets from `offset` on to `out` without consuming them; returns how many there were.
    #[inline]
    pub fn read_at(&mut self, pool: &BufferPool, offset: usize, out: &mut [u8]) -> usize {
        let count = self.len().saturating_sub(offset).min(out.len());
        let position = self.start as usize + offset;
        let mut read = 0;
        while read < count {
            read += self.read_piece(pool, position + read, &mut out[read..count]);
        }
        count
    }

    /// Copies what the chunk of `position` has; returns how many octets that are.
    fn read_piece(&mut self, pool: &BufferPool, position: usize, out: &mut [u8]) -> usize {
        let chunk = self.chunk_at(pool, (position / CHUNK_LEN) as u32);
        let octets = &pool.octets(chunk)[position % CHUNK_LEN..];
        let count = out.len().min(octets.len());
        out[..count].copy_from_slice(&octets[..count]);
        count
    }

    /// Copies octets from the front to `out` and consumes them; returns how many there were.
    #[inline]
    pub fn read(&mut self, pool: &mut BufferPool, out: &mut [u8]) -> usize {
        let count = self.read_at(pool, 0, out);
        self.consume(pool, count);
        count
    }

    /// The readable octets at the front that lie in one piece; empty only if none is readable.
    #[inline]
    pub fn front<'a>(&self, pool: &'a BufferPool) -> &'a [u8] {
        if self.is_empty() {
            return &[];
        }
        let octets = &pool.octets(self.head)[self.start as usize..];
        &octets[..octets.len().min(self.len())]
    }

    /// The readable octets from `offset` on, in pieces.
    pub fn slices_at<'a>(&self, pool: &'a BufferPool, offset: usize) -> Slices<'a> {
        let rest = self.len().saturating_sub(offset);
        if rest == 0 {
            return Slices { pool, chunk: NONE, start: 0, rest };
        }
        let position = self.start as usize + offset;
        let chunk = self.find(pool, (position / CHUNK_LEN) as u32);
        Slices { pool, chunk, start: position % CHUNK_LEN, rest }
    }

    /// Removes `count` octets from the front, or all readable ones if there are fewer; chunks that are done with go back.
    #[inline]
    pub fn consume(&mut self, pool: &mut BufferPool, count: usize) {
        let count = count.min(self.len()) as u32;
        if count == self.written {
            return self.clear(pool);
        }
        self.len -= count;
        self.written -= count;
        let position = u32::from(self.start) + count;
        self.start = (position % CHUNK_LEN as u32) as u16;
        self.free_front(pool, position / CHUNK_LEN as u32);
    }

    /// Discards what is not readable, as a receiver may that is short of memory (RFC 2018, 8).
    pub fn discard_out_of_order(&mut self, pool: &mut BufferPool) {
        if self.len == 0 {
            return self.clear(pool);
        }
        let (held, needed) = (self.chunks(), chunks_for(self.start, self.len));
        if needed < held {
            let last = self.find(pool, needed - 1);
            self.close_gaps(pool, last);
            pool.give_back(pool.next(last), self.tail, held - needed);
            pool.link(last, NONE);
            self.tail = last;
            (self.cursor, self.cursor_index) = (self.head, 0);
        }
        self.written = self.len;
    }

    /// Discards everything; the queue is as new.
    #[inline]
    pub fn clear(&mut self, pool: &mut BufferPool) {
        if self.head != NONE {
            let held = self.chunks();
            self.close_gaps(pool, self.head);
            pool.give_back(self.head, self.tail, held);
            self.forget();
        }
    }

    /// Gives up the chunks without returning them, for a pool that is dropped together with its queues.
    pub fn forget(&mut self) {
        (self.head, self.tail, self.cursor) = (NONE, NONE, NONE);
        (self.start, self.len, self.written, self.left_out, self.cursor_index) = (0, 0, 0, 0, 0);
    }

    /// Takes the chunks for octets from `offset` to `end` that are not there yet, or none.
    #[inline]
    fn allocate(&mut self, pool: &mut BufferPool, offset: usize, end: usize) -> Result<(), Exhausted> {
        if end <= self.written() && self.left_out == 0 {
            return Ok(());
        }
        if end > Self::LEN_MAX {
            return Err(Exhausted);
        }
        let (first, last) = self.chunks_of(offset, end);
        let span = self.span();
        if self.left_out > 0 || first > span {
            self.allocate_apart(pool, offset, end)?;
        } else {
            let missing = last + 1 - span;
            if missing > pool.available() {
                return Err(Exhausted);
            }
            for _ in 0..missing {
                self.append_chunk(pool);
            }
        }
        self.written = self.written.max(end as u32);
        Ok(())
    }

    /// The same where chunks are left out.
    #[cold]
    fn allocate_apart(&mut self, pool: &mut BufferPool, offset: usize, end: usize) -> Result<(), Exhausted> {
        let needed = self.chunks_needed(pool, offset, end - offset);
        let span = chunks_for(self.start, self.written.max(end as u32));
        let left_out = span - self.chunks() - needed;
        if needed > pool.available() || left_out > u32::from(u16::MAX) {
            return Err(Exhausted);
        }
        if self.head == NONE {
            self.append_chunk(pool);
        }
        let (first, last) = self.chunks_of(offset, end);
        let (mut chunk, mut index) = self.at_or_before(pool, first);
        for wanted in first.max(index + 1)..=last {
            let skipped = wanted - index - 1;
            let is_there = chunk != self.tail && pool.gap(chunk) == skipped;
            chunk = if is_there { pool.next(chunk) } else { self.insert_behind(pool, chunk, skipped) };
            index = wanted;
        }
        Ok(())
    }

    /// Puts a chunk behind `chunk` that leaves out `skipped` between them.
    fn insert_behind(&mut self, pool: &mut BufferPool, chunk: u32, skipped: u32) -> u32 {
        let fresh = pool.take().expect("the caller saw that enough chunks are available");
        if chunk == self.tail {
            self.tail = fresh;
            self.left_out += skipped as u16;
        } else {
            pool.link(fresh, pool.next(chunk));
            pool.set_gap(fresh, pool.gap(chunk) - skipped - 1);
            self.left_out -= 1;
        }
        pool.link(chunk, fresh);
        pool.set_gap(chunk, skipped);
        fresh
    }

    fn append_chunk(&mut self, pool: &mut BufferPool) {
        let chunk = pool.take().expect("the caller saw that enough chunks are available");
        if self.head == NONE {
            (self.head, self.cursor, self.cursor_index) = (chunk, chunk, 0);
        } else {
            pool.link(self.tail, chunk);
        }
        self.tail = chunk;
    }

    /// The chunk with `index` chunks in front of it, which exists; moves the cursor there.
    #[inline]
    fn chunk_at(&mut self, pool: &BufferPool, index: u32) -> u32 {
        if index != self.cursor_index {
            self.cursor = self.find(pool, index);
            self.cursor_index = index;
        }
        self.cursor
    }

    fn find(&self, pool: &BufferPool, index: u32) -> u32 {
        if index + 1 == self.span() {
            return self.tail;
        }
        if self.left_out > 0 {
            return self.at_or_before(pool, index).0;
        }
        let (mut chunk, from) = match index.checked_sub(self.cursor_index) {
            Some(steps) => (self.cursor, steps),
            None => (self.head, index),
        };
        for _ in 0..from {
            chunk = pool.next(chunk);
        }
        chunk
    }

    /// The last chunk with at most `index` places in front of it, and how many those are; the queue has one.
    fn at_or_before(&self, pool: &BufferPool, index: u32) -> (u32, u32) {
        let is_ahead = self.cursor_index <= index;
        let (mut chunk, mut at) = if is_ahead { (self.cursor, self.cursor_index) } else { (self.head, 0) };
        while chunk != self.tail {
            let next = at + 1 + pool.gap(chunk);
            if next > index {
                break;
            }
            (chunk, at) = (pool.next(chunk), next);
        }
        (chunk, at)
    }

    /// Indices of the chunks of the first and the last octet from `offset` to `end`.
    #[inline]
    const fn chunks_of(&self, offset: usize, end: usize) -> (u32, u32) {
        let start = self.start as usize;
        (((start + offset) / CHUNK_LEN) as u32, ((start + end - 1) / CHUNK_LEN) as u32)
    }

    /// Chunks up to the first that is left out.
    #[inline]
    fn chunks_in_front_of_gap(&self, pool: &BufferPool) -> u32 {
        if self.left_out == 0 {
            return self.span();
        }
        let (mut chunk, mut count) = (self.head, 1);
        while pool.gap(chunk) == 0 {
            (chunk, count) = (pool.next(chunk), count + 1);
        }
        count
    }

    /// Forgets what is left out behind `chunk`, before its chunks go back.
    fn close_gaps(&mut self, pool: &mut BufferPool, chunk: u32) {
        if self.left_out == 0 {
            return;
        }
        let mut chunk = chunk;
        while chunk != self.tail {
            pool.set_gap(chunk, 0);
            chunk = pool.next(chunk);
        }
        self.left_out = 0;
    }

    /// Gives back the first `count` chunks, behind which there are more.
    #[inline]
    fn free_front(&mut self, pool: &mut BufferPool, count: u32) {
        if count == 0 {
            return;
        }
        let (first, mut last) = (self.head, self.head);
        for _ in 1..count {
            last = pool.next(last);
        }
        if self.left_out > 0 && pool.gap(last) > 0 {
            self.reuse_for_front(pool, last, count);
        } else {
            self.head = pool.next(last);
            pool.give_back(first, last, count);
        }
        match self.cursor_index.checked_sub(count) {
            Some(index) => self.cursor_index = index,
            None => (self.cursor, self.cursor_index) = (self.head, 0),
        }
    }

    /// The front has come to a chunk that is left out: `read`, the last of `count` that are done with, takes its place.
    #[cold]
    fn reuse_for_front(&mut self, pool: &mut BufferPool, read: u32, count: u32) {
        pool.set_gap(read, pool.gap(read) - 1);
        self.left_out -= 1;
        if count > 1 {
            let mut last = self.head;
            for _ in 2..count {
                last = pool.next(last);
            }
            pool.give_back(self.head, last, count - 1);
        }
        self.head = read;
    }
}

impl Default for ByteQueue {
    fn default() -> ByteQueue {
        ByteQueue::new()
    }
}

impl Drop for ByteQueue {
    fn drop(&mut self) {
        debug_assert!(
            self.head == NONE || std::thread::panicking(),
            "a queue is cleared before it is dropped"
        );
    }
}

/// Chunks that hold `len` octets of which the first is at `start` in its chunk.
#[inline]
const fn chunks_for(start: u16, len: u32) -> u32 {
    if len == 0 { 0 } else { (start as u32 + len).div_ceil(CHUNK_LEN as u32) }
}

/// The readable octets of a queue, piece by piece; made by [`ByteQueue::slices_at`].
#[derive(Clone, Debug)]
pub struct Slices<'a> {
    pool: &'a BufferPool,
    chunk: u32,
    start: usize,
    rest: usize,
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest == 0 {
            return None;
        }
        let octets = &self.pool.octets(self.chunk)[self.start..];
        let octets = &octets[..octets.len().min(self.rest)];
        self.rest -= octets.len();
        self.start = 0;
        self.chunk = self.pool.next(self.chunk);
        Some(octets)
    }
}
