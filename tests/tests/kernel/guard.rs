//! Cookies, and limits of rate, as clients see them.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use lab::message::{self, Answer};
use lab::{Directory, Zone};
use tests::{Dig, Serving, Transport};

const COOKIE: u16 = 10;

/// Serves the sample zone with these tables in its configuration.
fn start(tables: &str) -> Serving {
    let directory = Directory::new().unwrap();
    let zone = Zone::sample().file.display().to_string();
    let config = directory.write("dns.toml", &format!("[[zone]]\nfile = \"{zone}\"\n{tables}")).unwrap();
    let config = config.display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// Five answers, and another one each second, also for this host.
const LIMITED: &str = "[rate]\nper-address = 1\nburst-ms = 5000\nslip = 2\nexempt = [\"192.0.2.1\"]\n";

fn query(cookie: &[u8]) -> Vec<u8> {
    let mut query = message::query(1, "mail.example.com", message::A);
    query[11] += 1; // ARCOUNT
    query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0]);
    query.extend((cookie.len() as u16 + 4).to_be_bytes());
    query.extend(COOKIE.to_be_bytes());
    query.extend((cookie.len() as u16).to_be_bytes());
    query.extend(cookie);
    query
}

/// The cookie in an answer, at whose end it is.
fn cookie_of(answer: &Answer) -> Option<[u8; 24]> {
    let octets = answer.octets();
    let option = octets.get(octets.len().checked_sub(28)?..)?;
    option.starts_with(&[0, 10, 0, 24]).then(|| *option[4..].first_chunk().unwrap())
}

/// Answers to the query, sent so many times at once: all those that are not held back.
fn flood(server: &Serving, query: &[u8], count: usize) -> Vec<Answer> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.v4).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let dropped = || server.counter("dns_dropped_rate") as usize;
    let (before, deadline) = (dropped(), Instant::now() + Duration::from_secs(60));
    (0..count).for_each(|_| assert!(socket.send(query).is_ok()));
    let (mut buffer, mut answers) = ([0; 4096], Vec::new());
    while answers.len() + dropped() - before < count {
        assert!(Instant::now() < deadline, "{} answers, {} dropped", answers.len(), dropped() - before);
        while let Ok(len) = socket.recv(&mut buffer) {
            answers.extend(Answer::new(&buffer[..len]));
        }
    }
    answers
}

#[test]
fn cookies_are_answered_checked_and_refused_if_they_are_none() {
    let server = start("[cookies]\nenabled = true\n[answers]\nnsid = \"here\"\n");
    let ask = |cookie: &[u8]| message::ask(server.v4, &query(cookie), Duration::from_secs(30)).unwrap();
    let first = ask(b"8 octets");
    let cookie = cookie_of(&first).expect("a cookie");
    assert_eq!((&cookie[..8], first.answer_count()), (&b"8 octets"[..], 1));
    assert_eq!(cookie_of(&ask(&cookie)), Some(cookie), "a fresh one is kept");
    let forged = [&cookie[..23], &[!cookie[23]]].concat();
    assert_ne!(cookie_of(&ask(&forged)), Some(*forged.first_chunk().unwrap()));
    assert_eq!(ask(b"7 octet").rcode(), 1, "FORMERR");
    for transport in [Transport::Udp, Transport::Tcp] {
        // dig sends a cookie by itself, and checks the client's part.
        for question in [["mail.example.com", "A"], ["nobody.example.com", "A"], ["big.example.com", "TXT"]] {
            let dig = Dig::ask(server.v4, transport, &[&question[..], &["+nsid", "+cookie"]].concat());
            assert!(dig.text.contains("(good)") && dig.text.contains("NSID"), "{}", dig.text);
        }
    }
    let plain = Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A", "+nocookie"]);
    assert!(!plain.text.contains("COOKIE"), "{}", plain.text);
}

#[test]
fn without_a_word_cookies_are_not_answered() {
    let server = start("");
    let answer = message::ask(server.v4, &query(b"8 octets"), Duration::from_secs(30)).unwrap();
    assert_eq!((cookie_of(&answer), answer.answer_count()), (None, 1));
}

#[test]
fn beyond_the_limit_every_second_answer_is_truncated_and_the_others_are_not_sent() {
    let server = start(LIMITED);
    let query = message::query(1, "mail.example.com", message::A);
    let answers = flood(&server, &query, 45);
    let whole = answers.iter().filter(|answer| answer.answer_count() == 1).count();
    let truncated = answers.iter().filter(|answer| answer.is_truncated()).count();
    // A slow machine may let seconds pass.
    assert!((5..=15).contains(&whole), "{whole} whole answers");
    let beyond = 45 - whole;
    assert!((beyond / 2..=beyond.div_ceil(2)).contains(&truncated), "{truncated} of {beyond}");
    assert_eq!(answers.len(), whole + truncated);
    assert_eq!(server.counter("dns_dropped_rate"), (45 - answers.len()) as u64);
    let by_tcp = Dig::ask(server.v4, Transport::Tcp, &["mail.example.com", "A"]);
    assert_eq!(by_tcp.section("ANSWER").len(), 1, "{}", by_tcp.text);
}

#[test]
fn a_valid_cookie_passes_where_its_address_is_held_back() {
    let server = start(&format!("{LIMITED}[cookies]\nenabled = true\n"));
    let first = message::ask(server.v4, &query(b"8 octets"), Duration::from_secs(30)).unwrap();
    let cookie = cookie_of(&first).expect("a cookie");
    flood(&server, &message::query(1, "mail.example.com", message::A), 45);
    let answers = flood(&server, &query(&cookie), 30);
    assert!(answers.len() == 30 && answers.iter().all(|answer| answer.answer_count() == 1));
}

