//! An open port: configured, with memory for each queue, started.

use std::ffi::{CStr, CString};

use wire::MacAddress;

use crate::pool::{HEADROOM, MbufPool};
use crate::{DpdkError, DpdkOptions, PortName, eal, ffi};

/// Offloads of rte_ethdev.h: RTE_ETH_TX_OFFLOAD_IPV4_CKSUM, _UDP_CKSUM and _TCP_CKSUM.
const CHECKSUMS: u64 = 1 << 1 | 1 << 2 | 1 << 3;
/// Ethernet header with two VLAN tags.
const LINK_HEADERS: u32 = 22;
/// Room for a packet in a slot, at least and at most: drivers refuse memory in smaller pieces than the first.
const ROOM: [u32; 2] = [2048, 16 << 10];
/// Slots begin with a cache line.
const CACHE_LINE: u32 = 64;

/// A port until it is dropped; nobody may have a device of it then.
pub(crate) struct OpenPort {
    pub(crate) number: u16,
    pub(crate) name: PortName,
    pub(crate) mac: MacAddress,
    pub(crate) mtu: u16,
    pub(crate) driver: String,
    /// The NIC fills in checksums.
    pub(crate) checksums: bool,
    pools: Vec<MbufPool>,
}

impl OpenPort {
    pub(crate) fn open(name: &PortName, options: &DpdkOptions) -> Result<OpenPort, DpdkError> {
        eal::start(name, &options.eal_arguments)?;
        let failed = |operation| move |source| DpdkError::Port { name: name.to_string(), operation, source };
        let number = find(name)?;
        let mut info = ffi::PortInfo::default();
        // SAFETY: `info` is ours, with the layout of the shim's header.
        ffi::checked(unsafe { ffi::shim_port_info(number, &mut info) })
            .map_err(failed("asking for its properties"))?;
        let max = info.rx_queues_max.min(info.tx_queues_max);
        if options.queues == 0 || options.queues > max {
            return Err(DpdkError::Queues { name: name.to_string(), wanted: options.queues, max });
        }
        let checksums = info.tx_offloads & CHECKSUMS == CHECKSUMS;
        let offloads = if checksums { CHECKSUMS } else { 0 };
        // SAFETY: numbers only.
        let answer = unsafe {
            ffi::shim_port_configure(number, options.queues, info.mtu, offloads, info.rss_functions)
        };
        ffi::checked(answer).map_err(failed("configuring"))?;
        let mut port = OpenPort {
            number,
            name: name.clone(),
            mac: MacAddress(info.mac),
            mtu: info.mtu,
            driver: text(&info.driver),
            checksums,
            pools: Vec::new(),
        };
        for queue in 0..options.queues {
            port.add_queue(queue, options).map_err(failed("preparing a queue"))?;
        }
        // SAFETY: numbers only.
        ffi::checked(unsafe { ffi::shim_port_start(number) }).map_err(failed("starting"))?;
        Ok(port)
    }

    fn add_queue(&mut self, queue: u16, options: &DpdkOptions) -> std::io::Result<()> {
        let [least, most] = ROOM;
        let room = (u32::from(self.mtu) + LINK_HEADERS).clamp(least, most);
        let slot_size = (u32::from(HEADROOM) + room).next_multiple_of(CACHE_LINE) as u16; // Below 2^16.
        let name = format!("sidestep-{}-{queue}", self.number);
        let pool = MbufPool::new(&name, self.number, options.frames_per_queue, slot_size)?;
        // SAFETY: the pool lives until the port is closed: see `drop`.
        ffi::checked(unsafe { ffi::shim_port_queue(self.number, queue, options.ring_entries, pool.raw()) })?;
        self.pools.push(pool);
        Ok(())
    }

    pub(crate) fn queues(&self) -> u16 {
        self.pools.len() as u16 // As many as were asked for.
    }

    pub(crate) fn pool(&self, queue: u16) -> &MbufPool {
        &self.pools[usize::from(queue)]
    }

    /// What the port counted since it was started; zeros if it does not tell.
    pub(crate) fn counts(&self) -> ffi::PortCounts {
        let mut counts = ffi::PortCounts::default();
        // SAFETY: `counts` is ours, with the layout of the shim's header.
        match unsafe { ffi::shim_port_counts(self.number, &mut counts) } {
            0 => counts,
            _ => ffi::PortCounts::default(),
        }
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        // SAFETY: numbers only. Pools are dropped behind this: a closed port uses no memory.
        unsafe { ffi::shim_port_close(self.number) };
    }
}

fn find(name: &PortName) -> Result<u16, DpdkError> {
    let device = CString::new(name.device()).unwrap_or_default();
    let mut number = 0;
    // SAFETY: a terminated string, and a number of ours.
    match unsafe { ffi::shim_port_by_name(device.as_ptr(), &mut number) } {
        0 => Ok(number),
        _ => Err(DpdkError::NoSuchPort { name: name.device().to_owned(), known: known_ports() }),
    }
}

fn known_ports() -> String {
    let name = |nth| {
        // SAFETY: a terminated string that lives until this thread's next call, or null.
        let name = unsafe { ffi::shim_port_name(nth) };
        // SAFETY: as above.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    };
    let names: Vec<String> = (0..).map_while(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn text(octets: &[std::ffi::c_char]) -> String {
    let octets: Vec<u8> = octets.iter().map(|&octet| octet as u8).take_while(|&octet| octet != 0).collect();
    String::from_utf8_lossy(&octets).into_owned()
}
