//! Clients good and bad, at a broker whose interface is made up. What needs real interfaces is tested in the laboratory.

mod held_up;

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

/// Who knocks from this port is the kernel's.
const OF_THE_KERNEL: u16 = 4999;

impl DataPath for MadeUp {
    fn describe(&self) -> String {
        "made up".to_owned()
    }

    fn is_native(&self) -> bool {
        true
    }

    fn lend(&mut self, queues: &[u16]) -> Result<LentQueues, XdpError> {
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
        options: Options { spin_us: 20, gather_us: 30, verbose: false, profile },
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

fn next_event(client: &mut Client) -> Event {
    loop {
        assert!(client.wait(PATIENCE).unwrap(), "nothing came");
        if let Some(event) = client.poll_event().unwrap() {
            return event;
        }
    }
}

#[test]
fn a_client_is_welcome_and_gets_a_queue() {
    let served = Served::new(1);
    let (mut client, welcome) = served.try_connect("program").unwrap();
    assert_eq!(welcome.interfaces[0].name, "lo");
    assert_eq!((welcome.options.spin_us, welcome.options.gather_us), (20, 30));
    let attached = client.attach().unwrap();
    assert_eq!(attached.granted[0].grant.queues, [0]);
    assert!(attached.granted[0].grant.all_queues_yours && attached.without.is_empty());
    client.ready(0, &[0]).unwrap();
    let attached = served.connect().attach().unwrap();
    assert_eq!(attached.without, [(0, Refusal::NoFreeQueue)]);
}

#[test]
fn who_is_alone_gets_all_queues_a_moment_later() {
    let served = Served::new(3);
    let mut client = served.connect();
    assert_eq!(client.attach().unwrap().granted[0].grant.queues, [0]);
    let Event::QueueGranted(granted) = next_event(&mut client) else { panic!("something else") };
    assert_eq!((granted.grant.queues.clone(), granted.sockets.len()), (vec![1, 2], 2));
    assert!(granted.grant.all_queues_yours);
}

#[test]
fn a_queue_goes_from_who_gave_it_back_or_died_to_who_waits() {
    let served = Served::new(1);
    let (mut first, mut second, mut third) = (served.connect(), served.connect(), served.connect());
    first.attach().unwrap();
    second.attach().unwrap();
    third.attach().unwrap();
    first.give_back().unwrap();
    assert!(matches!(next_event(&mut second), Event::QueueGranted(_)));
    assert!(served.log.has("remove 0"), "nothing reaches the old socket, whoever holds it");
    drop(second);
    assert!(matches!(next_event(&mut third), Event::QueueGranted(_)));
}

#[test]
fn a_client_speaks_for_no_peer_of_this_host() {
    let served = Served::new(1);
    let mut client = served.connect();
    let (listener, ..) = connected();
    let port = listener.local_addr().unwrap().port();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    let mut connection = crate::moving::tests::connection(b"received", b"", b"");
    connection.local = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(refusal(client.move_connection(connection, None)), Refusal::Local);

    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let local = udp.local_addr().unwrap();
    for remote in ["127.0.0.1:53", "224.0.0.251:5353", "192.0.2.9:0"] {
        let said = client.deliver(udp.as_fd(), local, remote.parse().unwrap(), b"said");
        assert_eq!(refusal(said), Refusal::Local, "{remote}");
    }
}

#[test]
fn what_a_client_says_of_itself_moves_no_cursor() {
    let mut report = ProgramReport { counters: vec![("\x1b[2J".to_owned(), 1)], ..ProgramReport::default() };
    report.clean(super::requests::printable);
    assert_eq!(report.counters[0].0, "?[2J");
}

#[test]
fn one_process_does_not_keep_others_out() {
    let served = Served::new(1);
    let mut connected = Vec::new();
    while let Ok((client, _)) = Client::connect(served.name.as_bytes(), "many", std::process::id(), 0) {
        connected.push(client);
        assert!(connected.len() < 100, "it is never one too many");
    }
    assert!(connected[0].attach().is_ok());
}

#[test]
fn who_gave_its_queue_back_while_it_waited_for_one_gets_none() {
    let served = Served::new(1);
    let (mut first, mut second, mut third) = (served.connect(), served.connect(), served.connect());
    for client in [&mut first, &mut second, &mut third] {
        client.attach().unwrap();
    }
    second.give_back().unwrap();
    drop(first);
    assert!(matches!(next_event(&mut third), Event::QueueGranted(_)));
}

#[test]
fn a_queue_goes_to_who_has_the_listener_of_its_last_owner() {
    let served = Served::new(1);
    let (mut old, mut stranger, mut new) = (served.connect(), served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    for client in [&mut old, &mut new] {
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    }
    for client in [&mut old, &mut stranger, &mut new] {
        client.attach().unwrap();
    }
    drop(old);
    assert!(matches!(next_event(&mut new), Event::QueueGranted(_)));
    drop(new);
    assert!(matches!(next_event(&mut stranger), Event::QueueGranted(_)));
}

/// A broker whose clients can be looked at, where, and the control socket of a client of this process.
fn observed() -> (lab::Directory, Served, std::path::PathBuf) {
    let directory = lab::Directory::new().unwrap();
    let place = directory.path().join("run");
    let family = Family { head: std::process::id(), group: None };
    let served = Served::observed_in(Some(&place), 1, family, all());
    (directory, served, place.join(format!("{}.sock", std::process::id())))
}

/// A client that serves its queue.
fn serving(served: &Served) -> Client {
    let mut client = served.connect();
    client.attach().unwrap();
    client.ready(0, &[0]).unwrap();
    client
}

fn wait_until(mut happens: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !happens() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_looks_at_a_client_is_handed_to_it() {
    let (_directory, served, control) = observed();
    let mut idle = served.connect();
    idle.is_shared(crate::protocol::ClaimId(7)).unwrap_err();
    assert!(!control.exists(), "who has no queue has nothing to show");
    let mut client = serving(&served);
    for round in 0..3 {
        let mut tool = UnixStream::connect(&control).unwrap();
        tool.write_all(b"look").unwrap();
        let Event::Observer { pid, program, stream } = next_event(&mut client) else { panic!("{round}") };
        assert_eq!(pid, std::process::id());
        assert!(!program.is_empty());
        let mut said = [0; 4];
        UnixStream::from(stream).read_exact(&mut said).unwrap();
        assert_eq!(&said, b"look");
        assert_eq!(tool.read(&mut said).unwrap(), 0, "the broker keeps nothing of it");
    }
}

#[test]
fn a_control_socket_goes_with_its_client_and_with_the_broker() {
    let (_directory, served, control) = observed();
    let client = serving(&served);
    assert!(control.exists());
    drop(client);
    wait_until(|| !control.exists());
    let _client = serving(&served);
    assert!(control.exists());
    drop(served);
    assert!(!control.exists());
}

#[test]
fn who_does_not_read_its_messages_is_not_handed_tools_without_end() {
    let (_directory, served, control) = observed();
    let client = serving(&served);
    let tools: Vec<UnixStream> = (0..600).map(|_| UnixStream::connect(&control).unwrap()).collect();
    let last = tools.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut said = String::new();
    last.take(1 << 12).read_to_string(&mut said).unwrap();
    assert!(said.contains("does not read its messages"), "{said}");
    drop(tools);
    assert!(served.try_connect("other").is_ok());
    drop(client);
}

#[test]
fn descriptors_are_out_of_the_programs_way() {
    let served = Served::new(1);
    let (mut client, _) =
        Client::connect(served.name.as_bytes(), "program", std::process::id(), 700).unwrap();
    assert!(client.fd().as_raw_fd() >= 700);
    let granted = client.attach().unwrap().granted;
    let fds = granted.iter().flat_map(|granted| granted.sockets.iter().chain([&granted.memory]));
    assert!(fds.into_iter().all(|fd| fd.as_raw_fd() >= 700));
}

#[test]
fn a_stranger_is_not_heard() {
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let served = Served::of(1, stranger.id(), all());
    assert!(matches!(served.try_connect("program"), Err(ClientError::Gone)));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// Whether a process with this group and these supplementary ones is heard that is no descendant and thus must be a member of
/// `group`. Credentials are a thread's own, as far as the kernel goes.
fn is_heard(group: u32, primary: u32, supplementary: &[u32]) -> bool {
    use rustix::thread::{Gid, set_thread_groups, set_thread_res_gid};
    let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let served = Served::with(1, Family { head: stranger.id(), group: Some(group) }, all());
    let primary = Gid::from_raw(primary);
    let supplementary: Vec<Gid> = supplementary.iter().copied().map(Gid::from_raw).collect();
    let outcome = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            set_thread_groups(&supplementary).unwrap();
            set_thread_res_gid(primary, primary, primary).unwrap();
            served.try_connect("program")
        });
        connecting.join().unwrap()
    });
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(matches!(outcome, Ok(_) | Err(ClientError::Gone)), "{:?}", outcome.err());
    outcome.is_ok()
}

#[test]
fn members_of_the_group_are_heard_and_nobody_else() {
    if !rustix::process::geteuid().is_root() {
        return lab::skip("needs root to change groups");
    }
    assert!(is_heard(4242, 4242, &[]), "its group");
    assert!(is_heard(4242, 100, &[4241, 4242, 4243]), "one of its others");
    let many: Vec<u32> = (4200..4500).collect();
    assert!(is_heard(4499, 100, &many), "one of very many");
    assert!(!is_heard(4242, 100, &[]) && !is_heard(4242, 100, &[4241, 4243]));
    assert!(!is_heard(4500, 100, &many));
}

#[test]
fn another_version_is_refused() {
    let served = Served::new(1);
    let socket = served.raw();
    let request = Request::Hello { version: VERSION + 1, program: String::new(), pid: 1 };
    say(&socket, &ToBroker { id: 1, request });
    assert!(hears(&socket).contains("version"));
}

#[test]
fn claims_that_the_kernel_does_not_confirm_are_refused() {
    let served = Served::new(1);
    let mut client = served.connect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut claim = |transport, purpose, fd| refusal(client.claim(transport, purpose, fd));
    let (tcp, listens) = (Transport::Tcp, Purpose::Listener);
    assert_eq!(claim(tcp, listens, listener.as_fd()), Refusal::Loopback);
    assert_eq!(claim(tcp, Purpose::Outgoing, listener.as_fd()), Refusal::InUse);
    assert_eq!(claim(tcp, listens, udp.as_fd()), Refusal::NotThisTransport);
    assert_eq!(claim(Transport::Udp, Purpose::Udp, udp.as_fd()), Refusal::Loopback);
    assert_eq!(claim(tcp, listens, file.as_fd()), Refusal::NoSocket);
    let (id, places) = client.claim(tcp, listens, any.as_fd()).unwrap();
    assert_eq!(places, [], "the interface has loopback addresses only");
    client.drain(id).unwrap();
    client.release(id).unwrap();
    assert_eq!(refusal(client.release(id)), Refusal::NoSuchClaim);
}

#[test]
fn one_clients_claim_is_not_anothers_to_touch() {
    let served = Served::new(1);
    let (mut owner, mut other) = (served.connect(), served.connect());
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let (id, _) = owner.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap();
    assert_eq!(refusal(other.release(id)), Refusal::NoSuchClaim);
    assert_eq!(refusal(other.drain(id)), Refusal::NoSuchClaim);
    owner.release(id).unwrap();
}

#[test]
fn the_profile_keeps_on_the_kernel_what_it_names() {
    let reason = "it forks for each connection".to_owned();
    let profile = Profile { listeners: false, reason: Some(reason.clone()), ..all() };
    let served = Served::of(1, std::process::id(), profile);
    let mut client = served.connect();
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = refusal(client.claim(Transport::Tcp, Purpose::Listener, any.as_fd()));
    assert_eq!(refused, Refusal::Profile(reason));
}

#[test]
fn there_is_no_way_to_this_host_itself() {
    let served = Served::new(1);
    let mut client = served.connect();
    let ticket = client.begin_route([127, 0, 0, 1].into(), None).unwrap();
    while client.wait(PATIENCE).unwrap() {
        match client.poll_route(&ticket) {
            Ok(None) => {}
            outcome => return assert_eq!(refusal(outcome), Refusal::Local),
        }
    }
    panic!("no answer");
}

fn moved(client: &mut Client, ticket: &crate::client::Ticket) -> Result<OwnedFd, ClientError> {
    loop {
        match client.poll_move_for(ticket) {
            Ok(None) => assert!(client.wait(PATIENCE).unwrap(), "no answer"),
            Ok(Some(socket)) => return Ok(socket),
            Err(error) => return Err(error),
        }
    }
}

fn ends() -> (SocketAddr, SocketAddr) {
    (SocketAddr::from(([192, 0, 2, 1], 80)), SocketAddr::from(([192, 0, 2, 2], 4000)))
}

fn token(event: &Event) -> u64 {
    match event {
        Event::News(News::Surrender { token, local, remote }) if (*local, *remote) == ends() => *token,
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_child_gets_its_parents_connection_by_the_inherited_key() {
    let served = Served::new(1);
    let ((mut parent, welcome), mut child) = (served.try_connect("parent").unwrap(), served.connect());
    let (local, remote) = ends();
    let ticket = child.begin_move_for(&[welcome.key], local, remote).unwrap();
    let token = token(&next_event(&mut parent));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    parent.surrender(token, theirs.as_fd()).unwrap();
    let mut got = UnixStream::from(moved(&mut child, &ticket).unwrap());
    ours.write_all(b"x").unwrap();
    got.read_exact(&mut [0]).unwrap();
    assert_eq!(refusal(parent.surrender(token, theirs.as_fd())), Refusal::NotAsked);
}

#[test]
fn ancestors_are_asked_one_after_the_other() {
    let served = Served::new(1);
    let (mut near, first) = served.try_connect("near").unwrap();
    let (mut far, second) = served.try_connect("far").unwrap();
    let mut child = served.connect();
    let (local, remote) = ends();
    let ticket = child.begin_move_for(&[first.key, second.key], local, remote).unwrap();
    let asked = token(&next_event(&mut near));
    near.refuse_surrender(asked).unwrap();
    token(&next_event(&mut far));
    drop(far);
    assert_eq!(refusal(moved(&mut child, &ticket)), Refusal::NoParent);
}

#[test]
fn nobody_gets_a_connection_by_a_guessed_key_or_answers_for_others() {
    let served = Served::new(1);
    let ((mut parent, welcome), mut child) = (served.try_connect("parent").unwrap(), served.connect());
    let (local, remote) = ends();
    let guessed = crate::protocol::Key([1, 2]);
    let ticket = child.begin_move_for(&[guessed], local, remote).unwrap();
    assert_eq!(refusal(moved(&mut child, &ticket)), Refusal::NoParent);
    let ticket = child.begin_move_for(&[welcome.key], local, remote).unwrap();
    let token = token(&next_event(&mut parent));
    assert_eq!(refusal(served.connect().refuse_surrender(token)), Refusal::NotAsked);
    parent.refuse_surrender(token).unwrap();
    assert_eq!(refusal(moved(&mut child, &ticket)), Refusal::NoParent);
}

#[test]
fn a_connection_that_nobody_claimed_cannot_be_moved() {
    let served = Served::new(1);
    let mut client = served.connect();
    let connection = crate::moving::tests::connection(b"received", b"", b"");
    assert_eq!(refusal(client.move_connection(connection, None)), Refusal::NoSuchClaim);
}

/// A listener, a connection that was accepted there, and its peer.
fn connected() -> (TcpListener, std::net::TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let peer = std::net::TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
    let accepted = listener.accept().unwrap().0;
    (listener, accepted, peer)
}

#[test]
fn a_waiting_connection_goes_to_who_has_the_same_listener() {
    let served = Served::new(1);
    let (mut old, mut new) = (served.connect(), served.connect());
    let (listener, waiting, peer) = connected();
    let listen =
        |client: &mut Client| client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap().0;
    let before = listen(&mut old);
    let claim = listen(&mut new);
    for is_released in [false, true] {
        if is_released {
            old.release(before).unwrap();
        }
        old.hand_over(waiting.as_fd()).unwrap();
        match next_event(&mut new) {
            Event::Adopt { claim: at, remote, .. } => {
                assert_eq!((at, remote), (claim, peer.local_addr().unwrap()));
            }
            event => panic!("{event:?}"),
        }
    }
    new.release(claim).unwrap();
    assert_eq!(refusal(old.hand_over(waiting.as_fd())), Refusal::Nobody);
}

/// One that a peer at this port began at a listener.
fn handshake(listener: &TcpListener, port: u16) -> Handshake {
    Handshake {
        local: SocketAddr::from(([192, 0, 2, 1], listener.local_addr().unwrap().port())),
        remote: SocketAddr::from(([192, 0, 2, 2], port)),
        link: 0,
        source: [1; 6],
        destination: [2; 6],
        tags: [None; 2],
        irs: 1,
        iss: 2,
        peer_mss: 1460,
        window_scales: Some((7, 7)),
        sack_permitted: true,
        ecn: false,
        timestamps: Some((3, 4)),
        window: 65_535,
        syn_acks: 1,
        timeouts: 0,
        age_us: 5,
        saved_syn: None,
    }
}

/// The ports of the peers whose handshakes a client is told of.
fn told(client: &mut Client) -> Vec<u16> {
    let mut ports = Vec::new();
    while let Some(event) = client.poll_event().unwrap() {
        if let Event::News(News::Handshake(handshake)) = event {
            assert!(handshake.age_us >= 5);
            ports.push(handshake.remote.port());
        }
    }
    ports
}

#[test]
fn a_handshake_goes_to_who_gets_the_queue_and_has_the_same_listener() {
    let served = Served::new(1);
    let (mut old, mut stranger, mut new) = (served.connect(), served.connect(), served.connect());
    let [listener, other] = [(); 2].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    let listen = |client: &mut Client, socket: &TcpListener| {
        client.claim(Transport::Tcp, Purpose::Listener, socket.as_fd()).unwrap().0
    };
    listen(&mut stranger, &other);
    let claim = listen(&mut old, &listener);
    assert_eq!(refusal(old.hand_on(handshake(&listener, 4000))), Refusal::NotYours, "it has no queue");
    assert_eq!(old.attach().unwrap().granted.len(), 1);
    new.attach().unwrap();
    listen(&mut new, &listener);
    assert_eq!(refusal(old.hand_on(handshake(&other, 4000))), Refusal::NoSuchClaim);
    old.hand_on(handshake(&listener, 4000)).unwrap();
    old.hand_on(handshake(&listener, 4001)).unwrap();
    old.hand_on(handshake(&listener, OF_THE_KERNEL)).unwrap();
    assert!(served.log.has("awaited 4000"));
    assert_eq!(told(&mut new), [0; 0], "it has no queue");
    old.release(claim).unwrap();
    old.give_back().unwrap();
    assert!(matches!(next_event(&mut new), Event::QueueGranted(_)));
    assert!(new.wait(Duration::from_secs(10)).unwrap());
    new.report(ProgramReport::default()).unwrap(); // Its answer comes after all that.
    assert_eq!(told(&mut new), [4000, 4001]);
    assert_eq!(told(&mut stranger), [0; 0]);
}

#[test]
fn who_listens_after_it_has_the_queue_is_told_of_handshakes_then() {
    let served = Served::new(1);
    let (mut old, mut new) = (served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    old.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    old.attach().unwrap();
    old.hand_on(handshake(&listener, 4000)).unwrap();
    drop(old);
    while new.attach().unwrap().granted.is_empty() {
        std::thread::sleep(Duration::from_millis(10)); // Until the other is gone.
    }
    assert_eq!(told(&mut new), [0; 0]);
    for _ in 0..2 {
        new.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    }
    assert_eq!(told(&mut new), [4000], "once");
}

#[test]
fn handshakes_are_bounded() {
    let served = Served::new(1);
    let mut client = served.connect();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    client.attach().unwrap();
    let long = Handshake { saved_syn: Some(vec![0; SYN_MAX + 1]), ..handshake(&listener, 1) };
    assert_eq!(refusal(client.hand_on(long)), Refusal::TooMany);
    let taken = (1..1000).take_while(|port| client.hand_on(handshake(&listener, *port)).is_ok()).count();
    assert_eq!(taken, 256);
}

#[test]
fn a_waiting_connection_waits_for_who_has_the_same_listener_and_said_nothing_yet() {
    let served = Served::new(1);
    let mut old = served.connect();
    let (listener, waiting, peer) = connected();
    let (claim, _) = old.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    old.drain(claim).unwrap();
    old.hand_over(waiting.as_fd()).unwrap();
    drop(old);
    std::thread::sleep(Duration::from_millis(50)); // Longer than until it is looked whether anybody has the listener.
    let mut new = served.connect();
    new.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    match next_event(&mut new) {
        Event::Adopt { remote, .. } => assert_eq!(remote, peer.local_addr().unwrap()),
        event => panic!("{event:?}"),
    }
}

#[test]
fn what_did_not_come_to_ones_own_listener_is_not_handed_to_others() {
    let served = Served::new(1);
    let (mut good, mut bad) = (served.connect(), served.connect());
    let (listener, waiting, _peer) = connected();
    let (own, elsewhere, _other_peer) = connected();
    let claim = |client: &mut Client, of: &TcpListener| {
        client.claim(Transport::Tcp, Purpose::Listener, of.as_fd()).unwrap();
    };
    claim(&mut good, &listener);
    assert_eq!(refusal(bad.hand_over(waiting.as_fd())), Refusal::NoSuchClaim, "it has no listener");
    claim(&mut bad, &own);
    claim(&mut good, &own);
    assert_eq!(refusal(bad.hand_over(waiting.as_fd())), Refusal::NoSuchClaim, "it has another one");
    bad.hand_over(elsewhere.as_fd()).unwrap();
    assert!(matches!(next_event(&mut good), Event::Adopt { .. }));

    let port = own.local_addr().unwrap().port();
    let udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    udp.connect(("127.0.0.1", 9)).unwrap();
    let unconnected = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let (unix, _) = UnixStream::pair().unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut hand_over = |fd: std::os::fd::BorrowedFd<'_>| refusal(bad.hand_over(fd));
    assert_eq!(hand_over(udp.as_fd()), Refusal::NotThisTransport);
    assert_eq!(hand_over(unix.as_fd()), Refusal::NotThisTransport);
    assert_eq!(hand_over(file.as_fd()), Refusal::NoSocket);
    assert_eq!(hand_over(unconnected.as_fd()), Refusal::NotConnected);
    assert_eq!(hand_over(own.as_fd()), Refusal::InUse);
    good.attach().unwrap(); // What was told before is here by now.
    while let Some(event) = good.poll_event().unwrap() {
        assert!(!matches!(event, Event::Adopt { .. }), "{event:?}");
    }
}

#[test]
fn a_listener_that_went_without_a_word_leaves_its_port_to_the_kernel() {
    let served = Served::new(1);
    let mut client = served.connect();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    let draining = || {
        let report = served.handle.as_ref().unwrap().reporter().report().unwrap();
        report.programs[0].claims[0].draining
    };
    assert!(!draining());
    std::thread::sleep(Duration::from_millis(1300));
    assert!(!draining(), "it is there");
    drop(listener);
    let deadline = Instant::now() + PATIENCE;
    while !draining() {
        assert!(Instant::now() < deadline, "it is kept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_port_of_an_outgoing_connection_is_kept_until_it_is_released() {
    let served = Served::new(1);
    let mut client = served.connect();
    let bound = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&bound, &SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let name: SocketAddr = rustix::net::getsockname(&bound).unwrap().try_into().unwrap();
    let (claim, _) = client.claim(Transport::Tcp, Purpose::Outgoing, bound.as_fd()).unwrap();
    drop(bound);
    let bind = || {
        let other = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&other, &name).map(|()| other)
    };
    assert!(bind().is_err());
    assert_eq!(refusal(served.connect().release(claim)), Refusal::NoSuchClaim);
    assert!(bind().is_err(), "it is not others' to release");
    client.release(claim).unwrap();
    let bound = bind().unwrap();
    client.claim(Transport::Tcp, Purpose::Outgoing, bound.as_fd()).unwrap();
    drop((client, bound));
    served.handle.as_ref().unwrap().linger(PATIENCE.into());
    wait_until(|| bind().is_ok()); // Nor is it kept longer than its client lives.
}

#[test]
fn many_claims_are_released_together_and_what_is_not_ones_own_stays() {
    let served = Served::new(1);
    let (mut client, mut other) = (served.connect(), served.connect());
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let claim = |client: &mut Client| client.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap().0;
    let foreign = claim(&mut other);
    let mut claims: Vec<_> = (0..500).map(|_| claim(&mut client)).collect();
    claims.insert(250, foreign);
    client.release_all(&claims).unwrap();
    assert!(claims.iter().all(|claim| refusal(client.release(*claim)) == Refusal::NoSuchClaim));
    other.release(foreign).unwrap();
}

#[test]
fn programs_report_when_somebody_looks() {
    let served = Served::new(1);
    let mut client = served.connect();
    client.attach().unwrap();
    client.ready(0, &[0]).unwrap();
    let mut look = || {
        let reporter = served.handle.as_ref().unwrap().reporter();
        let looking = std::thread::spawn(move || reporter.report().unwrap());
        assert!(matches!(next_event(&mut client), Event::News(News::ReportStatus)));
        client.report(ProgramReport { accelerated: 5, ..ProgramReport::default() }).unwrap();
        looking.join().unwrap()
    };
    // Who looks does not wait for long, and this thread may be late.
    let mut looks = std::iter::repeat_with(&mut look).take(20);
    let report =
        looks.find(|report| report.programs[0].report.is_some()).expect("the program says it in time");
    assert_eq!(report.interfaces[0].lent, 1);
    let program = &report.programs[0];
    assert_eq!((program.waits, program.pid), (false, std::process::id()));
    assert!(program.program.starts_with("broker"), "its file is this test");
    assert_eq!(program.queues, [("lo".to_owned(), vec![0])]);
    assert_eq!(program.report.as_ref().map(|report| report.accelerated), Some(5));
}

#[test]
fn who_does_not_report_does_not_hold_up_who_looks() {
    let served = Served::new(1);
    let _silent = served.connect();
    let report = served.handle.as_ref().unwrap().reporter().report().unwrap();
    assert_eq!(report.programs[0].report, None);
}

#[test]
fn the_end_is_told() {
    let mut served = Served::new(1);
    let mut client = served.connect();
    served.handle.take().into_iter().for_each(Handle::stop);
    assert!(matches!(next_event(&mut client), Event::News(News::Closing)));
    assert!(matches!(client.poll_event(), Err(ClientError::Gone)));
}

/// What clients do that break rules: each ends the client, and nobody else.
#[test]
fn who_breaks_a_rule_is_disconnected_and_nobody_else() {
    let served = Served::new(1);
    let mut good = served.connect();
    let any: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let octets = |octets: &[u8]| {
        let socket = served.raw_known();
        send(&socket, octets, SendFlags::NOSIGNAL).unwrap();
        socket
    };
    let after_hello = |message: &ToBroker, fds: &[&OwnedFd]| {
        let socket = served.raw_known();
        say_with(&socket, message, fds);
        socket
    };
    let first = served.raw();
    say(&first, &ask(Request::Attach));
    let mut too_long = encode(&ask(Request::Attach)).unwrap();
    too_long.resize((64 << 10) + 1, b' '); // Cut off, it would be a message.
    let release = || ask(Request::Release { claim: crate::protocol::ClaimId(1) });
    let claim = || ask(Request::Claim { transport: Transport::Tcp, purpose: Purpose::Listener });
    let bad = [
        ("a request before hello", first),
        ("hello twice", octets(&encode(&hello()).unwrap())),
        ("no JSON", octets(b"\xff\0garbage")),
        ("half of a message", octets(&encode(&release()).unwrap()[..10])),
        ("an unknown request", octets(br#"{"id":1,"request":"fly"}"#)),
        ("an unknown field", octets(br#"{"id":1,"request":"attach","more":1}"#)),
        ("deep nesting", octets(&[b"{\"id\":1,\"request\":".as_slice(), &[b'['; 60_000]].concat())),
        ("a message that is too long", octets(&too_long)),
        ("a descriptor where none belongs", after_hello(&release(), &[&any])),
        ("more descriptors than one", after_hello(&claim(), &[&any, &any])),
    ];
    for (what, socket) in &bad {
        assert_eq!(hears(socket), "", "{what}");
    }
    assert!(good.attach().is_ok());
}

#[test]
fn who_does_not_read_its_answers_costs_little_and_others_are_served() {
    let served = Served::new(1);
    let mut good = served.connect();
    let flooder = served.raw_known();
    let octets = encode(&ask(Request::GiveBack)).unwrap();
    let mut sent = 0;
    let blocked = loop {
        match send(&flooder, &octets, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        if sent % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sent < 100_000, "the broker keeps answers for whoever does not read them");
    };
    assert_eq!(blocked, rustix::io::Errno::AGAIN, "it is not heard until it reads, and not disconnected");
    assert!(good.attach().is_ok());
}

#[test]
fn news_for_who_does_not_read_end_its_connection_not_the_broker() {
    let served = Served::new(1);
    let _silent = served.raw_known();
    let reporter = served.handle.as_ref().unwrap().reporter();
    let mut present = true;
    for _ in 0..10_000 {
        let (sender, receiver) = std::sync::mpsc::channel();
        reporter.look_at_once(sender);
        present = !receiver.recv().unwrap().programs.is_empty();
        if !present {
            break;
        }
    }
    assert!(!present, "it would have been told for ever");
    assert!(served.connect().attach().is_ok());
}

#[test]
fn nothing_is_left_of_clients_that_came_and_went() {
    let served = Served::new(4);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let serve_some = || {
        for _ in 0..20 {
            let mut client = served.connect();
            client.attach().unwrap();
            let any = TcpListener::bind("0.0.0.0:0").unwrap();
            client.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap();
        }
        served.handle.as_ref().unwrap().linger(PATIENCE.into());
    };
    serve_some();
    let before = count();
    serve_some();
    // Other tests of this process open and close descriptors meanwhile.
    let settled = (0..1500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        count() <= before
    });
    assert!(settled, "{before} descriptors became {}", count());
}
