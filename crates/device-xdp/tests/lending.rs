//! A device that one process makes and another, without privileges, serves. Needs root and AF_XDP; skipped otherwise.

#[allow(dead_code)]
mod echo;
mod processes;
#[allow(dead_code)]
mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use device_xdp::{
    CopyMode, Lent, LentLayout, SteeringOptions, SteeringProgram, XdpDevice, XdpError, XdpOptions,
};
use steering::{Claim, LocalAddress, Transport, VlanTags};

use processes::adopter;
use support::{Lab, lab};

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: &str = "10.77.0.1";
const PORT: u16 = 53;

fn attach(lab: &Lab) -> SteeringProgram {
    lab.enter_server();
    SteeringProgram::attach("vs", SteeringOptions::default()).unwrap()
}

fn claims() -> BTreeSet<Claim> {
    let local = LocalAddress { address: SERVER.parse().unwrap(), vlan: VlanTags::default() };
    BTreeSet::from([Claim { transport: Transport::Udp, local, port: PORT }])
}

/// Lends both queues, which the kernel may have to free first.
fn lend_patiently(program: &mut SteeringProgram) -> Lent {
    let begin = Instant::now();
    let mut spare = None;
    loop {
        match XdpDevice::lend_with(program, &[0, 1], &XdpOptions::default(), &mut spare) {
            Err(XdpError::QueueBusy { .. }) => {
                assert!(begin.elapsed() < PATIENCE, "the kernel does not free them");
                assert!(spare.is_some(), "what was made is kept for the next attempt");
            }
            lent => return lent.unwrap(),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What comes back for `message`, if anything does within `patience`.
fn ask(message: &[u8], patience: Duration) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    let server = SocketAddr::new(SERVER.parse::<IpAddr>().unwrap(), PORT);
    socket.send_to(message, server).unwrap();
    let mut answer = vec![0; 2048];
    let len = socket.recv(&mut answer).ok()?;
    answer.truncate(len);
    Some(answer)
}

/// A kernel socket in the server's namespace that answers everything with "kernel".
fn kernel_answers() {
    let socket = UdpSocket::bind((SERVER, PORT)).unwrap();
    thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 2048]) {
            socket.send_to(b"kernel", from).unwrap();
        }
    });
}

/// Not a test by itself: the process that the tests lend a device to.
#[test]
fn adopter_of_a_device() {
    processes::serve_if_asked();
}

