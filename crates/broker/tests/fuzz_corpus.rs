//! Replays the fuzz corpus of the target `broker`: histories of clients, each kept for what it says in its name.

mod corpus;

use broker::fuzz_broker;
use broker::protocol::{ClaimId, Purpose, Request, Transport, VERSION};

use corpus::{Case, Corpus, say, say_with, text};

fn broker_corpus() -> Corpus {
    Corpus { name: "broker", fuzz: fuzz_broker, cases: cases() }
}

#[test]
fn every_file_of_the_corpus_is_survived() {
    broker_corpus().replay();
}

#[test]
fn the_named_cases_are_in_the_corpus() {
    broker_corpus().check_files();
}

#[test]
fn cases_with_changed_octets_are_survived() {
    broker_corpus().replay_changed(200);
}

/// Sockets that come with claims: a listener on all addresses, another one that shares its port, one on one address.
const ANY: u8 = 0;
const SHARED: u8 = 16;
const ONE: u8 = 3;

fn hello(client: u8) -> Vec<u8> {
    say(client, Request::Hello { version: VERSION, program: "program".to_owned(), pid: 7 })
}

fn attach(client: u8) -> Vec<u8> {
    say(client, Request::Queues { wanted: true })
}

fn ready(client: u8, queues: &[u16]) -> Vec<u8> {
    say(client, Request::Serve { queues: vec![(0, queues.to_vec())], key: None })
}

fn claim(client: u8, socket: u8, purpose: Purpose) -> Vec<u8> {
    let transport = if purpose == Purpose::Udp { Transport::Udp } else { Transport::Tcp };
    say_with(client, socket, Request::Claim { transport, purpose, again: None })
}

fn listen(client: u8) -> Vec<u8> {
    claim(client, ANY, Purpose::Listener)
}

fn leave(client: u8) -> Vec<u8> {
    vec![129, client, 0]
}

/// An interface with this many queues and three addresses.
fn interface(link: u8, queues: u8) -> Vec<u8> {
    vec![130, link, queues << 4 | 7]
}

fn detach(link: u8) -> Vec<u8> {
    vec![131, link, 0]
}

fn shadow_gone(claim: u8) -> Vec<u8> {
    vec![132, claim, 0]
}

fn moved(port: u8) -> Vec<u8> {
    vec![133, 0, port]
}

fn pass(millis: u8) -> Vec<u8> {
    vec![134, 0, millis]
}

fn pass_tenths(tenths: u8) -> Vec<u8> {
    vec![135, 0, tenths]
}

/// One client that has the only queue and listens.
fn serving() -> Vec<u8> {
    [interface(0, 1), hello(0), attach(0), ready(0, &[0]), listen(0), pass(5)].concat()
}

/// Two workers of one program with a queue each.
fn workers() -> Vec<u8> {
    let first = [interface(0, 2), hello(0), attach(0), ready(0, &[0]), listen(0)].concat();
    [first, hello(1), attach(1), ready(1, &[1]), listen(1), pass(5)].concat()
}

fn cases() -> Vec<Case> {
    [histories_of_queues(), histories_of_claims(), texts()].concat()
}

fn histories_of_queues() -> Vec<Case> {
    let give_back = |client| say(client, Request::Queues { wanted: false });
    let waiting = || [serving(), hello(1), attach(1), listen(1)].concat();
    vec![
        ("serving", serving()),
        ("workers", workers()),
        ("worker_dies_and_is_replaced", [workers(), leave(0), hello(0), attach(1), pass_tenths(11)].concat()),
        ("waits_for_a_queue", [waiting(), give_back(0), ready(1, &[0]), pass(5)].concat()),
        (
            "rest_of_the_queues",
            [interface(0, 4), hello(0), attach(0), pass(100), ready(0, &[0, 1, 2, 3])].concat(),
        ),
        ("ready_for_what_others_have", [workers(), ready(1, &[0, 1, 2, 63, 64, 65535])].concat()),
        (
            "fewer_queues_than_before",
            [workers(), interface(0, 1), pass(5), leave(0), pass_tenths(11)].concat(),
        ),
        ("more_queues_than_before", [workers(), interface(0, 4), pass_tenths(2)].concat()),
        ("interface_goes_and_comes_back", [workers(), detach(0), interface(0, 2), pass(5)].concat()),
        ("interface_goes_with_its_last_client", [serving(), detach(0), leave(0), interface(0, 1)].concat()),
        (
            "gives_back_and_claims_again",
            [serving(), give_back(0), attach(0), ready(0, &[0]), pass(5)].concat(),
        ),
        ("not_ready", [interface(0, 1), hello(0), attach(0), listen(0), pass_tenths(20)].concat()),
    ]
}

