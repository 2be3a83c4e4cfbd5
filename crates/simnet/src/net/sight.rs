//! A TCP packet as an observer of the wire sees it.

use std::net::SocketAddr;

use wire::ip::Ip;
use wire::ipv4::Ipv4;
use wire::ipv6::Ipv6;
use wire::tcp::{Tcp, TcpOption, flag};
use wire::{protocol, tcp};

/// What the wire shows of one segment whose checksums are right.
#[derive(Clone, Debug)]
pub struct Sight<'a> {
    /// Its source.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number, if the flag is set.
    pub ack: Option<u32>,
    /// Flags.
    pub flags: u8,
    /// Window, not scaled.
    pub window: u16,
    /// Octets of options.
    pub options_len: usize,
    /// MSS option.
    pub mss: Option<u16>,
    /// Window scale option.
    pub scale: Option<u8>,
    /// TSval.
    pub timestamp: Option<u32>,
    /// Data.
    pub payload: &'a [u8],
}

impl<'a> Sight<'a> {
    /// Looks at a packet; `None` if it is damaged or not TCP.
    pub fn of(packet: &'a [u8]) -> Option<Sight<'a>> {
        let ip = match packet.first()? >> 4 {
            4 => Ip::V4(Ipv4::parse(packet).ok().filter(Ipv4::checksum_is_valid)?),
            _ => Ip::V6(Ipv6::parse(packet).ok()?),
        };
        if ip.protocol() != protocol::TCP {
            return None;
        }
        let segment = Tcp::parse(ip.payload()).ok()?;
        if !segment.checksum_is_valid(ip.pseudo_header(ip.payload().len())) {
            return None;
        }
        let has_ack = segment.flags() & flag::ACK != 0;
        let mut sight = Sight {
            from: SocketAddr::new(ip.source(), segment.source_port()),
            to: SocketAddr::new(ip.destination(), segment.destination_port()),
            seq: segment.sequence_number(),
            ack: has_ack.then(|| segment.acknowledgement_number()),
            flags: segment.flags(),
            window: segment.window(),
            options_len: ip.payload().len() - tcp::HEADER_LEN - segment.payload().len(),
            mss: None,
            scale: None,
            timestamp: None,
            payload: segment.payload(),
        };
        for option in segment.options() {
            match option {
                TcpOption::MaximumSegmentSize(mss) => sight.mss = Some(mss),
                TcpOption::WindowScale(scale) => sight.scale = Some(scale),
                TcpOption::Timestamps { value, .. } => sight.timestamp = Some(value),
                _ => {}
            }
        }
        Some(sight)
    }

    /// Whether all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Sequence space that it takes.
    pub fn len(&self) -> u32 {
        let controls = u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN));
        self.payload.len() as u32 + controls
    }

    /// Whether it takes none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One line about a packet, for traces.
pub fn describe(packet: &[u8]) -> String {
    let Some(sight) = Sight::of(packet) else {
        let first = &packet[..packet.len().min(60)];
        return format!("{} octets, not valid TCP: {first:02x?}", packet.len());
    };
    let names = [(flag::SYN, 'S'), (flag::FIN, 'F'), (flag::RST, 'R'), (flag::PSH, 'P')];
    let more = [(flag::ACK, '.'), (flag::ECE, 'E'), (flag::CWR, 'W')];
    let flags: String =
        names.iter().chain(&more).filter(|(bit, _)| sight.has(*bit)).map(|(_, name)| *name).collect();
    let ack = sight.ack.map(|ack| format!(" ack {ack}")).unwrap_or_default();
    let (from, to, seq, len) = (sight.from.port(), sight.to.port(), sight.seq, sight.payload.len());
    let options = tcp_options(packet);
    format!("{from} > {to} {flags} {seq}({len}){ack} win {} {options}", sight.window)
}

fn tcp_options(packet: &[u8]) -> String {
    let ip = Ip::parse_quoted(packet).ok();
    let segment = ip.as_ref().and_then(|ip| Tcp::parse(ip.payload()).ok());
    let Some(segment) = segment else {
        return String::new();
    };
    let text = segment.options().map(|option| match option {
        TcpOption::MaximumSegmentSize(mss) => format!("mss {mss}"),
        TcpOption::WindowScale(scale) => format!("wscale {scale}"),
        TcpOption::SackPermitted => "sackOK".to_owned(),
        TcpOption::Sack(blocks) => {
            let blocks: Vec<String> = blocks.iter().map(|(start, end)| format!("{start}-{end}")).collect();
            format!("sack {}", blocks.join(" "))
        }
        TcpOption::Timestamps { value, echo_reply } => format!("ts {value} {echo_reply}"),
        TcpOption::Other { kind, .. } => format!("kind {kind}"),
    });
    format!("<{}>", text.collect::<Vec<_>>().join(", "))
}
