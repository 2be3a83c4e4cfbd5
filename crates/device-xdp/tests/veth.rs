//! The device and the steering program on a real veth pair. Needs root and AF_XDP; skipped otherwise.

mod echo;
mod packet_socket;
mod support;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_xdp::{
    AttachMode, BusyPoll, SteeringOptions, SteeringProgram, XdpDevice, XdpError, XdpOptions,
    mode_for_streams, queue_pairs_in,
};
use frame::{Pool, Region};
use steering::{Claim, LocalAddress, Transport, VlanTags};

use echo::Echo;
use packet_socket::PacketSocket;
use support::{Lab, lab};
use wire::{Endpoints, Envelope, VlanTag};

const SERVER_V4: &str = "10.77.0.1";
const SERVER_V6: &str = "fd77::1";

fn claim(address: &str, vlan: VlanTags) -> Claim {
    Claim {
        transport: Transport::Udp,
        local: LocalAddress { address: address.parse().unwrap(), vlan },
        port: 53,
    }
}

fn untagged(addresses: &[&str]) -> BTreeSet<Claim> {
    addresses.iter().map(|address| claim(address, VlanTags::default())).collect()
}

/// The program on the server's end, claiming port 53 on `claims`, and a device on its first `queues` queues.
fn open(lab: &Lab, queues: u16, claims: &BTreeSet<Claim>) -> (SteeringProgram, XdpDevice) {
    lab.enter_server();
    let mut program = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let queues: Vec<u16> = (0..queues).collect();
    let device = XdpDevice::open(&mut program, &queues, &XdpOptions::default()).unwrap();
    program.set_claims(claims).unwrap();
    (program, device)
}

