//! A view on the terminal: its screen, its keys, and its end.
//!
//! The view ends when the terminal goes, whatever tells of that: SIGHUP, a hang-up that poll(2) reports, the end of input, or an error of
//! a read or a write. Nothing is tried twice, so a terminal that has gone cannot make the loop spin.

use std::io::{self, IsTerminal, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use anyhow::Context;
use ratatui::backend::TermionBackend;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::low_level::pipe;

use super::keys::{Key, parse};

/// To the alternate screen, which programs use that leave what was there before (xterm's 1049).
const ENTER: &[u8] = b"\x1b[?1049h";
/// Back from it, with a cursor and without colours.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Whether a view goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It does.
    GoesOn,
    /// It ends.
    Ends,
}

/// What is on the terminal.
pub(crate) trait View {
    /// Takes in what was gathered. An error ends the view.
    fn refresh(&mut self) -> anyhow::Result<()>;

    /// A key was pressed.
    fn on_key(&mut self, key: Key) -> Next;

    /// Draws it. Any size is possible, also none.
    fn draw(&self, frame: &mut Frame<'_>);

    /// Readable when there is something to take in.
    fn bell(&self) -> BorrowedFd<'_>;
}

/// Whether there is somebody to press keys and look at a screen.
pub(crate) fn is_interactive() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Shows a view until it ends, a signal ends it, or the terminal goes.
pub(crate) fn show(view: &mut dyn View) -> anyhow::Result<()> {
    let ending = signals(&[SIGHUP, SIGINT, SIGTERM]).context("handling signals")?;
    let resized = signals(&[SIGWINCH]).context("handling signals")?;
    let _session = Session::begin().context("setting up the terminal")?;
    let terminal = Terminal::new(TermionBackend::new(io::stdout())).context("setting up the terminal")?;
    // Dropped, it would show the cursor, which the session does, and panic if the terminal has gone.
    let mut terminal = ManuallyDrop::new(terminal);
    loop {
        view.refresh()?;
        if terminal.draw(|frame| view.draw(frame)).is_err() {
            return Ok(()); // Who looked at it has gone.
        }
        let keys = match wait(view.bell(), &ending, &resized)? {
            Some(keys) => keys,
            None => return Ok(()),
        };
        if keys.into_iter().any(|key| view.on_key(key) == Next::Ends) {
            return Ok(());
        }
    }
}

/// A terminal that passes keys on at once and shows the alternate screen. It is given back as it was, also before a panic is reported.
struct Session {
    original: Termios,
}

impl Session {
    fn begin() -> io::Result<Session> {
        let original = tcgetattr(io::stdin())?;
        let session = Session { original: original.clone() };
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore(&original);
            report(panic);
        }));
        let mut raw = session.original.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let mut out = io::stdout();
        out.write_all(ENTER)?;
        out.flush()?;
        Ok(session)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        restore(&self.original);
    }
}

/// A terminal that has gone needs no restoring, so errors do not matter.
fn restore(original: &Termios) {
    let mut out = io::stdout();
    let _ = out.write_all(LEAVE).and_then(|()| out.flush());
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, original);
}

/// Becomes readable when one of the signals comes.
fn signals(numbers: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for number in numbers {
        pipe::register(*number, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// Waits until something happens; the keys that were pressed. `None` if the view is to end.
fn wait(
    bell: BorrowedFd<'_>,
    ending: &UnixStream,
    mut resized: &UnixStream,
) -> anyhow::Result<Option<Vec<Key>>> {
    let stdin = io::stdin();
    let mut fds = [
        PollFd::new(&stdin, PollFlags::IN),
        PollFd::new(ending, PollFlags::IN),
        PollFd::new(resized, PollFlags::IN),
        PollFd::from_borrowed_fd(bell, PollFlags::IN),
    ];
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("waiting for keys"),
    }
    let [input, ended, has_new_size, _] = fds.map(|fd| fd.revents());
    if !ended.is_empty() || input.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Ok(None);
    }
    if !has_new_size.is_empty() {
        let _ = resized.read(&mut [0; 64]); // One or more: the next drawing asks for the size.
    }
    Ok(if input.contains(PollFlags::IN) { read_keys(stdin.as_fd()) } else { Some(Vec::new()) })
}

/// The keys that were pressed; `None` at the end of input.
fn read_keys(input: BorrowedFd<'_>) -> Option<Vec<Key>> {
    let mut octets = [0; 256];
    match rustix::io::read(input, &mut octets) {
        Ok(0) => None,
        Ok(count) => Some(parse(&octets[..count])),
        Err(Errno::INTR | Errno::AGAIN) => Some(Vec::new()),
        Err(_) => None,
    }
}
