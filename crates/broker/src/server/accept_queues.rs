//! Connections that wait to be accepted go to the accept queue of the kernel's listener. Whoever has the listener finds them there, by whichever
//! call, and whoever asks first has them.
//!
//! ```text
//!   an acknowledgement in the peer's name --> the kernel has the connection --> what the peer has said since
//!     --> the same of others that move with it --> packets of all are passed to the kernel
//! ```
//!
//! As with other moves the kernel would reset the peer if its packets came before the connection. It takes Linux 6.8. Without, or if the accept queue
//! is as long as the host lets it be, the kernel's socket is made as of any connection, and one process that has the listener gets it. An accept queue that
//! is only as long as its program wants has room: each of these connections had some at our stack.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use control::sock_diag::{end_time_wait, tcp_received};
use device_xdp::{AcceptQueueProgram, AcceptQueueSlot, Agreements, Placed, XdpError};
use rustix::net::{listen, sockopt};
use tcp_repair::Enqueuing;
use transit::Established;

use super::machine::random_numbers;
use crate::protocol::Refusal;

/// How long to wait for a segment over loopback that the kernel does not receive at once, in milliseconds.
const PAUSES_MS: [u64; 5] = [0, 1, 2, 4, 8];

/// How long after a failure the program is attached again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// Our end of a connection, and the peer's.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// How the kernel's program is attached, which packets with this mark are for.
pub(super) type Attach = fn(u32) -> Result<AcceptQueueProgram, XdpError>;

/// The program, from when it may be needed, and its slots.
#[derive(Clone)]
pub(super) struct AcceptQueues(Arc<Shared>);

struct Shared {
    program: Mutex<Program>,
    came_free: Condvar,
}

struct Program {
    attach: Attach,
    /// It, or when and why it could not be attached.
    attached: Option<Result<Box<AcceptQueueProgram>, (Instant, String)>>,
    /// The slots that helpers have, and by their cookies the listeners that they have them for.
    taken: BTreeMap<u32, u64>,
}

/// A slot, and with it a listener: who announces to the same one waits, so that its backlog can be put back. Who announces to another one does not, as a client
/// may lock its own for as long as it likes.
struct TakenSlot<'q> {
    slot: AcceptQueueSlot,
    number: u32,
    queues: &'q Shared,
}

impl AcceptQueues {
    pub(super) fn new(attach: Attach) -> AcceptQueues {
        let program = Program { attach, attached: None, taken: BTreeMap::new() };
        AcceptQueues(Arc::new(Shared { program: Mutex::new(program), came_free: Condvar::new() }))
    }

    /// Others are about to need the program, which takes some time to be attached.
    pub(super) fn prepare(&self) {
        // If somebody else has the lock, it is being attached, or used.
        if let Ok(mut program) = self.0.program.try_lock()
            && check_cookies().is_ok()
        {
            let _ = program.get(); // Who needs it is told why there is none.
        }
    }

    fn slot_for(&self, listener: BorrowedFd<'_>) -> Result<TakenSlot<'_>, Refusal> {
        check_cookies()?;
        let cookie = sockopt::socket_cookie(listener).map_err(not_taken)?;
        let program = self.0.program.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = |program: &mut Program| program.taken.values().any(|other| *other == cookie);
        let waited = self.0.came_free.wait_while(program, is_taken);
        let mut program = waited.unwrap_or_else(PoisonError::into_inner);
        let is_free = |number: &u32| !program.taken.contains_key(number);
        let number = (0..AcceptQueueProgram::SLOTS).find(is_free);
        let number = number.ok_or_else(|| not_taken("as many connections are on their way as may be"))?;
        let slot = program.get().map_err(Refusal::NoAcceptQueues)?.slot(number).map_err(not_taken)?;
        program.taken.insert(number, cookie);
        Ok(TakenSlot { slot, number, queues: &self.0 })
    }
}

impl Drop for TakenSlot<'_> {
    fn drop(&mut self) {
        let mut program = self.queues.program.lock().unwrap_or_else(PoisonError::into_inner);
        program.taken.remove(&self.number);
        self.queues.came_free.notify_all();
    }
}

/// Has the kernel make the connection, at this listener.
fn announce(
    slot: &mut AcceptQueueSlot,
    listener: BorrowedFd<'_>,
    enqueuing: &Enqueuing<'_>,
    of: &Established,
) -> Result<(), Refusal> {
    slot.expect(listener, agreements(of)).map_err(not_taken)?;
    let mut placed = Ok(Placed::NotSeen);
    let announced = enqueuing.announce(slot.mark());
    for pause_ms in PAUSES_MS {
        placed = slot.outcome();
        if !matches!(placed, Ok(Placed::NotSeen)) {
            break;
        }
        sleep(Duration::from_millis(pause_ms));
    }
    let forgotten = slot.expect_none();
    announced.map_err(not_taken)?;
    forgotten.map_err(not_taken)?;
    match placed.map_err(not_taken)? {
        Placed::Done => Ok(()),
        Placed::NotSeen => Err(Refusal::NotTaken("its acknowledgement did not arrive".to_owned())),
        Placed::Refused(errno) => Err(not_taken(io::Error::from_raw_os_error(errno))),
    }
}