fn client_socket(server: &str) -> UdpSocket {
    let server: IpAddr = server.parse().unwrap();
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Sends `message` to `server` and returns what comes back.
fn ask(server: &str, port: u16, message: &[u8]) -> io::Result<Vec<u8>> {
    let socket = client_socket(server);
    ask_from(&socket, SocketAddr::new(server.parse().unwrap(), port), message)
}

fn ask_from(socket: &UdpSocket, server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    socket.send_to(message, server)?;
    let mut answer = vec![0; 65536];
    let (len, from) = socket.recv_from(&mut answer)?;
    assert_eq!(from, server);
    answer.truncate(len);
    Ok(answer)
}

/// A kernel socket in the server's namespace that answers everything with "kernel".
fn kernel_answers(address: &str, port: u16) {
    let socket = UdpSocket::bind((address, port)).unwrap();
    thread::spawn(move || {
        let mut message = vec![0; 65536];
        while let Ok((_, from)) = socket.recv_from(&mut message) {
            socket.send_to(b"kernel", from).unwrap();
        }
    });
}

#[test]
fn claimed_udp_is_echoed_in_place_over_ipv4_and_ipv6() {
    let Some(lab) = lab(1) else { return };
    let (program, device) = open(&lab, 1, &untagged(&[SERVER_V4, SERVER_V6]));
    assert_eq!(program.mode(), AttachMode::Native);
    assert!(device.capabilities().partial_checksums);
    assert_eq!(device.capabilities().mtu, 1500);
    assert_eq!(device.capabilities().description, "vs queues 0, AF_XDP copy mode, native");
    let echo = Echo::start(device);
    lab.in_client(|| {
        for server in [SERVER_V4, SERVER_V6] {
            assert_eq!(ask(server, 53, b"hello").unwrap(), b"hello");
            assert_eq!(ask(server, 53, &[7; 1400]).unwrap(), [7; 1400]);
        }
    });
    assert_eq!(echo.stop().counters().tx_frames, 4);
    assert_eq!(program.counters().unwrap().redirected, 4);
}

#[test]
fn what_is_not_claimed_stays_with_the_kernel() {
    let Some(lab) = lab(1) else { return };
    let (mut program, device) = open(&lab, 1, &untagged(&[SERVER_V4]));
    kernel_answers(SERVER_V4, 53);
    kernel_answers(SERVER_V4, 54);
    kernel_answers(SERVER_V6, 53);
    let echo = Echo::start(device);
    lab.run_in_client("ping -c 1 -w 60 10.77.0.1");
    lab.run_in_client("ping -c 1 -w 60 fd77::1");
    lab.in_client(|| {
        assert_eq!(ask(SERVER_V4, 53, b"claimed").unwrap(), b"claimed");
        assert_eq!(ask(SERVER_V4, 54, b"other port").unwrap(), b"kernel");
        assert_eq!(ask(SERVER_V6, 53, b"other address").unwrap(), b"kernel");
        assert_eq!(ask(SERVER_V4, 53, &[0; 4000]).unwrap(), b"kernel", "a fragmented datagram");
        let socket = client_socket(SERVER_V4);
        set_ip_options(&socket, &[1, 1, 1, 0]);
        assert_eq!(
            ask_from(&socket, (SERVER_V4.parse::<IpAddr>().unwrap(), 53).into(), b"x").unwrap(),
            b"kernel"
        );
    });
    let counters = program.counters().unwrap();
    assert_eq!(counters.redirected, 1);
    assert_eq!(counters.passed_fragment_or_options, 4, "three fragments, one packet with options");
    assert_eq!(counters.passed_unclaimed_address, 1);

    program.set_claims(&BTreeSet::new()).unwrap();
    lab.in_client(|| assert_eq!(ask(SERVER_V4, 53, b"no longer claimed").unwrap(), b"kernel"));
    program.set_claims(&untagged(&[SERVER_V4])).unwrap();
    lab.in_client(|| assert_eq!(ask(SERVER_V4, 53, b"claimed again").unwrap(), b"claimed again"));
    echo.stop();
}

#[test]
fn on_an_interface_of_large_mtu_only_what_fits_a_frame_is_taken() {
    let Some(lab) = lab(1) else { return };
    lab.ip_server("link set vs mtu 9000");
    lab.run_in_client("ip link set vc mtu 9000");
    let (program, device) = open(&lab, 1, &untagged(&[SERVER_V4]));
    assert_eq!(device.capabilities().mtu, 3818);
    kernel_answers(SERVER_V4, 53);
    let echo = Echo::start(device);
    lab.in_client(|| {
        assert_eq!(ask(SERVER_V4, 53, &[7; 3700]).unwrap(), [7; 3700]);
        assert_eq!(ask(SERVER_V4, 53, &[7; 8000]).unwrap(), b"kernel");
    });
    echo.stop();
    assert_eq!(program.counters().unwrap().passed_too_long, 1);
}

/// No-operation octets and the end of the list, see ip(7), IP_OPTIONS.
fn set_ip_options(socket: &UdpSocket, options: &[u8]) {
    // SAFETY: `options` is readable for its length, which is passed along; the kernel only reads it.
    let result = unsafe {
        let (value, len) = (options.as_ptr().cast(), options.len() as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_OPTIONS, value, len)
    };
    assert_eq!(result, 0);
}

#[test]
fn tagged_packets_are_taken_only_behind_the_claimed_tags() {
    let Some(lab) = lab(1) else { return };
    let one = VlanTags { outer: 7, inner: 0 };
    let two = VlanTags { outer: 7, inner: 9 };
    let (mut program, device) =
        open(&lab, 1, &BTreeSet::from([claim(SERVER_V4, one), claim(SERVER_V6, two)]));
    let echo = Echo::start(device);
    // Both ends keep the tags in the packets, where hardware might strip them.
    lab.run_in_client("ethtool -K vc txvlan off rxvlan off");
    let tags = |ids: VlanTags| {
        let tag = |tpid, id| (id != 0).then_some(VlanTag { tpid, control: 0xe000 | id });
        [tag(if ids.inner == 0 { 0x8100 } else { 0x88a8 }, ids.outer), tag(0x8100, ids.inner)]
    };
    let frames = lab.in_client(|| {
        let socket = PacketSocket::open("vc");
        for (server, ids) in [(SERVER_V4, one), (SERVER_V6, two), (SERVER_V4, two), (SERVER_V6, one)] {
            socket.send(&datagram(server, tags(ids)));
        }
        socket.send(&datagram(SERVER_V4, [None, None]));
        socket.echoes(2)
    });
    assert_eq!(frames, 2);
    let counters = program.counters().unwrap();
    assert_eq!((counters.redirected, counters.passed_unclaimed_address), (2, 3));
    program.set_claims(&untagged(&[SERVER_V4])).unwrap();
    lab.in_client(|| PacketSocket::open("vc").send(&datagram(SERVER_V4, tags(one))));
    assert!(eventually(|| program.counters().unwrap().passed_unclaimed_address == 4));
    echo.stop();
}

/// A whole frame with a datagram from the client to port 53 of `server`.
fn datagram(server: &str, tags: [Option<VlanTag>; 2]) -> Vec<u8> {
    let server: IpAddr = server.parse().unwrap();
    let client: IpAddr = if server.is_ipv4() { "10.77.0.2" } else { "fd77::2" }.parse().unwrap();
    let endpoints = Endpoints::new((client, 4000).into(), (server, 53).into()).unwrap();
    let mut frame = vec![0; 128];
    let len =
        wire::write_udp(&mut frame, &Envelope { tags, ..Envelope::untagged(endpoints) }, b"tagged").unwrap();
    frame.truncate(len);
    frame
}

#[test]
fn another_program_is_named_and_left_alone() {
    let Some(lab) = lab(1) else { return };
    lab.enter_server();
    let first = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    for mode in [None, Some(AttachMode::Native), Some(AttachMode::Generic)] {
        let options = SteeringOptions { mode, ..SteeringOptions::default() };
        match SteeringProgram::attach("vs", options).err() {
            Some(XdpError::ProgramPresent { interface, program, id }) => {
                assert!(interface == "vs" && program.starts_with("sidestep_steer"), "{interface}: {program}");
                assert_ne!(id, 0);
            }
            other => panic!("expected the program to be named, got {other:?}"),
        }
    }
    drop(first);
    assert!(!lab.ip_server("link show vs").contains("xdp"), "a dropped program is detached");
    SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
}

#[test]
fn signals_do_not_keep_the_program_from_being_loaded() {
    let Some(lab) = lab(1) else { return };
    lab.enter_server();
    let _handled = signal_hook::flag::register(libc::SIGUSR1, Arc::default()).unwrap();
    // SAFETY: a number, of the calling thread.
    let loading = unsafe { libc::pthread_self() };
    let is_loaded = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_loaded = &is_loaded;
        scope.spawn(move || {
            // Verifying takes longer than the time between two signals.
            while !is_loaded.load(Ordering::Relaxed) {
                // SAFETY: the thread lives, since it waits for the end of this scope; SIGUSR1 is handled.
                unsafe { libc::pthread_kill(loading, libc::SIGUSR1) };
                thread::sleep(Duration::from_micros(100));
            }
        });
        let loaded = SteeringProgram::attach("vs", SteeringOptions::default());
        is_loaded.store(true, Ordering::Relaxed);
        loaded.unwrap();
    });
}

