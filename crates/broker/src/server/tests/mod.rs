//! Well-behaved and malicious clients of a broker with a simulated interface. The laboratory tests what needs real interfaces.

mod admission;
mod claims;
mod handshakes;
mod held_up;
mod moves;
mod observers;
mod queues;

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device_xdp::{AttachMode, CopyMode, LentLayout, XdpError, XdpMode};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, connect, recv, send, sendmsg, socket,
};
use steering::{Claim, ClaimTerms};

use super::broker::{Broker, Setup};
use super::data_path::{DataPath, DataPaths, LentQueues};
use super::family::Family;
use super::handle::{self, Handle};
use crate::client::{Client, ClientError, Event};
use crate::protocol::{
    Handshake, News, Options, Profile, ProgramReport, Purpose, Refusal, Request, SYN_MAX, ToBroker,
    Transport, VERSION, Welcome, encode,
};

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happened to a made-up interface.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap().iter().any(|noted| noted == what)
    }
}

struct MadeUp {
    queues: u16,
    log: Log,
}

impl DataPaths for MadeUp {
    fn open(&self, _interface: &str) -> Result<Box<dyn DataPath>, XdpError> {
        Ok(Box::new(MadeUp { queues: self.queues, log: self.log.clone() }))
    }

    fn queues(&self, _interface: &str) -> Result<u16, XdpError> {
        Ok(self.queues)
    }

    fn frame_size(&self, _mtu: u32) -> Option<u16> {
        Some(2048)
    }
}

/// A connection from this port belongs to the kernel.
const OF_THE_KERNEL: u16 = 4999;

impl DataPath for MadeUp {
    fn describe(&self) -> String {
        "made up".to_owned()
    }

    fn is_native(&self) -> bool {
        true
    }

    fn lend(&mut self, queues: &[u16], _frame_size: Option<u16>) -> Result<LentQueues, XdpError> {
        self.log.note(format!("lend {queues:?}"));
        let any = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let layout = LentLayout {
            interface: "lo".to_owned(),
            queues: queues.to_vec(),
            frame_size: 2048,
            frames: 4096,
            ring_entries: 2048,
            mtu: 1500,
            mode: XdpMode { attach: AttachMode::Native, copy: CopyMode::Copy },
            partial_checksums: true,
            busy_poll: false,
        };
        Ok(LentQueues { layout, memory: any(), sockets: queues.iter().map(|_| any()).collect() })
    }

    fn set_reopening(&mut self, _reopening: bool) -> Result<(), XdpError> {
        Ok(())
    }

    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        self.log.note(format!("remove {queue}"));
        Ok(())
    }

    fn put_claim(&mut self, _claim: Claim, _terms: ClaimTerms) -> Result<(), XdpError> {
        Ok(())
    }

    fn remove_claim(&mut self, _claim: Claim) -> Result<(), XdpError> {
        Ok(())
    }

    fn add_kernel_flow(
        &mut self,
        _local: SocketAddr,
        _remote: SocketAddr,
        _epoch: u32,
    ) -> Result<(), XdpError> {
        Ok(())
    }

    fn add_awaited_flow(
        &mut self,
        _local: SocketAddr,
        remote: SocketAddr,
        _epoch: u32,
    ) -> Result<bool, XdpError> {
        self.log.note(format!("awaited {}", remote.port()));
        Ok(remote.port() != OF_THE_KERNEL)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        vec![("redirected".to_owned(), 7)]
    }
}

/// A broker that serves.
struct Served {
    name: String,
    log: Log,
    handle: Option<Handle>,
}

impl Served {
    fn of(queues: u16, head: u32, profile: Profile) -> Served {
        Served::with(queues, Family { head, group: None }, profile)
    }

    fn with(queues: u16, family: Family, profile: Profile) -> Served {
        Served::observed_in(None, queues, family, profile)
    }

