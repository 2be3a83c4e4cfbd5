//! Segments as the stack handles them: parsed, with options as values; and their options written back.

use arrayvec::ArrayVec;
use core::net::IpAddr;
pub use transit::Timestamps;
use wire::tcp::{Tcp, TcpOption, flag};

use crate::seq::{SeqNum, SeqRange};

/// Octets that all options of one segment may take.
pub const OPTIONS_LEN_MAX: usize = 40;
/// Octets of the timestamps option with its padding, as every segment of a connection with timestamps carries it.
pub const TIMESTAMPS_LEN: usize = 12;

const KIND_FAST_OPEN: u8 = 34;

/// Bits of the IP header's ECN field (RFC 3168, 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct = 0,
    /// ECN-capable, the other code point.
    Ect1 = 1,
    /// ECN-capable.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The two low bits of an IPv4 TOS field or an IPv6 traffic class.
    pub fn of_traffic_class(class: u8) -> Ecn {
        match class & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// A Fast Open option (RFC 7413, 4.1.1): empty asks for a cookie.
pub type FastOpenCookie = ArrayVec<u8, 16>;

/// Options of one segment. Unknown ones are ignored (RFC 9293, 3.2, MUST-6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Maximum segment size, on SYNs.
    pub mss: Option<u16>,
    /// Window scale, on SYNs.
    pub window_scale: Option<u8>,
    /// SACK permitted, on SYNs.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgements, as they came.
    pub sack: ArrayVec<SeqRange, 4>,
    /// Fast Open.
    pub fast_open: Option<FastOpenCookie>,
}

/// One received segment.
#[derive(Clone, Debug)]
pub struct Segment<'a> {
    /// Sequence number of the first octet; the SYN counts as one in front of the payload.
    pub seq: SeqNum,
    /// The acknowledgement number, which counts only if the ACK bit is set.
    pub ack: SeqNum,
    /// Bits of [`wire::tcp::flag`].
    pub flags: u8,
    /// Window as it stands in the header.
    pub window: u16,
    /// Urgent pointer as it stands in the header.
    pub urgent: u16,
    /// Options.
    pub options: SegmentOptions,
    /// ECN bits of the packet.
    pub ecn: Ecn,
    /// Data.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Takes over a parsed header. A segment without options, or with timestamps alone, costs no search.
    pub fn new(tcp: &Tcp<'a>, ecn: Ecn) -> Segment<'a> {
        Segment {
            seq: SeqNum(tcp.sequence_number()),
            ack: SeqNum(tcp.acknowledgement_number()),
            flags: tcp.flags(),
            window: tcp.window(),
            urgent: tcp.urgent_pointer(),
            options: SegmentOptions::of(tcp),
            ecn,
            payload: tcp.payload(),
        }
    }

    /// Whether all bits of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Octets of sequence space that it takes: data, SYN and FIN.
    #[inline]
    pub fn len(&self) -> u32 {
        let controls = u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN));
        self.payload.len() as u32 + controls // A packet is shorter than 2^16 octets.
    }

    /// Whether it takes no sequence space.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sequence space that it takes.
    #[inline]
    pub fn range(&self) -> SeqRange {
        SeqRange::new(self.seq, self.seq + self.len())
    }

    /// Where its data begins in sequence space.
    #[inline]
    pub fn payload_seq(&self) -> SeqNum {
        self.seq + u32::from(self.has(flag::SYN))
    }
}

impl SegmentOptions {
    fn of(tcp: &Tcp<'_>) -> SegmentOptions {
        let mut options = SegmentOptions::default();
        if let Some((value, echo)) = tcp.lone_timestamps() {
            options.timestamps = Some(Timestamps { value, echo });
            return options;
        }
        for option in tcp.options() {
            options.add(option);
        }
        options
    }

    fn add(&mut self, option: TcpOption<'_>) {
        match option {
            TcpOption::MaximumSegmentSize(mss) => self.mss = Some(mss),
            TcpOption::WindowScale(shift) => self.window_scale = Some(shift),
            TcpOption::SackPermitted => self.sack_permitted = true,
            TcpOption::Timestamps { value, echo_reply } => {
                self.timestamps = Some(Timestamps { value, echo: echo_reply });
            }
            TcpOption::Sack(blocks) => {
                let ranges = blocks.iter().map(|(start, end)| (SeqNum(start), SeqNum(end)));
                let valid = ranges.filter(|(start, end)| start.is_before(*end));
                self.sack = valid.take(4).map(|(start, end)| SeqRange::new(start, end)).collect();
            }
            TcpOption::Other { kind: KIND_FAST_OPEN, data } => {
                let is_cookie = data.is_empty() || (4..=16).contains(&data.len()) && data.len() % 2 == 0;
                self.fast_open = is_cookie.then(|| data.iter().copied().collect());
            }
            TcpOption::Other { .. } => {}
        }
    }

