//! Replays the fuzz corpus of the target `late_segment`: segments that came too late for our stack, good and bad.
//!
//! The named cases below are the source of the files; others may be added beside them. After a change here:
//! `SIDESTEP_WRITE_CORPUS=1 cargo test -p tcp-repair --test fuzz_corpus`.

use std::path::PathBuf;
use std::{env, fs};

use tcp_repair::fuzz_late_segment;
use wire::tcp::{self, flag};

const V4: u8 = 0;
const V6: u8 = 3;
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 8];

#[test]
fn every_file_of_the_corpus_is_survived() {
    let mut replayed = 0;
    for file in fs::read_dir(corpus()).unwrap() {
        fuzz_late_segment(&fs::read(file.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= cases().len(), "only {replayed} files");
}

#[test]
fn the_named_cases_are_in_the_corpus() {
    for (name, data) in cases() {
        let path = corpus().join(name);
        if env::var_os("SIDESTEP_WRITE_CORPUS").is_some() {
            fs::create_dir_all(corpus()).unwrap();
            fs::write(&path, &data).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), data, "{name} differs from its file");
    }
}

/// All changes of one octet: what a fuzzer does first.
#[test]
fn cases_with_a_changed_octet_are_survived() {
    for (_, data) in cases().into_iter().filter(|(_, data)| data.len() < 200) {
        for at in 0..data.len() {
            for octet in 0..=u8::MAX {
                let mut changed = data.clone();
                changed[at] = octet;
                fuzz_late_segment(&changed);
            }
        }
    }
}

/// Longer than any packet is.
#[test]
fn lengths_about_the_longest_packets_are_survived() {
    for kinds in [V4, V6] {
        for len in 65_480..65_540 {
            fuzz_late_segment(&late(kinds, flag::ACK, &[], &vec![7; len]));
        }
    }
}

fn corpus() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "late_segment"].iter().collect()
}

/// Kinds of ends, ports, and a segment from the one to the other.
fn late(kinds: u8, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let (source_port, destination_port) = (4000, 80);
    let fields = tcp::Fields {
        source_port,
        destination_port,
        sequence_number: 7,
        acknowledgement_number: 8,
        window: 500,
        flags,
        options,
        ..tcp::Fields::default()
    };
    let mut segment = [&vec![0; tcp::HEADER_LEN + options.len()][..], payload].concat();
    tcp::write(&mut segment, &fields, None).unwrap();
    let ports = [destination_port, source_port].map(u16::to_be_bytes);
    [&[kinds], ports.as_flattened(), &segment].concat()
}

/// With octets replaced.
fn but(mut data: Vec<u8>, changes: &[(usize, u8)]) -> Vec<u8> {
    changes.iter().for_each(|&(at, octet)| data[at] = octet);
    data
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    /// Where the segment begins, and in it the octet with the header's length.
    const SEGMENT: usize = 5;
    const DATA_OFFSET: usize = SEGMENT + 12;
    let plain = |kinds| late(kinds, flag::ACK, &[], b"late");
    vec![
        ("nothing", vec![]),
        ("ends_only", plain(V4)[..SEGMENT].to_vec()),
        ("v4", plain(V4)),
        ("v6", plain(V6)),
        ("v4_timestamps", late(V4, flag::ACK | flag::PSH, &TIMESTAMPS, b"late")),
        ("v6_fin", late(V6, flag::ACK | flag::FIN, &TIMESTAMPS, b"")),
        ("v4_reset", late(V4, flag::RST, &[], b"")),
        ("v4_odd_length", late(V4, flag::ACK, &[], b"odd")),
        ("v4_syn", late(V4, flag::SYN, &[2, 4, 5, 0xb4], b"")),
        ("v6_syn_ack", late(V6, flag::SYN | flag::ACK, &[2, 4, 5, 0xb4], b"")),
        ("ends_of_two_versions", plain(1)),
        ("of_another_peer", but(plain(V4), &[(4, 1)])),
        ("to_another_port", but(plain(V6), &[(2, 81)])),
        ("cut_in_the_header", plain(V4)[..SEGMENT + 12].to_vec()),
        ("a_header_too_short", but(plain(V4), &[(DATA_OFFSET, 0x40)])),
        ("a_header_beyond_the_end", but(plain(V4), &[(DATA_OFFSET, 0xf0)])),
        ("an_option_beyond_the_header", but(late(V4, flag::ACK, &TIMESTAMPS, b""), &[(SEGMENT + 23, 200)])),
    ]
}
