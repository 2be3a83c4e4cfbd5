//! Ethernet headers and the VLAN tags behind them (IEEE 802.3, 802.1Q, 802.1ad).

use crate::DropReason;

/// Octets of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;
/// Octets of one VLAN tag.
pub const TAG_LEN: usize = 4;

/// What follows the Ethernet header.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// A customer VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// A service VLAN tag, in front of a customer's.
    pub const VLAN_SERVICE: u16 = 0x88a8;
}

/// An Ethernet address in transmission order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The address of every station.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether this is a multicast or the broadcast address.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

/// One VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VlanTag {
    /// [`ethertype::VLAN`] or [`ethertype::VLAN_SERVICE`].
    pub tpid: u16,
    /// Priority (3 bits), drop eligibility (1 bit) and VLAN identifier (12 bits).
    pub control: u16,
}

impl VlanTag {
    /// The VLAN identifier, 0 to 4095.
    pub const fn id(self) -> u16 {
        self.control & 0x0fff
    }
}

/// A frame whose Ethernet header and VLAN tags are complete.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    frame: &'a [u8],
    ethertype: u16,
    payload: usize,
}

impl<'a> Ethernet<'a> {
    /// Looks behind up to two tags.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Ethernet<'a>, DropReason> {
        let (ethertype, payload) = find_payload(frame)?;
        Ok(Ethernet { frame, ethertype, payload })
    }

    /// The destination of the frame.
    pub fn destination(&self) -> MacAddress {
        mac_at(self.frame, 0)
    }

    /// The source of the frame.
    pub fn source(&self) -> MacAddress {
        mac_at(self.frame, 6)
    }

    /// The ethertype behind the tags.
    pub fn ethertype(&self) -> u16 {
        self.ethertype
    }

    /// The tags, outermost first.
    pub fn tags(&self) -> [Option<VlanTag>; 2] {
        let tag = |at: usize| {
            let octets = self.frame.get(at..at + TAG_LEN)?;
            (at + TAG_LEN + 2 <= self.payload).then(|| VlanTag {
                tpid: u16::from_be_bytes([octets[0], octets[1]]),
                control: u16::from_be_bytes([octets[2], octets[3]]),
            })
        };
        [tag(12), tag(12 + TAG_LEN)]
    }

    /// Octets from the start of the frame to its payload: 14, 18 or 22.
    pub fn payload_offset(&self) -> usize {
        self.payload
    }

    /// What follows header and tags, padding included.
    pub fn payload(&self) -> &'a [u8] {
        self.frame.get(self.payload..).unwrap_or_default()
    }
}

/// The ethertype behind the tags and where the payload starts.
#[inline]
pub(crate) fn find_payload(frame: &[u8]) -> Result<(u16, usize), DropReason> {
    let mut at = HEADER_LEN;
    for _ in 0..3 {
        let kind = match frame.get(at - 2..at) {
            Some(octets) => u16::from_be_bytes([octets[0], octets[1]]),
            None => return Err(DropReason::EthernetTruncated),
        };
        if !is_tag(kind) {
            return Ok((kind, at));
        }
        at += TAG_LEN;
    }
    Err(DropReason::VlanTooManyTags)
}

/// Writes an Ethernet header with `tags`, outermost first, to the start of `frame`; returns its length, or `None` if
/// `frame` is too short. A second tag without a first is written as the first.
pub fn write(
    frame: &mut [u8],
    destination: MacAddress,
    source: MacAddress,
    tags: [Option<VlanTag>; 2],
    ethertype: u16,
) -> Option<usize> {
    let len = header_len(tags);
    let header = frame.get_mut(..len)?;
    header[..6].copy_from_slice(&destination.0);
    header[6..12].copy_from_slice(&source.0);
    let mut at = 12;
    for tag in tags.iter().flatten() {
        header[at..at + 2].copy_from_slice(&tag.tpid.to_be_bytes());
        header[at + 2..at + 4].copy_from_slice(&tag.control.to_be_bytes());
        at += TAG_LEN;
    }
    header[at..].copy_from_slice(&ethertype.to_be_bytes());
    Some(len)
}

/// Octets of an Ethernet header with `tags`.
pub fn header_len(tags: [Option<VlanTag>; 2]) -> usize {
    HEADER_LEN + TAG_LEN * tags.iter().flatten().count()
}

fn is_tag(kind: u16) -> bool {
    kind == ethertype::VLAN || kind == ethertype::VLAN_SERVICE
}

fn mac_at(frame: &[u8], at: usize) -> MacAddress {
    let octets = frame.get(at..).and_then(|rest| rest.first_chunk());
    MacAddress(octets.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: VlanTag = VlanTag { tpid: ethertype::VLAN, control: 0x2064 };
    const OUTER: VlanTag = VlanTag { tpid: ethertype::VLAN_SERVICE, control: 0x0fff };

    fn frame_with(tags: [Option<VlanTag>; 2]) -> [u8; 24] {
        let mut frame = [0; 24];
        write(&mut frame, MacAddress([2; 6]), MacAddress([4; 6]), tags, ethertype::ARP).unwrap();
        frame
    }

    #[test]
    fn tags_are_read_as_they_were_written() {
        for tags in [[None, None], [Some(TAG), None], [Some(OUTER), Some(TAG)]] {
            let frame = frame_with(tags);
            let ethernet = Ethernet::parse(&frame).unwrap();
            assert_eq!(ethernet.tags(), tags);
            assert_eq!(ethernet.ethertype(), ethertype::ARP);
            assert_eq!(ethernet.payload_offset(), header_len(tags));
            assert_eq!((ethernet.destination(), ethernet.source()), (MacAddress([2; 6]), MacAddress([4; 6])));
        }
    }

    #[test]
    fn a_third_tag_is_refused() {
        let mut frame = frame_with([Some(OUTER), Some(TAG)]);
        frame[20..22].copy_from_slice(&ethertype::VLAN.to_be_bytes());
        assert_eq!(Ethernet::parse(&frame).unwrap_err(), DropReason::VlanTooManyTags);
    }

    #[test]
    fn a_tag_that_is_cut_off_is_refused() {
        let frame = frame_with([Some(TAG), None]);
        assert_eq!(Ethernet::parse(&frame[..17]).unwrap_err(), DropReason::EthernetTruncated);
        assert_eq!(Ethernet::parse(&frame[..13]).unwrap_err(), DropReason::EthernetTruncated);
    }
}
