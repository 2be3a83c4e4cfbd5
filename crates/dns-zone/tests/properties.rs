//! What holds for any input: nothing panics, and what was read can be written and read again.

mod common;

use std::io;
use std::path::Path;

use common::{OwnedRecord, records};
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::text::{Files, TextFile, fuzz_zone_text};
use proptest::prelude::*;

const SOA: &str = "@ 3600 IN SOA . . 1 2 3 4 5\n";

struct OneFile(String);

impl Files for OneFile {
    fn open(&mut self, _: &Path) -> io::Result<TextFile> {
        Ok(self.0.clone().into_bytes().into())
    }
}

/// The record behind a SOA of the root zone.
fn read_one(text: &str) -> OwnedRecord {
    let text = format!("$ORIGIN .\n{SOA}{text}\n");
    let (_, mut records) =
        records(&mut OneFile(text.clone()), "zone").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    records.remove(1)
}

fn name() -> impl Strategy<Value = NameBuf> {
    let label =
        prop_oneof![prop::collection::vec(any::<u8>(), 1..20), prop::collection::vec(b'a'..=b'z', 1..64)];
    prop::collection::vec(label, 0..8).prop_map(|labels| {
        let mut name = NameBuf::root();
        for label in labels {
            let _ = name.prepend(&label); // a name that is full stays as it is
        }
        name
    })
}

/// Lines in which something is likely to be right.
fn line() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z0-9.@*_-]{1,12}",
        "[0-9]{1,11}[smhdw]?",
        "\"[ -~]{0,12}\"",
        "[ -~]{0,8}",
        "(IN|A|AAAA|NS|MX|TXT|SOA|SVCB|HTTPS|LOC|APL|NSEC|NSEC3|DS|RRSIG|HIP|IPSECKEY|CAA|URI|NAPTR|TYPE[0-9]{1,5})",
        "(\\$TTL|\\$ORIGIN|\\$INCLUDE|\\$GENERATE|[0-9]{1,3}-[0-9]{1,3}|\\$\\{[0-9,x]{0,6}\\}|\\\\#|\\(|\\)|;|\\\\[0-9]{3})",
        "(alpn|port|mandatory|ipv4hint|key[0-9]{1,5})=[ -~]{0,10}",
    ];
    (any::<bool>(), prop::collection::vec(word, 0..10))
        .prop_map(|(has_blank, words)| format!("{}{}", if has_blank { " " } else { "" }, words.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_octets_never_panic(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_zone_text(&octets);
    }

    #[test]
    fn random_words_never_panic(lines in prop::collection::vec(line(), 0..8)) {
        fuzz_zone_text(format!("{SOA}{}", lines.join("\n")).as_bytes());
    }

    #[test]
    fn random_rdata_words_never_panic(rtype in 0u16..300, words in "([0-9]{1,6} |[0-9a-zA-Z+/=.:-]{1,20} |\"[ -~]{0,9}\" ){0,9}") {
        fuzz_zone_text(format!("{SOA}a {} {words}", Rtype(rtype)).as_bytes());
    }

    #[test]
    fn names_survive_their_text(owner in name(), target in name()) {
        let record = read_one(&format!("{owner} 60 IN CNAME {target}"));
        prop_assert_eq!(record.owner.as_name().as_bytes(), owner.as_name().as_bytes());
        prop_assert_eq!(&record.rdata[..], target.as_name().as_bytes());
    }

    #[test]
    fn names_are_ordered_as_their_reversed_folded_labels(left in name(), right in name()) {
        let key = |name: Name<'_>| -> Vec<Vec<u8>> {
            let mut labels: Vec<_> = name.labels().map(<[u8]>::to_ascii_lowercase).collect();
            labels.reverse();
            labels
        };
        let expected = key(left.as_name()).cmp(&key(right.as_name()));
        prop_assert_eq!(left.cmp(&right), expected);
        prop_assert_eq!(left == right, expected.is_eq());
    }

    #[test]
    fn rdata_survives_the_generic_form(rtype in 65280u16..65534, rdata in prop::collection::vec(any::<u8>(), 0..600)) {
        let hex: String = rdata.iter().map(|octet| format!("{octet:02X}")).collect();
        let record = read_one(&format!("a 60 IN TYPE{rtype} \\# {} {hex}", rdata.len()));
        prop_assert_eq!(record.rdata, rdata);
        prop_assert_eq!(record.rtype, Rtype(rtype));
    }

    #[test]
    fn strings_survive_escaping(octets in prop::collection::vec(any::<u8>(), 0..256)) {
        let escaped: String = octets.iter().map(|octet| format!("\\{octet:03}")).collect();
        let record = read_one(&format!("a 60 IN TXT \"{escaped}\""));
        prop_assert_eq!(usize::from(record.rdata[0]), octets.len());
        prop_assert_eq!(&record.rdata[1..], &octets[..]);
    }

    #[test]
    fn addresses_survive(v4: [u8; 4], v6: [u8; 16]) {
        let text = std::net::Ipv4Addr::from(v4).to_string();
        prop_assert_eq!(read_one(&format!("a 60 A {text}")).rdata, v4);
        let text = std::net::Ipv6Addr::from(v6).to_string();
        prop_assert_eq!(read_one(&format!("a 60 AAAA {text}")).rdata, v6);
    }
}