/// RFC 7873, 5.2.3: so a client of an address that somebody else floods gets out of its limit.
#[test]
fn who_sends_a_cookie_beyond_the_limit_gets_one_with_what_it_gets_instead_of_an_answer() {
    for beyond in ["slip", "refuse"] {
        let server = start(&format!("{LIMITED}beyond = \"{beyond}\"\n[cookies]\nenabled = true\n"));
        flood(&server, &message::query(1, "mail.example.com", message::A), 45);
        let answers = flood(&server, &query(b"8 octets"), 10);
        let held_back: Vec<&Answer> = answers.iter().filter(|answer| answer.answer_count() == 0).collect();
        assert!(!held_back.is_empty(), "{beyond}");
        assert!(held_back.iter().all(|answer| cookie_of(answer).is_some()), "{beyond}: {held_back:?}");
        let cookie = cookie_of(held_back[0]).unwrap();
        let free = flood(&server, &query(&cookie), 30);
        assert!(free.len() == 30 && free.iter().all(|answer| answer.answer_count() == 1), "{beyond}");
    }
}

#[test]
fn a_cookie_that_is_none_counts_as_any_other_query() {
    let server = start(&format!("{LIMITED}[cookies]\nenabled = true\n"));
    let mut unasked = query(b"1");
    unasked.drain(12..unasked.len() - 16);
    unasked[5] = 0; // QDCOUNT
    for query in [query(b"1"), unasked] {
        let answers = flood(&server, &query, 100);
        assert!(answers.len() < 30, "{} answers of 100", answers.len());
    }
}

/// RFC 7873, 5.4.
#[test]
fn a_query_for_nothing_but_a_cookie_gets_that_and_a_wrong_one_is_told() {
    let server = start("[cookies]\nenabled = true\n");
    let without_question = |cookie: &[u8]| {
        let mut query = query(cookie);
        let question_end = query.len() - 11 - 4 - cookie.len();
        query.drain(12..question_end);
        query[5] = 0; // QDCOUNT
        query
    };
    let ask = |query: &[u8]| message::ask(server.v4, query, Duration::from_secs(30)).unwrap();
    let first = ask(&without_question(b"8 octets"));
    let cookie = cookie_of(&first).expect("a cookie");
    assert_eq!((first.rcode(), first.octets().len()), (0, 12 + 11 + 28));
    assert_eq!(cookie_of(&ask(&without_question(&cookie))), Some(cookie));
    let forged = [&cookie[..23], &[!cookie[23]]].concat();
    let wrong = ask(&without_question(&forged));
    assert_eq!(
        (wrong.rcode(), wrong.octets()[12 + 5], cookie_of(&wrong).is_some()),
        (7, 1, true),
        "BADCOOKIE"
    );
    assert_eq!(ask(&without_question(b"7 octet")).rcode(), 1, "FORMERR");
    let server = start("");
    let refused = message::ask(server.v4, &without_question(b"8 octets"), Duration::from_secs(30)).unwrap();
    assert_eq!((refused.rcode(), refused.octets().len()), (1, 12 + 11), "FORMERR with OPT");
}

#[test]
fn queries_beyond_the_limit_are_refused_or_dropped_if_so_configured() {
    for (beyond, rcode) in [("refuse", Some(5)), ("drop", None)] {
        let server = start(&format!("{LIMITED}beyond = \"{beyond}\"\n"));
        let answers = flood(&server, &message::query(1, "mail.example.com", message::A), 45);
        let others: Vec<u8> =
            answers.iter().filter(|answer| answer.answer_count() == 0).map(Answer::rcode).collect();
        assert!(others.iter().all(|other| Some(*other) == rcode), "{beyond}: {others:?}");
        assert_eq!(others.is_empty(), rcode.is_none(), "{beyond}");
    }
}

/// A request with this opcode for the SOA of `zone`.
fn request(opcode: u8, zone: &str) -> Vec<u8> {
    const SOA: u16 = 6;
    let mut request = message::query(1, zone, SOA);
    request[2] = opcode << 3;
    request
}

const NOTIFY: u8 = 4;
const UPDATE: u8 = 5;

#[test]
fn a_notify_has_no_limit_if_a_primary_sends_it_and_beyond_the_limit_no_other_request_is_silently_lost() {
    // The primary is this test, which answers nothing.
    let secondary = "[[secondary]]\nzone = \"example.org\"\nprimaries = [\"127.0.0.1:9\"]\n";
    let server = start(&format!("{LIMITED}beyond = \"refuse\"\n{secondary}"));
    let answers = flood(&server, &request(NOTIFY, "example.org"), 45);
    assert!(answers.len() == 45 && answers.iter().all(|answer| answer.rcode() == 0), "{answers:?}");
    for other in [request(NOTIFY, "example.com"), request(UPDATE, "example.com")] {
        let answers = flood(&server, &other, 45);
        assert_eq!(answers.len(), 45);
        assert!(answers.iter().all(|answer| [5, 9].contains(&answer.rcode())), "{answers:?}");
    }
    let server = start(LIMITED);
    let answers = flood(&server, &request(UPDATE, "example.com"), 45);
    assert!(answers.iter().any(Answer::is_truncated), "{answers:?}");
}

#[test]
fn this_host_has_no_limit_unless_it_is_named() {
    let server = start("[rate]\nper-address = 1\n");
    let answers = flood(&server, &message::query(1, "mail.example.com", message::A), 45);
    assert_eq!(answers.len(), 45);
}
