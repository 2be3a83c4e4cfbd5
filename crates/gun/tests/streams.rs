//! Loads over connections, from outside: octets in, octets out, at times that the tests give.

use clock::{Duration, Instant};
use dns_wire::Rtype;
use gun::streams::{Fault, Http1Request, HttpRequest, Pace, Setup, Speech, Streams};
use gun::summary::Counts;
use gun::{Order, Questions, Schedule, Summary};

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(500);
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// A load, and what its connections have sent.
struct Bench {
    streams: Streams,
    sent: Vec<Vec<u8>>,
    closed: Vec<usize>,
}

fn http1() -> Speech {
    Speech::Http1(Http1Request::new("GET", "/", "h", &[], b""))
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

impl Bench {
    fn new(speech: Speech, connections: usize, pipeline: usize, is_kept: bool) -> Bench {
        Bench::after(0, speech, connections, pipeline, is_kept)
    }

    /// After loads that have asked so many questions.
    fn after(asked: u64, speech: Speech, connections: usize, pipeline: usize, is_kept: bool) -> Bench {
        let setup = Setup {
            speech,
            connections,
            pipeline,
            is_kept,
            timeout: TIMEOUT,
            within: Duration::from_millis(100),
            asked,
        };
        let streams = Streams::new(setup, at(0));
        Bench { streams, sent: vec![Vec::new(); connections], closed: Vec::new() }
    }

    /// With connections open and a load of this pace under way.
    fn begun(mut self, pace: Pace) -> Bench {
        self.dial(0);
        self.streams.begin(pace, at(0));
        self.turn(0);
        self
    }

    /// Opens what is to be opened; which that was.
    fn dial(&mut self, millis: u64) -> Vec<usize> {
        let dialled: Vec<usize> = std::iter::from_fn(|| self.streams.poll_dial(at(millis))).collect();
        dialled.iter().for_each(|number| self.streams.on_open(*number, at(millis)));
        dialled
    }

    fn turn(&mut self, millis: u64) {
        self.streams.turn(at(millis));
        while let Some(number) = self.streams.poll_changed() {
            if self.streams.is_over(number) {
                self.closed.push(number);
                self.streams.on_dropped(number, at(millis));
                continue;
            }
            let sent = &mut self.sent[number];
            // A socket that takes a few octets at a time.
            while self.streams.has_output(number) {
                self.streams.write(number, &mut |octets| {
                    let len = octets.len().min(7);
                    sent.extend_from_slice(&octets[..len]);
                    len
                });
            }
        }
    }

    fn hear(&mut self, number: usize, octets: &[u8], millis: u64) {
        self.streams.on_octets(number, octets, at(millis));
        self.turn(millis);
    }

    /// What a connection has sent since this was asked last.
    fn take_sent(&mut self, number: usize) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.sent[number])).into_owned()
    }

    fn finish(self) -> Summary {
        self.streams.finish(0, SECOND)
    }
}

fn closed_loop() -> Pace {
    Pace::Closed(at(1000))
}

fn open_loop(rate: u32) -> Pace {
    Pace::Open(Schedule::new(at(0), rate, SECOND))
}

fn faults(summary: &Summary) -> Vec<(&str, u64)> {
    summary.faults.iter().map(|(name, times)| (&name[..], *times)).collect()
}

#[test]
fn without_a_rate_a_connection_sends_the_next_request_when_it_has_an_answer() {
    for cut in 0..OK.len() {
        let mut bench = Bench::new(http1(), 1, 1, true).begun(closed_loop());
        assert_eq!(bench.take_sent(0), REQUEST);
        bench.hear(0, &OK[..cut], 10);
        assert_eq!(bench.take_sent(0), "", "cut at {cut}");
        bench.hear(0, &OK[cut..], 20);
        assert_eq!(bench.take_sent(0), REQUEST, "cut at {cut}");
        bench.hear(0, OK, 1000);
        assert_eq!(bench.take_sent(0), "", "it is over");
        let summary = bench.finish();
        assert_eq!((summary.counts.sent, summary.counts.answered, summary.lost), (2, 2, 0));
        assert_eq!(summary.counts.octets, 2 * OK.len() as u64);
        assert_eq!(summary.rcodes, [(200, 2)].into());
    }
}