    /// With control sockets in that directory.
    fn observed_in(observed_in: Option<&Path>, queues: u16, family: Family, profile: Profile) -> Served {
        let log = Log::default();
        let setup =
            Setup { observed_in: observed_in.map(Path::to_owned), ..setup(queues, &log, family, profile) };
        let broker = Broker::open(setup, clock::Instant::ZERO).unwrap();
        let name = broker.name().to_owned();
        Served { name, log, handle: Some(handle::start(broker, false).unwrap()) }
    }

    fn new(queues: u16) -> Served {
        Served::of(queues, std::process::id(), all())
    }

    fn try_connect(&self, program: &str) -> Result<(Client, Welcome), ClientError> {
        Client::connect(self.name.as_bytes(), program, std::process::id(), 3)
    }

    fn connect(&self) -> Client {
        self.try_connect("program").unwrap().0
    }

    /// A connection that says what it likes.
    fn raw(&self) -> OwnedFd {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(self.name.as_bytes()).unwrap()).unwrap();
        socket
    }

    /// A connection that is known.
    fn raw_known(&self) -> OwnedFd {
        let socket = self.raw();
        say(&socket, &hello());
        assert!(hears(&socket).contains("welcome"));
        socket
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.take().into_iter().for_each(Handle::stop);
    }
}

fn setup(queues: u16, log: &Log, family: Family, profile: Profile) -> Setup {
    Setup {
        interfaces: vec!["lo".to_owned()],
        paths: Box::new(MadeUp { queues, log: log.clone() }),
        family,
        options: Options { spin_us: 20, gather_us: 30, mss_clamp: None, verbose: false, profile },
        observed_in: None,
    }
}

/// A broker that does not serve yet.
pub(super) fn broker() -> Broker {
    broker_for(std::process::id())
}

/// One for the descendants of this process.
fn broker_for(head: u32) -> Broker {
    let family = Family { head, group: None };
    Broker::open(setup(1, &Log::default(), family, all()), clock::Instant::ZERO).unwrap()
}

fn all() -> Profile {
    Profile { name: "default".to_owned(), listeners: true, outgoing: true, udp: true, reason: None }
}

fn hello() -> ToBroker {
    ToBroker { id: 1, request: Request::Hello { version: VERSION, program: "raw".to_owned(), pid: 1 } }
}

fn ask(request: Request) -> ToBroker {
    ToBroker { id: 2, request }
}

fn say(socket: &OwnedFd, message: &ToBroker) {
    send(socket, &encode(message).unwrap(), SendFlags::NOSIGNAL).unwrap();
}

fn say_with(socket: &OwnedFd, message: &ToBroker, fds: &[&OwnedFd]) {
    let mut space = [std::mem::MaybeUninit::uninit(); 2048];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let octets = encode(message).unwrap();
    sendmsg(socket, &[IoSlice::new(&octets)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// The next message; empty at the end of the connection.
fn hears(socket: &OwnedFd) -> String {
    let mut octets = vec![0; 1 << 16];
    match recv(socket, &mut octets[..], RecvFlags::empty()) {
        Ok((len, _)) => String::from_utf8_lossy(&octets[..len]).into_owned(),
        Err(_) => String::new(),
    }
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> Refusal {
    match outcome.unwrap_err() {
        ClientError::Refused(refusal) => refusal,
        error => panic!("{error}"),
    }
}

/// Has something done by a thread of another user. Credentials are a thread's own, as far as the kernel goes.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    let user = rustix::thread::Uid::from_raw(user);
    let act = || {
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        act()
    };
    std::thread::scope(|scope| scope.spawn(act).join().unwrap())
}

fn next_event(client: &mut Client) -> Event {
    loop {
        assert!(client.wait(PATIENCE).unwrap(), "nothing came");
        if let Some(event) = client.poll_event().unwrap() {
            return event;
        }
    }
}

fn wait_until(mut happens: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !happens() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A listener, a connection that was accepted there, and its peer.
fn connected() -> (TcpListener, std::net::TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let peer = std::net::TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
    let accepted = listener.accept().unwrap().0;
    (listener, accepted, peer)
}
