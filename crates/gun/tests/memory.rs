//! Whole loads over a wire in memory, against servers that are made up.

use std::collections::BTreeSet;
use std::ops::Range;

use clock::{Duration, Instant};
use device::memory::{self, MemoryDevice};
use device::{Burst, Device};
use dns_wire::Rtype;
use gun::knee::Verdict;
use gun::questions::Manner;
use gun::{Gun, Order, Questions, Schedule, Setup, Summary};
use wire::{ChecksumPolicy, Endpoints, Envelope, MacAddress, parse_udp, write_udp};

const RATE: u32 = 100_000;
const LENGTH: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_millis(45);
const WITHIN: Duration = Duration::from_millis(10);
/// Where the checksum of a datagram is, behind headers of Ethernet and IPv4.
const UDP_CHECKSUM: Range<usize> = 40..42;
const EARNEST: ChecksumPolicy = ChecksumPolicy { verified: false, accept_partial: false };

/// What a server makes of the message of a question; it answers with what is left in it, if it says so.
type Server<'s> = dyn FnMut(&mut Vec<u8>) -> bool + 's;

/// A load of 10 000 questions by three ports, a microsecond a turn, to a server that looks each 20 microseconds.
fn load(questions: &str, server: &mut Server<'_>) -> Summary {
    load_with_pause(questions, 0..0, server)
}

/// The same to a server that does not look in these milliseconds.
fn load_with_pause(questions: &str, pause: Range<u64>, server: &mut Server<'_>) -> Summary {
    load_by(questions, pause, server, None)
}

/// The same, with answers by the kernel's sockets: what they receive is sent by this device.
fn load_by(
    questions: &str,
    pause: Range<u64>,
    server: &mut Server<'_>,
    kernel: Option<(MemoryDevice, MemoryDevice)>,
) -> Summary {
    let wire = memory::Config { frames: 16_384, ring: 8192, ..memory::Config::default() };
    let (mut left, mut right) = memory::pair(&wire);
    let (client, mut far) = (left.remove(0), right.remove(0));
    let (near, mut by_kernel) = kernel.unzip();
    let sockets = near.map(|near| Box::new(near) as Box<dyn Device>);
    let mut gun = Gun::new(client, Setup { sockets, ..setup(questions) }, Instant::ZERO);
    gun.begin(Schedule::new(Instant::ZERO, RATE, LENGTH), Instant::ZERO);
    let end = LENGTH + Duration::from_millis(1);
    for micros in 0..end.as_micros() {
        let now = Instant::from_nanos(micros * 1000);
        let turn = gun.turn(now);
        gun.tally().on_time(Duration::from_micros(1), !turn.was_idle());
        if micros % 20 == 0 && !pause.contains(&(micros / 1000)) {
            answer(&mut far, server, by_kernel.as_mut(), now);
        }
    }
    let (summary, rest) = gun.finish(RATE, LENGTH);
    assert_eq!(rest.sockets.is_some(), by_kernel.is_some(), "the next load has them, too");
    summary
}

/// Three ports.
fn setup(questions: &str) -> Setup {
    let way = |port: u16| {
        let ends = (([192, 0, 2, 1], port).into(), ([192, 0, 2, 2], 53).into());
        Envelope::untagged(Endpoints::new(ends.0, ends.1).unwrap())
    };
    let questions = Questions::read(questions, Rtype::A).unwrap();
    Setup {
        ways: [4001, 4002, 4003].map(way).into(),
        sockets: None,
        questions: questions.in_order(Order::Random, 7).in_manner(&Manner::default()),
        queues: 1,
        run: 16,
        sent: 0,
        timeout: TIMEOUT,
        within: WITHIN,
    }
}

