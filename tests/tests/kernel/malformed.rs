//! What no client should send.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use lab::Zone;
use lab::message::{self, Answer};
use tests::Serving;

/// For what has to come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Queries at a time: as many as a socket's buffer takes, however late the server looks.
const TOGETHER: usize = 100;
const AXFR: u16 = 252;
const FORMERR: u8 = 1;
const NOTIMP: u8 = 4;

/// What a server is to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Silence,
    Rcode(u8),
    /// The extended code, in an OPT record: RFC 6891, 6.1.3.
    BadVersion,
}

fn good() -> Vec<u8> {
    message::query(0x4242, "mail.example.com", message::A)
}

/// The good query with some octets replaced.
fn with(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut message = good();
    changes.iter().for_each(|&(at, octet)| message[at] = octet);
    message
}

/// The header of the good query, followed by a question with this name.
fn with_name(name: &[u8]) -> Vec<u8> {
    [&good()[..12], name, &[0, 1, 0, 1]].concat()
}

fn cases() -> Vec<(&'static str, Vec<u8>, Expected)> {
    use Expected::{BadVersion, Rcode, Silence};
    let edns = message::with_edns(good(), 1232, 0);
    let opt = good().len();
    let changed_opt = |at: usize, octet: u8| {
        let mut message = edns.clone();
        message[opt + at] = octet;
        message
    };
    let transfer = message::query(0x4242, "example.com", AXFR);
    let version = transfer.len() + 6;
    let mut transfer = message::with_edns(transfer, 1232, 0);
    transfer[version] = 1;
    let mut two_opts = message::with_edns(edns.clone(), 1232, 0);
    two_opts[11] = 2;
    let long_name = [&[63; 64][..]; 4].concat();
    vec![
        ("an empty datagram", vec![], Silence),
        ("half a header", good()[..6].to_vec(), Silence),
        ("eleven octets", good()[..11].to_vec(), Silence),
        ("a response", with(&[(2, 0x80)]), Silence),
        ("a response with a question too many", with(&[(2, 0x80), (5, 2)]), Silence),
        ("opcode IQUERY", with(&[(2, 1 << 3)]), Rcode(NOTIMP)),
        ("opcode STATUS", with(&[(2, 2 << 3)]), Rcode(NOTIMP)),
        ("an UPDATE that names no zone: RFC 2136, 3.1.1", with(&[(2, 5 << 3)]), Rcode(FORMERR)),
        ("opcode 15", with(&[(2, 15 << 3)]), Rcode(NOTIMP)),
        ("a header alone, with a question announced", good()[..12].to_vec(), Rcode(FORMERR)),
        ("no question", with(&[(5, 0)])[..12].to_vec(), Rcode(FORMERR)),
        ("two questions announced: RFC 9619", with(&[(5, 2)]), Rcode(FORMERR)),
        ("65535 questions announced", with(&[(4, 255), (5, 255)]), Rcode(FORMERR)),
        ("a question cut in its name", good()[..18].to_vec(), Rcode(FORMERR)),
        ("a question cut before its class", good()[..good().len() - 2].to_vec(), Rcode(FORMERR)),
        ("a label beyond the end", with(&[(12, 60)]), Rcode(FORMERR)),
        ("a label of a reserved type", with_name(&[0x40, 1, 0]), Rcode(FORMERR)),
        ("a compression pointer to itself", with_name(&[0xc0, 12]), Rcode(FORMERR)),
        ("a compression pointer beyond the end", with_name(&[0xff, 0xff]), Rcode(FORMERR)),
        ("a name of 257 octets", with_name(&[&long_name[..], &[0]].concat()), Rcode(FORMERR)),
        ("an OPT record cut short", edns[..edns.len() - 1].to_vec(), Rcode(FORMERR)),
        ("an OPT record announced that is not there", with(&[(11, 1)]), Rcode(FORMERR)),
        ("two OPT records: RFC 6891, 6.1.1", two_opts, Rcode(FORMERR)),
        ("EDNS version 1", changed_opt(6, 1), BadVersion),
        ("a transfer by EDNS version 1", transfer, BadVersion),
        ("an option longer than its record", changed_opt(14, 200), Rcode(FORMERR)),
    ]
}

#[test]
fn malformed_messages_are_answered_as_the_rfcs_say() {
    let mut server = Serving::start(&Zone::sample().file, &[]);
    let mut wrong = Vec::new();
    for (name, octets, expected) in cases() {
        let timeout = match expected {
            Expected::Silence => Duration::from_millis(150),
            _ => PATIENCE,
        };
        let outcome = match message::ask(server.v4, &octets, timeout) {
            Ok(answer) if is_bad_version(&answer) => Expected::BadVersion,
            Ok(answer) => {
                assert!(answer.is_response() && answer.id() == 0x4242, "{name}");
                Expected::Rcode(answer.rcode())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Expected::Silence,
            Err(error) => panic!("{name}: {error}"),
        };
        if outcome != expected {
            wrong.push(format!("{name}: {outcome:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(server.process.try_wait().is_none());
}

/// Code 0 in the header and 1 in the first octet of the OPT record's TTL: together 16.
fn is_bad_version(answer: &Answer) -> bool {
    let octets = answer.octets();
    let opt = octets.windows(3).rposition(|window| window == [0, 0, 41]);
    answer.rcode() == 0 && opt.is_some_and(|at| octets.get(at + 5) == Some(&1))
}

/// Numbers that look random and are the same in every run: xorshift64.
fn noise(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 16) as usize
}

#[test]
fn the_server_survives_messages_with_octets_changed_cut_and_added() {
    const SEED: u64 = 0x5eed;
    let mut server = Serving::start(&Zone::sample().file, &[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.v4).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut state = SEED;
    let (mut answers, mut octets) = (0, [0; 65_535]);
    for number in 0..20_000 {
        if number % TOGETHER == 0 {
            // What was sent before was taken when this is answered.
            message::ask(server.v4, &good(), PATIENCE).unwrap();
        }
        let mut message = message::with_edns(good(), 1232, (noise(&mut state) % 8) as u16);
        for _ in 0..=noise(&mut state) % 4 {
            let at = noise(&mut state) % message.len();
            message[at] = noise(&mut state) as u8;
        }
        if noise(&mut state).is_multiple_of(4) {
            message.truncate(noise(&mut state) % message.len());
        }
        socket.send(&message).unwrap();
        while let Ok(len) = socket.recv(&mut octets) {
            assert!(Answer::new(&octets[..len]).is_some_and(|answer| answer.is_response()), "seed {SEED:#x}");
            answers += 1;
        }
    }
    assert!(answers > 1000, "only {answers} answers");
    let answer = message::ask(server.v4, &good(), PATIENCE).unwrap();
    assert_eq!((answer.rcode(), answer.answer_count()), (0, 1));
    assert!(server.process.try_wait().is_none(), "{}", server.process.output());
}
