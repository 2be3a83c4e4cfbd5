//! Well-behaved and malicious clients of a broker with a simulated interface. The laboratory tests what needs real interfaces.

mod admission;
mod claims;
mod clamps;
mod farewells;
mod handshakes;
mod held_up;
mod interfaces;
mod joining;
mod last_words;
mod moves;
mod observers;
mod queues;
mod returning;
mod source_ports;
mod stopped;
mod strays;

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, connect, recv, send, sendmsg, socket,
};

use super::broker::Broker;
use super::family::Family;
use super::handle::{self, Handle};
use super::made_up::{GENERIC, Log, Maps, OF_THE_KERNEL, all, setup, setup_shared, setup_with};
use super::turns::Setup;
use crate::client::{Client, ClientError, Enqueued, Event};
use crate::protocol::{
    Handshake, News, Profile, ProgramReport, Purpose, Refusal, Request, SYN_MAX, ToBroker, Transport,
    VERSION, Welcome, encode,
};

/// Longer than anything takes that comes at all, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(30);

/// There is one laboratory at a time.
pub(super) static LABORATORY: Mutex<()> = Mutex::new(());

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
        Served::start(setup, log)
    }

    /// At an interface of which so many processes can share each queue.
    fn shared(queues: u16, places: u16) -> Served {
        let (log, family) = (Log::default(), Family { head: std::process::id(), group: None });
        Served::start(setup_shared(queues, places, &log, family), log)
    }

    fn start(setup: Setup, log: Log) -> Served {
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

/// A broker that does not serve yet.
pub(super) fn broker() -> Broker {
    broker_for(std::process::id())
}

/// One for the descendants of this process.
fn broker_for(head: u32) -> Broker {
    let family = Family { head, group: None };
    Broker::open(setup(1, &Log::default(), family, all()), clock::Instant::ZERO).unwrap()
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

/// Whether this test is the only one of its process; if not, it is run so now.
fn is_alone<T: Fn()>(_test: T) -> bool {
    const ALONE: &str = "SIDESTEP_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let path = std::any::type_name::<T>();
    let name = path.strip_prefix("broker::").unwrap_or(path);
    let own = std::env::current_exe().unwrap();
    let alone = std::process::Command::new(own).args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let [said, failed] = [&alone.stdout, &alone.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(alone.status.success() && said.contains("1 passed"), "{said}{failed}");
    false
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
