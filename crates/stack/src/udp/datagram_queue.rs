//! Datagrams that wait: received ones for their reader, sent ones for the device.
//!
//! ```text
//!   DatagramStore   | record | record | record | ...        one for each datagram of all sockets
//!   DatagramQueue   first ──▶ ......... ──▶ last
//!   its ByteQueue   | payload | payload | skip | payload | payload ...
//!                   ^ chunk                    ^ next chunk
//! ```
//!
//! A payload that fits a chunk lies in one: what is left of a chunk is skipped if it does not suffice. Payloads come from the
//! stack's pool, records from a slab; nothing is allocated per datagram but the blocks that both grow by.

use clock::Instant;

use crate::buffer::{BufferPool, ByteQueue, CHUNK_LEN};
use crate::flow_table::FlowKey;
use crate::path::Hop;
use crate::slab::{Handle, Slab};
use crate::udp::SEGMENTS_MAX;

/// One datagram, or several of one flow with the same headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) key: FlowKey,
    /// Where it leaves; of one that arrived, where a reply leaves.
    pub(crate) hop: Hop,
    /// When it arrived.
    pub(crate) at: Instant,
    /// Octets of payload.
    pub(crate) len: u32,
    /// Octets of payload of each datagram but the last, which may be shorter; zero if there is only one.
    pub(crate) segment_len: u16,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

impl Datagram {
    /// Octets of payload of the datagram that begins at `offset`.
    pub(crate) fn len_at(&self, offset: u32) -> u32 {
        let rest = self.len - offset;
        if self.segment_len == 0 { rest } else { rest.min(u32::from(self.segment_len)) }
    }

    /// Whether `next` can be told to the reader together with these: all but the last are of one length, which none exceeds,
    /// and an empty one stands alone.
    fn takes(&self, next: &Datagram) -> bool {
        let segment_len = if self.segment_len == 0 { self.len } else { u32::from(self.segment_len) };
        segment_len != 0
            && self.len.is_multiple_of(segment_len)
            && (1..=segment_len).contains(&next.len)
            && self.len + next.len <= u32::from(u16::MAX)
            && self.len / segment_len < SEGMENTS_MAX as u32
            && (self.key, self.hop, self.traffic_class, self.hop_limit)
                == (next.key, next.hop, next.traffic_class, next.hop_limit)
    }
}

#[derive(Debug)]
pub(crate) struct Record {
    datagram: Datagram,
    /// Octets in front of the payload that mean nothing.
    skip: u16,
    next: Option<Handle<Record>>,
}

/// What a datagram costs beside its payload.
pub(crate) const OVERHEAD: u32 = size_of::<Record>() as u32;

const _: () = assert!(OVERHEAD <= 136);

/// Records of all datagrams, and the share of the buffers that they may use.
#[derive(Debug)]
pub(crate) struct DatagramStore {
    records: Slab<Record>,
    chunks: u32,
    chunks_max: u32,
}

impl DatagramStore {
    /// For datagrams in up to half of `pool_chunks` chunks, and as many datagrams as the pool has chunks.
    pub(crate) fn new(pool_chunks: u32) -> DatagramStore {
        DatagramStore { records: Slab::new(pool_chunks), chunks: 0, chunks_max: pool_chunks / 2 }
    }
}

/// Where the datagrams of all queues are.
pub(crate) struct Memory<'a> {
    pub(crate) store: &'a mut DatagramStore,
    pub(crate) pool: &'a mut BufferPool,
}

impl Memory<'_> {
    /// Whether `len` octets more may be kept: within UDP's half, and not out of the last eighth, which is for those who are
    /// being served already.
    fn admits(&self, len: usize) -> bool {
        let chunks = len.div_ceil(CHUNK_LEN) as u32;
        let reserve = self.pool.chunks_max() / 8;
        self.store.chunks + chunks <= self.store.chunks_max && self.pool.available() >= reserve + chunks
    }
}

/// Why a datagram was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue's budget is used up.
    Budget,
    /// The stack's memory is.
    Memory,
}

/// Datagrams in the order in which they came.
///
/// [`DatagramQueue::clear`] it before it is dropped, as its [`ByteQueue`].
#[derive(Debug, Default)]
pub(crate) struct DatagramQueue {
    first: Option<Handle<Record>>,
    last: Option<Handle<Record>>,
    octets: ByteQueue,
    charge: u32,
}

impl DatagramQueue {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Octets that count against the budget: payloads, what was skipped for them, and [`OVERHEAD`] for each datagram.
    pub(crate) fn charge(&self) -> u32 {
        self.charge
    }

