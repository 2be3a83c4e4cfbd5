//! Our TCP over AF_XDP against the kernel's, in both roles. `tcp_peer` runs on the stack in the server's namespace and does on
//! each connection what a line of words asks for; here are plain sockets of the kernel in the client's namespace.

mod bulk;
mod changes;
mod flow_control;
mod keepalive;
mod lifecycle;
mod middle_box;
mod mtu;
mod resets;
mod short_connections;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use lab::{CLIENT_V4, CLIENT_V6, Child, Directory, Lab, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tests::{StreamHash, fill_pattern, pattern_hash};

/// Where `tcp_peer` listens.
const PORT: u16 = 7000;
/// A port that is claimed, and where nobody listens.
const CLOSED_PORT: u16 = PORT + 1;
/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
/// The versions of IP, each by the server's and the client's address.
const VERSIONS: [(&str, &str); 2] = [(SERVER_V4, CLIENT_V4), (SERVER_V6, CLIENT_V6)];

/// A laboratory with our stack on the server's interface.
struct Peer {
    // Dropped in this order.
    process: Child,
    directory: Directory,
    lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Peer {
    /// `None` if there can be no laboratory.
    fn start() -> Option<Peer> {
        Peer::start_in(Lab::new)
    }

    /// In a laboratory made by `lay`.
    fn start_in(lay: impl FnOnce() -> Result<Lab, lab::LabError>) -> Option<Peer> {
        let turn = crate::turn()?;
        let lab = lay().unwrap();
        let directory = Directory::new().unwrap();
        let control = directory.path().join("control").display().to_string();
        let (port, core) = (PORT.to_string(), lab::server_core().to_string());
        let arguments =
            ["--device", SERVER_INTERFACE, "--port", &port, "--control", &control, "--core", &core];
        let mut process = lab.spawn_in(Side::Server, env!("CARGO_BIN_EXE_tcp_peer"), &arguments).unwrap();
        process.wait_for_line("ready", PATIENCE).unwrap();
        Some(Peer { process, directory, lab, _turn: turn })
    }

    /// Connects to our stack at `server` and asks for `behaviour`.
    fn ask(&self, server: &str, behaviour: &str) -> TcpStream {
        self.lab.inside(Side::Client, || ask(server, behaviour))
    }

    /// A listener of the kernel's at `client`.
    fn listen(&self, client: &str) -> TcpListener {
        let address = SocketAddr::new(client.parse::<IpAddr>().unwrap(), 0);
        self.lab.inside(Side::Client, || TcpListener::bind(address).unwrap())
    }

    /// Has our stack connect to `remote` and follow `behaviour` there; returns its end.
    fn begin(&self, remote: SocketAddr, behaviour: &str) -> SocketAddr {
        let answer = self.control(&format!("connect {remote} {behaviour}"));
        answer.parse().unwrap_or_else(|_| panic!("connecting to {remote}: {answer}"))
    }

    /// The same, to a listener of the kernel's at `client`; returns the connection there.
    fn begin_and_accept(&self, client: &str, behaviour: &str) -> TcpStream {
        let listener = self.listen(client);
        self.begin(listener.local_addr().unwrap(), behaviour);
        accept(&listener)
    }

    /// A connection on which our stack follows `behaviour`, begun by the kernel, and one begun by the stack.
    fn in_both_roles(&self, (server, client): (&str, &str), behaviour: &str) -> [TcpStream; 2] {
        [self.ask(server, behaviour), self.begin_and_accept(client, behaviour)]
    }

    /// Asks the program itself.
    fn control(&self, question: &str) -> String {
        let mut stream = UnixStream::connect(self.directory.path().join("control")).unwrap();
        stream.write_all(format!("{question}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// What the stack counts, and what there is in it.
    fn counts(&self) -> BTreeMap<String, u64> {
        let answer = self.control("counts");
        let pairs = answer.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// Waits until `count` conversations have ended on our side; returns how, and how many did so.
    fn endings(&self, count: u64) -> BTreeMap<String, u64> {
        let deadline = Instant::now() + PATIENCE;
        let mut endings = BTreeMap::<String, u64>::new();
        while endings.values().sum::<u64>() < count {
            assert!(Instant::now() < deadline, "{count} endings: {endings:?}\n{}", self.control("trace"));
            for line in self.control("endings").lines() {
                let (count, ending) = line.split_once(' ').unwrap();
                *endings.entry(ending.to_owned()).or_default() += count.parse::<u64>().unwrap();
            }
            thread::sleep(Duration::from_millis(5));
        }
        endings
    }

    /// Waits until nothing is left of any connection but TIME-WAIT, and no buffer is in use.
    fn assert_nothing_leaked(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let counts = self.counts();
            let left: Vec<u64> =
                ["connections", "half_open", "buffers"].iter().map(|name| counts[*name]).collect();
            if left == [0, 0, 0] {
                return;
            }
            assert!(Instant::now() < deadline, "connections, half-open ones, octets of buffers: {left:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Connects to our stack, from the namespace of the calling thread, and asks for `behaviour`.
fn ask(server: &str, behaviour: &str) -> TcpStream {
    let server = SocketAddr::new(server.parse::<IpAddr>().unwrap(), PORT);
    let mut stream = be_patient(TcpStream::connect_timeout(&server, PATIENCE).unwrap());
    stream.write_all(format!("{behaviour}\n").as_bytes()).unwrap();
    stream
}

/// The next connection of a listener.
fn accept(listener: &TcpListener) -> TcpStream {
    let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout)).unwrap();
    assert_eq!(ready, 1, "nobody connects");
    be_patient(listener.accept().unwrap().0)
}

fn be_patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Writes the pattern's first `len` octets.
fn write_pattern(stream: &mut TcpStream, len: u64) -> std::io::Result<()> {
    let mut part = [0; 65536];
    let mut at = 0;
    while at < len {
        let part = &mut part[..(len - at).min(65536) as usize];
        fill_pattern(at, part);
        stream.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Reads to the end of the stream.
fn read_hash(stream: &mut TcpStream) -> std::io::Result<StreamHash> {
    let mut hash = StreamHash::default();
    let mut part = [0; 65536];
    loop {
        match stream.read(&mut part)? {
            0 => return Ok(hash),
            count => hash.update(&part[..count]),
        }
    }
}

/// How the stream of the pattern's first `len` octets reads as [`StreamHash`]. Computed once for each length.
fn pattern(len: u64) -> String {
    static KNOWN: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    format!("{len} {:016x}", known.entry(len).or_insert_with(|| pattern_hash(len)))
}

/// Sends `len` octets to a `sink`, and checks what it says of them.
fn assert_sink_takes(stream: &mut TcpStream, len: u64) {
    write_pattern(stream, len).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, pattern(len) + "\n");
}

/// Takes `len` octets from a `source`, and checks them.
fn assert_source_gives(stream: &mut TcpStream, len: u64) {
    assert_eq!(read_hash(stream).unwrap().to_string(), pattern(len));
}

/// Sends `len` octets to an `echo` and takes them back at the same time.
fn assert_echo_returns(stream: &TcpStream, len: u64) {
    let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream.try_clone().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            write_pattern(&mut writer, len).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        assert_source_gives(&mut reader, len);
    });
}
