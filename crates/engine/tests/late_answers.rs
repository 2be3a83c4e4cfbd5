//! A responder that answers when it has the answer, not in the batch that brought the request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clock::Instant;
use device::{Burst, Device, memory};
use engine::{Config, Datagram, DeviceId, Engine, ReturnPath, Role, UdpResponder};
use wire::{ChecksumPolicy, Endpoints, Envelope, parse_udp, write_udp};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 53);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 40_000);

/// Keeps requests until it is told to answer them.
#[derive(Default)]
struct Later {
    waiting: Vec<ReturnPath>,
    answers: Vec<(ReturnPath, Vec<u8>)>,
}

impl UdpResponder for Later {
    fn respond(&mut self, batch: &mut [Datagram<'_>], _now: Instant) {
        self.waiting.extend(batch.iter().map(|datagram| datagram.return_path()));
    }

    fn has_late_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    fn late_answer(&mut self) -> Option<(ReturnPath, Vec<u8>)> {
        self.answers.pop()
    }
}

impl Later {
    fn answer_all(&mut self, answer: &[u8]) {
        self.answers.extend(self.waiting.drain(..).map(|path| (path, answer.to_vec())));
    }
}

fn request(generator: &mut dyn Device) {
    let mut frame = generator.alloc().unwrap();
    let endpoints = Endpoints::new(CLIENT, SERVER).unwrap();
    let len = write_udp(frame.bytes_and_tailroom_mut(), &Envelope::untagged(endpoints), b"request").unwrap();
    frame.set_len(len);
    generator.tx_burst(&mut Burst::from_iter([frame]), Instant::ZERO);
}

/// The payloads that have come back, whose headers are right.
fn received(generator: &mut dyn Device) -> Vec<Vec<u8>> {
    let mut burst = Burst::new();
    generator.rx_burst(&mut burst, Instant::ZERO);
    let mut payloads = Vec::new();
    for frame in burst {
        let headers = parse_udp(frame.bytes(), ChecksumPolicy::default()).unwrap();
        assert_eq!((headers.source(frame.bytes()), headers.destination(frame.bytes())), (SERVER, CLIENT));
        payloads.push(frame.bytes()[headers.payload_range()].to_vec());
        generator.release(frame);
    }
    payloads
}

fn engine(config: &memory::Config) -> (Box<dyn Device>, Engine<Later>, engine::EngineHandle) {
    let (mut left, mut right) = memory::pair(config);
    let (engine, handle) = Engine::new(Config::default(), Later::default()).unwrap();
    handle.add_device(DeviceId(0), Role::Primary, Box::new(right.remove(0)));
    (Box::new(left.remove(0)), engine, handle)
}

#[test]
fn an_answer_of_a_later_turn_reaches_its_client() {
    let (mut generator, mut engine, _handle) = engine(&memory::Config::default());
    request(&mut *generator);
    engine.poll(Instant::ZERO);
    assert!(received(&mut *generator).is_empty());
    engine.responder().answer_all(b"an answer that is longer than its request");
    engine.poll(Instant::ZERO);
    assert_eq!(received(&mut *generator), [b"an answer that is longer than its request".to_vec()]);
}

#[test]
fn the_longest_answer_that_the_way_takes_arrives() {
    let (mut generator, mut engine, _handle) =
        engine(&memory::Config { slot_size: 2048, mtu: 2048 - 14, ..memory::Config::default() });
    request(&mut *generator);
    engine.poll(Instant::ZERO);
    let longest = vec![7; engine.responder().waiting[0].room()];
    engine.responder().answer_all(&longest);
    engine.poll(Instant::ZERO);
    assert_eq!(received(&mut *generator), [longest]);
}

#[test]
fn an_answer_that_does_not_fit_and_one_whose_device_has_gone_are_counted() {
    let unsent = |engine: &engine::EngineHandle| {
        let counts = engine.counters().named();
        counts.iter().find(|(name, _)| name == "replies_unsent").unwrap().1
    };
    let (mut generator, mut engine, handle) = engine(&memory::Config::default());
    request(&mut *generator);
    engine.poll(Instant::ZERO);
    let room = engine.responder().waiting[0].room();
    engine.responder().answer_all(&vec![0; room + 1]);
    engine.poll(Instant::ZERO);
    assert_eq!(unsent(&handle), 1);
    request(&mut *generator);
    engine.poll(Instant::ZERO);
    handle.remove_device(DeviceId(0));
    engine.responder().answer_all(b"late");
    engine.poll(Instant::ZERO);
    assert_eq!(unsent(&handle), 2);
}

#[test]
fn many_late_answers_leave_as_there_is_room() {
    let (mut generator, mut engine, _handle) =
        engine(&memory::Config { ring: 8, ..memory::Config::default() });
    let mut answered = 0;
    for _ in 0..40 {
        request(&mut *generator);
        engine.poll(Instant::ZERO);
    }
    engine.responder().answer_all(b"answer");
    for _ in 0..40 {
        engine.poll(Instant::ZERO);
        answered += received(&mut *generator).len();
    }
    assert_eq!(answered, 40);
}