#[test]
fn a_queue_that_another_socket_has_is_named() {
    let Some(lab) = lab(1) else { return };
    let (mut program, _device) = open(&lab, 1, &BTreeSet::new());
    let second = XdpDevice::open(&mut program, &[0], &XdpOptions::default());
    assert!(matches!(second.err(), Some(XdpError::QueueBusy { queue: 0, .. })));
    let beyond = XdpDevice::open(&mut program, &[7], &XdpOptions::default());
    assert!(matches!(beyond.err(), Some(XdpError::Bind { queue: 7, .. })));
}

#[test]
fn each_mode_works_where_it_is_asked_for() {
    let modes = [None, Some(AttachMode::Native), Some(AttachMode::Generic)];
    for mode in modes {
        let Some(lab) = lab(1) else { return };
        lab.enter_server();
        let options = SteeringOptions { mode, ..SteeringOptions::default() };
        let mut program = SteeringProgram::attach("vs", options).unwrap();
        assert_eq!(program.mode(), mode.unwrap_or(AttachMode::Native));
        let device = XdpDevice::open(&mut program, &[0], &XdpOptions::default()).unwrap();
        program.set_claims(&untagged(&[SERVER_V4])).unwrap();
        let echo = Echo::start(device);
        lab.in_client(|| assert_eq!(ask(SERVER_V4, 53, b"this mode").unwrap(), b"this mode"));
        echo.stop();
    }
}

#[test]
fn busy_polling_serves_as_well() {
    let Some(lab) = lab(1) else { return };
    lab.enter_server();
    let mut program = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let options = XdpOptions { busy_poll: Some(BusyPoll::default()), ..XdpOptions::default() };
    let device = XdpDevice::open(&mut program, &[0], &options).unwrap();
    program.set_claims(&untagged(&[SERVER_V4])).unwrap();
    let echo = Echo::start(device);
    lab.in_client(|| assert_eq!(ask(SERVER_V4, 53, b"polled").unwrap(), b"polled"));
    echo.stop();
}

#[test]
fn another_pools_frame_is_sent_as_a_copy_and_handed_back() {
    let Some(lab) = lab(1) else { return };
    let (_program, mut device) = open(&lab, 1, &BTreeSet::new());
    let mut pool = Pool::new(Region::anonymous(4096).unwrap(), 2048, 0);
    let mut frame = pool.alloc().unwrap();
    frame.copy_from(&datagram(SERVER_V4, [None, None]));
    let mut burst = Burst::from_iter([frame]);
    assert_eq!(device.tx_burst(&mut burst, clock::Instant::ZERO), 1);
    pool.release(device.take_foreign().unwrap());
    let counters = device.counters();
    assert_eq!((counters.tx_frames, counters.tx_dropped, pool.available()), (1, 0, 2));
}

