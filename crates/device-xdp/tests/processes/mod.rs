//! Processes without privileges that adopt a device, and send every frame back.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use device::Device;
use device_xdp::{Lent, LentLayout, adopt};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::echo::Echo;

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody, who may do nothing.
const NOBODY: u32 = 65534;
/// Set for the process that is to adopt what it is sent on its standard input.
const ADOPTER: &str = "SIDESTEP_ADOPT_DEVICE";

fn send(stream: &UnixStream, lent: Lent) {
    let layout = serde_json::to_vec(&lent.layout).unwrap();
    let fds: Vec<_> = [lent.memory.as_fd()].into_iter().chain(lent.sockets.iter().map(AsFd::as_fd)).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(stream, &[IoSlice::new(&layout)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, layout.len());
}

fn receive(stream: &UnixStream) -> (LentLayout, OwnedFd, Vec<OwnedFd>) {
    let mut octets = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let buffers = &mut [IoSliceMut::new(&mut octets)];
    let len = recvmsg(stream, buffers, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    let memory = fds.next().unwrap();
    (serde_json::from_slice(&octets[..len]).unwrap(), memory, fds.collect())
}

/// Gives up all that root may do, as a server does after it has bound its ports.
fn become_nobody() {
    // SAFETY: no pointers but a null one for an empty list of groups.
    let results = unsafe {
        [
            libc::setgroups(0, std::ptr::null()),
            libc::setresgid(NOBODY, NOBODY, NOBODY),
            libc::setresuid(NOBODY, NOBODY, NOBODY),
        ]
    };
    assert_eq!(results, [0; 3]);
    let mut status = String::new();
    File::open("/proc/self/status").unwrap().read_to_string(&mut status).unwrap();
    let capabilities = status.lines().filter(|line| line.starts_with("CapEff") || line.starts_with("CapPrm"));
    assert!(
        capabilities.clone().count() == 2 && capabilities.clone().all(|line| line.ends_with(&"0".repeat(16)))
    );
}

/// What the test `adopter_of_a_device` does: nothing, but in a process that [`adopter`] has started.
pub(crate) fn serve_if_asked() {
    if std::env::var_os(ADOPTER).is_none() {
        return;
    }
    become_nobody();
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let (layout, memory, sockets) = receive(&stream);
    let device = adopt(layout, memory, sockets).unwrap();
    stream.write_all(device.capabilities().description.as_bytes()).unwrap();
    let _echo = Echo::start(device);
    loop {
        thread::park();
    }
}

/// A process that has adopted `lent`; returns it with what it says of its device.
pub(crate) fn adopter(lent: Lent) -> (Child, String) {
    let (mut here, there) = UnixStream::pair().unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "adopter_of_a_device", "--nocapture"])
        .env(ADOPTER, "1")
        .stdin(Stdio::from(OwnedFd::from(there)))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    send(&here, lent);
    here.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut description = vec![0; 256];
    let len = here.read(&mut description).expect("the child adopts the device");
    description.truncate(len);
    (child, String::from_utf8(description).unwrap())
}
