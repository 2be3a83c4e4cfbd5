//! Mnemonics for numbers in RDATA. Each of them can also be given as a number.

/// Algorithms of DNSSEC (IANA, DNS Security Algorithm Numbers).
pub(super) const ALGORITHMS: &[(u16, &str)] = &[
    (1, "RSAMD5"),
    (2, "DH"),
    (3, "DSA"),
    (4, "ECC"),
    (5, "RSASHA1"),
    (6, "DSA-NSEC3-SHA1"),
    (7, "RSASHA1-NSEC3-SHA1"),
    (8, "RSASHA256"),
    (10, "RSASHA512"),
    (12, "ECC-GOST"),
    (13, "ECDSAP256SHA256"),
    (14, "ECDSAP384SHA384"),
    (15, "ED25519"),
    (16, "ED448"),
    (17, "SM2SM3"),
    (23, "ECC-GOST12"),
    (252, "INDIRECT"),
    (253, "PRIVATEDNS"),
    (254, "PRIVATEOID"),
];

/// Types of certificates (RFC 4398, 2.1).
pub(super) const CERTIFICATE_TYPES: &[(u16, &str)] = &[
    (1, "PKIX"),
    (2, "SPKI"),
    (3, "PGP"),
    (4, "IPKIX"),
    (5, "ISPKI"),
    (6, "IPGP"),
    (7, "ACPKIX"),
    (8, "IACPKIX"),
    (253, "URI"),
    (254, "OID"),
];

/// Schemes of DSYNC (RFC 9859, 2.1).
pub(super) const DSYNC_SCHEMES: &[(u16, &str)] = &[(1, "NOTIFY")];

/// Protocols of WKS that are more than history (RFC 1035, 3.4.2).
pub(super) const PROTOCOLS: &[(u16, &str)] = &[(1, "ICMP"), (6, "TCP"), (17, "UDP")];

/// Services of WKS that zones of its time named (RFC 1010).
pub(super) const SERVICES: &[(u16, &str)] = &[
    (7, "ECHO"),
    (9, "DISCARD"),
    (11, "SYSTAT"),
    (13, "DAYTIME"),
    (15, "NETSTAT"),
    (17, "QOTD"),
    (19, "CHARGEN"),
    (20, "FTP-DATA"),
    (21, "FTP"),
    (23, "TELNET"),
    (25, "SMTP"),
    (37, "TIME"),
    (42, "NAMESERVER"),
    (43, "WHOIS"),
    (53, "DOMAIN"),
    (69, "TFTP"),
    (77, "RJE"),
    (79, "FINGER"),
    (80, "HTTP"),
    (95, "SUPDUP"),
    (101, "HOSTNAME"),
    (109, "POP2"),
    (110, "POP3"),
    (111, "SUNRPC"),
    (113, "AUTH"),
    (115, "SFTP"),
    (119, "NNTP"),
    (123, "NTP"),
    (143, "IMAP"),
    (161, "SNMP"),
    (443, "HTTPS"),
];

/// The word of a number, or the number.
pub(super) fn word(words: &[(u16, &str)], number: u16) -> String {
    let known = words.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, word)| (*word).to_owned())
}

/// The number of a word, in any case, or a number up to `max`.
pub(super) fn number(words: &[(u16, &str)], text: &[u8], max: u16) -> Option<u16> {
    if let Some(number) = super::number::decimal(text, u64::from(max)) {
        return Some(number as u16);
    }
    words.iter().find(|(_, word)| word.as_bytes().eq_ignore_ascii_case(text)).map(|&(number, _)| number)
}
