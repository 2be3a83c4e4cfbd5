//! Replays the fuzz corpus of the target `broker_requests`: every request, right and wrong, at a whole broker.

mod corpus;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use broker::fuzz_requests;
use broker::protocol::{
    ClaimId, ENQUEUED_MAX, Handshake, Key, Moving, Options, Profile, ProgramReport, Purpose, Request,
    ToBroker, Transport, VERSION, decode,
};
use transit::{Established, Hop, SeqNum, SocketKind, State};

use corpus::{Case, Corpus, say, say_with, text};

fn requests_corpus() -> Corpus {
    Corpus { name: "broker_requests", fuzz: fuzz_requests, cases: cases() }
}

#[test]
fn every_file_of_the_corpus_is_survived() {
    requests_corpus().replay();
}

#[test]
fn the_named_cases_are_in_the_corpus() {
    requests_corpus().check_files();
}

#[test]
fn cases_with_changed_octets_are_survived() {
    requests_corpus().replay_changed(8);
}

#[test]
fn the_cases_have_every_request() {
    let mut seen = BTreeSet::new();
    for (_, history) in cases() {
        let mut rest = history.as_slice();
        while let Some((&[kind, _, low], behind)) = rest.split_first_chunk::<3>() {
            rest = behind;
            if kind < 128 {
                let (high, behind) = rest.split_first().unwrap();
                let (octets, behind) = behind.split_at(usize::from(u16::from_le_bytes([low, *high])));
                rest = behind;
                seen.extend(decode::<ToBroker>(octets).ok().map(|message| name_of(&message.request)));
            }
        }
    }
    let all = [
        "hello",
        "join",
        "queues",
        "serve",
        "give",
        "claim",
        "release",
        "route",
        "unanswered",
        "move",
        "enqueue",
        "move_for",
        "handshake",
        "book",
        "is_shared",
        "leave_socket",
        "deliver",
        "stray",
        "unknown",
        "status",
    ];
    assert_eq!(seen, BTreeSet::from(all));
}

/// Exhaustive, so that a new request does not compile until it has a name here, and then a case.
fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Hello { .. } => "hello",
        Request::Join { .. } => "join",
        Request::Queues { .. } => "queues",
        Request::Serve { .. } => "serve",
        Request::Claim { .. } => "claim",
        Request::Release { .. } => "release",
        Request::Route { .. } => "route",
        Request::Unanswered { .. } => "unanswered",
        Request::Move { .. } => "move",
        Request::Enqueue { .. } => "enqueue",
        Request::MoveFor { .. } => "move_for",
        Request::Give { .. } => "give",
        Request::Handshake(_) => "handshake",
        Request::Book => "book",
        Request::IsShared { .. } => "is_shared",
        Request::LeaveSocket { .. } => "leave_socket",
        Request::Deliver { .. } => "deliver",
        Request::Stray { .. } => "stray",
        Request::Unknown { .. } => "unknown",
        Request::Status(_) => "status",
    }
}

/// What comes beside messages: see `Sockets::pick` in `server/fuzz.rs`.
const UDP: u8 = 1;
const LISTENER: u8 = 2;
const BOUND: u8 = 3;
const ACCEPTED: u8 = 4;
const FILE: u8 = 5;
const UNIX: u8 = 6;
const TWO: u8 = 7;

/// The local end of one of them.
fn at(socket: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], socket.into()))
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 2], 4000))
}

fn hello(client: u8) -> Vec<u8> {
    say(client, Request::Hello { version: VERSION, program: "program".to_owned(), pid: 7 })
}

fn claim(client: u8, socket: u8, purpose: Purpose) -> Vec<u8> {
    let transport = if purpose == Purpose::Udp { Transport::Udp } else { Transport::Tcp };
    say_with(client, socket, Request::Claim { transport, purpose, again: None })
}

fn listen(client: u8) -> Vec<u8> {
    claim(client, LISTENER, Purpose::Listener)
}

/// A client that has both queues and listens.
fn serving() -> Vec<u8> {
    let ready = Request::Serve { queues: vec![(0, vec![0, 1])], key: None };
    [hello(0), say(0, Request::Queues { wanted: true }), say(0, ready), listen(0)].concat()
}

