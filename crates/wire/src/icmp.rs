//! ICMP errors and the packets that they quote (RFC 792; RFC 1191; RFC 4443).

use core::net::{IpAddr, SocketAddr};

use crate::checksum::Sum;
use crate::ip::Ip;
use crate::{DropReason, protocol};

/// Octets in front of the quoted packet.
pub const HEADER_LEN: usize = 8;

/// An ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What it reports.
    pub kind: ErrorKind,
    /// The flow of the packet that caused it, as its sender sent it.
    pub flow: QuotedFlow,
}

/// What an ICMP error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The packet did not arrive; the code says why.
    Unreachable {
        /// Code of "destination unreachable" in its version of ICMP.
        code: u8,
    },
    /// The packet exceeds the MTU of a link. Zero from routers older than RFC 1191.
    TooBig {
        /// The link's MTU in octets.
        mtu: u32,
    },
    /// Hop limit or reassembly time ran out.
    TimeExceeded {
        /// 0 for the hop limit, 1 for reassembly.
        code: u8,
    },
    /// A router or the receiver did not understand a header.
    ParameterProblem {
        /// Code in its version of ICMP.
        code: u8,
    },
}

/// Whose packet an ICMP error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotedFlow {
    /// Number of the transport protocol, which has ports.
    pub protocol: u8,
    /// The sender of the packet: us, if the error is for us.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// The TCP sequence number, with which to tell forged errors (RFC 5927, 4.1); zero for UDP.
    pub sequence_number: u32,
}

impl IcmpError {
    /// Looks at the payload of `ip`, verifying the checksum.
    pub fn parse(ip: &Ip<'_>) -> Result<IcmpError, DropReason> {
        let message = ip.payload();
        let v6 = match ip.protocol() {
            protocol::ICMP => false,
            protocol::ICMPV6 => true,
            _ => return Err(DropReason::ProtocolUnknown),
        };
        let Some((header, quoted)) = message.split_first_chunk::<HEADER_LEN>() else {
            return Err(DropReason::IcmpTruncated);
        };
        if !(ip.pseudo_header(message.len()) + Sum::of(message)).is_valid() {
            return Err(DropReason::IcmpChecksum);
        }
        let kind = if v6 { kind_v6(header) } else { kind_v4(header) };
        let kind = kind.ok_or(DropReason::IcmpNotAnError)?;
        Ok(IcmpError { kind, flow: quoted_flow(quoted, v6)? })
    }
}

fn kind_v4(header: &[u8; HEADER_LEN]) -> Option<ErrorKind> {
    let code = header[1];
    match header[0] {
        3 if code == 4 => {
            Some(ErrorKind::TooBig { mtu: u32::from(u16::from_be_bytes([header[6], header[7]])) })
        }
        3 => Some(ErrorKind::Unreachable { code }),
        11 => Some(ErrorKind::TimeExceeded { code }),
        12 => Some(ErrorKind::ParameterProblem { code }),
        _ => None,
    }
}

fn kind_v6(header: &[u8; HEADER_LEN]) -> Option<ErrorKind> {
    let code = header[1];
    match header[0] {
        1 => Some(ErrorKind::Unreachable { code }),
        2 => {
            let &[_, _, _, _, a, b, c, d] = header;
            Some(ErrorKind::TooBig { mtu: u32::from_be_bytes([a, b, c, d]) })
        }
        3 => Some(ErrorKind::TimeExceeded { code }),
        4 => Some(ErrorKind::ParameterProblem { code }),
        _ => None,
    }
}

/// Reads the ends of the quoted packet, of which at least eight octets behind the IP header are there (RFC 792).
fn quoted_flow(quoted: &[u8], v6: bool) -> Result<QuotedFlow, DropReason> {
    let ip = Ip::parse_quoted(quoted).map_err(|_| DropReason::IcmpQuoteTruncated)?;
    if v6 != matches!(ip, Ip::V6(_)) {
        return Err(DropReason::IpVersion);
    }
    if !matches!(ip.protocol(), protocol::UDP | protocol::TCP) {
        return Err(DropReason::ProtocolUnknown);
    }
    let is_first_part = match &ip {
        Ip::V4(packet) => packet.fragment_offset() == 0,
        Ip::V6(packet) => packet.fragment().is_none_or(|part| part.offset == 0),
    };
    if !is_first_part {
        return Err(DropReason::IpFragment);
    }
    let Some(&[a, b, c, d, e, f, g, h]) = ip.payload().first_chunk::<8>() else {
        return Err(DropReason::IcmpQuoteTruncated);
    };
    let end = |address: IpAddr, port: [u8; 2]| SocketAddr::new(address, u16::from_be_bytes(port));
    let is_tcp = ip.protocol() == protocol::TCP;
    Ok(QuotedFlow {
        protocol: ip.protocol(),
        source: end(ip.source(), [a, b]),
        destination: end(ip.destination(), [c, d]),
        sequence_number: if is_tcp { u32::from_be_bytes([e, f, g, h]) } else { 0 },
    })
}

/// What is written into the first octets of an ICMP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// Type in its version of ICMP.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// The four octets behind the checksum.
    pub rest: u32,
}

/// Writes type, code and rest in front of what stands at octet 8 of `message`, and fills in the checksum behind
/// `pseudo_header` ([`Sum::ZERO`] for IPv4). `None` if `message` is shorter than that.
pub fn write(message: &mut [u8], fields: &Fields, pseudo_header: Sum) -> Option<usize> {
    let header = message.first_chunk_mut::<HEADER_LEN>()?;
    header[..4].copy_from_slice(&[fields.kind, fields.code, 0, 0]);
    header[4..].copy_from_slice(&fields.rest.to_be_bytes());
    let checksum = (pseudo_header + Sum::of(message)).complement();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(HEADER_LEN)
}