    /// Keeps a datagram with `payload`, of `datagram.len` octets. Whatever the budget, there may be one.
    pub(crate) fn push(
        &mut self,
        datagram: Datagram,
        payload: &[u8],
        budget: u32,
        memory: &mut Memory<'_>,
    ) -> Result<(), Refused> {
        debug_assert_eq!(payload.len(), datagram.len as usize);
        let skip = self.skip_before(payload.len());
        let charge = OVERHEAD + skip as u32 + datagram.len;
        if !self.is_empty() && self.charge.saturating_add(charge) > budget {
            return Err(Refused::Budget);
        }
        if memory.store.records.is_full() {
            return Err(Refused::Memory);
        }
        self.write(skip, payload, memory)?;
        let record = Record { datagram, skip: skip as u16, next: None };
        let record = memory.store.records.insert_with(|_| record).expect("the slab is not full");
        self.append(record, memory.store);
        self.charge += charge;
        Ok(())
    }

    /// Adds a datagram with `payload` to the last one, if they can be told together (`UDP_GRO`) and there is room for it;
    /// returns whether it did.
    pub(crate) fn coalesce(
        &mut self,
        datagram: &Datagram,
        payload: &[u8],
        budget: u32,
        memory: &mut Memory<'_>,
    ) -> bool {
        let Some(last) = self.last.and_then(|last| memory.store.records.get(last)) else {
            return false;
        };
        let fits = last.datagram.takes(datagram) && self.charge.saturating_add(datagram.len) <= budget;
        if !fits || self.write(0, payload, memory).is_err() {
            return false;
        }
        self.charge += datagram.len;
        if let Some(last) = self.last.and_then(|last| memory.store.records.get_mut(last)) {
            let first_len = last.datagram.len as u16; // At most 65535 octets together.
            if last.datagram.segment_len == 0 {
                last.datagram.segment_len = first_len;
            }
            last.datagram.len += datagram.len;
        }
        true
    }

    /// The oldest datagram.
    pub(crate) fn front<'a>(&self, store: &'a DatagramStore) -> Option<&'a Datagram> {
        self.front_record(store).map(|record| &record.datagram)
    }

    /// The payload of the oldest datagram, as far as it lies in one piece: all of it up to [`CHUNK_LEN`] octets.
    pub(crate) fn front_octets<'a>(&self, store: &DatagramStore, pool: &'a BufferPool) -> &'a [u8] {
        let Some(record) = self.front_record(store) else {
            return &[];
        };
        let piece = self.octets.slices_at(pool, usize::from(record.skip)).next().unwrap_or_default();
        &piece[..piece.len().min(record.datagram.len as usize)]
    }

    /// Copies payload of the oldest datagram from `offset` on; returns how many octets there were.
    pub(crate) fn copy_front(
        &mut self,
        offset: u32,
        out: &mut [u8],
        store: &DatagramStore,
        pool: &BufferPool,
    ) -> usize {
        let Some(record) = self.front_record(store) else {
            return 0;
        };
        let len = (record.datagram.len.saturating_sub(offset) as usize).min(out.len());
        self.octets.read_at(pool, usize::from(record.skip) + offset as usize, &mut out[..len])
    }

    /// Removes the oldest datagram.
    pub(crate) fn pop(&mut self, memory: &mut Memory<'_>) -> Option<Datagram> {
        let Record { datagram, skip, next } = memory.store.records.remove(self.first?)?;
        self.first = next;
        if next.is_none() {
            self.last = None;
        }
        let octets = u32::from(skip) + datagram.len;
        self.charge -= OVERHEAD + octets;
        let before = self.octets.chunks();
        self.octets.consume(memory.pool, octets as usize);
        memory.store.chunks -= before - self.octets.chunks();
        Some(datagram)
    }

    /// Removes all datagrams.
    pub(crate) fn clear(&mut self, memory: &mut Memory<'_>) {
        while self.pop(memory).is_some() {}
    }

    /// Gives up the payloads without returning them, for a pool that is dropped together with its queues.
    pub(crate) fn forget(&mut self) {
        self.octets.forget();
    }

    fn front_record<'a>(&self, store: &'a DatagramStore) -> Option<&'a Record> {
        store.records.get(self.first?)
    }

    /// Octets to leave out so that a payload lies in one chunk.
    fn skip_before(&self, len: usize) -> usize {
        let rest = self.octets.tail_room();
        if len > rest && len <= CHUNK_LEN { rest } else { 0 }
    }

    fn write(&mut self, skip: usize, payload: &[u8], memory: &mut Memory<'_>) -> Result<(), Refused> {
        if !memory.admits(payload.len()) {
            return Err(Refused::Memory);
        }
        let before = self.octets.chunks();
        let start = self.octets.len() + skip;
        self.octets.write_at(memory.pool, start, payload).map_err(|_| Refused::Memory)?;
        self.octets.extend_to(start + payload.len());
        memory.store.chunks += self.octets.chunks() - before;
        Ok(())
    }

    fn append(&mut self, record: Handle<Record>, store: &mut DatagramStore) {
        match self.last.and_then(|last| store.records.get_mut(last)) {
            Some(last) => last.next = Some(record),
            None => self.first = Some(record),
        }
        self.last = Some(record);
    }
}

#[cfg(test)]
mod tests;
