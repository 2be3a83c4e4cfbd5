//! Chains of chunks.

use super::pool::{BufferPool, CHUNK_LEN, NONE};

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
/// [`ByteQueue::LEN_MAX`] octets.
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
    start: u32,
    /// Readable octets.
    len: u32,
    /// Octets from the front to the end of the last that was written; at least `len`. The chain has exactly the chunks
    /// needed for them.
    written: u32,
    /// The chunk touched last, and how many chunks are in front of it.
    cursor: u32,
    cursor_index: u32,
}

const _: () = assert!(size_of::<ByteQueue>() <= 32);

impl ByteQueue {
    /// The most octets that a queue holds, in order or not.
    pub const LEN_MAX: usize = 1 << 31;

    /// An empty queue, which holds no chunk.
    pub const fn new() -> ByteQueue {
        ByteQueue { head: NONE, tail: NONE, start: 0, len: 0, written: 0, cursor: NONE, cursor_index: 0 }
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
        chunks_for(self.start, self.written)
    }

    /// Octets that [`ByteQueue::push`] takes before it needs another chunk.
    #[inline]
    pub const fn tail_room(&self) -> usize {
        self.chunks() as usize * CHUNK_LEN - (self.start + self.written) as usize
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
        let chunks = self.chunks() as usize + pool.available() as usize;
        (chunks * CHUNK_LEN - self.start as usize).min(Self::LEN_MAX) - self.len()
    }

    /// Writes `data` at `offset`, which may be behind the readable octets and leave a gap. All chunks up to the end of
    /// `data` are taken from the pool, or none.
    #[inline]
    pub fn write_at(&mut self, pool: &mut BufferPool, offset: usize, data: &[u8]) -> Result<(), Exhausted> {
        if data.is_empty() {
            return Ok(());
        }
        self.allocate_up_to(pool, offset.saturating_add(data.len()))?;
        let position = self.start as usize + offset;
        let mut written = 0;
        while written < data.len() {
            written += self.write_piece(pool, position + written, &data[written..]);
        }
        Ok(())
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
        let position = self.start + count;
        self.start = position % CHUNK_LEN as u32;
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
            pool.give_back(self.head, self.tail, self.chunks());
            self.forget();
        }
    }

    /// Gives up the chunks without returning them, for a pool that is dropped together with its queues.
    pub fn forget(&mut self) {
        (self.head, self.tail, self.cursor) = (NONE, NONE, NONE);
        (self.start, self.len, self.written, self.cursor_index) = (0, 0, 0, 0);
    }

    /// Makes the chain long enough for `written` octets.
    #[inline]
    fn allocate_up_to(&mut self, pool: &mut BufferPool, written: usize) -> Result<(), Exhausted> {
        if written <= self.written() {
            return Ok(());
        }
        if written > Self::LEN_MAX {
            return Err(Exhausted);
        }
        let missing = chunks_for(self.start, written as u32) - self.chunks();
        if missing > pool.available() {
            return Err(Exhausted);
        }
        for _ in 0..missing {
            self.append_chunk(pool);
        }
        self.written = written as u32;
        Ok(())
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
        if index + 1 == self.chunks() {
            return self.tail;
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
        self.head = pool.next(last);
        pool.give_back(first, last, count);
        match self.cursor_index.checked_sub(count) {
            Some(index) => self.cursor_index = index,
            None => (self.cursor, self.cursor_index) = (self.head, 0),
        }
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
const fn chunks_for(start: u32, len: u32) -> u32 {
    if len == 0 { 0 } else { (start + len).div_ceil(CHUNK_LEN as u32) }
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