fn leave(client: u8) -> Vec<u8> {
    vec![129, client, 0]
}

fn pass_tenths(tenths: u8) -> Vec<u8> {
    vec![131, 0, tenths]
}

fn moving(local: SocketAddr, lens: [u32; 3]) -> Moving {
    let connection = Established {
        local,
        remote: peer(),
        state: State::Established,
        snd_una: SeqNum(1),
        snd_wnd: 1000,
        snd_wl1: SeqNum(2),
        max_window: 1000,
        rcv_nxt: SeqNum(3),
        rcv_wnd: 1000,
        rcv_wup: SeqNum(3),
        snd_wscale: 0,
        rcv_wscale: 0,
        peer_mss: 1460,
        sack_permitted: false,
        ecn: false,
        timestamps: None,
        unacked: Vec::new(),
        unsent: Vec::new(),
        received: Vec::new(),
        fin_sent: false,
        read_closed: false,
        orphaned: false,
    };
    let [received_len, unacked_len, unsent_len] = lens;
    let socket = SocketKind::default();
    Moving { connection, socket, received_len, unacked_len, unsent_len }
}

fn moved(client: u8, file: u8, lens: [u32; 3]) -> Vec<u8> {
    let connection = moving(at(LISTENER), lens);
    say_with(client, file, Request::Move { connection, offered: false })
}

fn handshake(local: SocketAddr) -> Handshake {
    Handshake {
        local,
        remote: peer(),
        hop: Hop::default(),
        irs: SeqNum(1),
        iss: SeqNum(2),
        peer_mss: 1460,
        window_scales: Some((7, 7)),
        sack_permitted: true,
        ecn: false,
        timestamps: None,
        window: 65_535,
        syn_acks: 1,
        timeouts: 0,
        age_us: 10,
        saved_syn: None,
    }
}

fn cases() -> Vec<Case> {
    [of_order(), of_claims(), of_connections(), of_strays(), of_families()].concat()
}

fn of_order() -> Vec<Case> {
    let route = |remote: &str| say(0, Request::Route { remote: remote.parse().unwrap(), from: None });
    vec![
        ("nothing", Vec::new()),
        ("no_hello", say(0, Request::Queues { wanted: true })),
        ("hello_twice", [hello(0), hello(0)].concat()),
        ("other_version", say(0, Request::Hello { version: 0, program: String::new(), pid: 0 })),
        ("no_message", [hello(0), text(0, 0, b"{")].concat()),
        (
            "a_socket_where_none_belongs",
            [hello(0), say_with(0, UDP, Request::Queues { wanted: true })].concat(),
        ),
        ("two_sockets", [hello(0), say_with(0, TWO, Request::Give { token: None })].concat()),
        (
            "serves_and_gives_back",
            [serving(), say(0, Request::Queues { wanted: false }), pass_tenths(11)].concat(),
        ),
        (
            "routes",
            [hello(0), route("127.0.0.1"), route("192.0.2.9"), route("fe80::1"), route("::")].concat(),
        ),
        (
            "an_answer_that_did_not_come",
            [
                serving(),
                claim(0, BOUND, Purpose::Outgoing),
                say(0, Request::Unanswered { local: at(BOUND), remote: peer() }),
                say(0, Request::Unanswered { local: peer(), remote: peer() }),
            ]
            .concat(),
        ),
        ("reports", [serving(), say(0, Request::Status(ProgramReport::default()))].concat()),
    ]
}

