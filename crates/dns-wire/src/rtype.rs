//! Resource record types and classes: the numbers, and the words for them.

use core::fmt;

/// A resource record type, or a type of query (RFC 1035, 3.2.2 and 3.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rtype(pub u16);

/// A class (RFC 1035, 3.2.4). Only [`Class::IN`] carries zones here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Class(pub u16);

/// One line per type: constant, number, mnemonic, what it is. Sorted by number.
macro_rules! rtypes {
    ($($constant:ident = $number:literal, $mnemonic:literal, $meaning:literal;)*) => {
        impl Rtype {
            $(#[doc = concat!($mnemonic, ": ", $meaning, ".")] pub const $constant: Rtype = Rtype($number);)*
        }

        /// Number, mnemonic; sorted by number.
        const RTYPES: &[(u16, &str)] = &[$(($number, $mnemonic)),*];
    };
}

rtypes! {
    A = 1, "A", "an IPv4 address (RFC 1035)";
    NS = 2, "NS", "an authoritative name server (RFC 1035)";
    MD = 3, "MD", "a mail destination, obsolete (RFC 1035)";
    MF = 4, "MF", "a mail forwarder, obsolete (RFC 1035)";
    CNAME = 5, "CNAME", "the canonical name of an alias (RFC 1035)";
    SOA = 6, "SOA", "the start of a zone of authority (RFC 1035)";
    MB = 7, "MB", "a mailbox (RFC 1035)";
    MG = 8, "MG", "a mail group member (RFC 1035)";
    MR = 9, "MR", "a mail rename (RFC 1035)";
    NULL = 10, "NULL", "anything at all (RFC 1035)";
    WKS = 11, "WKS", "well known services (RFC 1035)";
    PTR = 12, "PTR", "a pointer to a name (RFC 1035)";
    HINFO = 13, "HINFO", "host information (RFC 1035, RFC 8482)";
    MINFO = 14, "MINFO", "mailbox information (RFC 1035)";
    MX = 15, "MX", "a mail exchange (RFC 1035)";
    TXT = 16, "TXT", "text strings (RFC 1035)";
    RP = 17, "RP", "the responsible person (RFC 1183)";
    AFSDB = 18, "AFSDB", "an AFS cell database (RFC 1183)";
    X25 = 19, "X25", "an X.25 PSDN address (RFC 1183)";
    ISDN = 20, "ISDN", "an ISDN address (RFC 1183)";
    RT = 21, "RT", "a route through a host (RFC 1183)";
    NSAP = 22, "NSAP", "an NSAP address (RFC 1706)";
    NSAP_PTR = 23, "NSAP-PTR", "a pointer in NSAP style (RFC 1706)";
    SIG = 24, "SIG", "a signature, before RRSIG (RFC 2535)";
    KEY = 25, "KEY", "a key, before DNSKEY (RFC 2535)";
    PX = 26, "PX", "X.400 mail mapping (RFC 2163)";
    GPOS = 27, "GPOS", "a geographical position (RFC 1712)";
    AAAA = 28, "AAAA", "an IPv6 address (RFC 3596)";
    LOC = 29, "LOC", "a location (RFC 1876)";
    NXT = 30, "NXT", "the next name, before NSEC (RFC 2535)";
    EID = 31, "EID", "a Nimrod endpoint identifier";
    NIMLOC = 32, "NIMLOC", "a Nimrod locator";
    SRV = 33, "SRV", "the location of a service (RFC 2782)";
    ATMA = 34, "ATMA", "an ATM address";
    NAPTR = 35, "NAPTR", "a naming authority pointer (RFC 3403)";
    KX = 36, "KX", "a key exchanger (RFC 2230)";
    CERT = 37, "CERT", "a certificate (RFC 4398)";
    A6 = 38, "A6", "an IPv6 address in parts, historic (RFC 2874)";
    DNAME = 39, "DNAME", "the redirection of a subtree (RFC 6672)";
    SINK = 40, "SINK", "the kitchen sink";
    OPT = 41, "OPT", "EDNS options, never in a zone (RFC 6891)";
    APL = 42, "APL", "address prefixes (RFC 3123)";
    DS = 43, "DS", "the digest of a child's key (RFC 4034)";
    SSHFP = 44, "SSHFP", "an SSH key fingerprint (RFC 4255)";
    IPSECKEY = 45, "IPSECKEY", "an IPsec key (RFC 4025)";
    RRSIG = 46, "RRSIG", "a signature over an RRset (RFC 4034)";
    NSEC = 47, "NSEC", "the next name and the types here (RFC 4034)";
    DNSKEY = 48, "DNSKEY", "a key of the zone (RFC 4034)";
    DHCID = 49, "DHCID", "a DHCP client identifier (RFC 4701)";
    NSEC3 = 50, "NSEC3", "the next hashed name and the types here (RFC 5155)";
    NSEC3PARAM = 51, "NSEC3PARAM", "the NSEC3 parameters of the zone (RFC 5155)";
    TLSA = 52, "TLSA", "a TLS certificate association (RFC 6698)";
    SMIMEA = 53, "SMIMEA", "an S/MIME certificate association (RFC 8162)";
    HIP = 55, "HIP", "a host identity (RFC 8005)";
    NINFO = 56, "NINFO", "the status of a zone";
    RKEY = 57, "RKEY", "a key for encrypting NAPTR records";
    TALINK = 58, "TALINK", "a link between trust anchors";
    CDS = 59, "CDS", "a child's wish for its DS (RFC 7344)";
    CDNSKEY = 60, "CDNSKEY", "a child's wish for its DS, as a key (RFC 7344)";
    OPENPGPKEY = 61, "OPENPGPKEY", "an OpenPGP key (RFC 7929)";
    CSYNC = 62, "CSYNC", "what the parent shall copy (RFC 7477)";
    ZONEMD = 63, "ZONEMD", "a digest of the zone (RFC 8976)";
    SVCB = 64, "SVCB", "a service binding (RFC 9460)";
    HTTPS = 65, "HTTPS", "a service binding for HTTPS (RFC 9460)";
    DSYNC = 66, "DSYNC", "where to send NOTIFY for delegations (RFC 9859)";
    HHIT = 67, "HHIT", "a hierarchical host identity tag (RFC 9886)";
    BRID = 68, "BRID", "a broadcast remote identifier (RFC 9886)";
    SPF = 99, "SPF", "sender policy, obsolete (RFC 7208)";
    UINFO = 100, "UINFO", "reserved";
    UID = 101, "UID", "reserved";
    GID = 102, "GID", "reserved";
    UNSPEC = 103, "UNSPEC", "reserved";
    NID = 104, "NID", "an ILNP node identifier (RFC 6742)";
    L32 = 105, "L32", "a 32-bit ILNP locator (RFC 6742)";
    L64 = 106, "L64", "a 64-bit ILNP locator (RFC 6742)";
    LP = 107, "LP", "a pointer to ILNP locators (RFC 6742)";
    EUI48 = 108, "EUI48", "a 48-bit link address (RFC 7043)";
    EUI64 = 109, "EUI64", "a 64-bit link address (RFC 7043)";
    NXNAME = 128, "NXNAME", "no such name, only in an NSEC bitmap (RFC 9824)";
    TKEY = 249, "TKEY", "a transaction key, never in a zone (RFC 2930)";
    TSIG = 250, "TSIG", "a transaction signature, never in a zone (RFC 8945)";
    IXFR = 251, "IXFR", "a request for an incremental transfer (RFC 1995)";
    AXFR = 252, "AXFR", "a request for a zone transfer (RFC 5936)";
    MAILB = 253, "MAILB", "a request for mailbox records (RFC 1035)";
    MAILA = 254, "MAILA", "a request for mail agent records, obsolete (RFC 1035)";
    ANY = 255, "ANY", "a request for all types (RFC 1035, RFC 8482)";
    URI = 256, "URI", "a URI (RFC 7553)";
    CAA = 257, "CAA", "which authorities may certify (RFC 8659)";
    AVC = 258, "AVC", "application visibility and control";
    DOA = 259, "DOA", "a digital object architecture record";
    AMTRELAY = 260, "AMTRELAY", "a multicast relay (RFC 8777)";
    RESINFO = 261, "RESINFO", "information about a resolver (RFC 9606)";
    WALLET = 262, "WALLET", "a public wallet address";
    CLA = 263, "CLA", "a BP convergence layer adapter (RFC 9758)";
    IPN = 264, "IPN", "a BP node number (RFC 9758)";
    TA = 32768, "TA", "a DNSSEC trust authority";
    DLV = 32769, "DLV", "a lookaside digest, obsolete (RFC 8749)";
}

impl Rtype {
    /// The mnemonic, if the type has one.
    #[must_use]
    pub fn mnemonic(self) -> Option<&'static str> {
        let index = RTYPES.binary_search_by_key(&self.0, |&(number, _)| number).ok()?;
        Some(RTYPES[index].1)
    }

    /// The type that `text` names, in any case: a mnemonic or `TYPE` and a number (RFC 3597, 5).
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Rtype> {
        if let Some(key) = short_key(text).filter(|&key| key != 0)
            && let Some(index) = SHORT_KEYS.iter().position(|&known| known == key)
        {
            return Some(Rtype(RTYPES[index].0));
        }
        let long = RTYPES.iter().find(|(_, mnemonic)| mnemonic.as_bytes().eq_ignore_ascii_case(text));
        long.map(|&(number, _)| Rtype(number)).or_else(|| numbered(text, b"TYPE").map(Rtype))
    }

    /// Whether whoever signs a zone makes all records of the type: signatures, and what denies (RFC 4034, RFC 5155).
    #[must_use]
    pub const fn is_made_by_signing(self) -> bool {
        matches!(self, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3 | Rtype::NSEC3PARAM)
    }

    /// True for types that exist only in queries and messages and never in a zone (RFC 6895, 3.1), and for the
    /// reserved number 0.
    #[must_use]
    pub const fn is_meta(self) -> bool {
        matches!(self.0, 0 | 41 | 128..=255)
    }
}

