//! Writing pcapng files (draft-ietf-opsawg-pcapng), which tcpdump and Wireshark read, also from a pipe.
//!
//! ```text
//! block = type (4), length (4), body, padding to 4, length (4)         all numbers little-endian here
//! file  = section header, then interface descriptions, packets and statistics, each interface before its first packet
//! ```

use std::io::{self, Write};

use crate::Direction;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

/// Options by their numbers in the draft; each block has numbers of its own.
mod option {
    pub(super) const SHB_USERAPPL: u16 = 4;
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_DESCRIPTION: u16 = 3;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const EPB_FLAGS: u16 = 2;
    pub(super) const ISB_IFRECV: u16 = 4;
    pub(super) const ISB_IFDROP: u16 = 5;
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The interface, in the order of [`Writer::add_interface`] from 0.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Its direction.
    pub direction: Direction,
    /// Octets of the original packet; `frame` may hold fewer.
    pub original_len: u32,
    /// The Ethernet frame, as far as it was captured.
    pub frame: &'a [u8],
}

/// Writes one section.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a section. `application` is the name of the program that writes it.
    pub fn new(out: W, application: &str) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, block: Vec::new() };
        writer.begin(SECTION_HEADER);
        writer.put(&BYTE_ORDER_MAGIC.to_le_bytes());
        writer.put(&[1, 0, 0, 0]); // Version 1.0.
        writer.put(&u64::MAX.to_le_bytes()); // How long the section is, is not known.
        writer.option(option::SHB_USERAPPL, application.as_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Adds an Ethernet interface. `snaplen` is the limit of its packets; 0 for none.
    pub fn add_interface(&mut self, name: &str, description: &str, snaplen: u32) -> io::Result<()> {
        const NANOSECONDS: u8 = 9; // Ticks are 10^-9 s.
        self.begin(INTERFACE_DESCRIPTION);
        self.put(&LINKTYPE_ETHERNET.to_le_bytes());
        self.put(&[0, 0]);
        self.put(&snaplen.to_le_bytes());
        self.option(option::IF_NAME, name.as_bytes());
        self.option(option::IF_DESCRIPTION, description.as_bytes());
        self.option(option::IF_TSRESOL, &[NANOSECONDS]);
        self.end()
    }

    /// Adds a packet.
    pub fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let flags: u32 = match packet.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        self.begin(ENHANCED_PACKET);
        self.put(&packet.interface.to_le_bytes());
        self.put_time(packet.time_ns);
        self.put(&(packet.frame.len() as u32).to_le_bytes());
        self.put(&packet.original_len.to_le_bytes());
        self.put(packet.frame);
        self.pad();
        self.option(option::EPB_FLAGS, &flags.to_le_bytes());
        self.end()
    }

    /// Adds the counts of an interface up to `time_ns`: packets that matched the filter, and those of them that were lost.
    pub fn write_statistics(
        &mut self,
        interface: u32,
        time_ns: u64,
        received: u64,
        dropped: u64,
    ) -> io::Result<()> {
        self.begin(INTERFACE_STATISTICS);
        self.put(&interface.to_le_bytes());
        self.put_time(time_ns);
        self.option(option::ISB_IFRECV, &received.to_le_bytes());
        self.option(option::ISB_IFDROP, &dropped.to_le_bytes());
        self.end()
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        self.put(&[0; 4]); // The length, when it is known.
    }

    fn put(&mut self, octets: &[u8]) {
        self.block.extend_from_slice(octets);
    }

    /// The upper half of the time goes first, in either byte order.
    fn put_time(&mut self, time_ns: u64) {
        self.put(&((time_ns >> 32) as u32).to_le_bytes());
        self.put(&(time_ns as u32).to_le_bytes());
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Cuts texts that are too long for an option.
    fn option(&mut self, number: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.put(&number.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    fn end(&mut self) -> io::Result<()> {
        self.put(&[0; 4]); // End of options.
        let len = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&len);
        self.put(&len);
        self.out.write_all(&self.block)
    }
}

#[cfg(test)]
mod tests {
    use device::pcap::Capture;

    use super::*;

    const TIME_NS: u64 = 1_700_000_000_123_456_789;

    fn written(add: impl FnOnce(&mut Writer<&mut Vec<u8>>)) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "sidestep").unwrap();
        add(&mut writer);
        file
    }

    fn packet(interface: u32, direction: Direction) -> Packet<'static> {
        Packet { interface, time_ns: TIME_NS, direction, original_len: 9, frame: b"ABCDE" }
    }

    #[test]
    fn packets_come_back_with_time_and_octets() {
        let file = written(|writer| {
            writer.add_interface("veth0", "queues 0-1", 0).unwrap();
            writer.add_interface("veth1", "queue 0", 96).unwrap();
            writer.write(&packet(0, Direction::Inbound)).unwrap();
            writer.write(&packet(1, Direction::Outbound)).unwrap();
            writer.write_statistics(1, TIME_NS, 3, 2).unwrap();
        });
        let capture = Capture::parse(file).unwrap();
        let packets: Vec<_> = capture.packets().map(|packet| (packet.time_ns, packet.frame)).collect();
        assert_eq!(packets, [(TIME_NS, b"ABCDE".as_slice()); 2]);
    }

    /// The draft, 4.3 and 3.5.1.
    #[test]
    fn a_packet_block_is_as_the_draft_draws_it() {
        let before = written(|_| ()).len();
        let file = written(|writer| writer.write(&packet(7, Direction::Outbound)).unwrap());
        let mut wanted = Vec::new();
        let words = [6, 52, 7, (TIME_NS >> 32) as u32, TIME_NS as u32, 5, 9];
        words.iter().for_each(|word| wanted.extend(word.to_le_bytes()));
        wanted.extend(b"ABCDE\0\0\0");
        wanted.extend([2, 0, 4, 0, 2, 0, 0, 0]); // epb_flags: outbound.
        wanted.extend([0; 4]);
        wanted.extend(52u32.to_le_bytes());
        assert_eq!(file[before..], wanted);
    }

    #[test]
    fn a_statistics_block_is_as_the_draft_draws_it() {
        let before = written(|_| ()).len();
        let file = written(|writer| writer.write_statistics(1, 0, 3, 2).unwrap());
        let mut wanted = Vec::new();
        [5u32, 52, 1, 0, 0].iter().for_each(|word| wanted.extend(word.to_le_bytes()));
        wanted.extend([4, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend([5, 0, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        wanted.extend([0; 4]);
        wanted.extend(52u32.to_le_bytes());
        assert_eq!(file[before..], wanted);
    }
}