fn of_claims() -> Vec<Case> {
    let wrong = [UDP, BOUND, ACCEPTED, FILE, UNIX, 0].map(|socket| claim(0, socket, Purpose::Listener));
    let drain = say(0, Request::Release { claims: vec![ClaimId(1)], drain: true });
    let release = say(0, Request::Release { claims: vec![ClaimId(1), ClaimId(7)], drain: false });
    let shared = |client, claim| say(client, Request::IsShared { claim: ClaimId(claim) });
    let leave_socket = |client, claim| say(client, Request::LeaveSocket { claim: ClaimId(claim) });
    let deliver = |socket, local, remote| {
        say_with(0, socket, Request::Deliver { local, remote, octets: b"datagram".to_vec() })
    };
    vec![
        ("claims_of_wrong_sockets", [hello(0), wrong.concat()].concat()),
        ("drains_and_releases", [serving(), drain, pass_tenths(1), release.clone(), release].concat()),
        ("outgoing", [hello(0), claim(0, BOUND, Purpose::Outgoing), leave(0)].concat()),
        ("shared", [serving(), hello(1), listen(1), shared(0, 1), shared(0, 2), shared(1, 2)].concat()),
        (
            "sockets_left_to_the_kernel",
            [serving(), hello(1), listen(1), leave_socket(0, 7), leave_socket(1, 2), listen(0)].concat(),
        ),
        (
            "datagrams",
            [
                hello(0),
                claim(0, UDP, Purpose::Udp),
                deliver(UDP, at(UDP), peer()),
                deliver(UDP, at(BOUND), peer()),
            ]
            .concat(),
        ),
        (
            "datagrams_in_the_name_of_this_host",
            [
                hello(0),
                deliver(UDP, at(UDP), at(UDP)),
                deliver(LISTENER, at(UDP), peer()),
                deliver(0, at(UDP), peer()),
            ]
            .concat(),
        ),
    ]
}

fn of_connections() -> Vec<Case> {
    let adopt = |client, socket| say_with(client, socket, Request::Give { token: None });
    let hands_on = |client, local| say(client, Request::Handshake(handshake(local)));
    let long = Handshake { saved_syn: Some([0; 200].into()), ..handshake(at(LISTENER)) };
    let late = Request::Deliver { local: at(LISTENER), remote: peer(), octets: vec![0; 20] };
    let waits = |sockets, lens: &[[u32; 3]]| {
        let connections = lens.iter().map(|lens| moving(at(LISTENER), *lens)).collect();
        say_with(0, sockets, Request::Enqueue { connections, offered: lens.len().is_multiple_of(2) })
    };
    let heir = || [hello(1), say(1, Request::Queues { wanted: true }), listen(1)].concat();
    vec![
        ("moves", [serving(), moved(0, 0, [0; 3]), moved(0, FILE, [10, 20, 30])].concat()),
        (
            "moves_with_the_wrong_octets",
            [serving(), moved(0, FILE, [65, 0, 0]), moved(0, 0, [1, 0, 0]), moved(0, UNIX, [1, 1, 1])]
                .concat(),
        ),
        ("moves_with_too_many_octets", [serving(), moved(0, FILE, [u32::MAX; 3])].concat()),
        (
            "waits_in_the_kernel",
            [serving(), waits(LISTENER, &[[0; 3]; 3]), waits(ACCEPTED, &[[0; 3]]), waits(0, &[[0; 3]])]
                .concat(),
        ),
        (
            "waits_with_the_wrong_octets",
            [
                serving(),
                waits(LISTENER, &[[10, 0, 0]]),
                waits(TWO, &[[0, 0, 0], [10, 0, 0], [u32::MAX; 3], [20, 0, 0], [65, 0, 0]]),
                waits(LISTENER, &[[0; 3]; ENQUEUED_MAX + 1]),
            ]
            .concat(),
        ),
        (
            "books",
            [serving(), say_with(0, FILE, Request::Book), say_with(0, UDP, Request::Book), leave(0)].concat(),
        ),
        ("no_book", [serving(), say(0, Request::Book), leave(0)].concat()),
        ("late_for_nothing", [serving(), say(0, late)].concat()),
        ("hands_over", [serving(), heir(), adopt(0, ACCEPTED), leave(0)].concat()),
        (
            "hands_over_what_is_no_connection",
            [serving(), adopt(0, UDP), adopt(0, BOUND), adopt(0, FILE)].concat(),
        ),
        ("an_orphan_waits", [serving(), adopt(0, ACCEPTED), leave(0), pass_tenths(10), heir()].concat()),
        (
            "a_handshake_waits",
            [serving(), hands_on(0, at(LISTENER)), leave(0), heir(), pass_tenths(5)].concat(),
        ),
        (
            "handshakes_of_others",
            [serving(), hello(1), hands_on(1, at(LISTENER)), hands_on(0, peer())].concat(),
        ),
        ("a_handshake_too_long", [serving(), say(0, Request::Handshake(long))].concat()),
    ]
}

