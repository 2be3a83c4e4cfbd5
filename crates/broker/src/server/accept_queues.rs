//! Connections that wait to be accepted go to the accept queue of the kernel's listener. Whoever has the listener finds them there, by whichever
//! call, and whoever asks first has them.
//!
//! ```text
//!   an acknowledgement in the peer's name --> the kernel has the connection --> what the peer has said since
//!     --> packets are passed to the kernel
//! ```
//!
//! As with other moves the kernel would reset the peer if its packets came before the connection. It takes Linux 6.8. Without, or if the accept queue
//! is full, the kernel's socket is made as of any connection, and one process that has the listener gets it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use control::sock_diag::tcp_received;
use device_xdp::{AcceptQueueProgram, Agreements, Placed, XdpError};
use rustix::net::sockopt;
use tcp_repair::Newcomer;
use transit::Established;

use super::machine::random_numbers;
use crate::protocol::Refusal;

/// How long to wait for a segment over loopback that the kernel does not receive at once, in milliseconds.
const PAUSES_MS: [u64; 5] = [0, 1, 2, 4, 8];

/// How the kernel's program is attached, which packets with this mark are for.
pub(super) type Attach = fn(u32) -> Result<AcceptQueueProgram, XdpError>;

/// The program, from when it is first needed.
#[derive(Clone)]
pub(super) struct AcceptQueues(Arc<Mutex<Program>>);

enum Program {
    Unasked(Attach),
    There(Box<AcceptQueueProgram>),
    NotThere(String),
}

impl AcceptQueues {
    pub(super) fn new(attach: Attach) -> AcceptQueues {
        AcceptQueues(Arc::new(Mutex::new(Program::Unasked(attach))))
    }

    /// Has the kernel make the connection, at this listener.
    fn announce(
        &self,
        listener: BorrowedFd<'_>,
        newcomer: &Newcomer<'_>,
        of: &Established,
    ) -> Result<(), Refusal> {
        let mut program = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let program = program.get().map_err(Refusal::NoAcceptQueues)?;
        let not_taken = |error: &dyn std::error::Error| Refusal::NotTaken(error.to_string());
        program.expect(listener, agreements(of)).map_err(|error| not_taken(&error))?;
        let mut placed = Ok(Placed::NotSeen);
        let announced = newcomer.announce(program.mark());
        for pause_ms in PAUSES_MS {
            placed = program.outcome();
            if !matches!(placed, Ok(Placed::NotSeen)) {
                break;
            }
            sleep(Duration::from_millis(pause_ms));
        }
        let forgotten = program.expect_none();
        announced.map_err(|error| not_taken(&error))?;
        forgotten.map_err(|error| not_taken(&error))?;
        match placed.map_err(|error| not_taken(&error))? {
            Placed::Done => Ok(()),
            Placed::NotSeen => Err(Refusal::NotTaken("its acknowledgement did not arrive".to_owned())),
            Placed::Refused(errno) => Err(not_taken(&io::Error::from_raw_os_error(errno))),
        }
    }
}

impl Program {
    /// The program; or why there is none.
    fn get(&mut self) -> Result<&mut AcceptQueueProgram, String> {
        if let Program::Unasked(attach) = self {
            let mark = random_numbers().map(|[number, _]| number as u32 | 1); // 0 is what packets have that nobody has marked.
            let attached = mark.map_err(|error| error.to_string());
            let attached = attached.and_then(|mark| attach(mark).map_err(|error| error.to_string()));
            *self = attached.map_or_else(Program::NotThere, |program| Program::There(Box::new(program)));
        }
        match self {
            Program::There(program) => Ok(program),
            Program::NotThere(why) => Err(why.clone()),
            Program::Unasked(_) => Err("nobody has asked for it".to_owned()),
        }
    }
}

/// Whether it is one of these listeners.
pub(super) fn check_listener(socket: impl AsFd, listeners: &BTreeSet<u64>) -> Result<(), Refusal> {
    if sockopt::socket_acceptconn(&socket) != Ok(true) {
        return Err(Refusal::NotListening);
    }
    let is_its = sockopt::socket_cookie(&socket).is_ok_and(|cookie| listeners.contains(&cookie));
    is_its.then_some(()).ok_or(Refusal::NoSuchClaim)
}

/// The listener has the connection with all that its peer has said, and `let_pass` has the peer's packets come to the kernel; or after an
/// error it has nothing.
pub(super) fn place(
    queues: &AcceptQueues,
    listener: BorrowedFd<'_>,
    connection: &Established,
    let_pass: impl FnOnce() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let newcomer = Newcomer::new(connection).map_err(not_taken)?;
    let ends = (connection.local, connection.remote);
    if tcp_received(ends.0, ends.1).map_err(not_taken)?.is_some() {
        return Err(Refusal::NotTaken("it has this very connection".to_owned()));
    }
    queues.announce(listener, &newcomer, connection)?;
    if tcp_received(ends.0, ends.1).map_err(not_taken)?.is_none() {
        return Err(Refusal::NotTaken("the accept queue is full".to_owned()));
    }
    let passes = repeat_until_received(&newcomer, connection).and_then(|()| let_pass());
    passes.inspect_err(|_| {
        // A program that has accepted it sees it reset, as after a peer's mistake.
        if let Ok(Some(received)) = tcp_received(ends.0, ends.1) {
            let _ = newcomer.take_back(received);
        }
    })
}

/// Says what the peer has said, until the kernel has all of it; our stack has acknowledged it to the peer.
fn repeat_until_received(newcomer: &Newcomer<'_>, connection: &Established) -> Result<(), Refusal> {
    if newcomer.received() == 0 {
        return Ok(());
    }
    for pause_ms in PAUSES_MS {
        newcomer.repeat().map_err(not_taken)?;
        sleep(Duration::from_millis(pause_ms));
        match tcp_received(connection.local, connection.remote).map_err(not_taken)? {
            Some(received) if received < newcomer.received() => {}
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

fn not_taken(error: io::Error) -> Refusal {
    Refusal::NotTaken(error.to_string())
}
