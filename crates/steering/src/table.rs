//! The steering decision in user space, for devices without a steering program in front of them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use hashbrown::HashTable;
use wire::ethernet::{Ethernet, ethertype};
use wire::icmp::IcmpError;
use wire::ip::Ip;
use wire::protocol;

use crate::claim::{Claim, LocalAddress, Transport, VlanTags};

/// What becomes of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is ours.
    Claimed,
    /// It is the kernel's: neither IPv4 nor IPv6, or behind more than two tags, or shorter than its headers.
    NotIp,
    /// It is the kernel's: a fragment, or a packet with IPv4 options or IPv6 extension headers.
    FragmentOrOptions,
    /// It is the kernel's: neither UDP nor TCP, nor an ICMP error about a packet of ours.
    OtherProtocol,
    /// It is the kernel's: no claim has this port.
    UnclaimedPort,
    /// It is the kernel's: a claim has this port, but on another address or behind other tags.
    UnclaimedAddress,
    /// Claimed TCP with IP options or in fragments. The kernel, which does not know the connection, would reset it: it is dropped, and its
    /// peer sends it again.
    UnreadableTcp,
}

/// Claims, to be looked up for each frame as the steering program does it. A value that does not change: others replace it as a whole.
#[derive(Clone, Debug)]
pub struct ClaimTable {
    /// For each transport a bit for each port that has a claim: most frames that are not ours end here.
    ports: [Box<[u64; PORT_WORDS]>; 2],
    claims: HashTable<Claim>,
}

const PORT_WORDS: usize = 65536 / 64;

impl ClaimTable {
    /// The table of `claims`.
    pub fn new(claims: &BTreeSet<Claim>) -> ClaimTable {
        let mut ports = [Box::new([0; PORT_WORDS]), Box::new([0; PORT_WORDS])];
        for claim in claims {
            let port = usize::from(claim.port);
            ports[place(claim.transport)][port / 64] |= 1 << (port % 64);
        }
        let mut table = HashTable::with_capacity(claims.len());
        for &claim in claims {
            table.insert_unique(hash(&claim), claim, hash);
        }
        ClaimTable { ports, claims: table }
    }

    /// Whose an Ethernet frame is.
    #[inline]
    pub fn verdict(&self, frame: &[u8]) -> Verdict {
        let Ok(ethernet) = Ethernet::parse(frame) else { return Verdict::NotIp };
        let Ok(ip) = Ip::in_frame(&ethernet) else { return self.unreadable(&ethernet) };
        let obstacle = if is_plain(&ip) { None } else { Some(Verdict::FragmentOrOptions) };
        match ip.protocol() {
            protocol::UDP if obstacle.is_none() => self.of_transport(Transport::Udp, &ethernet, &ip),
            protocol::TCP => match (self.of_transport(Transport::Tcp, &ethernet, &ip), obstacle) {
                (Verdict::Claimed, Some(_)) => Verdict::UnreadableTcp,
                (_, Some(obstacle)) => obstacle,
                (verdict, None) => verdict,
            },
            _ => obstacle.unwrap_or_else(|| self.of_icmp(&ethernet, &ip)),
        }
    }

    fn of_transport(&self, transport: Transport, ethernet: &Ethernet<'_>, ip: &Ip<'_>) -> Verdict {
        // The first fragment has ports; the others have data there, and are not looked at.
        let is_later_part = ip.is_fragment() && !is_first_part(ip);
        let Some(&[_, _, high, low]) = ip.payload().first_chunk().filter(|_| !is_later_part) else {
            return Verdict::NotIp;
        };
        self.of_flow(transport, ethernet, ip.destination(), u16::from_be_bytes([high, low]))
    }

    fn of_icmp(&self, ethernet: &Ethernet<'_>, ip: &Ip<'_>) -> Verdict {
        let Ok(IcmpError { flow, .. }) = IcmpError::parse(ip) else { return Verdict::OtherProtocol };
        let transport = match flow.protocol {
            protocol::UDP => Transport::Udp,
            protocol::TCP => Transport::Tcp,
            _ => return Verdict::OtherProtocol,
        };
        // An error is for whoever sent the packet that it quotes (RFC 5927, 4): one that goes elsewhere is none of ours.
        if flow.source.ip() != ip.destination() {
            return Verdict::OtherProtocol;
        }
        self.of_flow(transport, ethernet, flow.source.ip(), flow.source.port())
    }

    fn of_flow(&self, transport: Transport, ethernet: &Ethernet<'_>, address: IpAddr, port: u16) -> Verdict {
        let bit = self.ports[place(transport)][usize::from(port) / 64] >> (port % 64) & 1;
        if bit == 0 {
            return Verdict::UnclaimedPort;
        }
        let [outer, inner] = ethernet.tags().map(|tag| tag.map_or(0, |tag| tag.id()));
        let local = LocalAddress { address, vlan: VlanTags { outer, inner } };
        let wanted = Claim { transport, local, port };
        match self.claims.find(hash(&wanted), |claim| *claim == wanted) {
            Some(_) => Verdict::Claimed,
            None => Verdict::UnclaimedAddress,
        }
    }

    fn unreadable(&self, ethernet: &Ethernet<'_>) -> Verdict {
        match ethernet.ethertype() {
            ethertype::IPV4 | ethertype::IPV6 => Verdict::FragmentOrOptions,
            _ => Verdict::NotIp,
        }
    }
}

/// Without options, without extension headers, and whole.
fn is_plain(ip: &Ip<'_>) -> bool {
    let plain = match ip {
        Ip::V4(packet) => packet.options().is_empty(),
        Ip::V6(packet) => !packet.has_extensions(),
    };
    plain && !ip.is_fragment()
}

fn is_first_part(ip: &Ip<'_>) -> bool {
    match ip {
        Ip::V4(packet) => packet.fragment_offset() == 0,
        Ip::V6(packet) => packet.fragment().is_none_or(|part| part.offset == 0),
    }
}

const fn place(transport: Transport) -> usize {
    match transport {
        Transport::Udp => 0,
        Transport::Tcp => 1,
    }
}

/// Multiplies and mixes. What it hashes are frames' addresses, which strangers choose; the table holds only our claims, so nobody can
/// make its chains longer.
fn hash(claim: &Claim) -> u64 {
    let address = match claim.local.address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 ^ address.to_bits() as u64,
    };
    let VlanTags { outer, inner } = claim.local.vlan;
    let rest = u64::from(claim.port)
        | u64::from(outer) << 16
        | u64::from(inner) << 32
        | (place(claim.transport) as u64) << 48;
    let mixed = (address ^ rest.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests;