fn answer(
    device: &mut MemoryDevice,
    server: &mut Server<'_>,
    mut by_kernel: Option<&mut MemoryDevice>,
    now: Instant,
) {
    let mut burst = Burst::new();
    while device.rx_burst(&mut burst, now) > 0 {
        let mut answers = Burst::new();
        for mut frame in burst.drain(..) {
            let headers = parse_udp(frame.bytes(), EARNEST).expect("whole packets with right checksums");
            let (client, own) = (headers.source(frame.bytes()), headers.destination(frame.bytes()));
            let mut message = frame.bytes()[headers.payload_range()].to_vec();
            message[2] |= 0x80;
            let is_answered = server(&mut message);
            let way = Envelope::untagged(Endpoints::new(own, client).unwrap());
            if let Some(kernel) = by_kernel.as_mut().filter(|_| is_answered) {
                let mut whole = kernel.alloc().expect("frames for all answers");
                let len = write_udp(whole.bytes_and_tailroom_mut(), &way, &message).unwrap();
                whole.set_len(len);
                whole.bytes_mut()[UDP_CHECKSUM].fill(0xaa); // The kernel has looked at it, and leaves anything.
                let mut whole = Burst::from_iter([whole]);
                assert_eq!(kernel.tx_burst(&mut whole, now), 1);
                device.release(frame);
            } else if is_answered {
                let len = write_udp(frame.bytes_and_tailroom_mut(), &way, &message).unwrap();
                frame.set_len(len);
                answers.push(frame);
            } else {
                device.release(frame);
            }
        }
        device.tx_burst(&mut answers, now);
        assert!(answers.is_empty());
    }
}

#[test]
fn every_question_is_sent_when_it_is_due_and_its_answer_timed() {
    let mut names = BTreeSet::new();
    let summary = load("h{1-50}.example\n{random}.example AAAA", &mut |message| {
        names.insert(message[12..].to_vec());
        true
    });
    assert_eq!((summary.counts.sent, summary.counts.answered, summary.lost), (10_000, 10_000, 0));
    assert_eq!((summary.counts.mismatched, summary.counts.unexpected, summary.counts.malformed), (0, 0, 0));
    assert_eq!(summary.bottleneck, None);
    assert_eq!(summary.rcodes, [(0, 10_000)].into());
    assert!(summary.latency_us.max <= 40.0 && summary.lag_us.max <= 1.0, "{summary:?}");
    assert!(names.len() > 100, "random names among them: {}", names.len());
}

#[test]
fn what_a_server_does_not_answer_is_lost() {
    let mut number = 0;
    let summary = load("example", &mut |_| {
        number += 1;
        number % 4 != 0
    });
    assert_eq!((summary.counts.answered, summary.lost), (7500, 2500));
}

/// A client that waits for its answers would have one question under way in the pause, and one long time among ten thousand.
#[test]
fn a_pause_shows_in_the_times_of_all_questions_that_were_due_in_it() {
    let summary = load_with_pause("example", 20..60, &mut |_| true);
    assert_eq!((summary.counts.sent, summary.lost), (10_000, 0));
    let latency = summary.latency_us;
    assert!(latency.p50 < 100.0, "more than half were not due in the pause: {latency:?}");
    assert!((28_000.0..32_000.0).contains(&latency.p90) && latency.max > 39_000.0, "{latency:?}");
}

#[test]
fn an_answer_that_comes_after_the_timeout_is_none() {
    // Those that were due in the first fifth of the pause wait for longer than the timeout.
    let summary = load_with_pause("example", 10..66, &mut |_| true);
    assert!((1000..1150).contains(&summary.lost), "{summary:?}");
    assert_eq!(summary.counts.unexpected, summary.lost);
    assert_eq!(summary.counts.answered + summary.lost, summary.counts.sent);
    assert_eq!(summary.seconds.iter().map(|second| second.lost).sum::<u64>(), summary.lost);
    assert!(summary.latency_us.max <= 45_100.0, "{summary:?}");
}

#[test]
fn answers_that_come_later_than_a_search_allows_are_not_in_time() {
    let summary = load_with_pause("example", 20..60, &mut |_| true);
    let late = summary.counts.answered - summary.counts.in_time;
    assert!((2900..3100).contains(&late), "those of 30 ms: {summary:?}");
    assert_eq!(summary.verdict(), Verdict::TooMuch);
}

#[test]
fn wrong_answers_are_counted_and_are_no_answers() {
    let other_name = load("example", &mut |message| {
        message[13] = b'x';
        true
    });
    assert!(
        (100..220).contains(&other_name.counts.mismatched),
        "of the sample, one in 64, all: {other_name:?}"
    );
    assert_eq!(other_name.counts.compared, other_name.counts.mismatched);
    assert_eq!(other_name.verdict(), Verdict::Wrong);
    let other_id = load("example", &mut |message| {
        message[0] ^= 0x80;
        true
    });
    assert_eq!((other_id.counts.foreign, other_id.lost), (10_000, 10_000));
    let question = load("example", &mut |message| {
        message[2] &= !0x80;
        true
    });
    assert_eq!((question.counts.malformed, question.lost), (10_000, 10_000));
    let short = load("example", &mut |message| {
        message.truncate(3);
        true
    });
    assert_eq!(short.counts.malformed, 10_000);
}