#[test]
fn a_pipeline_has_many_requests_under_way_and_refills() {
    let mut bench = Bench::new(http1(), 1, 3, true).begun(closed_loop());
    assert_eq!(bench.take_sent(0), REQUEST.repeat(3));
    bench.hear(0, &[OK, OK].concat(), 10);
    assert_eq!(bench.take_sent(0), REQUEST.repeat(2));
    assert_eq!(bench.finish().counts.sent, 5);
}

#[test]
fn times_count_from_when_requests_were_due_though_no_connection_was_free() {
    let mut bench = Bench::new(http1(), 1, 1, true).begun(open_loop(100));
    assert_eq!(bench.take_sent(0), REQUEST);
    bench.turn(40); // Four more are due.
    bench.hear(0, OK, 60);
    bench.hear(0, OK, 200);
    let summary = bench.finish();
    assert!((summary.latency_us.max / 190_000.0 - 1.0).abs() < 0.01, "due at 10: {:?}", summary.latency_us);
    assert_eq!((summary.counts.answered, summary.counts.in_time), (2, 1));
    assert_eq!((summary.counts.sent, summary.counts.unsent, summary.lost), (3, 18, 19));
}

#[test]
fn requests_are_spread_over_connections() {
    let mut bench = Bench::new(http1(), 3, 8, true).begun(open_loop(1000));
    bench.turn(5);
    assert_eq!([0, 1, 2].map(|number| bench.take_sent(number).len() / REQUEST.len()), [2, 2, 2]);
}

#[test]
fn a_request_that_waits_too_long_for_a_connection_is_given_up() {
    let mut bench = Bench::new(http1(), 1, 1, true).begun(open_loop(100));
    bench.turn(10);
    bench.streams.on_failed(0, Fault::Reset, at(10));
    bench.turn(20);
    assert!(bench.streams.has_requests());
    bench.streams.begin(Pace::Closed(at(0)), at(0)); // Nothing more is due.
    bench.turn(600);
    assert!(!bench.streams.has_requests());
    let summary = bench.finish();
    assert_eq!((summary.counts.sent, summary.counts.unsent, summary.lost), (1, 2, 3));
    assert_eq!(faults(&summary), [("reset", 1)]);
}

#[test]
fn connections_that_are_not_kept_are_opened_for_a_request_each() {
    let mut bench = Bench::new(http1(), 2, 1, false).begun(open_loop(100));
    assert_eq!(bench.dial(0), [0]);
    bench.turn(0);
    assert_eq!(bench.take_sent(0), REQUEST);
    bench.turn(30); // Three more are due: there is one place.
    assert_eq!(bench.dial(30), [1]);
    bench.hear(0, OK, 31);
    assert_eq!(bench.closed, [0]);
    assert_eq!(bench.dial(31), [0], "the next one");
    bench.turn(31);
    assert_eq!(bench.take_sent(0), REQUEST);
}

#[test]
fn what_a_server_says_not_to_look_at_is_asked_again() {
    let mut bench = Bench::new(http1(), 1, 3, true).begun(closed_loop());
    bench.hear(0, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 10);
    assert_eq!(bench.closed, [0]);
    assert_eq!(bench.dial(10), [0], "at once");
    bench.take_sent(0);
    bench.turn(10);
    assert_eq!(bench.take_sent(0), REQUEST.repeat(3));
    let summary = bench.finish();
    assert_eq!((summary.counts.sent, summary.counts.answered, summary.lost), (4, 1, 3));
    assert!(summary.faults.is_empty());
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    let mut bench = Bench::new(http1(), 1, 1, true).begun(closed_loop());
    bench.hear(0, b"HTTP/1.0 200 OK\r\n\r\ntext", 10);
    bench.streams.on_close(0, at(20));
    bench.turn(20);
    assert_eq!(bench.dial(20), [0]);
    assert_eq!(bench.finish().rcodes, [(200, 1)].into());
}

#[test]
fn a_server_that_hangs_costs_its_own_connection_alone() {
    let mut bench = Bench::new(http1(), 2, 2, true).begun(closed_loop());
    for millis in (0..600).step_by(50) {
        bench.hear(1, OK, millis);
        bench.hear(1, OK, millis + 1);
    }
    assert_eq!(bench.closed, [0]);
    assert_eq!((bench.dial(599), bench.dial(600)), (vec![], vec![0]), "after a pause");
    let summary = bench.finish();
    assert_eq!((faults(&summary), summary.counts.answered), (vec![("timed out", 2)], 24));
}