impl Program {
    /// The program; or why there is none.
    fn get(&mut self) -> Result<&mut AcceptQueueProgram, String> {
        let is_long_ago = |failure: &(Instant, String)| failure.0.elapsed() >= RETRY_AFTER;
        if matches!(&self.attached, Some(Err(failure)) if is_long_ago(failure)) {
            self.attached = None;
        }
        let attach = self.attach;
        let attached =
            self.attached.get_or_insert_with(|| attach_marked(attach).map_err(|why| (Instant::now(), why)));
        attached.as_deref_mut().map_err(|(_, why)| why.clone())
    }
}

fn attach_marked(attach: Attach) -> Result<Box<AcceptQueueProgram>, String> {
    let [number, _] = random_numbers().map_err(|error| error.to_string())?;
    let mark = number as u32 | AcceptQueueProgram::SLOTS; // 0 is what packets have that nobody has marked.
    attach(mark).map(Box::new).map_err(|error| error.to_string())
}

/// Whether it is one of these listeners.
pub(super) fn check_listener(socket: impl AsFd, listeners: &BTreeSet<u64>) -> Result<(), Refusal> {
    if sockopt::socket_acceptconn(&socket) != Ok(true) {
        return Err(Refusal::NotListening);
    }
    let is_its = sockopt::socket_cookie(&socket).is_ok_and(|cookie| listeners.contains(&cookie));
    is_its.then_some(()).ok_or(Refusal::NoSuchClaim)
}

/// The listener has these connections with all that their peers have said, and `let_pass` has the peers' packets come to the kernel. Of those that are
/// refused, or were before, it has nothing.
pub(super) fn place(
    queues: &AcceptQueues,
    listener: BorrowedFd<'_>,
    connections: &[Result<Established, Refusal>],
    let_pass: impl FnOnce(Vec<Ends>) -> Result<Vec<Result<(), Refusal>>, Refusal>,
) -> Vec<Result<Ends, Refusal>> {
    let mut taken = queues.slot_for(listener);
    let mut placed: Vec<Result<Ends, Refusal>> = connections
        .iter()
        .map(|connection| {
            let connection = connection.as_ref().map_err(Refusal::clone)?;
            let taken = taken.as_mut().map_err(|refusal| refusal.clone())?;
            place_one(&mut taken.slot, listener, connection)
        })
        .collect();
    drop(taken);
    let all: Vec<Ends> = placed.iter().flatten().copied().collect();
    let passes = if all.is_empty() { Ok(Vec::new()) } else { let_pass(all) };
    let refusals = match passes {
        Ok(passes) => passes.into_iter().map(Result::err).collect(),
        Err(refusal) => vec![Some(refusal); connections.len()],
    };
    let are_there = placed.iter_mut().zip(connections).filter(|(placed, _)| placed.is_ok());
    for ((placed, connection), refusal) in are_there.zip(refusals) {
        if let (Ok(connection), Some(refusal)) = (connection, refusal) {
            take_back(connection);
            *placed = Err(refusal);
        }
    }
    placed
}

fn place_one(
    slot: &mut AcceptQueueSlot,
    listener: BorrowedFd<'_>,
    connection: &Established,
) -> Result<Ends, Refusal> {
    let enqueuing = Enqueuing::new(connection).map_err(not_taken)?;
    let ends = (connection.local, connection.remote);
    if tcp_received(ends.0, ends.1).map_err(not_taken)?.is_some() {
        return Err(Refusal::NotTaken("it has this very connection".to_owned()));
    }
    let _ = end_time_wait(ends.0, ends.1); // An earlier connection of these ends: the kernel would take no other.
    with_room(listener, || announce(slot, listener, &enqueuing, connection))?;
    if tcp_received(ends.0, ends.1).map_err(not_taken)?.is_none() {
        return Err(Refusal::NotTaken("the accept queue is full".to_owned()));
    }
    repeat_until_received(&enqueuing, connection).inspect_err(|_| take_back(connection))?;
    Ok(ends)
}

/// The kernel has it no more. A program that has accepted it sees it reset, as after a peer's mistake.
fn take_back(connection: &Established) {
    let received = tcp_received(connection.local, connection.remote);
    if let (Ok(Some(received)), Ok(enqueuing)) = (received, Enqueuing::new(connection)) {
        let _ = enqueuing.take_back(received);
    }
}

/// Without SYN cookies the kernel resets the peer of what is announced.
fn check_cookies() -> Result<(), Refusal> {
    let cookies = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_syncookies");
    match cookies.as_deref().map(str::trim) {
        Ok("0") => Err(Refusal::NoAcceptQueues("net.ipv4.tcp_syncookies is 0".to_owned())),
        Err(error) => Err(Refusal::NoAcceptQueues(format!("net.ipv4.tcp_syncookies: {error}"))),
        Ok(_) => Ok(()),
    }
}

