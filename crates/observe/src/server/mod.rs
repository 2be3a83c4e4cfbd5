//! The program's side of a control socket: a thread that accepts, and one for each client. If another process accepts for the program,
//! the program serves each client by [`attend`].

mod capture;
mod client;
mod counters;
mod engines;
mod listener;
mod sockets;
mod trace;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::EngineHandle;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::directory::make_own_directory;
use crate::protocol::{ExplainRequest, ZoneAction};
use crate::report::{Count, NameServerReport, ZoneReport};
use client::Clients;
pub use client::{attend, refusal};
pub use listener::ControlListener;

/// How long captures have for their last packets when the program ends.
const FAREWELL: Duration = Duration::from_millis(500);

/// What tools can see of a program.
pub struct Program {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) engines: Vec<EngineHandle>,
    pub(crate) subject: Box<dyn Subject>,
}

/// What a program can tell, beside its engines, and what it does when it is asked. Every method is called for each request, on the
/// request's thread, and may wait for a moment.
pub trait Subject: Send + Sync {
    /// Counters of its own.
    fn counters(&self) -> Vec<Count> {
        Vec::new()
    }

    /// The name servers that a resolver knows.
    fn name_servers(&self) -> Vec<NameServerReport> {
        Vec::new()
    }

    /// The zones that a server has.
    fn zones(&self) -> Vec<ZoneReport> {
        Vec::new()
    }

    /// Writes the records of a zone as a zone file, or says what is wrong.
    fn write_zone(&self, _name: &str, _out: &mut dyn io::Write) -> Result<io::Result<()>, String> {
        Err("this program has no zones".to_owned())
    }

    /// Does something with a zone, and says what came of it, or what is wrong.
    fn change_zone(&self, _name: &str, _action: ZoneAction) -> Result<Vec<String>, String> {
        Err("this program has no zones".to_owned())
    }

    /// Says which line answers a question, and why, or what is wrong.
    fn explain(&self, _question: &ExplainRequest) -> Result<Vec<String>, String> {
        Err("this program has no zones".to_owned())
    }

    /// Drops what a resolver's cache has about a name, and about all below it if that is said; returns how many entries that were, or
    /// what is wrong.
    fn flush(&self, _name: &str, _below: bool) -> Result<u64, String> {
        Err("this program has no cache".to_owned())
    }
}

/// Nothing to tell.
impl Subject for () {}

impl Program {
    /// This process, as the program `name`, with its engines in order.
    pub fn new(name: &str, engines: Vec<EngineHandle>) -> Program {
        let pid = std::process::id();
        Program { name: name.to_owned(), pid, engines, subject: Box::new(()) }
    }

    /// With the process id as tools see it, who may be outside of its PID namespace.
    pub fn with_pid(self, pid: u32) -> Program {
        Program { pid, ..self }
    }

    /// With more to tell.
    pub fn telling(self, subject: impl Subject + 'static) -> Program {
        Program { subject: Box::new(subject), ..self }
    }
}

/// An open control socket. Drop it before the engines end, so that captures can finish.
#[must_use]
pub struct ControlSocket {
    path: PathBuf,
    clients: Arc<Clients>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Opens the control socket of `program` where tools look for it: see [`crate::own_directory`].
pub fn serve(program: Program) -> io::Result<ControlSocket> {
    serve_at(&make_own_directory()?.join(format!("{}.sock", std::process::id())), program)
}

/// The same at `path`, which tools must be told. A socket that a dead program left is replaced; one of a living program is an error.
pub fn serve_at(path: &Path, program: Program) -> io::Result<ControlSocket> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let listener = ControlListener::at(path)?;
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let clients = Arc::new(Clients::new(program));
    let (accepting, woken) = (Arc::clone(&clients), Arc::clone(&wake));
    let accept = move || accept(&listener, &woken, &accepting);
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(accept)?;
    Ok(ControlSocket { path: path.to_owned(), clients, wake, thread: Some(thread) })
}

fn accept(listener: &ControlListener, wake: &OwnedFd, clients: &Arc<Clients>) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        // A signal, or lack of memory, ends the wait early; it starts again.
        let _ = poll(&mut fds, None);
        if fds[1].revents().contains(PollFlags::IN) {
            return;
        }
        match listener.accept() {
            Ok(Some(stream)) => clients.admit(stream),
            Ok(None) => {}
            // For instance no free descriptor; there may be one soon.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

impl ControlSocket {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes()); // Cannot block, nor be full.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // It has no reason to panic; the program ends all the same.
        }
        self.clients.dismiss(FAREWELL);
    }
}