#[test]
fn a_process_without_privileges_serves_until_it_is_killed_and_then_the_kernel_does() {
    let Some(lab) = lab(2) else { return };
    let mut program = attach(&lab);
    kernel_answers();
    let lent = XdpDevice::lend(&mut program, &[0, 1], &XdpOptions::default()).unwrap();
    let (mut child, description) = adopter(lent);
    assert_eq!(description, "vs queues 0,1, AF_XDP copy mode, native");
    program.set_claims(&claims()).unwrap();
    lab.in_client(|| {
        // From a port of its own each, so that both queues get some. More than the rings hold.
        for round in 0..5000u32 {
            let message = round.to_be_bytes();
            assert_eq!(ask(&message, PATIENCE).as_deref(), Some(&message[..]));
        }
    });
    assert_eq!(program.counters().unwrap().redirected, 5000);

    child.kill().unwrap();
    let killed = Instant::now();
    child.wait().unwrap();
    lab.in_client(|| {
        while ask(b"who is there", Duration::from_millis(100)).as_deref() != Some(b"kernel") {
            assert!(killed.elapsed() < PATIENCE, "the kernel serves what nobody else does");
        }
    });
    assert!(program.counters().unwrap().passed_no_socket > 0);

    // And another may have the queues then.
    let (mut child, _) = adopter(lend_patiently(&mut program));
    lab.in_client(|| assert_eq!(ask(b"again", PATIENCE).unwrap(), b"again"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A layout with something changed.
fn but(layout: &LentLayout, change: impl FnOnce(&mut LentLayout)) -> LentLayout {
    let mut layout = layout.clone();
    change(&mut layout);
    layout
}

#[test]
fn a_wrong_layout_is_an_error_and_the_right_one_is_taken_once() {
    let Some(lab) = lab(2) else { return };
    let mut program = attach(&lab);
    let Lent { layout, memory, sockets } =
        XdpDevice::lend(&mut program, &[0, 1], &XdpOptions::default()).unwrap();
    let copies = || (memory.try_clone().unwrap(), sockets.iter().map(|fd| fd.try_clone().unwrap()).collect());
    let adopt = |layout: LentLayout| {
        let (memory, sockets) = copies();
        XdpDevice::adopt(layout, memory, sockets)
    };
    for wrong in [
        but(&layout, |layout| layout.interface.clear()),
        but(&layout, |layout| layout.interface = "a".repeat(1000)),
        but(&layout, |layout| layout.queues.clear()),
        but(&layout, |layout| layout.queues.push(2)),
        but(&layout, |layout| layout.queues.truncate(1)),
        but(&layout, |layout| layout.frame_size = 0),
        but(&layout, |layout| layout.frame_size = 4096),
        but(&layout, |layout| layout.frame_size = 1000),
        but(&layout, |layout| layout.frames = 0),
        but(&layout, |layout| layout.frames -= 1),
        but(&layout, |layout| layout.frames *= 2),
        but(&layout, |layout| layout.frames = u32::MAX),
        but(&layout, |layout| layout.ring_entries = 0),
        but(&layout, |layout| layout.ring_entries -= 1),
        but(&layout, |layout| layout.ring_entries /= 2),
        but(&layout, |layout| layout.ring_entries *= 2),
        but(&layout, |layout| layout.ring_entries = 1 << 31),
        but(&layout, |layout| layout.mtu = 0),
        but(&layout, |layout| layout.mtu = 1900),
        but(&layout, |layout| layout.mode.copy = CopyMode::ZeroCopy),
    ] {
        assert!(matches!(adopt(wrong.clone()).err(), Some(XdpError::Lent(_))), "{wrong:?}");
    }

    let stranger = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    let of_other_kind = XdpDevice::adopt(
        layout.clone(),
        copies().0,
        [&sockets[0], &stranger, &sockets[2]].map(|fd| fd.try_clone().unwrap()).into(),
    );
    assert!(matches!(of_other_kind.err(), Some(XdpError::Lent(_))));
    let without_memory = XdpDevice::adopt(layout.clone(), stranger, copies().1);
    assert!(matches!(without_memory.err(), Some(XdpError::Lent(_))));

    let device = adopt(layout.clone()).unwrap();
    assert_eq!(device.descriptors().len(), 3, "those of two queues and the bulk lane's");
    assert!(matches!(adopt(layout).err(), Some(XdpError::Lent("its memory has been adopted before"))));
}

#[test]
fn rings_of_a_single_page_are_not_lent() {
    let Some(lab) = lab(1) else { return };
    let mut program = attach(&lab);
    let options = XdpOptions { ring_entries: 256, ..XdpOptions::default() };
    let refused = XdpDevice::lend(&mut program, &[0], &options).unwrap_err();
    assert_eq!(refused.to_string(), "ring_entries is 256; it must be a power of two from 512 to 32768");
    let smallest = XdpOptions { ring_entries: 512, ..XdpOptions::default() };
    let Lent { mut layout, memory, sockets } = XdpDevice::lend(&mut program, &[0], &smallest).unwrap();
    layout.ring_entries = 1024;
    let copy = sockets.iter().map(|fd| fd.try_clone().unwrap()).collect();
    assert!(XdpDevice::adopt(layout.clone(), memory.try_clone().unwrap(), copy).is_err());
    layout.ring_entries = 512;
    XdpDevice::adopt(layout, memory, sockets).unwrap();
}