/// Does it while the listener's accept queue has room, as far as `net.core.somaxconn` lets it.
fn with_room(listener: BorrowedFd<'_>, act: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
    let Some((waiting, backlog)) = backlog_of(listener).filter(|(waiting, backlog)| waiting > backlog) else {
        return act();
    };
    let _ = listen(listener, waiting); // It listens, and has one place more than this says.
    let outcome = act();
    // The program may have ended it by shutdown(2) meanwhile.
    if backlog_of(listener).is_some() {
        let _ = listen(listener, backlog);
    }
    outcome
}

/// How many connections wait at a socket that listens, and its backlog: `tcpi_unacked` and `tcpi_sacked` (linux/tcp.h).
fn backlog_of(listener: BorrowedFd<'_>) -> Option<(i32, i32)> {
    const SOL_TCP: i32 = 6;
    const TCP_INFO: i32 = 11;
    const TCP_LISTEN: u8 = 10;
    let mut info = [[0; 4]; 8];
    let len = syscall::getsockopt(listener.as_raw_fd(), SOL_TCP, TCP_INFO, info.as_flattened_mut()).ok()?;
    let (state, [.., waiting, backlog]) = (info[0][0], info.map(i32::from_ne_bytes));
    (len == size_of_val(&info) && state == TCP_LISTEN).then_some((waiting, backlog))
}

/// Says what the peer has said, until the kernel has all of it; our stack has acknowledged it to the peer.
fn repeat_until_received(enqueuing: &Enqueuing<'_>, connection: &Established) -> Result<(), Refusal> {
    if enqueuing.received() == 0 {
        return Ok(());
    }
    for pause_ms in PAUSES_MS {
        enqueuing.repeat().map_err(not_taken)?;
        sleep(Duration::from_millis(pause_ms));
        match tcp_received(connection.local, connection.remote).map_err(not_taken)? {
            Some(received) if received < enqueuing.received() => {}
            _ => return Ok(()), // It has all, or has been accepted and is over.
        }
    }
    Err(Refusal::NotTaken("the kernel has no room for what the peer has sent".to_owned()))
}

fn agreements(of: &Established) -> Agreements {
    let clocks = of.timestamps;
    Agreements {
        peer_clock: clocks.map_or(0, |clocks| clocks.echo),
        our_clock: clocks.map_or(0, |clocks| clocks.value),
        peer_mss: of.peer_mss,
        our_scale: of.rcv_wscale,
        peer_scale: of.snd_wscale,
        has_ecn: of.ecn.into(),
        has_scales: u8::from(of.rcv_wscale != 0 || of.snd_wscale != 0),
        has_sack: of.sack_permitted.into(),
        has_clocks: clocks.is_some().into(),
        ..Agreements::default()
    }
}

pub(super) fn not_taken(error: impl Display) -> Refusal {
    Refusal::NotTaken(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::spawn;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Tells when a helper has had a slot for this listener.
    fn take(queues: &AcceptQueues, listener: &TcpListener) -> Receiver<()> {
        let (queues, listener) = (queues.clone(), listener.try_clone().unwrap());
        let (tell, told) = channel();
        spawn(move || {
            let slot = queues.slot_for(listener.as_fd()).unwrap();
            drop(slot);
            tell.send(()).unwrap();
        });
        told
    }

    #[test]
    fn loopback_goes_on_while_no_connection_is_on_its_way() {
        let lab = lab::require_root_and_xdp().then(|| lab::Lab::new().unwrap());
        let Some(lab) = lab else { return };
        let _turn = super::super::tests::LABORATORY.lock().unwrap_or_else(PoisonError::into_inner);
        lab.inside(lab::Side::Server, || {
            let queues = AcceptQueues::new(AcceptQueueProgram::attach);
            queues.prepare();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            TcpStream::connect_timeout(&listener.local_addr().unwrap(), PATIENCE).unwrap();
        });
    }

    /// As when a client keeps the lock of its listener while a helper has a slot for it.
    #[test]
    fn a_listener_is_waited_for_by_those_who_want_the_same_one() {
        let lab = lab::require_root_and_xdp().then(|| lab::Lab::new().unwrap());
        let Some(lab) = lab else { return };
        let _turn = super::super::tests::LABORATORY.lock().unwrap_or_else(PoisonError::into_inner);
        lab.inside(lab::Side::Server, || {
            let queues = AcceptQueues::new(AcceptQueueProgram::attach);
            let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let held = queues.slot_for(one.as_fd()).unwrap();
            take(&queues, &other).recv_timeout(PATIENCE).expect("it is another one");
            let same = take(&queues, &one);
            assert!(
                same.recv_timeout(Duration::from_millis(50)).is_err(),
                "its backlog is to be put back first"
            );
            drop(held);
            same.recv_timeout(PATIENCE).expect("it is free");
        });
    }
}
