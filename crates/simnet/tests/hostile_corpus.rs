//! Replays the corpus of the fuzz target `tcp_segments`: stories of a liar, each kept for what it says in its name.
//!
//! The named cases below are the source of the files; others may be added beside them. After a change here:
//! `SIDESTEP_WRITE_CORPUS=1 cargo test -p simnet --test hostile_corpus`.

use std::path::PathBuf;
use std::{env, fs};

use simnet::net::hostile::fuzz_segments;

#[test]
fn every_file_of_the_corpus_is_survived() {
    let mut replayed = 0;
    for file in fs::read_dir(corpus()).unwrap() {
        fuzz_segments(&fs::read(file.unwrap().path()).unwrap());
        replayed += 1;
    }
    assert!(replayed >= cases().len(), "only {replayed} files");
}

#[test]
fn the_named_cases_are_in_the_corpus() {
    for (name, story) in cases() {
        let path = corpus().join(name);
        if env::var_os("SIDESTEP_WRITE_CORPUS").is_some() {
            fs::create_dir_all(corpus()).unwrap();
            fs::write(&path, &story).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), story, "{name} differs from its file");
    }
}

fn corpus() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "tcp_segments"].iter().collect()
}

/// Default settings, IPv4, from the first second on.
const USUAL: [u8; 6] = [0, 0, 0, 0, 3, 0xe8];
const OVER_IPV6: [u8; 6] = [0x80, 0, 0, 0, 3, 0xe8];
const SMALL_BUFFERS: [u8; 6] = [0, 0b1100, 0, 0, 3, 0xe8];
/// Flow 0 is opened by the liar, with an initial sequence number in front of the wrap and all options.
const OPEN: &[u8] = &[16, 0xff, 0xff, 0xff, 0xfe, 0x7f];
const OPEN_PLAIN: &[u8] = &[16, 0, 0, 0, 5, 0];
/// Flow 4 is opened by the victim.
const CONNECT: &[u8] = &[4 << 5 | 17];
const SYN: u8 = 5 << 4;
const RST: u8 = 6 << 4;
const FIN: u8 = 4 << 4;
/// The segment is not where it should be, but an offset from there.
const ELSEWHERE: u8 = 2;
const SEND: &[u8] = &[18, 0x20, 0];
const RECV: &[u8] = &[20, 0x10, 0];
const SHUTDOWN: &[u8] = &[22];
const CLOSE: &[u8] = &[23];
const ABORT: &[u8] = &[24];
const LATER: &[u8] = &[25, 12];
/// 200 octets of data, of the first and the second content; and nothing.
const DATA: &[u8] = &[1, 200];
const OTHER_DATA: &[u8] = &[5, 200];
const NO_DATA: &[u8] = &[0];
/// The same with timestamps: the liar's clock, and an echo.
const DATA_WITH_TIMESTAMPS: &[u8] = &[0x41, 200, 0x10, 0, 0, 0, 0, 0];

fn segment(how: u8, rest: &[u8]) -> Vec<u8> {
    [&[0, how], rest].concat()
}

fn story(settings: [u8; 6], parts: &[&[u8]]) -> Vec<u8> {
    [&settings[..], &parts.concat()].concat()
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    [openings(), data(), endings()].concat()
}

fn openings() -> Vec<(&'static str, Vec<u8>)> {
    let syn_with_timestamps = segment(SYN, &[0xc0, 8]);
    let ack = segment(0, NO_DATA);
    let crossing_syn = [&[4 << 5, SYN], NO_DATA].concat();
    let ack_on_4 = [&[4 << 5, 0], NO_DATA].concat();
    let elsewhere = segment(SYN | ELSEWHERE, &[&[5], NO_DATA].concat());
    vec![
        ("nothing", vec![]),
        ("syn_alone", story(USUAL, &[&segment(SYN, NO_DATA)])),
        // The connection made of it was in SYN-RECEIVED for ever, without a timer.
        ("handshake_without_the_agreed_timestamps", story(USUAL, &[&syn_with_timestamps, &ack])),
        ("syns_that_cross", story(USUAL, &[CONNECT, &crossing_syn, &crossing_syn, &ack_on_4])),
        ("another_syn_while_half_open", story(USUAL, &[&syn_with_timestamps, &elsewhere, &ack])),
        ("connecting_to_nobody", story(OVER_IPV6, &[CONNECT, LATER, LATER])),
    ]
}