/// Upper-case mnemonics of at most eight octets as one number each, in the order of `RTYPES`; longer ones are 0.
const SHORT_KEYS: [u64; RTYPES.len()] = {
    let mut keys = [0; RTYPES.len()];
    let mut index = 0;
    while index < keys.len() {
        if let Some(key) = short_key(RTYPES[index].1.as_bytes()) {
            keys[index] = key;
        }
        index += 1;
    }
    keys
};

/// One to eight octets of text as a number, case folded.
const fn short_key(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 8 {
        return None;
    }
    let mut key = 0;
    let mut index = 0;
    while index < text.len() {
        key = key << 8 | text[index].to_ascii_uppercase() as u64;
        index += 1;
    }
    Some(key)
}

/// The number behind `prefix`, in decimal, if it fits 16 bits.
fn numbered(text: &[u8], prefix: &[u8]) -> Option<u16> {
    let (word, digits) = text.split_at_checked(prefix.len())?;
    if !word.eq_ignore_ascii_case(prefix) || digits.is_empty() || digits.len() > 5 {
        return None;
    }
    let mut value = 0u32;
    for &digit in digits {
        value = value * 10 + u32::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    u16::try_from(value).ok()
}

impl fmt::Display for Rtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mnemonic() {
            Some(mnemonic) => f.pad(mnemonic),
            None => write!(f, "TYPE{}", self.0),
        }
    }
}

