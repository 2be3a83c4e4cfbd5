//! The memory of a queue: slots that are frames to us, and mbufs to DPDK.

use std::ffi::CString;
use std::io;

use frame::{Frame, FrameIndex, Pool, PoolId, Region};

use crate::ffi::{self, Opaque, Packet};

/// Octets in front of a fresh packet: RTE_PKTMBUF_HEADROOM, which drivers also leave before received ones.
pub(crate) const HEADROOM: u16 = 128;

/// A pool whose slots are with DPDK unless they are frames. Nothing is ever free in [`Pool`]'s own list: DPDK's mempool keeps that.
pub(crate) struct MbufPool {
    slots: Pool,
    raw: ffi::Pool,
    /// The mbuf of each slot, which `raw` points to.
    _mbufs: Box<[*mut Opaque]>,
}

// SAFETY: the raw pointers lead to DPDK's objects, which any thread may use: mempools are made for several producers and consumers, and all
// of the shim's functions that take a pool only read what `raw` points to. A slot's mbuf is touched by whoever has the slot.
unsafe impl Send for MbufPool {}
// SAFETY: as above; all methods but `destroy` take `&self` and write nothing.
unsafe impl Sync for MbufPool {}

impl MbufPool {
    /// `slots` frames of `slot_size` octets for a queue of `port`.
    pub(crate) fn new(name: &str, port: u16, slots: u32, slot_size: u16) -> io::Result<MbufPool> {
        let len = slots as usize * usize::from(slot_size);
        let region = Region::anonymous(len)?;
        let start = region.start().as_ptr();
        let mut pool = Pool::new(region, slot_size, HEADROOM);
        while let Some(frame) = pool.alloc() {
            pool.surrender(frame);
        }
        let mut mbufs = vec![std::ptr::null_mut(); slots as usize].into_boxed_slice();
        let mut raw = ffi::Pool {
            mempool: std::ptr::null_mut(),
            start,
            slot_size: slot_size.into(),
            slots,
            mbufs: std::ptr::null_mut(),
        };
        let name = CString::new(name)?;
        // SAFETY: `start` and `len` are the whole region, of which no frame is out; `mbufs` has an entry for each slot; both live as long as
        // the pool. The name is copied.
        let answer = unsafe {
            ffi::shim_pool_create(
                name.as_ptr(),
                port,
                start,
                len,
                slot_size.into(),
                mbufs.as_mut_ptr(),
                &mut raw,
            )
        };
        ffi::checked(answer)?;
        Ok(MbufPool { slots: pool, raw, _mbufs: mbufs })
    }

    pub(crate) fn raw(&self) -> *const ffi::Pool {
        &raw const self.raw
    }

    pub(crate) fn id(&self) -> PoolId {
        self.slots.id()
    }

    /// A frame of the packet that DPDK has just handed out; `None`, and the slot is lost, if it lies nowhere: a driver's fault.
    ///
    /// # Safety
    /// The packet is from `shim_rx_burst` or `shim_alloc` with this pool, and used for the first time since.
    pub(crate) unsafe fn frame(&self, packet: Packet) -> Option<Frame> {
        // SAFETY: as the caller promises, DPDK has given the mbuf away, and the slot with it.
        unsafe { self.slots.adopt(FrameIndex(packet.slot), packet.offset, packet.len) }
    }

    /// An empty frame, if DPDK has an mbuf left.
    pub(crate) fn alloc(&self) -> Option<Frame> {
        let mut slot = 0;
        // SAFETY: the pool is a created one, `slot` is ours.
        let answer = unsafe { ffi::shim_alloc(&raw const self.raw, &mut slot) };
        // SAFETY: handed out just now.
        if answer == 0 { unsafe { self.frame(Packet { slot, offset: HEADROOM, len: 0 }) } } else { None }
    }

    /// Where the frame's packet lies. The frame must be one of the pool's.
    pub(crate) fn describe(&self, frame: &Frame) -> Packet {
        assert_eq!(frame.pool(), self.id(), "a frame returns to the pool that it came from");
        Packet { slot: frame.index().0, offset: frame.headroom() as u16, len: frame.len() as u16 } // Within a slot.
    }

    /// Forgets a frame that DPDK has taken.
    pub(crate) fn forget(&self, frame: Frame) {
        self.slots.surrender(frame);
    }

    pub(crate) fn release(&self, frame: Frame) {
        let FrameIndex(slot) = self.slots.surrender(frame);
        // SAFETY: the slot was a frame until now, so its mbuf is nobody else's.
        unsafe { ffi::shim_free(&raw const self.raw, slot) };
    }
}

/// The port is closed by now. Memory of which somebody still has a frame is leaked, as [`Pool`] does it, and its mbufs with it.
impl Drop for MbufPool {
    fn drop(&mut self) {
        // SAFETY: a created pool; nobody uses it after its drop.
        if unsafe { ffi::shim_pool_destroy(&mut self.raw) } == 1 {
            for slot in 0..self.raw.slots {
                // SAFETY: all mbufs were back in the mempool, which is gone: nobody has the slot.
                unsafe { self.slots.reclaim(FrameIndex(slot)) };
            }
        }
    }
}
