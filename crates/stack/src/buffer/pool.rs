//! Chunks.

/// Octets in a chunk.
pub const CHUNK_LEN: usize = 2048;

/// Chunks that are asked of the allocator at once: 2 MiB, the size of a huge page.
const BLOCK_CHUNKS: usize = 1024;

/// No chunk: the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// Chunks of [`CHUNK_LEN`] octets, up to a maximum, for the queues of one engine.
///
/// Memory is taken from the allocator in blocks of 2 MiB when it is first needed, never moved and never given back. The
/// chunk that was freed last is handed out first, as it is the likeliest to be in a cache. Chunks are not zeroed.
#[derive(Debug)]
pub struct BufferPool {
    blocks: Vec<Box<[[u8; CHUNK_LEN]]>>,
    /// For each chunk that was ever handed out, the one behind it: in its queue, or among the free.
    next: Vec<u32>,
    /// For each of them, how many chunks its queue has left out between it and the next: none, but where octets are out of
    /// order.
    gaps: Vec<u32>,
    free: u32,
    in_use: u32,
    chunks_max: u32,
}

impl BufferPool {
    /// A pool of at most `chunks_max` chunks, none of which takes memory yet.
    ///
    /// # Panics
    /// If `chunks_max` is `u32::MAX`.
    pub fn new(chunks_max: u32) -> BufferPool {
        assert!(chunks_max < NONE, "the last number marks the end of a chain");
        BufferPool {
            blocks: Vec::with_capacity((chunks_max as usize).div_ceil(BLOCK_CHUNKS)),
            next: Vec::with_capacity(chunks_max as usize),
            gaps: Vec::with_capacity(chunks_max as usize),
            free: NONE,
            in_use: 0,
            chunks_max,
        }
    }

    /// Chunks held by queues.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Chunks that queues can still take.
    #[inline]
    pub fn available(&self) -> u32 {
        self.chunks_max - self.in_use
    }

    /// The last eighth, which is reserved for data in order, and for writers with little to send.
    #[inline]
    fn reserve(&self) -> u32 {
        self.chunks_max / 8
    }

    /// Whether nothing is left but the reserve.
    #[inline]
    pub fn is_scarce(&self) -> bool {
        self.available() < self.reserve()
    }

    /// Whether half of the reserve is gone as well: too little for more connections than there are.
    pub fn is_nearly_spent(&self) -> bool {
        self.available() < self.reserve() / 2
    }

    /// Chunks that are left above the reserve.
    #[inline]
    pub fn available_above_reserve(&self) -> u32 {
        self.available().saturating_sub(self.reserve())
    }

    /// The most chunks there can be.
    pub fn chunks_max(&self) -> u32 {
        self.chunks_max
    }

    /// Octets taken from the allocator for chunks.
    pub fn memory(&self) -> usize {
        self.blocks.iter().map(|block| block.len() * CHUNK_LEN).sum()
    }

    /// Takes a chunk that is the end of its chain.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        let chunk = if self.free == NONE { self.take_fresh()? } else { self.take_used() };
        self.in_use += 1;
        Some(chunk)
    }

    fn take_used(&mut self) -> u32 {
        let chunk = self.free;
        self.free = self.next[chunk as usize];
        self.next[chunk as usize] = NONE;
        chunk
    }

    fn take_fresh(&mut self) -> Option<u32> {
        let chunk = self.next.len();
        if chunk == self.chunks_max as usize {
            return None;
        }
        if chunk == self.blocks.len() * BLOCK_CHUNKS {
            let len = (self.chunks_max as usize - chunk).min(BLOCK_CHUNKS);
            self.blocks.push(vec![[0; CHUNK_LEN]; len].into_boxed_slice());
        }
        self.next.push(NONE);
        self.gaps.push(0);
        Some(chunk as u32)
    }

    /// Takes back the chain of `count` chunks from `first` to `last`, in which there is no gap.
    #[inline]
    pub(super) fn give_back(&mut self, first: u32, last: u32, count: u32) {
        debug_assert!(count <= self.in_use);
        self.next[last as usize] = self.free;
        self.free = first;
        self.in_use -= count;
    }

    /// The chunk behind `chunk`, or [`NONE`].
    #[inline]
    pub(super) fn next(&self, chunk: u32) -> u32 {
        self.next[chunk as usize]
    }

    /// Makes `next` the chunk behind `chunk`.
    #[inline]
    pub(super) fn link(&mut self, chunk: u32, next: u32) {
        self.next[chunk as usize] = next;
    }

    /// Chunks left out between `chunk` and the next.
    pub(super) fn gap(&self, chunk: u32) -> u32 {
        self.gaps[chunk as usize]
    }

    /// Notes that `count` chunks are left out behind `chunk`.
    pub(super) fn set_gap(&mut self, chunk: u32, count: u32) {
        self.gaps[chunk as usize] = count;
    }

    #[inline]
    pub(super) fn octets(&self, chunk: u32) -> &[u8; CHUNK_LEN] {
        &self.blocks[chunk as usize / BLOCK_CHUNKS][chunk as usize % BLOCK_CHUNKS]
    }

    #[inline]
    pub(super) fn octets_mut(&mut self, chunk: u32) -> &mut [u8; CHUNK_LEN] {
        &mut self.blocks[chunk as usize / BLOCK_CHUNKS][chunk as usize % BLOCK_CHUNKS]
    }
}