/// Number, mnemonic, as in the IANA registry of classes.
const CLASSES: &[(u16, &str)] = &[(1, "IN"), (3, "CH"), (4, "HS"), (254, "NONE"), (255, "ANY")];

impl Class {
    /// The Internet.
    pub const IN: Class = Class(1);
    /// Chaos, today a place to ask servers about themselves.
    pub const CH: Class = Class(3);
    /// Hesiod.
    pub const HS: Class = Class(4);
    /// No class: prerequisites and deletions of dynamic update (RFC 2136).
    pub const NONE: Class = Class(254);
    /// Any class, in queries.
    pub const ANY: Class = Class(255);

    /// The mnemonic, if the class has one.
    #[must_use]
    pub fn mnemonic(self) -> Option<&'static str> {
        CLASSES.iter().find(|&&(number, _)| number == self.0).map(|&(_, mnemonic)| mnemonic)
    }

    /// The class that `text` names, in any case: a mnemonic or `CLASS` and a number (RFC 3597, 5).
    #[must_use]
    pub fn from_text(text: &[u8]) -> Option<Class> {
        let known = CLASSES.iter().find(|(_, mnemonic)| mnemonic.as_bytes().eq_ignore_ascii_case(text));
        known.map(|&(number, _)| Class(number)).or_else(|| numbered(text, b"CLASS").map(Class))
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mnemonic() {
            Some(mnemonic) => f.pad(mnemonic),
            None => write!(f, "CLASS{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_mnemonic_twice() {
        assert!(RTYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (index, (_, mnemonic)) in RTYPES.iter().enumerate() {
            assert!(RTYPES[..index].iter().all(|(_, other)| other != mnemonic), "{mnemonic}");
        }
    }

    #[test]
    fn every_mnemonic_reads_back_in_any_case() {
        for &(number, mnemonic) in RTYPES {
            assert_eq!(Rtype::from_text(mnemonic.as_bytes()), Some(Rtype(number)));
            assert_eq!(Rtype::from_text(mnemonic.to_lowercase().as_bytes()), Some(Rtype(number)));
            assert_eq!(Rtype(number).to_string(), mnemonic);
        }
    }

    #[test]
    fn every_number_has_the_generic_form() {
        for number in [0, 1, 54, 999, 65535] {
            assert_eq!(Rtype::from_text(format!("TYPE{number}").as_bytes()), Some(Rtype(number)));
            assert_eq!(Class::from_text(format!("class{number}").as_bytes()), Some(Class(number)));
        }
        assert_eq!(Rtype(54).to_string(), "TYPE54");
        assert_eq!(Class(2).to_string(), "CLASS2");
    }

    #[test]
    fn what_is_no_type_is_refused() {
        for text in ["", "\0", "AA", "TYPE", "TYPE65536", "TYPE-1", "TYPE1x", "NSEC3PARAMS", "\u{e9}"] {
            assert_eq!(Rtype::from_text(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Class::from_text(b"INN"), None);
    }

    #[test]
    fn query_types_are_meta() {
        assert!(
            [Rtype::OPT, Rtype::ANY, Rtype::AXFR, Rtype::TSIG, Rtype(0)].iter().all(|rtype| rtype.is_meta())
        );
        assert!(![Rtype::A, Rtype::URI, Rtype::DLV, Rtype(65280)].iter().any(|rtype| rtype.is_meta()));
    }
}