/// Not a test by itself: the process that `a_killed_process_leaves_no_program_behind` kills.
#[test]
fn holder_of_a_program() {
    if std::env::var_os("SIDESTEP_HOLD_PROGRAM").is_none() {
        return;
    }
    let mut program = SteeringProgram::attach("vs", SteeringOptions::default()).unwrap();
    let _device = XdpDevice::open(&mut program, &[0], &XdpOptions::default()).unwrap();
    loop {
        thread::park();
    }
}

#[test]
fn a_killed_process_leaves_no_program_behind() {
    let Some(lab) = lab(1) else { return };
    let own = std::env::current_exe().unwrap();
    let mut child = lab
        .command_in_server(own.to_str().unwrap())
        .args(["--exact", "holder_of_a_program"])
        .env("SIDESTEP_HOLD_PROGRAM", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let has_program = || lab.ip_server("link show vs").contains("xdp");
    assert!(eventually(has_program), "the child attaches");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| !has_program()), "SIGKILL detaches");
}

/// Waits up to a minute for something that another process or the kernel does on its own.
fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    (0..1200).any(|_| {
        let met = condition();
        if !met {
            thread::sleep(Duration::from_millis(50));
        }
        met
    })
}

#[test]
fn on_a_veth_with_one_queue_streams_are_better_off_behind_the_driver() {
    for (queues, mode, used) in [(1, Some(AttachMode::Generic), 1), (2, None, 1), (4, None, 3)] {
        let Some(lab) = lab(queues) else { return };
        lab.enter_server();
        assert_eq!(mode_for_streams("vs").unwrap(), mode, "{queues} queues");
        assert_eq!(mode_for_streams("lo").unwrap(), None, "the driver decides");
        let generic = queue_pairs_in("vs", Some(AttachMode::Generic)).unwrap();
        assert_eq!(generic, used, "none comes by the last one");
        assert_eq!(u32::from(queue_pairs_in("vs", None).unwrap()), queues);
        assert!(mode_for_streams("absent").is_err());
    }
}

#[test]
fn two_queues_share_one_umem() {
    let Some(lab) = lab(2) else { return };
    let (_program, device) = open(&lab, 2, &untagged(&[SERVER_V4]));
    assert_eq!(device.capabilities().queues, 2);
    let echo = Echo::start(device);
    lab.in_client(|| {
        for round in 0..200u32 {
            let message = round.to_be_bytes(); // From a port of its own, so that both queues get some.
            assert_eq!(ask(SERVER_V4, 53, &message).unwrap(), message);
        }
    });
    let by_queue = echo.frames_by_queue();
    assert!(by_queue[0] > 0 && by_queue[1] > 0, "{by_queue:?}");
    assert_eq!(echo.stop().counters().tx_frames, 200);
}

#[test]
fn a_link_that_was_down_serves_again() {
    let Some(lab) = lab(1) else { return };
    let (_program, mut device) = open(&lab, 1, &untagged(&[SERVER_V4]));
    lab.ip_server("link set vs down");
    let mut burst = Burst::new();
    for _ in 0..3 {
        let mut frame = device.alloc().unwrap();
        frame.copy_from(&[0xff; 60]);
        burst.push(frame);
        assert_eq!(device.tx_burst(&mut burst, clock::Instant::ZERO), 1);
    }
    assert_eq!(device.counters().tx_dropped, 2, "the first found out, the others were dropped");
    assert!(device.prepare_wait());

    lab.ip_server("link set vs up");
    let echo = Echo::start(device);
    lab.in_client(|| {
        let socket = client_socket(SERVER_V4);
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let server = SocketAddr::new(SERVER_V4.parse().unwrap(), 53);
        assert!(eventually(|| ask_from(&socket, server, b"back").is_ok_and(|answer| answer == b"back")))
    });
    echo.stop();
}

#[test]
fn a_deleted_interface_neither_crashes_nor_spins() {
    let Some(lab) = lab(1) else { return };
    let (program, device) = open(&lab, 1, &untagged(&[SERVER_V4]));
    let echo = Echo::start(device);
    lab.in_client(|| assert_eq!(ask(SERVER_V4, 53, b"still there").unwrap(), b"still there"));
    lab.ip_server("link delete vs");
    let (before, began) = (echo.turns(), Instant::now());
    thread::sleep(Duration::from_millis(500));
    let (turns, time) = (echo.turns() - before, began.elapsed());
    assert!(u128::from(turns) < time.as_millis() / 5, "{turns} turns in {time:?}");
    let mut device = echo.stop();
    let mut burst = Burst::new();
    for _ in 0..5000 {
        let mut frame = device.alloc().expect("dropped frames return");
        frame.copy_from(&[0xff; 60]);
        burst.push(frame);
        assert_eq!(device.tx_burst(&mut burst, clock::Instant::ZERO), 1);
    }
    assert_eq!(device.counters().tx_dropped, 4999);
    drop(program);
}
