//! Why a packet was dropped.

/// Declares the enum, its list and its names in one place, so that they cannot disagree.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $variant:ident => $name:literal,)+) => {
        /// Every reason why a packet is dropped. Each is a counter: see [`DropReason::index`].
        ///
        /// A bad packet is an outcome and not an error: it is counted, its frame is released, and the burst continues.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])+ $variant,)+
        }

        impl DropReason {
            /// All reasons, each at its [`DropReason::index`].
            pub const ALL: [DropReason; [$($name),+].len()] = [$(DropReason::$variant),+];

            /// The counter's name: lower case, words joined by underscores, stable between releases.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)+
                }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than an Ethernet header and the VLAN tags that it announces.
    EthernetTruncated => "ethernet_truncated",
    /// Sent to a multicast or broadcast MAC address, where a unicast service must not answer (RFC 1122, 3.2.1.3).
    EthernetGroupDestination => "ethernet_group_destination",
    /// Sent from a multicast or broadcast MAC address, which no station has: an answer would reach everybody.
    EthernetGroupSource => "ethernet_group_source",
    /// More than two VLAN tags.
    VlanTooManyTags => "vlan_too_many_tags",
    /// Neither IPv4 nor IPv6.
    EthertypeUnknown => "ethertype_unknown",
    /// Shorter than the IP header.
    IpTruncated => "ip_truncated",
    /// The version field does not match the ethertype.
    IpVersion => "ip_version",
    /// IPv4 header length below five words or beyond the packet.
    Ipv4HeaderLength => "ipv4_header_length",
    /// IPv4 options, which the steering program leaves to the kernel.
    Ipv4Options => "ipv4_options",
    /// Total length or payload length is shorter than the headers or longer than the frame.
    IpLength => "ip_length",
    /// The IPv4 header checksum is wrong.
    Ipv4Checksum => "ipv4_checksum",
    /// A fragment, which the steering program leaves to the kernel.
    IpFragment => "ip_fragment",
    /// IPv6 extension headers, which the steering program leaves to the kernel.
    Ipv6ExtensionHeaders => "ipv6_extension_headers",
    /// An IPv6 extension header reaches beyond the packet, or there are more of them than is reasonable.
    Ipv6ExtensionMalformed => "ipv6_extension_malformed",
    /// A transport protocol that we do not support.
    ProtocolUnknown => "protocol_unknown",
    /// The source address is unspecified, multicast or broadcast: an answer is impossible.
    SourceAddress => "source_address",
    /// The SYN says to come from one of this host's own addresses, or from where the kernel's routes and `rp_filter` expect nobody.
    SourceUnexpected => "source_unexpected",
    /// The destination address is unspecified, multicast or broadcast: not for a unicast service.
    DestinationAddress => "destination_address",
    /// Shorter than a UDP header.
    UdpTruncated => "udp_truncated",
    /// The UDP length is below eight or beyond the IP packet.
    UdpLength => "udp_length",
    /// The UDP checksum is wrong.
    UdpChecksum => "udp_checksum",
    /// No UDP checksum on IPv6, where it is required (RFC 8200, 8.1).
    UdpChecksumMissing => "udp_checksum_missing",
    /// Source port zero: the sender expects no answer (RFC 768).
    SourcePortZero => "source_port_zero",
    /// Destination port zero, on which nothing can listen.
    DestinationPortZero => "destination_port_zero",
    /// Shorter than a TCP header.
    TcpTruncated => "tcp_truncated",
    /// TCP data offset below five words or beyond the packet.
    TcpDataOffset => "tcp_data_offset",
    /// The TCP checksum is wrong.
    TcpChecksum => "tcp_checksum",
    /// Shorter than an ICMP header.
    IcmpTruncated => "icmp_truncated",
    /// The ICMP checksum is wrong.
    IcmpChecksum => "icmp_checksum",
    /// An ICMP message that reports no error, such as an echo request.
    IcmpNotAnError => "icmp_not_an_error",
    /// The packet quoted in an ICMP error is too short to identify its flow.
    IcmpQuoteTruncated => "icmp_quote_truncated",
    /// Well-formed, but no socket has that address and port.
    NoListener => "no_listener",
    /// The service chose to give no answer.
    NotAnswered => "not_answered",
    /// The answer was ready, but the device had no room for it.
    TransmitFull => "transmit_full",
}

impl DropReason {
    /// Position of the reason's counter in an array of `ALL.len()` counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_index() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
    }

    #[test]
    fn no_two_reasons_share_a_name() {
        for reason in DropReason::ALL {
            assert_eq!(DropReason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }
}
