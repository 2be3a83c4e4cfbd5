//! Zones and queries of any size, the same for the same seed.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use dns_auth::compile::{compile, compile_changed, compile_with_lines};
use dns_auth::{LineData, LineOverlays, ServedZone};
use dns_lines::{Line, LineId, LineTableBuilder, Lines, Prefix};
use dns_wire::{Name, NameBuf, Rtype};
use dns_zone::text::{Files, Limits, TextFile};
use dns_zone::{ZoneBuilder, ZoneEditor, load_overlay};

const SOA: &[u8] =
    b"\x00\x00\x00\x00\x00\x01\x00\x00\x0e\x10\x00\x00\x02\x58\x00\x01\x51\x80\x00\x00\x00\x3c";

/// A splitmix64 generator: enough for choosing names.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }
}

/// The first label of name number `number`: 8 to 14 characters without pattern.
pub fn label(number: usize) -> String {
    let mixed = Random(number as u64).number();
    format!("{:x}{number}", mixed & 0xffff_ffff)
}

/// A zone `example.com` with `count` names, one A record each.
pub fn zone(count: usize) -> ServedZone {
    let origin = NameBuf::from_text(b"example.com.", None).expect("a valid name");
    let mut builder = ZoneBuilder::new(origin.as_name(), 1);
    builder.add(origin.as_name(), 3600, Rtype::SOA, SOA).expect("a good SOA");
    for number in 0..count {
        let owner = name(number, &origin);
        let address = (0x0a00_0000 + number as u32).to_be_bytes();
        builder.add(owner.as_name(), 300, Rtype::A, &address).expect("a good record");
    }
    compile(builder.finish().expect("a zone with a SOA"))
}

/// The same zone with NSEC records, and with signatures that sign nothing, short enough for answers of 512 octets.
pub fn zone_with_denials(count: usize) -> ServedZone {
    const SIGNATURE: [u8; 32] = [7; 32];
    let plain = zone(count);
    let tree = plain.tree().expect("it has data");
    let mut editor = ZoneEditor::new(tree);
    let mut names: Vec<Name<'_>> =
        tree.nodes().map(|node| Name::from_wire(node.name()).expect("the tree holds valid names")).collect();
    names.sort_unstable();
    for (name, next) in names.iter().zip(names.iter().cycle().skip(1)) {
        // Types up to NSEC (RFC 4034, 4.1.2): A, RRSIG, NSEC.
        let denial = [next.as_bytes(), &[0, 6, 0x40, 0, 0, 0, 0, 3]].concat();
        editor.add(*name, 300, Rtype::NSEC, &denial).expect("a good record");
        let node = tree.find(name.as_bytes()).expect("it is of the zone");
        for covered in node.rrsets().map(|rrset| rrset.rtype()).chain([Rtype::NSEC]) {
            let fixed = [&covered.0.to_be_bytes()[..], &[13, 3], &[0; 14]].concat();
            let signature = [&fixed, tree.origin().as_bytes(), &SIGNATURE].concat();
            editor.add(*name, 300, Rtype::RRSIG, &signature).expect("a good record");
        }
    }
    compile(editor.finish().expect("it has its SOA").zone.rebuilt())
}

/// The same zone, in which clients of the line `a` get another address for every name.
pub fn zone_with_a_line(count: usize) -> ServedZone {
    struct Only(Option<String>);
    impl Files for Only {
        fn open(&mut self, _: &Path) -> io::Result<TextFile> {
            Ok(self.0.take().unwrap_or_default().into_bytes().into())
        }
    }
    let plain = zone(count);
    let tree = plain.tree().expect("it has data");
    let text = (0..count).map(|number| format!("{} 300 A 192.0.2.1\n", label(number))).collect();
    let of_zone = (tree.origin(), 60);
    let overlay = load_overlay(&mut Only(Some(text)), Path::new("a.zone"), of_zone, &Limits::default());
    let overlay = Arc::new(overlay.expect("addresses in the zone"));
    let lines = LineData::new(vec![LineOverlays { line: "a".into(), overlays: vec![overlay] }]);
    compile_with_lines(tree.clone(), &Arc::new(lines))
}

/// `count` random prefixes of IPv4 of 16 to 28 bits, half of them of the line `a`, and all addresses of that line besides.
pub fn lines(count: usize) -> Lines {
    let mut random = Random(5);
    let mut builder = LineTableBuilder::default();
    let mut seen = HashSet::new();
    builder.add(Prefix::new([0; 4].into(), 0), LineId(0), 0);
    while builder.len() <= count {
        let address = IpAddr::from((random.number() as u32).to_be_bytes());
        let prefix = Prefix::new(address, 16 + random.below(13) as u8);
        if seen.insert(prefix) {
            builder.add(prefix, LineId(random.below(2) as u16), 1);
        }
    }
    let names = ["a", "b"].map(|name| Line { name: name.into(), fallback: None });
    Lines::new(names.to_vec(), builder.finish().expect("each prefix is there once"))
}

/// The next version of a zone, in which the name at this place has another address.
pub fn with_another_address(served: &ServedZone, place: usize) -> ServedZone {
    let zone = served.tree().expect("it has data");
    let mut editor = ZoneEditor::new(zone);
    let node = zone.node_at(place).expect("a place of the zone");
    let owner = Name::from_wire(node.name()).expect("the tree holds valid names");
    if let Some(rdata) = node.rrset(Rtype::A).and_then(|rrset| rrset.records().next()) {
        assert_eq!(editor.remove(owner, Rtype::A, rdata), Ok(true));
    }
    editor.add(owner, 300, Rtype::A, &[192, 0, 2, 1]).expect("an address goes with all that is there");
    compile_changed(served, editor.finish().expect("it has its SOA"))
}

fn name(number: usize, origin: &NameBuf) -> NameBuf {
    NameBuf::from_text(label(number).as_bytes(), Some(origin.as_name())).expect("a valid name")
}

/// `count` queries of type A for names of [`zone`] chosen at random among `names`, with an OPT record if `edns`.
pub fn queries(count: usize, names: usize, edns: bool, seed: u64) -> Vec<Vec<u8>> {
    let origin = NameBuf::from_text(b"example.com.", None).expect("a valid name");
    let mut random = Random(seed);
    (0..count).map(|_| query(name(random.below(names), &origin).as_name().as_bytes(), edns)).collect()
}

/// `count` queries of type A for names that [`zone`] does not have, of `labels` labels, all but the last two random.
pub fn denials(count: usize, labels: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random(seed);
    let mut one = || {
        let mut qname = Vec::new();
        (2..labels).for_each(|_| qname.extend_from_slice(&[1, b'a' + random.below(26) as u8]));
        qname.extend_from_slice(b"\x07example\x03com\0");
        query(&qname, false)
    };
    (0..count).map(|_| one()).collect()
}

/// A query of type A for `qname`.
pub fn query(qname: &[u8], edns: bool) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)];
    message.extend_from_slice(qname);
    message.extend_from_slice(&[0, 1, 0, 1]);
    if edns {
        message.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    }
    message
}
