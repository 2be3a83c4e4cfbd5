//! What the data of each type consists of: one line per type.

use dns_wire::Rtype;

/// A part of RDATA that has its own text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// An 8-bit number.
    U8,
    /// A 16-bit number.
    U16,
    /// A 32-bit number.
    U32,
    /// A 64-bit number.
    U64,
    /// A 32-bit number of seconds, with or without units.
    Duration,
    /// A point in time, 32 bits.
    Time,
    /// A domain name.
    Name,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A character-string: its length in one octet, then the octets.
    String,
    /// A character-string, or nothing more.
    StringOrNone,
    /// One or more character-strings.
    Strings,
    /// A character-string of letters and digits only: the tag of CAA.
    Tag,
    /// A string without length, up to the end of the RDATA.
    Text,
    /// As `Text`, at least one octet.
    SomeText,
    /// Base64 up to the end.
    Base64,
    /// As `Base64`, or nothing.
    Base64OrNone,
    /// As `Base64`, or a hyphen for nothing.
    Base64OrHyphen,
    /// Hex digits up to the end.
    Hex,
    /// The length in one octet and then octets in hex, or a hyphen for nothing: a salt (RFC 5155, 3.3).
    Salt,
    /// The length in one octet and then octets in base32hex: a hashed owner (RFC 5155, 3.3).
    HashedOwner,
    /// Types, as windows of bits (RFC 4034, 4.1.2).
    Bitmap,
    /// The types below 128, as one row of bits (RFC 2535, 5.2).
    OldBitmap,
    /// A type.
    Type,
    /// A DNSSEC algorithm.
    Algorithm,
    /// A type of certificate (RFC 4398, 2.1).
    CertificateType,
    /// A scheme of DSYNC (RFC 9859, 2.1).
    DsyncScheme,
    /// `0x` and hex digits with dots anywhere (RFC 1706, 7).
    Nsap,
    /// An ATM address, by its form of text.
    Atma,
    /// Octets in hex with hyphens between, this many (RFC 7043).
    Eui(usize),
    /// Four groups of hex digits with colons between (RFC 6742).
    Ilnp64,
    /// Prefix length, suffix of an address, prefix name (RFC 2874).
    A6,
    /// A location (RFC 1876).
    Loc,
    /// Address prefixes (RFC 3123).
    Apl,
    /// Address, protocol and ports (RFC 1035, 3.4.2).
    Wks,
    /// Precedence, gateway and key (RFC 4025).
    Ipseckey,
    /// Precedence, discovery bit and relay (RFC 8777).
    Amtrelay,
    /// Identity tag, key and servers (RFC 8005).
    Hip,
    /// Service parameters (RFC 9460).
    SvcParams,
}

/// The parts of the RDATA of `rtype` in their order, if it has a text format of its own.
pub(super) fn schema(rtype: Rtype) -> Option<&'static [Field]> {
    use Field::*;
    Some(match rtype {
        Rtype::A => &[Ipv4],
        Rtype::AAAA => &[Ipv6],
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME | Rtype::NSAP_PTR => &[Name],
        Rtype::MD | Rtype::MF | Rtype::MB | Rtype::MG | Rtype::MR => &[Name],
        Rtype::SOA => &[Name, Name, U32, Duration, Duration, Duration, Duration],
        Rtype::WKS => &[Wks],
        Rtype::HINFO => &[String, String],
        Rtype::MINFO | Rtype::RP | Rtype::TALINK => &[Name, Name],
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP => &[U16, Name],
        Rtype::TXT | Rtype::SPF | Rtype::NINFO | Rtype::AVC => &[Strings],
        Rtype::RESINFO | Rtype::WALLET | Rtype::CLA => &[Strings],
        Rtype::X25 => &[String],
        Rtype::ISDN => &[String, StringOrNone],
        Rtype::NSAP => &[Nsap],
        Rtype::SIG | Rtype::RRSIG => &[Type, Algorithm, U8, Duration, Time, Time, U16, Name, Base64],
        Rtype::KEY | Rtype::RKEY => &[U16, U8, Algorithm, Base64OrNone],
        Rtype::DNSKEY | Rtype::CDNSKEY => &[U16, U8, Algorithm, Base64],
        Rtype::PX => &[U16, Name, Name],
        Rtype::GPOS => &[String, String, String],
        Rtype::LOC => &[Loc],
        Rtype::NXT => &[Name, OldBitmap],
        Rtype::EID | Rtype::NIMLOC => &[Hex],
        Rtype::SRV => &[U16, U16, U16, Name],
        Rtype::ATMA => &[Atma],
        Rtype::NAPTR => &[U16, U16, String, String, String, Name],
        Rtype::CERT => &[CertificateType, U16, Algorithm, Base64OrNone],
        Rtype::A6 => &[A6],
        Rtype::SINK => &[U8, U8, U8, Base64OrNone],
        Rtype::APL => &[Apl],
        Rtype::DS | Rtype::CDS | Rtype::DLV | Rtype::TA => &[U16, Algorithm, U8, Hex],
        Rtype::SSHFP => &[U8, U8, Hex],
        Rtype::IPSECKEY => &[Ipseckey],
        Rtype::NSEC => &[Name, Bitmap],
        Rtype::DHCID | Rtype::OPENPGPKEY | Rtype::HHIT | Rtype::BRID => &[Base64],
        Rtype::NSEC3 => &[U8, U8, U16, Salt, HashedOwner, Bitmap],
        Rtype::NSEC3PARAM => &[U8, U8, U16, Salt],
        Rtype::TLSA | Rtype::SMIMEA => &[U8, U8, U8, Hex],
        Rtype::HIP => &[Hip],
        Rtype::CSYNC => &[U32, U16, Bitmap],
        Rtype::ZONEMD => &[U32, U8, U8, Hex],
        Rtype::SVCB | Rtype::HTTPS => &[U16, Name, SvcParams],
        Rtype::DSYNC => &[Type, DsyncScheme, U16, Name],
        Rtype::NID | Rtype::L64 => &[U16, Ilnp64],
        Rtype::L32 => &[U16, Ipv4],
        Rtype::EUI48 => &[Eui(6)],
        Rtype::EUI64 => &[Eui(8)],
        Rtype::URI => &[U16, U16, SomeText],
        Rtype::CAA => &[U8, Tag, Text],
        Rtype::DOA => &[U32, U32, U8, String, Base64OrHyphen],
        Rtype::AMTRELAY => &[Amtrelay],
        Rtype::IPN => &[U64],
        _ => return None,
    })
}
