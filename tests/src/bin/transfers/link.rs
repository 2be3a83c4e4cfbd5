//! A wire between a secondary and its primary, which can be cut in the middle of a transfer and made to hang.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// How long an answer by UDP is waited for.
const UDP_PATIENCE: Duration = Duration::from_secs(3);
/// How often a wire that hangs is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// A port that passes TCP connections and questions by UDP to another one.
pub(crate) struct Link {
    /// Between whom.
    pub(crate) name: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Octets that the next connection passes to the secondary before it is cut; 0: all.
    cut_after: AtomicU64,
    hangs: AtomicBool,
    cuts: AtomicU64,
    octets: AtomicU64,
}

impl Link {
    /// Listens at `port` until the program ends.
    pub(crate) fn start(name: String, port: u16, to: SocketAddr) -> io::Result<Link> {
        let state = Arc::new(State::default());
        let own = SocketAddr::from(([127, 0, 0, 1], port));
        let (listener, socket) = (TcpListener::bind(own)?, UdpSocket::bind(own)?);
        let of_streams = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&of_streams);
                thread::spawn(move || pass_stream(stream, to, &state));
            }
        });
        let of_questions = Arc::clone(&state);
        thread::spawn(move || pass_questions(&socket, to, &of_questions));
        Ok(Link { name, state })
    }

    /// The next connection is cut after so many octets to the secondary.
    pub(crate) fn cut_next_after(&self, octets: u64) {
        self.state.cut_after.store(octets, Ordering::Relaxed);
    }

    /// Nothing passes, or all goes on.
    pub(crate) fn hang(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::Relaxed);
    }

    /// Connections that were cut.
    pub(crate) fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::Relaxed)
    }

    /// Octets to the secondary so far.
    pub(crate) fn octets(&self) -> u64 {
        self.state.octets.load(Ordering::Relaxed)
    }
}

impl State {
    /// Waits while the wire hangs.
    fn may_pass(&self) -> bool {
        while self.hangs.load(Ordering::Relaxed) {
            thread::sleep(GLANCE);
        }
        true
    }
}

fn pass_stream(secondary: TcpStream, to: SocketAddr, state: &Arc<State>) {
    // A primary that is away shows as a connection that ends.
    let Ok(primary) = TcpStream::connect(to) else { return };
    let (Ok(from), Ok(into)) = (secondary.try_clone(), primary.try_clone()) else { return };
    let of_questions = Arc::clone(state);
    let questions = thread::spawn(move || {
        pass(&from, &into, |_| of_questions.may_pass());
        let _ = into.shutdown(Shutdown::Write); // The other way may have ended both already.
    });
    let mut left = None;
    pass(&primary, &secondary, |octets| {
        state.octets.fetch_add(octets, Ordering::Relaxed);
        let wanted = state.cut_after.swap(0, Ordering::Relaxed);
        left = if wanted > 0 { Some(wanted) } else { left }.map(|left: u64| left.saturating_sub(octets));
        if left == Some(0) {
            state.cuts.fetch_add(1, Ordering::Relaxed);
            // Both get a reset instead of an orderly end once the last descriptor is closed.
            let _ = SockRef::from(&primary).set_linger(Some(Duration::ZERO));
            let _ = SockRef::from(&secondary).set_linger(Some(Duration::ZERO));
            return false;
        }
        state.may_pass()
    });
    // Wakes the other way. Without effect if the secondary has gone.
    let _ = secondary.shutdown(if left == Some(0) { Shutdown::Read } else { Shutdown::Both });
    let _ = questions.join();
}

/// Passes octets on to the end, or until `may_pass` says no.
fn pass(mut from: &TcpStream, mut into: &TcpStream, mut may_pass: impl FnMut(u64) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !may_pass(count as u64) || into.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn pass_questions(socket: &UdpSocket, to: SocketAddr, state: &Arc<State>) {
    let mut buffer = [0; 4096];
    loop {
        let Ok((len, secondary)) = socket.recv_from(&mut buffer) else { continue };
        let (question, Ok(socket), state) = (buffer[..len].to_vec(), socket.try_clone(), Arc::clone(state))
        else {
            continue;
        };
        thread::spawn(move || {
            state.may_pass();
            // A question without an answer is asked again by whoever has asked it.
            if let Ok(answer) = answer(&question, to) {
                let _ = socket.send_to(&answer, secondary);
            }
        });
    }
}

fn answer(question: &[u8], primary: SocketAddr) -> io::Result<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(primary)?;
    socket.set_read_timeout(Some(UDP_PATIENCE))?;
    socket.send(question)?;
    let mut answer = vec![0; 4096];
    let len = socket.recv(&mut answer)?;
    answer.truncate(len);
    Ok(answer)
}