#[test]
fn a_port_that_refuses_is_tried_ten_times_a_second() {
    let mut bench = Bench::new(http1(), 1, 1, true);
    let mut tries = 0;
    bench.streams.begin(closed_loop(), at(0));
    for millis in 0..1000 {
        while let Some(number) = bench.streams.poll_dial(at(millis)) {
            tries += 1;
            assert!(tries <= 10, "no pause");
            bench.streams.on_failed(number, Fault::Refused, at(millis));
            bench.turn(millis);
        }
    }
    assert_eq!(tries, 10);
    assert_eq!(faults(&bench.finish()), [("connections refused", 10)]);
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_is_not_asked_without_a_pause() {
    let mut bench = Bench::new(http1(), 1, 1, true);
    assert_eq!(bench.dial(0), [0]);
    bench.streams.on_close(0, at(0));
    bench.turn(0);
    assert_eq!((bench.dial(50), bench.dial(100)), (vec![], vec![0]));
    assert_eq!(
        faults(&bench.finish()),
        [("closed early", 1)],
        "it had fewer connections than it was to have"
    );
}

#[test]
fn what_is_no_answer_is_counted_by_its_name() {
    let fault_of = |event: fn(&mut Bench)| {
        let mut bench = Bench::new(http1(), 1, 2, true).begun(closed_loop());
        event(&mut bench);
        bench.turn(10);
        assert_eq!(bench.closed, [0]);
        let summary = bench.finish();
        assert_eq!((summary.counts.answered, summary.lost), (0, 2));
        faults(&summary).iter().map(|(name, times)| format!("{times} {name}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        fault_of(|it| it.hear(0, b"220 smtp.example\r\n", 5)),
        "2 answers that are not in the protocol"
    );
    assert_eq!(fault_of(|it| it.streams.on_close(0, at(5))), "2 closed early");
    assert_eq!(fault_of(|it| it.streams.on_failed(0, Fault::Reset, at(10))), "2 reset");
    let cut = |it: &mut Bench| {
        it.hear(0, &OK[..OK.len() - 1], 5);
        it.streams.on_close(0, at(6));
    };
    assert_eq!(fault_of(cut), "2 closed early");
}

#[test]
fn an_answer_that_comes_before_its_request_was_sent_ends_the_connection() {
    let body = vec![b'x'; 100_000];
    let speech = Speech::Http1(Http1Request::new("POST", "/", "h", &[], &body));
    let mut bench = Bench::new(speech, 1, 2, true);
    bench.dial(0);
    bench.streams.begin(closed_loop(), at(0));
    bench.streams.turn(at(0));
    bench.streams.write(0, &mut |octets| octets.len().min(1000));
    bench.streams.on_octets(0, b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", at(1));
    bench.turn(1);
    assert_eq!(bench.closed, [0]);
    assert_eq!(bench.finish().rcodes, [(413, 1)].into());
}

#[test]
fn large_requests_are_sent_whole_and_in_order() {
    let body = vec![b'x'; 100_000];
    let speech = Speech::Http1(Http1Request::new("POST", "/", "h", &[], &body));
    let mut bench = Bench::new(speech, 1, 3, true).begun(closed_loop());
    let sent = bench.take_sent(0);
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
    assert_eq!(sent.len(), 3 * (head.len() + body.len()));
    assert!(sent.split(head).skip(1).all(|own| own.as_bytes() == body), "each has its body");
}

/// RFC 9110, 15.5.9.
#[test]
fn a_server_may_end_an_idle_connection_with_408_and_with_no_other_answer() {
    let heard_when_idle = |octets: &[u8]| {
        let mut bench = Bench::new(http1(), 1, 1, true).begun(open_loop(1));
        bench.hear(0, OK, 1);
        bench.hear(0, octets, 300);
        assert_eq!(bench.closed, [0]);
        bench.finish()
    };
    let ended =
        heard_when_idle(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((faults(&ended), ended.counts.unexpected, ended.lost), (vec![], 0, 0));
    let disturbed = heard_when_idle(OK);
    assert_eq!(faults(&disturbed), [("answers that are not in the protocol", 1)]);
}

fn dns(text: &str) -> Speech {
    Speech::Dns(Questions::read(text, Rtype::A).unwrap())
}

/// The messages of a stream, as answers with this RCODE.
fn answers(sent: &[u8], rcode: u8) -> Vec<Vec<u8>> {
    let (mut rest, mut all) = (sent, Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*length));
        let mut answer = [&length[..], &behind[..len]].concat();
        answer[4] |= 0x80;
        answer[5] |= rcode;
        all.push(answer);
        rest = &behind[len..];
    }
    all
}

#[test]
fn questions_over_a_stream_are_answered_in_any_order_and_however_cut() {
    let mut first = Bench::new(dns("{random}.example"), 1, 4, true).begun(closed_loop());
    let sent = std::mem::take(&mut first.sent[0]);
    let mut back = answers(&sent, 3);
    assert_eq!(back.len(), 4);
    back.reverse();
    let back = back.concat();
    for cut in 0..back.len() {
        let mut bench = Bench::new(dns("{random}.example"), 1, 4, true).begun(closed_loop());
        bench.hear(0, &back[..cut], 10);
        bench.hear(0, &back[cut..], 20);
        bench.hear(0, &back, 30);
        let summary = bench.finish();
        assert_eq!(
            (summary.counts.answered, summary.counts.unexpected, summary.lost),
            (4, 4, 4),
            "cut at {cut}"
        );
        assert_eq!((summary.rcodes, summary.counts.mismatched), ([(3, 4)].into(), 0));
    }
}

#[test]
fn the_next_load_asks_other_random_names_and_another_seed_does_too() {
    let first_of = |asked, seed| {
        let questions = Questions::read("{random}.example", Rtype::A).unwrap().in_order(Order::InTurn, seed);
        let bench = Bench::after(asked, Speech::Dns(questions), 1, 1, true).begun(closed_loop());
        (bench.sent[0].clone(), bench.streams.asked())
    };
    let (name, asked) = first_of(0, 7);
    assert_eq!(asked, 1);
    assert_eq!(first_of(0, 7).0, name);
    assert_ne!(first_of(asked, 7).0, name);
    assert_ne!(first_of(0, 8).0, name);
}

#[test]
fn a_load_says_that_all_its_connections_were_busy() {
    let busy = |delay: u64, connections| {
        let mut bench = Bench::new(http1(), connections, 1, true).begun(open_loop(100));
        for millis in (0..1000).step_by(10) {
            bench.turn(millis);
            for number in 0..connections {
                if millis % delay == 0 && !bench.take_sent(number).is_empty() {
                    bench.hear(number, OK, millis + 5);
                }
            }
        }
        bench.finish()
    };
    let full = busy(50, 1);
    assert!(full.connections_busy > 0.7 && full.is_full(), "{full:?}");
    assert!(full.sent_late_us.unwrap().p99 > 100_000.0 && full.lag_us.max < 10_000.0, "{full:?}");
    assert_eq!(full.bottleneck, None, "the generator had time");
    let free = busy(50, 10);
    assert!(free.connections_busy == 0.0 && !free.is_full(), "{free:?}");
}

#[test]
fn a_server_that_refuses_connections_does_not_make_them_busy() {
    let mut bench = Bench::new(http1(), 1, 1, true);
    bench.streams.begin(open_loop(100), at(0));
    for millis in (0..1000).step_by(10) {
        bench.turn(millis);
        while let Some(number) = bench.streams.poll_dial(at(millis)) {
            bench.streams.on_failed(number, Fault::Refused, at(millis));
            bench.turn(millis);
        }
    }
    assert_eq!(bench.finish().connections_busy, 0.0);
}

#[test]
fn answers_to_another_question_and_what_is_no_answer_are_counted_as_such() {
    let mut bench = Bench::new(dns("a.example"), 1, 1, true).begun(closed_loop());
    let mut answer = answers(&bench.sent[0].clone(), 0).remove(0);
    answer[15] = b'b';
    bench.hear(0, &answer, 10);
    bench.hear(0, &[0, 3, 1, 2, 3], 20);
    let summary = bench.finish();
    assert_eq!((summary.counts.mismatched, summary.counts.malformed, summary.counts.answered), (1, 1, 0));
}

#[test]
fn answers_with_an_id_that_no_question_had_are_told_from_late_ones() {
    let mut bench = Bench::new(dns("a.example\nb.example"), 1, 2, true).begun(closed_loop());
    let mut both = answers(&bench.sent[0].clone(), 0);
    bench.hear(0, &both[0], 10);
    bench.hear(0, &both[0], 20);
    both[1][2] = 0xee;
    bench.hear(0, &both[1], 30);
    let summary = bench.finish();
    let Counts { answered, unexpected, foreign, .. } = summary.counts;
    assert_eq!((answered, unexpected, foreign), (1, 1, 1));
}

#[test]
fn a_question_that_gets_no_answer_is_given_up_and_its_connection_goes_on() {
    let mut bench = Bench::new(dns("a.example\nb.example"), 1, 2, true).begun(closed_loop());
    let both = answers(&bench.sent[0].clone(), 0);
    bench.hear(0, &both[1], 10);
    bench.turn(520);
    let summary = bench.finish();
    assert_eq!((faults(&summary), summary.counts.answered), (vec![("timed out", 2)], 1));
}

/// A frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const DATA: u8 = 0;
const GOAWAY: u8 = 7;
const RST_STREAM: u8 = 3;
/// Codes of errors (RFC 9113, 7).
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const END_HEADERS: u8 = 4;
const END_STREAM: u8 = 1;
/// `:status: 200` in HPACK's static table.
const STATUS_200: &[u8] = &[0x88];

fn http2() -> HttpRequest {
    HttpRequest::new(
        http::Method::GET,
        "http://192.0.2.1/?".parse().unwrap(),
        Default::default(),
        Default::default(),
    )
}

fn answer_of(stream: u32, body: &[u8]) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, STATUS_200), frame(DATA, END_STREAM, stream, body)].concat()
}

