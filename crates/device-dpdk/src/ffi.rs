//! The functions of `shim/shim.h`, which says what they do.

use std::ffi::{c_char, c_int};

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packet {
    pub(crate) slot: u32,
    pub(crate) offset: u16,
    pub(crate) len: u16,
}

/// Pointers are DPDK's and the owner's: `pool.rs`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) mempool: *mut Opaque,
    pub(crate) start: *mut u8,
    pub(crate) slot_size: u32,
    pub(crate) slots: u32,
    pub(crate) mbufs: *mut *mut Opaque,
}

/// What DPDK calls `rte_mempool` or `rte_mbuf`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Opaque([u8; 0]);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortInfo {
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u16,
    pub(crate) rx_queues_max: u16,
    pub(crate) tx_queues_max: u16,
    pub(crate) reta_size: u16,
    pub(crate) tx_offloads: u64,
    pub(crate) rss_functions: u64,
    pub(crate) driver: [c_char; 32],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortCounts {
    pub(crate) missed: u64,
    pub(crate) errors: u64,
    pub(crate) no_mbuf: u64,
}

unsafe extern "C" {
    pub(crate) fn shim_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(crate) fn shim_port_name(nth: u16) -> *const c_char;
    pub(crate) fn shim_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    pub(crate) fn shim_port_info(port: u16, info: *mut PortInfo) -> c_int;
    pub(crate) fn shim_port_configure(
        port: u16,
        queues: u16,
        mtu: u16,
        tx_offloads: u64,
        rss_functions: u64,
    ) -> c_int;
    pub(crate) fn shim_port_queue(port: u16, queue: u16, descriptors: u16, pool: *const Pool) -> c_int;
    pub(crate) fn shim_port_start(port: u16) -> c_int;
    pub(crate) fn shim_port_close(port: u16);
    pub(crate) fn shim_port_counts(port: u16, counts: *mut PortCounts) -> c_int;
    pub(crate) fn shim_pool_create(
        name: *const c_char,
        port: u16,
        start: *mut u8,
        len: usize,
        slot_size: u32,
        mbufs: *mut *mut Opaque,
        pool: *mut Pool,
    ) -> c_int;
    pub(crate) fn shim_pool_destroy(pool: *mut Pool) -> c_int;
    pub(crate) fn shim_thread_register() -> c_int;
    pub(crate) fn shim_rx_burst(
        port: u16,
        queue: u16,
        pool: *const Pool,
        packets: *mut Packet,
        count: u16,
        invalid: *mut u32,
    ) -> u16;
    pub(crate) fn shim_tx_burst(
        port: u16,
        queue: u16,
        pool: *const Pool,
        packets: *const Packet,
        count: u16,
        checksums: c_int,
    ) -> u16;
    pub(crate) fn shim_alloc(pool: *const Pool, slot: *mut u32) -> c_int;
    pub(crate) fn shim_free(pool: *const Pool, slot: u32);
}

/// A negative errno of the shim as an error.
pub(crate) fn checked(answer: c_int) -> std::io::Result<()> {
    if answer < 0 { Err(std::io::Error::from_raw_os_error(-answer)) } else { Ok(()) }
}