fn data() -> Vec<(&'static str, Vec<u8>)> {
    let data = segment(0, DATA);
    let with_timestamps = segment(0, DATA_WITH_TIMESTAMPS);
    let behind_a_gap = segment(ELSEWHERE, &[&[60], DATA].concat());
    let overlapping = segment(ELSEWHERE, &[&[10], OTHER_DATA].concat());
    let in_front = segment(ELSEWHERE, &[&[64 + 50], OTHER_DATA].concat());
    let too_far = segment(3, &[&[0x40, 0, 0, 0], DATA].concat());
    let bad_sack = segment(0, &[0xa0, 10, 200, 250, 90]);
    let optimistic = segment(2 << 2, &[&[20], NO_DATA].concat());
    let closed_window = segment(0x80, &[&[0, 0], NO_DATA].concat());
    vec![
        ("data_across_the_wrap", story(USUAL, &[OPEN, &with_timestamps, RECV, &with_timestamps, CLOSE])),
        ("data_without_the_agreed_timestamps", story(USUAL, &[OPEN, &data, RECV])),
        (
            "different_data_in_one_place",
            story(OVER_IPV6, &[OPEN_PLAIN, &behind_a_gap, &overlapping, &data, RECV]),
        ),
        ("old_and_new_data_in_one_segment", story(USUAL, &[OPEN_PLAIN, &data, &in_front, RECV, &in_front])),
        ("data_beyond_the_window", story(SMALL_BUFFERS, &[OPEN_PLAIN, &too_far, &data])),
        ("more_than_the_buffer_takes", story(SMALL_BUFFERS, &[OPEN_PLAIN, &data.repeat(20), RECV, &data])),
        ("sacks_of_nothing", story(USUAL, &[OPEN_PLAIN, SEND, &bad_sack, LATER, &bad_sack])),
        ("acknowledgement_of_what_was_not_sent", story(USUAL, &[OPEN_PLAIN, SEND, &optimistic, LATER])),
        ("window_that_closes", story(USUAL, &[OPEN_PLAIN, SEND, &closed_window, LATER, LATER, CLOSE])),
    ]
}

fn endings() -> Vec<(&'static str, Vec<u8>)> {
    let ack = segment(0, NO_DATA);
    let fin = segment(FIN, DATA);
    let fin_behind_a_gap = segment(FIN | ELSEWHERE, &[&[60], DATA].concat());
    let reset = segment(RST, NO_DATA);
    let reset_in_front = segment(RST | ELSEWHERE, &[&[64 + 1], NO_DATA].concat());
    let reset_elsewhere = segment(RST | ELSEWHERE, &[&[9], NO_DATA].concat());
    vec![
        ("fin_first_by_the_liar", story(USUAL, &[OPEN_PLAIN, &fin, RECV, SHUTDOWN, &ack])),
        ("fin_first_by_the_victim", story(USUAL, &[OPEN_PLAIN, SHUTDOWN, &ack, &fin, &fin, LATER])),
        (
            "fins_that_cross",
            story(USUAL, &[OPEN_PLAIN, SHUTDOWN, &segment(FIN | 2 << 2, &[&[65], NO_DATA].concat()), &ack]),
        ),
        ("fin_behind_a_gap_and_another", story(USUAL, &[OPEN_PLAIN, &fin_behind_a_gap, &fin, RECV])),
        // The stream ended for the reader where the data behind the FIN did, and for the state machine not at all.
        (
            "fin_in_front_of_data_that_came",
            story(USUAL, &[OPEN_PLAIN, &segment(ELSEWHERE, &[&[60], DATA].concat()), &fin, &reset_in_front]),
        ),
        ("reset_where_it_counts", story(USUAL, &[OPEN_PLAIN, SEND, &reset])),
        ("reset_where_it_does_not", story(USUAL, &[OPEN_PLAIN, SEND, &reset_elsewhere, &reset_elsewhere])),
        (
            "reset_of_a_half_open_connection",
            story(USUAL, &[&segment(SYN, NO_DATA), &reset_elsewhere, &reset]),
        ),
        ("data_for_a_closed_socket", story(USUAL, &[OPEN_PLAIN, CLOSE, &segment(0, DATA)])),
        ("abort_with_data_queued", story(OVER_IPV6, &[OPEN_PLAIN, SEND, ABORT, &ack])),
    ]
}
