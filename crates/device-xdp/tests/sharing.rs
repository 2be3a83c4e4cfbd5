//! Processes that share one queue. Needs root and AF_XDP; skipped otherwise.

#[allow(dead_code)]
mod crafted;
#[allow(dead_code)]
mod echo;
#[allow(dead_code)]
mod packet_socket;
mod processes;
#[allow(dead_code)]
mod support;

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_xdp::{
    AttachMode, Lent, SharedQueue, SteeringOptions, SteeringProgram, XdpError, XdpOptions, adopt,
};
use steering::{Claim, ClaimTerms, LocalAddress, QueueSet, Transport, VlanTags};

use crafted::{ACK, SYN, TCP, ipv4, tcp};
use echo::Echo;
use packet_socket::PacketSocket;
use processes::adopter;
use support::{Lab, lab};

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: &str = "10.77.0.1";

/// Not a test by itself: the process that the tests lend a device to.
#[test]
fn adopter_of_a_device() {
    processes::serve_if_asked();
}

fn attach(lab: &Lab, mode: AttachMode) -> SteeringProgram {
    lab.enter_server();
    SteeringProgram::attach("vs", SteeringOptions { mode: Some(mode), ..SteeringOptions::default() }).unwrap()
}

fn claim(port: u16) -> Claim {
    let local = LocalAddress { address: SERVER.parse().unwrap(), vlan: VlanTags::default() };
    Claim { transport: Transport::Udp, local, port }
}

fn terms(numbers: &[u16]) -> ClaimTerms {
    ClaimTerms { queues: QueueSet::from_iter(numbers.iter().copied()), ..ClaimTerms::default() }
}