fn histories_of_claims() -> Vec<Case> {
    let release =
        |client, claim| say(client, Request::Release { claims: vec![ClaimId(claim)], drain: false });
    let drain = |client, claim| say(client, Request::Release { claims: vec![ClaimId(claim)], drain: true });
    let outgoing = |socket| claim(0, socket, Purpose::Outgoing);
    let adopt = |client, socket| say_with(client, socket, Request::Give { token: None });
    let shared = |client, claim| say(client, Request::IsShared { claim: ClaimId(claim) });
    // Found by a property test: the look of the first interface's port cleared the other's, which was not marked yet.
    let second_while_marking = [
        [interface(0, 1), hello(0), attach(0), ready(0, &[0]), listen(0), pass(4)].concat(),
        [interface(1, 1), say(0, Request::Serve { queues: vec![(1, vec![0])], key: None }), pass(1), pass(5)]
            .concat(),
    ];
    vec![
        (
            "claims_before_it_has_a_queue",
            [interface(0, 1), hello(0), listen(0), attach(0), ready(0, &[0])].concat(),
        ),
        ("claims_before_there_is_an_interface", [hello(0), listen(0), interface(0, 1), listen(0)].concat()),
        ("releases_what_others_claimed", [workers(), release(0, 2), release(1, 1), release(0, 1)].concat()),
        ("releases_twice", [serving(), release(0, 1), release(0, 1), release(0, u64::MAX)].concat()),
        ("drains_and_leaves", [workers(), drain(0, 1), pass_tenths(101), leave(0), pass(5)].concat()),
        ("all_drain", [workers(), drain(0, 1), drain(1, 2), pass_tenths(101), release(0, 1)].concat()),
        ("listener_went_without_a_word", [workers(), shadow_gone(0), pass_tenths(101)].concat()),
        ("udp", [serving(), claim(0, ONE, Purpose::Udp), shadow_gone(1)].concat()),
        ("outgoing", [serving(), outgoing(ONE), outgoing(ONE | 4 | SHARED), pass(5), leave(0)].concat()),
        (
            "hands_over_and_asks_who_shares",
            [workers(), drain(0, 1), adopt(0, ONE), shared(1, 2), leave(1), adopt(0, ONE), shared(0, 1)]
                .concat(),
        ),
        (
            "hands_over_what_it_has_released",
            [workers(), adopt(2, ONE), release(0, 1), adopt(0, ONE), adopt(0, ONE | 4), leave(0)].concat(),
        ),
        ("two_listeners_at_a_port", [serving(), claim(0, SHARED, Purpose::Listener), release(0, 1)].concat()),
        ("connections_move_to_the_kernel", [serving(), moved(0), pass_tenths(101), moved(0)].concat()),
        ("second_interface_while_marking", second_while_marking.concat()),
        (
            "udp_socket_as_a_listener",
            [
                serving(),
                say(0, Request::Claim { transport: Transport::Udp, purpose: Purpose::Listener, again: None }),
            ]
            .concat(),
        ),
    ]
}

/// What is no message, and what is barely one.
fn texts() -> Vec<Case> {
    let says = |octets: &[u8]| [serving(), text(0, 0, octets), pass(5)].concat();
    let nested = [b"{\"id\":1,\"request\":".as_slice(), &[b'['; 300]].concat();
    vec![
        ("nothing", Vec::new()),
        ("empty_message", says(b"")),
        ("no_json", says(b"\xff\0garbage")),
        ("half_a_message", says(br#"{"id":1,"requ"#)),
        ("unknown_request", says(br#"{"id":1,"request":"fly"}"#)),
        ("unknown_field", says(br#"{"id":1,"request":"attach","more":1}"#)),
        ("number_too_large", says(br#"{"id":1,"request":{"release":{"claims":[18446744073709551616]}}}"#)),
        ("negative_number", says(br#"{"id":1,"request":{"ready":{"link":-1,"queues":[]}}}"#)),
        ("deep_nesting", says(&nested)),
        ("address_that_is_none", says(br#"{"id":1,"request":{"route":{"remote":"1.2.3","from":null}}}"#)),
        ("name_with_everything", says("{\"id\":1,\"request\":{\"hello\":{\"version\":1,\"program\":\"\\u0000\u{1f980}\\ud83e\\udd80\",\"pid\":0}}}".as_bytes())),
        ("lone_surrogate", says(br#"{"id":1,"request":{"hello":{"version":1,"program":"\ud800","pid":0}}}"#)),
        ("space_around", says(b" \n{\"id\":1,\"request\":\"attach\"}\t")),
        ("fields_twice", says(br#"{"id":1,"id":2,"request":"attach"}"#)),
    ]
}