#[test]
fn streams_of_http_2_are_answered_however_cut() {
    let answers = [frame(SETTINGS, 0, 0, &[]), answer_of(3, b"three"), answer_of(1, b"one")].concat();
    for cut in 0..answers.len() {
        let mut bench = Bench::new(Speech::Http2(http2()), 1, 2, true).begun(closed_loop());
        assert!(bench.take_sent(0).starts_with("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        bench.hear(0, &answers[..cut], 10);
        bench.hear(0, &answers[cut..], 20);
        assert!(!bench.take_sent(0).is_empty(), "two more");
        let summary = bench.finish();
        assert_eq!(
            (summary.counts.answered, summary.counts.sent, summary.counts.octets),
            (2, 4, 8),
            "cut at {cut}"
        );
        assert_eq!((summary.rcodes, summary.faults), ([(200, 2)].into(), Default::default()));
    }
}

#[test]
fn streams_behind_the_last_one_that_a_server_looks_at_are_asked_again() {
    let mut bench = Bench::new(Speech::Http2(http2()), 1, 2, true).begun(closed_loop());
    let goaway = [1u32.to_be_bytes(), 0u32.to_be_bytes()].concat();
    bench.hear(
        0,
        &[frame(SETTINGS, 0, 0, &[]), frame(GOAWAY, 0, 0, &goaway), answer_of(1, b"one")].concat(),
        10,
    );
    assert_eq!(bench.closed, [0]);
    assert_eq!(bench.dial(10), [0], "at once");
    bench.turn(10);
    let summary = bench.finish();
    assert_eq!((summary.counts.sent, summary.counts.answered, summary.lost), (3, 1, 2));
    assert!(summary.faults.is_empty(), "{:?}", summary.faults);
}

#[test]
fn streams_that_a_server_refuses_are_asked_again_on_the_same_connection() {
    let mut bench = Bench::new(Speech::Http2(http2()), 1, 2, true).begun(closed_loop());
    let refused = frame(RST_STREAM, 0, 3, &REFUSED_STREAM.to_be_bytes());
    bench.hear(0, &[frame(SETTINGS, 0, 0, &[]), refused].concat(), 10);
    assert!(!bench.take_sent(0).is_empty(), "once more");
    bench.hear(0, &[answer_of(1, b"one"), answer_of(5, b"five")].concat(), 20);
    assert!(bench.closed.is_empty());
    let summary = bench.finish();
    assert_eq!((summary.counts.answered, summary.faults.len()), (2, 0), "{:?}", summary.faults);
}

#[test]
fn before_a_server_says_how_many_streams_it_takes_there_are_a_hundred() {
    let mut bench = Bench::new(Speech::Http2(http2()), 1, 512, true).begun(closed_loop());
    let sent = std::mem::take(&mut bench.sent[0]);
    let (mut rest, mut requests) = (&sent[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()..], 0);
    while let [high, middle, low, kind, ..] = *rest {
        requests += usize::from(kind == HEADERS);
        rest = &rest[9 + u32::from_be_bytes([0, high, middle, low]) as usize..];
    }
    assert_eq!(requests, 100);
}

#[test]
fn what_goes_wrong_over_http_2_has_a_name() {
    let heard = |octets: &[u8], is_closed: bool| {
        let mut bench = Bench::new(Speech::Http2(http2()), 1, 1, true).begun(closed_loop());
        bench.hear(0, octets, 10);
        if is_closed {
            bench.streams.on_close(0, at(11));
            bench.turn(11);
        }
        let summary = bench.finish();
        assert_eq!(summary.counts.answered, 0);
        faults(&summary).iter().map(|(name, times)| format!("{times} {name}")).collect::<Vec<_>>().join(", ")
    };
    let settings = frame(SETTINGS, 0, 0, &[]);
    assert_eq!(heard(b"HTTP/1.1 400 Bad Request\r\n\r\n", false), "1 answers that are not in the protocol");
    assert_eq!(heard(&settings, true), "1 closed early");
    let reset = frame(RST_STREAM, 0, 1, &INTERNAL_ERROR.to_be_bytes());
    assert_eq!(heard(&[settings, reset].concat(), false), "1 streams reset");
}

#[test]
fn a_question_over_https_is_a_request_whose_body_has_the_id_0() {
    let questions = Questions::read("a.example", Rtype::A).unwrap();
    let message = {
        let mut room = [0; 512];
        let len = questions.write(0, 0, 0, &mut room).unwrap();
        room[2] |= 0x80;
        room[..len].to_vec()
    };
    let mut bench = Bench::new(Speech::Doh(http2(), questions), 1, 1, true).begun(closed_loop());
    bench.hear(0, &[frame(SETTINGS, 0, 0, &[]), answer_of(1, &message)].concat(), 10);
    bench.hear(0, &answer_of(3, b"no message"), 20);
    let summary = bench.finish();
    assert_eq!((summary.counts.answered, summary.counts.malformed), (1, 1));
    assert_eq!((summary.rcodes, summary.lost), ([(0, 1)].into(), 2));
}

#[test]
fn an_answer_over_https_with_another_status_has_that_as_its_reason() {
    let questions = Questions::read("a.example", Rtype::A).unwrap();
    let mut bench = Bench::new(Speech::Doh(http2(), questions), 1, 1, true).begun(closed_loop());
    let not_found = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x8d]); // `:status: 404`
    bench.hear(0, &[frame(SETTINGS, 0, 0, &[]), not_found].concat(), 10);
    let summary = bench.finish();
    let name = "answers of HTTP with another status than 200";
    assert_eq!(faults(&summary), [(name, 1)]);
    assert_eq!(summary.explained(name), format!("{name} (the first: 404)"));
    assert_eq!(summary.explained("reset"), "reset");
}

#[test]
fn nothing_is_due_once_the_load_was_ended() {
    for pace in [closed_loop(), open_loop(100)] {
        let is_open = matches!(pace, Pace::Open(_));
        let mut bench = Bench::new(http1(), 1, 1, true).begun(pace);
        assert_eq!(bench.take_sent(0), REQUEST);
        bench.streams.end_load(at(15));
        bench.hear(0, OK, 20);
        // At 100 a second the second one was due after 10 ms.
        assert_eq!(bench.take_sent(0), if is_open { REQUEST } else { "" });
        for millis in 2..60 {
            bench.hear(0, OK, 10 * millis);
            assert_eq!(bench.take_sent(0), "", "at {millis}0 ms");
        }
        assert!(!bench.streams.has_requests());
    }
}