/// Lends a place, which its last process may have to leave first.
fn lend_patiently(queue: &mut SharedQueue, program: &mut SteeringProgram, number: u16) -> Lent {
    let begin = Instant::now();
    loop {
        match queue.lend(program, number) {
            Err(XdpError::QueueBusy { .. }) => assert!(begin.elapsed() < PATIENCE, "its process is gone"),
            lent => return lent.unwrap(),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn socket_to(port: u16, patience: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.connect(SocketAddr::new(SERVER.parse().unwrap(), port)).unwrap();
    socket
}

/// Whether `message` comes back.
fn is_echoed(socket: &UdpSocket, message: &[u8]) -> bool {
    socket.send(message).unwrap();
    let mut answer = [0; 2048];
    socket.recv(&mut answer).is_ok_and(|len| &answer[..len] == message)
}

fn assert_served(port: u16) {
    // From a port of its own each; more than the rings hold.
    for round in 0..3000u32 {
        assert!(is_echoed(&socket_to(port, PATIENCE), &round.to_be_bytes()), "{port}: {round}");
    }
}

/// Also with one of two killed at a time, by turns.
fn each_gets_its_own(mode: AttachMode) {
    let Some(lab) = lab(1) else { return };
    let mut program = attach(&lab, mode);
    let mut queue = SharedQueue::create(&program, 0, 4, &XdpOptions::default()).unwrap();
    let serve = |queue: &mut SharedQueue, program: &mut SteeringProgram, number| {
        let (child, description) = adopter(lend_patiently(queue, program, number));
        assert!(description.starts_with("vs queues 0, AF_XDP copy mode, "), "{description}");
        child
    };
    let mut children = [0, 63].map(|number| serve(&mut queue, &mut program, number));
    let ports = [(53, 0), (54, 63)];
    for (port, number) in ports {
        program.put_claim(claim(port), terms(&[number])).unwrap();
    }
    lab.in_client(|| ports.iter().for_each(|(port, _)| assert_served(*port)));
    assert_eq!(program.counters().unwrap().redirected, 6000);

    for (killed, other) in [(0, 1), (1, 0), (0, 1)] {
        children[killed].kill().unwrap();
        children[killed].wait().unwrap();
        queue.withdraw(&mut program, ports[killed].1).unwrap();
        lab.in_client(|| {
            assert_served(ports[other].0);
            let nobody = socket_to(ports[killed].0, Duration::from_millis(10));
            assert!(!is_echoed(&nobody, b"is nobody there?"), "it is the kernel's");
        });
        children[killed] = serve(&mut queue, &mut program, ports[killed].1);
        lab.in_client(|| ports.iter().for_each(|(port, _)| assert_served(*port)));
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn two_processes_on_one_queue_get_what_each_has_claimed() {
    each_gets_its_own(AttachMode::Native);
}

#[test]
fn two_processes_on_one_queue_get_what_each_has_claimed_in_generic_mode() {
    each_gets_its_own(AttachMode::Generic);
}

#[test]
fn of_several_that_claim_the_same_a_flow_has_one() {
    const FLOWS: u64 = 200;
    const MESSAGES: u64 = 5;
    let Some(lab) = lab(1) else { return };
    let mut program = attach(&lab, AttachMode::Generic);
    let mut queue = SharedQueue::create(&program, 0, 4, &XdpOptions::default()).unwrap();
    let numbers = [0, 62, 63];
    let echoes: Vec<_> = numbers
        .iter()
        .map(|number| {
            let Lent { layout, memory, sockets } = queue.lend(&mut program, *number).unwrap();
            Echo::start(adopt(layout, memory, sockets).unwrap())
        })
        .collect();
    program.put_claim(claim(53), terms(&numbers)).unwrap();
    lab.in_client(|| {
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| socket_to(53, PATIENCE)).collect();
        for message in 0..MESSAGES {
            sockets.iter().for_each(|socket| assert!(is_echoed(socket, &message.to_be_bytes())));
        }
    });
    let counts: Vec<u64> = echoes.iter().map(|echo| echo.frames_by_queue()[0]).collect();
    assert_eq!(counts.iter().sum::<u64>(), FLOWS * MESSAGES);
    assert!(counts.iter().all(|count| *count > 0 && count.is_multiple_of(MESSAGES)), "{counts:?}");
    for echo in echoes {
        assert_eq!(echo.stop().counters().frames_held, 0);
    }
}

#[test]
fn a_place_is_another_processs_when_its_last_one_has_ended() {
    let Some(lab) = lab(1) else { return };
    let mut program = attach(&lab, AttachMode::Generic);
    let mut queue = SharedQueue::create(&program, 0, 2, &XdpOptions::default()).unwrap();
    let (mut first, _) = adopter(queue.lend(&mut program, 0).unwrap());
    let (mut second, _) = adopter(queue.lend(&mut program, 63).unwrap());
    queue.withdraw(&mut program, 0).unwrap();
    assert!(
        matches!(queue.lend(&mut program, 62), Err(XdpError::QueueBusy { .. })),
        "it may write there yet"
    );
    first.kill().unwrap();
    first.wait().unwrap();
    let (mut third, _) = adopter(lend_patiently(&mut queue, &mut program, 62));
    program.put_claim(claim(53), terms(&[62])).unwrap();
    lab.in_client(|| assert_served(53));
    assert!(queue.has(62) && queue.has(63) && !queue.has(0) && program.is_shared(0));
    for (number, child) in [(62, &mut third), (63, &mut second)] {
        child.kill().unwrap();
        child.wait().unwrap();
        queue.withdraw(&mut program, number).unwrap();
    }
    assert!(queue.is_unused() && !program.is_shared(0));
}

#[test]
fn who_takes_the_program_over_knows_which_sharers_have_ended() {
    let Some(lab) = lab(1) else { return };
    let mut program = attach(&lab, AttachMode::Generic);
    let mut queue = SharedQueue::create(&program, 0, 2, &XdpOptions::default()).unwrap();
    let (mut child, _) = adopter(queue.lend(&mut program, 63).unwrap());
    drop(queue); // As when this process is killed: it has no copies of sockets then.
    assert_eq!([63, 62].map(|number| program.has_ended(number)), [Some(false), None]);
    program.put_claim(claim(53), terms(&[63])).unwrap();
    lab.in_client(|| assert_served(53));
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    while program.has_ended(63) != Some(true) {
        assert!(killed.elapsed() < PATIENCE, "its socket is closed");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(program.forget_sharer(63).unwrap() && !program.forget_sharer(63).unwrap());
}

/// As when the broker ends and another one has its place.
#[test]
fn who_goes_on_with_a_queue_lends_it_to_more_processes() {
    let Some(lab) = lab(1) else { return };
    let mut program = attach(&lab, AttachMode::Generic);
    let options = XdpOptions::default();
    let mut queue = SharedQueue::create(&program, 0, 3, &options).unwrap();
    assert!(queue.leave().unwrap().is_none(), "nobody has a place");
    let [(mut first, _), (mut second, _)] =
        [0, 63].map(|number| adopter(queue.lend(&mut program, number).unwrap()));
    let (places, mut descriptors) = queue.leave().unwrap().unwrap();
    let too_few = descriptors.iter().take(4).map(|fd| fd.try_clone().unwrap()).collect();
    let went_on = SharedQueue::go_on(&program, (places.clone(), too_few), &options);
    assert!(matches!(went_on, Err(XdpError::Lent(_))));
    drop(queue);
    let mut queue =
        SharedQueue::go_on(&program, (places, std::mem::take(&mut descriptors)), &options).unwrap();
    assert_eq!([0, 63, 62].map(|number| queue.has_ended(number)), [Some(false), Some(false), None]);
    let (mut third, _) = adopter(queue.lend(&mut program, 62).unwrap());
    let ports = [(53, 0), (54, 63), (55, 62)];
    ports.into_iter().for_each(|(port, number)| program.put_claim(claim(port), terms(&[number])).unwrap());
    lab.in_client(|| ports.iter().for_each(|(port, _)| assert_served(*port)));
    second.kill().unwrap();
    second.wait().unwrap();
    let killed = Instant::now();
    while queue.has_ended(63) != Some(true) {
        assert!(killed.elapsed() < PATIENCE, "its place is free");
        thread::sleep(Duration::from_millis(1));
    }
    queue.withdraw(&mut program, 63).unwrap();
    let (mut fourth, _) = adopter(lend_patiently(&mut queue, &mut program, 61));
    program.put_claim(claim(54), terms(&[61])).unwrap();
    lab.in_client(|| ports.iter().for_each(|(port, _)| assert_served(*port)));
    for child in [&mut first, &mut third, &mut fourth] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Processes that share a queue and have claimed the same port of TCP: their devices, in one process.
struct Sharers {
    program: SteeringProgram,
    queue: SharedQueue,
    numbers: Vec<u16>,
    devices: Vec<Box<dyn Device>>,
    /// What they know in common.
    area: Option<File>,
    client: PacketSocket,
    _lab: Lab,
}

impl Sharers {
    /// Nobody yet; so many connections can be noted.
    fn of(lab: Lab, notes: u32) -> Sharers {
        lab.enter_server();
        let options = SteeringOptions { kernel_flows: notes, ..SteeringOptions::default() };
        let program = SteeringProgram::attach("vs", options).unwrap();
        let queue = SharedQueue::create(&program, 0, 4, &XdpOptions::default()).unwrap();
        let client = lab.in_client(|| PacketSocket::open("vc"));
        Sharers { program, queue, numbers: Vec::new(), devices: Vec::new(), area: None, client, _lab: lab }
    }

    fn come(&mut self, number: u16) {
        let Lent { layout, memory, sockets } = self.queue.lend(&mut self.program, number).unwrap();
        self.area = Some(File::from(sockets.last().unwrap().try_clone().unwrap()));
        self.devices.push(adopt(layout, memory, sockets).unwrap());
        self.numbers.push(number);
        let local = LocalAddress { address: SERVER.parse().unwrap(), vlan: VlanTags::default() };
        let claim = Claim { transport: Transport::Tcp, local, port: 80 };
        self.program.put_claim(claim, terms(&self.numbers)).unwrap();
    }

    /// Sends as many segments to what `number` alone has claimed as overflow its receive ring, and its user does not look.
    fn overflow(&mut self, number: u16) {
        let local = LocalAddress { address: SERVER.parse().unwrap(), vlan: VlanTags::default() };
        let claim = Claim { transport: Transport::Tcp, local, port: 81 };
        self.program.put_claim(claim, terms(&[number])).unwrap();
        self.send_and_await((0..5000).map(|_| tcp(4000, 81, ACK, 10)));
    }

    /// Sends segments, and waits until the steering program has redirected as many.
    fn send_and_await(&self, segments: impl Iterator<Item = Vec<u8>>) {
        let begin = Instant::now();
        for segment in segments {
            let before = self.program.counters().unwrap().redirected;
            self.client.send(&ipv4(TCP, &segment));
            while self.program.counters().unwrap().redirected == before {
                assert!(begin.elapsed() < PATIENCE, "they arrive");
            }
        }
    }

    /// Which of them gets a segment from this port.
    fn receiver(&mut self, from: u16, flags: u8) -> usize {
        self.client.send(&ipv4(TCP, &tcp(from, 80, flags, 10)));
        self.received()
    }

    /// Which of them gets something.
    fn received(&mut self) -> usize {
        let sent = Instant::now();
        loop {
            for (index, device) in self.devices.iter_mut().enumerate() {
                let mut burst = Burst::new();
                let count = device.rx_burst(&mut burst, clock::Instant::ZERO);
                burst.drain(..).for_each(|frame| device.release(frame));
                if count > 0 {
                    return index;
                }
            }
            assert!(sent.elapsed() < PATIENCE, "a segment is nobody's");
        }
    }
}

/// Their notes, if there were any, had to make room.
#[test]
fn connections_of_which_nothing_is_noted_stay_with_those_who_were_there() {
    let Some(lab) = lab(1) else { return };
    let mut sharers = Sharers::of(lab, 1);
    sharers.come(0);
    assert!((4000..4200).all(|port| sharers.receiver(port, ACK) == 0));
    sharers.come(63);
    assert!((4000..4200).all(|port| sharers.receiver(port, ACK) == 0));
    sharers.come(62);
    assert!((4000..4200).all(|port| sharers.receiver(port, ACK) == 0));
}

#[test]
fn connections_that_begin_are_for_newcomers_too_and_stay_theirs() {
    let Some(lab) = lab(1) else { return };
    let mut sharers = Sharers::of(lab, 4096);
    sharers.come(0);
    assert!((4000..4100).all(|port| sharers.receiver(port, SYN) == 0));
    sharers.come(63);
    sharers.come(62);
    let owners: Vec<(u16, usize)> = (5000..5200)
        .map(|port| (port, sharers.receiver(port, SYN)))
        .chain((4000..4100).map(|port| (port, 0)))
        .collect();
    assert!((0..3).all(|index| owners.iter().any(|(_, owner)| *owner == index)));
    let assert_kept = |sharers: &mut Sharers| {
        owners.iter().for_each(|(port, owner)| assert_eq!(sharers.receiver(*port, ACK), *owner, "{port}"));
    };
    assert_kept(&mut sharers);
    for second in [0, 299, 300] {
        sharers.program.settle_sharers(clock::Instant::from_nanos(second * 1_000_000_000)).unwrap();
        assert_kept(&mut sharers);
    }
    for port in 10_000..20_000 {
        sharers.receiver(port, SYN);
    }
    assert_kept(&mut sharers);
    sharers.come(61);
    assert_kept(&mut sharers);
}

#[test]
fn one_that_is_stopped_leaves_the_others_memory_to_receive_into() {
    let Some(lab) = lab(1) else { return };
    let mut sharers = Sharers::of(lab, 1);
    sharers.come(0);
    sharers.come(63);
    sharers.overflow(63);
    // Device 0 has not been looked at since, as if its process slept.
    sharers.send_and_await(std::iter::once(tcp(4000, 80, ACK, 10)));
    sharers.devices.truncate(1);
    assert_eq!(sharers.received(), 0);
}

#[test]
fn who_cannot_fill_the_common_ring_sleeps_and_tries_again() {
    let Some(lab) = lab(1) else { return };
    let mut sharers = Sharers::of(lab, 1);
    sharers.come(0);
    sharers.come(63);
    // As if the other were stopped while it fills the ring: the lock of `Header` names its place, 1.
    sharers.area.as_ref().unwrap().write_all_at(&(1u64 << 8 | 1).to_ne_bytes(), 0).unwrap();
    for _ in 0..2 {
        sharers.overflow(0);
        let device = &mut sharers.devices[0];
        let mut burst = Burst::new();
        while device.rx_burst(&mut burst, clock::Instant::ZERO) > 0 {
            burst.drain(..).for_each(|frame| device.release(frame));
        }
    }
    let device = &mut sharers.devices[0];
    assert!(device.prepare_wait(), "there is nothing to do just now");
    assert!(device.holds_unsent(), "but in a moment");
    sharers.area.as_ref().unwrap().write_all_at(&[0; 8], 0).unwrap();
    assert!(device.prepare_wait() && !device.holds_unsent());
}
