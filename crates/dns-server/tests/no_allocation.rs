//! From frame to frame, nothing allocates: the engine, the device and the responder, for every kind of answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allocator::Counting;
use arc_swap::ArcSwap;
use device::{Burst, Device, memory};
use dns_auth::compile::compile;
use dns_auth::{Catalog, Counters, Settings};
use dns_guard::{Beyond, Networks, Rate, RateOptions, Secret, ServerCookies};
use dns_log::AnswerLog;
use dns_server::{DnsResponder, GuardOptions, Published};
use dns_wire::{NameBuf, Rtype};
use dns_zone::ZoneBuilder;
use engine::{Config, Datagram, DeviceId, Engine, Role, UdpResponder};
use wire::{Endpoints, Envelope, write_udp};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Batches after which everything that is taken once has been taken.
const WARM_UP: u64 = 8;

/// Passes on to the responder and notes allocations between the end of one batch and the end of the next.
struct Audited {
    responder: DnsResponder,
    batches: Arc<AtomicU64>,
    allocations: Arc<AtomicU64>,
    count_before: u64,
}

impl UdpResponder for Audited {
    fn respond(&mut self, batch: &mut [Datagram<'_>], now: clock::Instant) {
        self.responder.respond(batch, now);
        let count = Counting::count();
        if self.batches.fetch_add(1, Ordering::Relaxed) >= WARM_UP {
            self.allocations.fetch_add(count - self.count_before, Ordering::Relaxed);
        }
        self.count_before = count;
    }
}

/// Cookies, and limits that nobody reaches.
fn guard() -> GuardOptions {
    let rate = Some(Rate { per_second: 1_000_000, burst: 2_000_000 });
    GuardOptions {
        rate: RateOptions { per_address: rate, per_prefix: rate, ..RateOptions::default() },
        beyond: Beyond::Slip,
        exempt: Networks::new(Vec::new()),
        cookies: Some(ServerCookies::new(Secret([7; 16]), Vec::new())),
        key: [7; 16],
    }
}

#[test]
fn a_million_queries_of_every_kind_allocate_nothing() {
    const QUERIES: usize = 1_000_000;
    let (batches, allocations) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let published = published();
    let responder = DnsResponder::new(&published, Arc::new(Counters::default()));
    let audited = Audited {
        responder,
        batches: Arc::clone(&batches),
        allocations: Arc::clone(&allocations),
        count_before: 0,
    };
    let (mut left, mut right) = memory::pair(&memory::Config::default());
    let (engine, handle) = Engine::new(Config { never_sleep: true, ..Config::default() }, audited).unwrap();
    handle.add_device(DeviceId(0), Role::Primary, Box::new(right.remove(0)));
    let thread = std::thread::spawn(move || drop(engine.run()));
    let answered = exchange(&mut left[0], QUERIES);
    handle.stop();
    thread.join().unwrap();
    assert_eq!(answered, QUERIES);
    assert!(batches.load(Ordering::Relaxed) > WARM_UP);
    assert_eq!(allocations.load(Ordering::Relaxed), 0);
    assert_eq!(published.load().log.as_ref().map(|log| log.lost()), Some(0), "every note was made");
}

/// Sends `count` queries and takes every answer.
fn exchange(device: &mut memory::MemoryDevice, count: usize) -> usize {
    let packets: Vec<Vec<u8>> = queries().into_iter().map(packet).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut sent, mut answered) = (0, 0);
    while answered < count && Instant::now() < deadline {
        let mut burst = Burst::new();
        while sent < count && sent - answered < 256 && !burst.is_full() {
            let Some(mut frame) = device.alloc() else { break };
            frame.copy_from(&packets[sent % packets.len()]);
            burst.push(frame);
            sent += 1;
        }
        device.tx_burst(&mut burst, clock::Instant::ZERO);
        assert!(burst.is_empty(), "the ring has room for 256 queries");
        let mut received = Burst::new();
        answered += device.rx_burst(&mut received, clock::Instant::ZERO);
        received.into_iter().for_each(|frame| device.release(frame));
    }
    answered
}

fn packet(query: Vec<u8>) -> Vec<u8> {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let endpoints = Endpoints::new(address("[2001:db8::2]:4000"), address("[2001:db8::1]:53")).unwrap();
    let mut frame = vec![0; 600];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), &query).unwrap();
    frame.truncate(len);
    frame
}

/// Precompiled answers, a wildcard, a chain, a denial, a referral, a DNAME, a refusal, nonsense, and cookies with a question and without.
fn queries() -> Vec<Vec<u8>> {
    let names = [
        "a.example.",
        "www.example.",
        "A.eXample.",
        "x.w.example.",
        "none.example.",
        "y.sub.example.",
        "z.d.example.",
        "other.",
    ];
    let mut queries: Vec<Vec<u8>> = names
        .iter()
        .flat_map(|name| [Rtype::A, Rtype::MX, Rtype::ANY].map(|rtype| query(name, rtype)))
        .collect();
    queries.push(vec![0; 12]);
    let option = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    let with_cookie = |mut message: Vec<u8>| {
        let rdlen_at = message.len() - 1;
        message[rdlen_at] = option.len() as u8;
        message.extend(option);
        message
    };
    queries.push(with_cookie(query("a.example.", Rtype::A)));
    let mut without_question = query(".", Rtype::A);
    without_question.drain(12..17);
    without_question[5] = 0;
    queries.push(with_cookie(without_question));
    queries
}

fn query(qname: &str, rtype: Rtype) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    message.extend_from_slice(name(qname).as_name().as_bytes());
    message.extend_from_slice(&rtype.0.to_be_bytes());
    message.extend_from_slice(&[0, 1, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    message
}

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn published() -> Arc<ArcSwap<Published>> {
    let soa = [&[0, 0][..], &[0; 20]].concat();
    let address = vec![192, 0, 2, 1];
    let to = |text: &str| name(text).as_name().as_bytes().to_vec();
    let records = [
        ("example.", Rtype::SOA, soa),
        ("a.example.", Rtype::A, address.clone()),
        ("www.example.", Rtype::CNAME, to("a.example.")),
        ("*.w.example.", Rtype::A, address.clone()),
        ("sub.example.", Rtype::NS, to("ns.sub.example.")),
        ("ns.sub.example.", Rtype::A, address),
        ("d.example.", Rtype::DNAME, to("w.example.")),
    ];
    let mut builder = ZoneBuilder::new(name("example.").as_name(), 3);
    for (owner, rtype, rdata) in records {
        builder.add(name(owner).as_name(), 60, rtype, &rdata).unwrap();
    }
    let catalog = Catalog::new([Arc::new(compile(builder.finish().unwrap()))], 5);
    let settings = Arc::new(Settings::default());
    Arc::new(ArcSwap::from_pointee(Published {
        catalog: Arc::new(catalog),
        settings,
        transfers: Arc::default(),
        guard: Some(Arc::new(guard())),
        // Nobody reads it, and it has room for all that is noted.
        log: Some(AnswerLog::new(4, 64 << 20, || 0).0),
    }))
}