fn of_strays() -> Vec<Case> {
    let stray =
        |client, local, len| say(client, Request::Stray { local, remote: peer(), octets: vec![0; len] });
    let unknown = |client, token| say(client, Request::Unknown { token });
    let siblings = || [serving(), hello(1), listen(1), hello(2), listen(2)].concat();
    vec![
        (
            "a_stray_is_nobodys",
            [siblings(), stray(0, at(LISTENER), 20), unknown(1, 1), unknown(2, 1)].concat(),
        ),
        (
            "a_stray_is_answered_by_others",
            [siblings(), hello(3), stray(0, at(LISTENER), 0), unknown(3, 1), unknown(0, 1), unknown(1, 9)]
                .concat(),
        ),
        (
            "those_who_were_asked_for_a_stray_go",
            [siblings(), stray(0, at(LISTENER), 20), leave(1), leave(2), pass_tenths(1)].concat(),
        ),
        ("a_stray_waits", [siblings(), stray(0, at(LISTENER), 20), pass_tenths(31), leave(0)].concat()),
        (
            "strays_of_strangers",
            [serving(), stray(0, at(LISTENER), 20), stray(0, at(BOUND), 20), hello(1), stray(1, at(UDP), 9)]
                .concat(),
        ),
        ("a_stray_too_long", [siblings(), stray(0, at(LISTENER), 13 << 10)].concat()),
    ]
}

fn of_families() -> Vec<Case> {
    let join = |client| {
        let reason = Some("as it is".to_owned());
        let profile = Profile {
            name: "p".to_owned(),
            listeners: true,
            outgoing: true,
            udp: false,
            leaves_unsuited: true,
            reason,
        };
        let options =
            Options { spin_us: 1, gather_us: 0, mss_clamp: Some(1400), verbose: true, share: true, profile };
        say(client, Request::Join { version: VERSION, options })
    };
    let asks = |keys: &[u64]| {
        let keys = keys.iter().map(|number| Key([*number, 0])).collect();
        say(2, Request::MoveFor { keys, local: at(LISTENER), remote: peer() })
    };
    let family = || [serving(), hello(1), hello(2)].concat();
    let returned = |key, queues| Request::Serve { queues, key: Some(Key([key, 0])) };
    let returns = |client, key| say(client, returned(key, vec![(0, vec![0, 1]), (9, vec![0])]));
    let moves = |client, socket, token| say_with(client, socket, Request::Give { token: Some(token) });
    let refuses = |client, token| say(client, Request::Give { token: Some(token) });
    vec![
        ("another_run_joins_and_goes", [join(0), hello(1), join(1), join(0), join(2), leave(2)].concat()),
        ("a_parent_moves_it_for_a_child", [family(), asks(&[0]), moves(0, ACCEPTED, 1)].concat()),
        (
            "a_parent_refuses_and_the_next_moves_it",
            [family(), asks(&[0, 1]), refuses(0, 1), moves(1, UDP, 2)].concat(),
        ),
        ("a_parent_says_nothing", [family(), asks(&[1, 0]), pass_tenths(31), pass_tenths(31)].concat()),
        ("a_parent_goes", [family(), asks(&[1]), leave(1)].concat()),
        ("a_child_goes", [family(), asks(&[1]), leave(2), moves(1, ACCEPTED, 1)].concat()),
        ("keys_of_nobody", [family(), asks(&[9]), asks(&[]), asks(&[2]), asks(&[0; 20])].concat()),
        ("answers_to_others_questions", [family(), asks(&[0]), refuses(1, 1), moves(1, 0, 1)].concat()),
        ("returns", [family(), returns(1, 0), returns(0, 9), leave(0), returns(2, 0)].concat()),
        ("returns_with_too_much", [hello(0), say(0, returned(9, vec![(0, vec![0; 65])]))].concat()),
        ("a_parent_moves_it", [family(), asks(&[0]), moved(0, FILE, [1, 2, 3]), refuses(0, 1)].concat()),
    ]
}
