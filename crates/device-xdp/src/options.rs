//! Options for opening a device.

use std::ops::RangeInclusive;

use crate::XdpError;
use crate::netdev::Interface;
use crate::umem::PACKET_HEADROOM;

/// Ethernet header and two VLAN tags.
const LINK_HEADERS: u16 = 14 + 2 * 4;

/// What a queue may have of frames.
pub(crate) const FRAMES_PER_QUEUE: RangeInclusive<u32> = 256..=1 << 20;

/// Largest frame: a page, as the kernel wants it.
const FRAME_SIZE_MAX: u16 = 4096;

/// Options of one [`crate::XdpDevice`]. The defaults suit a NIC as well as a veth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Entries of each of a queue's four rings, a power of two from 64 to 32768 (2048). More survives longer pauses of
    /// the engine, and takes more cache.
    pub ring_entries: u32,
    /// Frames per queue, 256 to 1048576 (4096): at least twice the ring entries keeps both directions busy.
    pub frames_per_queue: u32,
    /// Octets of one frame, 2048 or 4096. None: 2048 if the MTU fits, else 4096.
    pub frame_size: Option<u16>,
    /// Try zero-copy mode first (true). Copy mode is what remains where the driver has none.
    pub zero_copy: bool,
    /// Drive the queue's NAPI from the engine's own system calls (None: leave it to interrupts). Needs CAP_NET_ADMIN, a
    /// core to spare, and pays off where `napi_defer_hard_irqs` and `gro_flush_timeout` of the interface are set.
    pub busy_poll: Option<BusyPoll>,
    /// In copy mode, send what is longer than a packet by a packet socket, and have the kernel cut it (true).
    pub bulk_lane: bool,
}

/// See SO_BUSY_POLL in socket(7) and Documentation/networking/napi.rst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Microseconds that one call may poll, 1 to 1000 (20).
    pub micros: u32,
    /// Packets that one call may process, 8 to 1024 (64).
    pub budget: u32,
}

impl Default for BusyPoll {
    fn default() -> BusyPoll {
        BusyPoll { micros: 20, budget: 64 }
    }
}

impl Default for XdpOptions {
    fn default() -> XdpOptions {
        XdpOptions {
            ring_entries: 2048,
            frames_per_queue: 4096,
            frame_size: None,
            zero_copy: true,
            busy_poll: None,
            bulk_lane: true,
        }
    }
}

/// Options that hold for one interface: checked, nothing left to choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub(crate) ring_entries: u32,
    pub(crate) frames_per_queue: u32,
    pub(crate) frame_size: u16,
    pub(crate) mtu: u16,
    pub(crate) force_copy: bool,
    pub(crate) busy_poll: Option<BusyPoll>,
    pub(crate) bulk_lane: bool,
}

impl XdpOptions {
    /// Octets of the frames that a device on an interface of `mtu` has; `None` if the chosen ones are too small. As long as
    /// it stays the same, an open device serves another MTU as well: [`device::Device::set_mtu`].
    pub fn frame_size_for(&self, mtu: u32) -> Option<u16> {
        let size =
            self.frame_size.unwrap_or(if mtu <= u32::from(mtu_max(2048)) { 2048 } else { FRAME_SIZE_MAX });
        // Frames of the largest size hold all that the steering program lets through, however large the MTU.
        (size == FRAME_SIZE_MAX || mtu <= u32::from(mtu_max(size))).then_some(size)
    }

    pub(crate) fn resolve(&self, interface: &Interface) -> Result<Resolved, XdpError> {
        self.check()?;
        let mtu = interface.mtu()?;
        let Some(frame_size) = self.frame_size_for(mtu) else {
            let limit = u32::from(mtu_max(self.frame_size.unwrap_or(2048)));
            return Err(XdpError::MtuTooLarge { interface: interface.name.clone(), mtu, limit });
        };
        Ok(Resolved {
            ring_entries: self.ring_entries,
            frames_per_queue: self.frames_per_queue,
            frame_size,
            mtu: u16::try_from(mtu).map_or(mtu_max(frame_size), |mtu| mtu.min(mtu_max(frame_size))),
            force_copy: !self.zero_copy,
            busy_poll: self.busy_poll,
            bulk_lane: self.bulk_lane,
        })
    }

    fn check(&self) -> Result<(), XdpError> {
        let rings = self.ring_entries;
        if !(rings.is_power_of_two() && (64..=32768).contains(&rings)) {
            return wrong("ring_entries", rings, "a power of two from 64 to 32768");
        }
        if !FRAMES_PER_QUEUE.contains(&self.frames_per_queue) {
            return wrong("frames_per_queue", self.frames_per_queue, "from 256 to 1048576");
        }
        if let Some(size) = self.frame_size.filter(|size| ![2048, 4096].contains(size)) {
            return wrong("frame_size", u32::from(size), "2048 or 4096");
        }
        let Some(busy_poll) = self.busy_poll else { return Ok(()) };
        if !(1..=1000).contains(&busy_poll.micros) {
            return wrong("busy_poll.micros", busy_poll.micros, "from 1 to 1000");
        }
        if !(8..=1024).contains(&busy_poll.budget) {
            return wrong("busy_poll.budget", busy_poll.budget, "from 8 to 1024");
        }
        Ok(())
    }
}

/// Largest MTU whose packets fit into frames of `frame_size` octets.
pub(crate) fn mtu_max(frame_size: u16) -> u16 {
    frame_size.saturating_sub(PACKET_HEADROOM + LINK_HEADERS)
}

fn wrong(option: &'static str, value: u32, allowed: &'static str) -> Result<(), XdpError> {
    Err(XdpError::Option { option, value: u64::from(value), allowed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: XdpOptions) -> String {
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_option_value_and_range() {
        let rings = XdpOptions { ring_entries: 1000, ..XdpOptions::default() };
        assert_eq!(refused(rings), "ring_entries is 1000; it must be a power of two from 64 to 32768");
        let size = XdpOptions { frame_size: Some(1024), ..XdpOptions::default() };
        assert_eq!(refused(size), "frame_size is 1024; it must be 2048 or 4096");
    }

    #[test]
    fn frames_are_chosen_by_the_mtu_unless_they_are_given() {
        let options = XdpOptions::default();
        assert_eq!(
            [1280, 1500, 3500, 9000].map(|mtu| options.frame_size_for(mtu)),
            [Some(2048), Some(2048), Some(4096), Some(4096)]
        );
        let small = XdpOptions { frame_size: Some(2048), ..options };
        assert_eq!([1500, 3500].map(|mtu| small.frame_size_for(mtu)), [Some(2048), None]);
    }

    #[test]
    fn an_ordinary_mtu_fits_the_small_frame() {
        assert!(mtu_max(2048) >= 1500 && mtu_max(4096) >= 3500);
    }

    #[test]
    fn the_largest_frame_holds_what_the_steering_program_lets_through() {
        const PACKET_MAX: u16 = 3840; // As in bpf/steer.bpf.c.
        assert_eq!(mtu_max(FRAME_SIZE_MAX) + LINK_HEADERS, PACKET_MAX);
    }
}