#[test]
fn answers_that_the_device_leaves_to_the_kernel_are_answers_and_counted_apart() {
    let wire = memory::Config { frames: 16_384, ring: 8192, ..memory::Config::default() };
    let (mut near, mut far) = memory::pair(&wire);
    let mut number = 0;
    let mut server = |message: &mut Vec<u8>| {
        number += 1;
        message[0] ^= if number % 10 == 0 { 0x80 } else { 0 };
        true
    };
    let summary = load_by("example", 0..0, &mut server, Some((near.remove(0), far.remove(0))));
    assert_eq!((summary.counts.answered, summary.counts.by_kernel, summary.lost), (9000, 9000, 1000));
    assert_eq!((summary.counts.foreign, summary.counts.malformed), (1000, 0), "they are no answers");
    assert!(summary.latency_us.max <= 100.0, "it is looked often: {summary:?}");
}

#[test]
fn codes_and_cut_answers_are_counted() {
    let mut number = 0;
    let summary = load("example", &mut |message| {
        number += 1;
        message[3] = if number % 2 == 0 { 3 } else { 5 };
        message[2] |= 2;
        true
    });
    assert_eq!(summary.rcodes, [(3, 5000), (5, 5000)].into());
    assert_eq!(summary.counts.truncated, 10_000);
}

/// Moves a load on to this microsecond, and takes what it has sent.
fn sent_until(gun: &mut Gun<MemoryDevice>, far: &mut MemoryDevice, micros: u64) -> Burst {
    let now = Instant::from_nanos(micros * 1000);
    gun.turn(now);
    let mut burst = Burst::new();
    far.rx_burst(&mut burst, now);
    burst
}

#[test]
fn questions_go_to_where_the_next_hop_has_moved() {
    let (mut left, mut right) = memory::pair(&memory::Config::default());
    let mut gun = Gun::new(left.remove(0), setup("example"), Instant::ZERO);
    gun.begin(Schedule::new(Instant::ZERO, RATE, LENGTH), Instant::ZERO);
    let mut destinations = |gun: &mut Gun<MemoryDevice>, micros| -> BTreeSet<Vec<u8>> {
        sent_until(gun, &mut right[0], micros).iter().map(|frame| frame.bytes()[..6].to_vec()).collect()
    };
    assert_eq!(destinations(&mut gun, 500), [vec![0; 6]].into());
    gun.set_next_hop(MacAddress([2, 0, 0, 0, 0, 9]));
    assert_eq!(destinations(&mut gun, 1000), [vec![2, 0, 0, 0, 0, 9]].into(), "by all ports");
}

#[test]
fn icmp_errors_are_no_malformed_answers() {
    let (mut left, mut right) = memory::pair(&memory::Config::default());
    let mut gun = Gun::new(left.remove(0), setup("example"), Instant::ZERO);
    gun.begin(Schedule::new(Instant::ZERO, RATE, LENGTH), Instant::ZERO);
    let mut errors = Burst::new();
    for mut frame in sent_until(&mut gun, &mut right[0], 50) {
        let headers = parse_udp(frame.bytes(), EARNEST).unwrap();
        let (client, own) = (headers.source(frame.bytes()), headers.destination(frame.bytes()));
        let way = Envelope::untagged(Endpoints::new(own, client).unwrap());
        let len = write_udp(frame.bytes_and_tailroom_mut(), &way, &[0; 36]).unwrap();
        frame.set_len(len);
        let header = &mut frame.bytes_mut()[14..34];
        header[9] = 1; // ICMP instead of 17, UDP; the checksum is of the complement.
        let checksum = u16::from_be_bytes([header[10], header[11]]) + 16;
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        errors.push(frame);
    }
    let now = Instant::from_nanos(60_000);
    assert!(right[0].tx_burst(&mut errors, now) >= 5);
    assert!(gun.turn(now).received >= 5);
    let (summary, _) = gun.finish(RATE, LENGTH);
    assert_eq!((summary.counts.malformed, summary.counts.foreign), (0, 0));
    assert_eq!(
        summary.lost,
        summary.counts.sent + summary.counts.unreached,
        "nothing is answered by an error"
    );
    assert_eq!(summary.seconds.iter().map(|second| second.lost).sum::<u64>(), summary.lost);
}