    /// Encodes the options for a header, padded to four octets: what a SYN carries first, then timestamps, then as many SACK
    /// blocks as there is room for, which one at least has (RFC 2018, 3).
    pub fn encode(&self) -> ArrayVec<u8, OPTIONS_LEN_MAX> {
        let mut octets = ArrayVec::new();
        if let Some(mss) = self.mss {
            put(&mut octets, &[2, 4]);
            put(&mut octets, &mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps) {
            // In the place of the padding, as everybody does.
            (true, Some(_)) => put(&mut octets, &[4, 2]),
            (true, None) => put(&mut octets, &[1, 1, 4, 2]),
            (false, Some(_)) => put(&mut octets, &[1, 1]),
            (false, None) => {}
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(&mut octets, &[8, 10]);
            put(&mut octets, &value.to_be_bytes());
            put(&mut octets, &echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&mut octets, &[1, 3, 3, shift]);
        }
        if let Some(cookie) = &self.fast_open {
            put(&mut octets, &[KIND_FAST_OPEN, 2 + cookie.len() as u8]);
            put(&mut octets, cookie);
        }
        self.encode_sack(&mut octets);
        while !octets.len().is_multiple_of(4) {
            put(&mut octets, &[1]);
        }
        octets
    }

    /// Octets that SACK blocks take beside timestamps.
    pub fn sack_len(&self) -> usize {
        let room = if self.timestamps.is_some() { 3 } else { 4 };
        match self.sack.len().min(room) {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }

    fn encode_sack(&self, octets: &mut ArrayVec<u8, OPTIONS_LEN_MAX>) {
        let room = octets.remaining_capacity().saturating_sub(4) / 8;
        let blocks = self.sack.len().min(room);
        if blocks == 0 {
            return;
        }
        put(octets, &[1, 1, 5, 2 + 8 * blocks as u8]);
        for block in &self.sack[..blocks] {
            put(octets, &block.start.0.to_be_bytes());
            put(octets, &block.end.0.to_be_bytes());
        }
    }
}

/// Appends what fits. Everything that the stack puts together does: at most MSS, SACK permitted, timestamps, scale and a
/// cookie, 4 + 12 + 4 + 18 octets.
fn put(octets: &mut ArrayVec<u8, OPTIONS_LEN_MAX>, part: &[u8]) {
    let fits = octets.try_extend_from_slice(part).is_ok();
    debug_assert!(fits, "options exceed their room");
}

/// Octets of IP and TCP header without options.
pub const fn headers_len(remote: &IpAddr) -> u16 {
    match remote {
        IpAddr::V4(_) => 40,
        IpAddr::V6(_) => 60,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::checksum::Sum;
    use wire::tcp::{Fields, write};

    fn parse_back(options: &SegmentOptions) -> SegmentOptions {
        let mut octets = [0; 60];
        let encoded = options.encode();
        let fields = Fields { options: &encoded, ..Fields::default() };
        let len = write(&mut octets, &fields, Some(Sum::ZERO)).unwrap();
        SegmentOptions::of(&Tcp::parse(&octets[..len]).unwrap())
    }

    #[test]
    fn options_of_a_syn_are_read_as_they_were_written() {
        let cookie = [1, 2, 3, 4, 5, 6, 7, 8].into_iter().collect();
        let syn = SegmentOptions {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            fast_open: Some(cookie),
            ..SegmentOptions::default()
        };
        assert_eq!(parse_back(&syn), syn);
    }

    #[test]
    fn three_sack_blocks_fit_beside_timestamps() {
        let block = |at: u32| SeqRange::new(SeqNum(at), SeqNum(at + 10));
        let mut options = SegmentOptions {
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            sack: [block(10), block(30), block(50), block(70)].into_iter().collect(),
            ..SegmentOptions::default()
        };
        let read = parse_back(&options);
        options.sack.truncate(3);
        assert_eq!(read, options);
    }

    #[test]
    fn a_sack_block_that_ends_before_it_starts_is_ignored() {
        let backwards = SeqRange { start: SeqNum(20), end: SeqNum(10) };
        let options = SegmentOptions { sack: [backwards].into_iter().collect(), ..SegmentOptions::default() };
        assert!(parse_back(&options).sack.is_empty());
    }
}
