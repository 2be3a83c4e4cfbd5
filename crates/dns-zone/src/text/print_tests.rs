//! What is printed is what dig prints, and is read back as the same octets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::encoding::Decoder;
use super::super::is_rdata;
use super::super::testing::rdata;
use super::*;

/// Data of every type that has a text format, as it is printed.
const EXAMPLES: &[(&str, &str)] = &[
    ("A", "192.0.2.1"),
    ("NS", "ns.example."),
    ("MD", "a."),
    ("MF", "a."),
    ("CNAME", r"a\.b\@c.\000\032.example."),
    ("SOA", "ns.example. host\\.master.example. 4294967295 7200 900 1209600 300"),
    ("MB", "a."),
    ("MG", "a."),
    ("MR", "a."),
    ("WKS", "10.0.0.1 6 7 25"),
    ("PTR", "."),
    ("HINFO", "\"amd64\" \"Linux 6.18\""),
    ("MINFO", "a. b."),
    ("MX", "10 mail.example."),
    ("TXT", r#""v=spf1 mx -all; (a)" "" "a \"quoted\" back\\slash \200\000\127""#),
    ("RP", "admin.example. ."),
    ("AFSDB", "1 a."),
    ("X25", "\"311061700956\""),
    ("ISDN", "\"150862028003217\" \"004\""),
    ("ISDN", "\"150862028003217\""),
    ("RT", "10 a."),
    ("NSAP", "0x47000580"),
    ("NSAP-PTR", "a."),
    ("SIG", "A 5 3 86400 20030322173103 20030220173103 2642 example. oJB1"),
    ("KEY", "256 3 5 AQPS"),
    ("KEY", "49152 3 3"),
    ("PX", "10 a. b."),
    ("GPOS", "\"-32.6882\" \"116.8652\" \"10.0\""),
    ("AAAA", "2001:db8::1"),
    ("LOC", "52 22 23.000 N 4 53 32.005 W -2.05m 0.00m 10000m 0.30m"),
    ("NXT", "b.example. A MX NXT"),
    ("EID", "E32C6F78"),
    ("NIMLOC", "32251A03"),
    ("SRV", "0 5 5060 sip.example."),
    ("ATMA", "47000580"),
    ("ATMA", "+358400"),
    ("NAPTR", r#"100 10 "u" "E2U+sip" "!^.*$!sip:info@example.com!" ."#),
    ("KX", "10 a."),
    ("CERT", "PGP 0 0 JjsM"),
    ("CERT", "65534 0 0"),
    ("A6", "0 2001:db8::1"),
    ("A6", "68 ::fff:0:0:1 p."),
    ("A6", "128 p."),
    ("DNAME", "a."),
    ("SINK", "1 2 3 AA=="),
    ("APL", "1:192.0.2.0/24 !1:192.0.2.64/28 2:2001:db8::/32"),
    ("APL", ""),
    ("DS", "60485 5 1 2BB183AF"),
    ("SSHFP", "4 2 7EB8E406"),
    ("IPSECKEY", "10 0 2 . AQ=="),
    ("IPSECKEY", "10 1 2 192.0.2.38 AQI="),
    ("IPSECKEY", "10 2 0 2001:db8::1"),
    ("IPSECKEY", "10 3 2 gw. AQID"),
    ("RRSIG", "TYPE65280 13 2 3600 21060207062815 19700101000000 31589 example. UBFn"),
    ("NSEC", "b.example. A NS SOA TXT NSEC NXNAME TYPE192 CAA TYPE65535"),
    ("NSEC", "b.example."),
    ("DNSKEY", "257 3 13 6GfPDfkz"),
    ("DHCID", "UvqztzyvPg=="),
    ("NSEC3", "1 1 12 AABBCCDD 2T7B4G4VSA5SMI47K61MV5BV1A22BOJR A RRSIG"),
    ("NSEC3", "1 0 0 - 2T7B4G4VSA5SMI47K61MV5BV1A22BOJR"),
    ("NSEC3PARAM", "1 0 0 -"),
    ("TLSA", "3 1 1 33F9"),
    ("SMIMEA", "3 0 0 8F42"),
    ("HIP", "2 200100107B1A UvNg a. b."),
    ("NINFO", "\"a\""),
    ("RKEY", "0 0 5 AQ=="),
    ("TALINK", "a. b."),
    ("CDS", "0 0 0 00"),
    ("CDNSKEY", "0 3 0 AA=="),
    ("OPENPGPKEY", "SX6J"),
    ("CSYNC", "66 3 A NS AAAA"),
    ("ZONEMD", "2026112001 1 1 DD5B"),
    ("SVCB", r#"1 a. mandatory=alpn,port alpn="f\\\\oo\\,b\"a\000r,h2" no-default-alpn port=8443"#),
    (
        "SVCB",
        r#"2 . ipv4hint=192.0.2.1,192.0.2.2 ech=AEj+DQ== ipv6hint=2001:db8::1 dohpath="/dns-query{?dns}""#,
    ),
    ("SVCB", r#"3 . ohttp tls-supported-groups=29,23 key667="hello\210; \"" key668"#),
    ("HTTPS", r#"1 . alpn="h2,h3""#),
    ("HTTPS", "0 a."),
    ("DSYNC", "CDS NOTIFY 5300 a."),
    ("DSYNC", "CDS 7 5300 a."),
    ("HHIT", "AQ=="),
    ("BRID", "AQ=="),
    ("SPF", "\"v=spf1\""),
    ("NID", "10 0014:4fff:ff20:ee64"),
    ("L32", "10 10.1.2.0"),
    ("L64", "10 2001:0db8:1140:1000"),
    ("LP", "10 a."),
    ("EUI48", "00-00-5e-00-53-2a"),
    ("EUI64", "00-00-5e-ef-10-00-00-2a"),
    ("URI", "10 1 \"ftp://x/\\\"\""),
    ("CAA", "128 issue \"ca.example.net; policy=ev\""),
    ("CAA", "0 issue \"\""),
    ("AVC", "\"a\""),
    ("DOA", "0 1 2 \"text/plain\" AQ=="),
    ("DOA", "0 1 2 \"\" -"),
    ("AMTRELAY", "10 1 2 2001:db8::15"),
    ("AMTRELAY", "10 0 0 ."),
    ("RESINFO", "\"qnamemin\" \"exterr=15-17\""),
    ("WALLET", "\"a\""),
    ("CLA", "\"a\""),
    ("IPN", "18446744073709551615"),
    ("TA", "1 8 2 AB"),
    ("DLV", "1 8 2 AB"),
    ("TYPE65280", "\\# 2 ABCD"),
    ("TYPE65280", "\\# 0"),
    ("NULL", "\\# 1 FF"),
];

fn of_text(text: &str) -> Rtype {
    Rtype::from_text(text.as_bytes()).unwrap()
}

#[test]
fn data_of_every_type_is_printed_as_it_was_read() {
    for (rtype, text) in EXAMPLES {
        assert_eq!(rdata_text(of_text(rtype), &rdata(rtype, text)), *text, "{rtype}");
    }
    let compared: BTreeSet<u16> = EXAMPLES.iter().map(|(rtype, _)| of_text(rtype).0).collect();
    let missing =
        (0..=u16::MAX).find(|number| schema(Rtype(*number)).is_some() && !compared.contains(number));
    assert_eq!(missing.map(Rtype), None, "a type without an example");
}

#[test]
fn what_would_be_read_as_other_octets_has_the_generic_form() {
    for (rtype, octets) in [
        ("APL", &[0, 1, 24, 4, 192, 0, 2, 0][..]), // A zero at the end.
        ("APL", &[0, 3, 8, 1, 1]),                 // A family that has no text.
        ("WKS", &[10, 0, 0, 1, 6, 0x80, 0]),
        ("LOC", &[0, 0xff, 0x16, 0x13, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0x98, 0x96, 0x80]),
        ("LOC", &[0, 0x12, 0x16, 0x13, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0x98, 0x96, 0x80]), // Not on Earth.
        ("CAA", b"\x00\x02a-b"),
        ("HIP", &[0, 2, 0, 1, 7]),
        ("ATMA", b"\x02358"),
        ("A6", b"\x7c\xff\x01p\x00"), // Bits of the prefix.
        ("NXT", b"\x00\x00"),
        ("A", &[1, 2, 3]),
        ("MX", &[0, 1, 5]),
    ] {
        let text = rdata_text(of_text(rtype), octets);
        assert!(text.starts_with(&format!("\\# {} ", octets.len())), "{rtype}: {text}");
        if is_rdata(of_text(rtype), octets) {
            assert_eq!(rdata(rtype, &text), octets);
        }
    }
}

/// Octets that are likely to be data of some type: those of an example, changed.
fn changed_example() -> impl Strategy<Value = (Rtype, Vec<u8>)> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0..4);
    (prop::sample::select(EXAMPLES), prop::collection::vec(change, 0..4)).prop_map(
        |((rtype, text), changes)| {
            let mut octets = rdata(rtype, text);
            for (place, octet, kind) in changes {
                let at = place.index(octets.len() + 1);
                match kind {
                    0 => octets.insert(at, octet),
                    1 if at < octets.len() => drop(octets.remove(at)),
                    2 => octets.truncate(at),
                    _ => octets.iter_mut().skip(at).take(1).for_each(|other| *other = octet),
                }
            }
            (of_text(rtype), octets)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_data_is_read_back_as_its_octets((rtype, octets) in changed_example()) {
        let text = rdata_text(rtype, &octets);
        prop_assert!(text.bytes().all(|octet| matches!(octet, b' '..=b'~')), "{}", text);
        if is_rdata(rtype, &octets) {
            prop_assert_eq!(rdata(&rtype.to_string(), &text), octets, "{} {}", rtype, text);
        }
    }

    #[test]
    fn encodings_are_read_back(octets in prop::collection::vec(any::<u8>(), 1..50)) {
        for (encoding, mut decoder) in [
            (Encoding::Base64, Decoder::base64()),
            (Encoding::Base16, Decoder::base16()),
            (Encoding::Base32Hex, Decoder::base32_hex()),
        ] {
            let (mut text, mut again) = (String::new(), Vec::new());
            encode(encoding, &octets, &mut text);
            prop_assert!(decoder.push(text.as_bytes(), &mut again).is_some() && decoder.finish().is_some());
            prop_assert_eq!(&again, &octets);
        }
    }
}
