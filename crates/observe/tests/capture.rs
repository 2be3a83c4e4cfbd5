//! Captures show what passes, and end as they should.

mod common;

use std::process::{Command, Stdio};

use common::{CLIENT, World, capture, eventually};
use device::pcap::Capture;
use observe::client::Answer;
use observe::pcapng::{Packet, Writer};
use observe::protocol::{Message, Reply};
use observe::report::CaptureReport;
use observe::{Direction, Header};

/// All packets up to the end, and what became of the capture.
fn rest(answer: &mut Answer) -> (Vec<(Header, Vec<u8>)>, CaptureReport) {
    let (mut packets, mut report) = (Vec::new(), None);
    while let Some(message) = answer.next_message().unwrap() {
        match message {
            Message::Packet(header, frame) => packets.push((header, frame)),
            Message::Reply(Reply::Capture(told)) => report = Some(told),
            Message::Reply(other) => panic!("{other:?}"),
        }
    }
    (packets, report.expect("a report at the end"))
}

fn next_packet(answer: &mut Answer) -> (Header, Vec<u8>) {
    match answer.next_message().unwrap() {
        Some(Message::Packet(header, frame)) => (header, frame),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_capture_shows_exactly_the_frames_that_the_device_saw() {
    let world = World::new();
    let mut answer = capture(&world, "", 65_535);
    let connection = world.client().connect(CLIENT.port());
    world.client().exchange(connection, &[7; 3000]);
    world.client().ask(move |stack, now| stack.abort(connection, now));
    world.server().wait_for(|stack| stack.population().0 == 0);
    answer.end();
    let (packets, report) = rest(&mut answer);
    assert_eq!((report.passed, report.dropped), (packets.len() as u64, 0));
    let mut captured: Vec<Vec<u8>> = packets.iter().map(|(_, frame)| frame.clone()).collect();
    let file = Capture::parse(world.seen.0.lock().unwrap().clone()).unwrap();
    let mut seen: Vec<Vec<u8>> = file.packets().map(|packet| packet.frame.to_vec()).collect();
    assert!(seen.len() >= 8, "{}", seen.len());
    captured.sort();
    seen.sort();
    assert!(captured == seen, "{} captured, {} seen", captured.len(), seen.len());
    assert!(packets.is_sorted_by_key(|(header, _)| header.time_ns));
}

#[test]
fn answers_in_place_are_seen_both_ways_and_at_the_time_of_day() {
    let mut world = World::with_bare_wire();
    let mut answer = capture(&world, "udp port 7", 65_535);
    world.ping(b"hello");
    let (request, reply) = (next_packet(&mut answer), next_packet(&mut answer));
    assert_eq!((request.0.direction, reply.0.direction), (Direction::Inbound, Direction::Outbound));
    assert!(request.1.ends_with(b"hello") && reply.1.ends_with(b"hello"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The clock of the day may have been set back a little meanwhile.
    let apart = now.as_nanos().abs_diff(request.0.time_ns.into());
    assert!(apart < 10_000_000_000, "{apart} ns apart");
}

#[test]
fn the_filter_decides_and_the_snaplen_cuts() {
    let mut world = World::with_bare_wire();
    let mut tcp = capture(&world, "tcp", 65_535);
    let mut replies = capture(&world, "src port 7", 20);
    world.ping(b"hello");
    let (header, frame) = next_packet(&mut replies);
    assert_eq!((header.captured_len, header.original_len, frame.len()), (20, 47, 20));
    tcp.end();
    replies.end();
    assert_eq!(rest(&mut tcp).1, CaptureReport::default());
    assert_eq!(rest(&mut replies).1, CaptureReport { engine: 0, passed: 1, dropped: 0 });
}

#[test]
fn a_reader_that_stops_reading_loses_packets_and_holds_up_nobody() {
    let mut world = World::with_bare_wire();
    let mut answer = capture(&world, "", 65_535);
    // The ring takes 4 MiB, the sockets some hundred KiB.
    for _ in 0..5000 {
        world.ping(&[1; 1400]);
    }
    answer.end();
    let (packets, report) = rest(&mut answer);
    assert_eq!(report.passed, 10_000);
    assert!(report.dropped > 1000, "{report:?}");
    assert_eq!(packets.len() as u64, report.passed - report.dropped);
    assert!(packets.iter().all(|(header, frame)| frame.len() == header.original_len as usize));
}

#[test]
fn a_capture_ends_in_good_order_with_the_program() {
    let mut world = World::with_bare_wire();
    let mut answer = capture(&world, "", 65_535);
    world.ping(b"hello");
    drop(world.control.take());
    assert_eq!(rest(&mut answer).1, CaptureReport { engine: 0, passed: 2, dropped: 0 });
}

#[test]
fn captures_of_readers_that_went_leave_nothing_behind() {
    let mut world = World::with_bare_wire();
    for _ in 0..100 {
        drop(capture(&world, "", 65_535));
        world.ping(b"hello");
    }
    // There is room for sixteen clients at one time.
    eventually(|| {
        world.ping(b"hello");
        world.replies(&observe::protocol::Request::Counters).is_ok()
    });
}

#[test]
fn tcpdump_reads_what_is_written() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: there is no tcpdump");
        return;
    }
    let mut world = World::with_bare_wire();
    let mut answer = capture(&world, "", 65_535);
    world.ping(b"hello");
    answer.end();
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "test").unwrap();
    writer.add_interface("memory", "a wire in memory", 65_535).unwrap();
    for (header, frame) in rest(&mut answer).0 {
        let Header { time_ns, direction, original_len, .. } = header;
        writer.write(&Packet { interface: 0, time_ns, direction, original_len, frame: &frame }).unwrap();
    }
    writer.write_statistics(0, 0, 2, 0).unwrap();
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-n", "-r", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tcpdump = tcpdump.spawn().unwrap();
    std::io::Write::write_all(&mut tcpdump.stdin.take().unwrap(), &file).unwrap();
    let output = tcpdump.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let problems = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{problems}");
    assert!(text.contains("192.0.2.2.40000 > 192.0.2.1.7: UDP, length 5"), "{text}{problems}");
    assert!(text.contains("192.0.2.1.7 > 192.0.2.2.40000: UDP, length 5"), "{text}{problems}");
}
