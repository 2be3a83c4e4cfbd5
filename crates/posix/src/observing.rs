//! Tools that observe the process. The broker passes us each connection to the control socket, and a thread of our own serves it until
//! it ends. Without tools there is no such thread.
//!
//! The thread uses the same interface to the engine as observers of an engine with its own thread, and carries its requests out itself
//! under the lock of the process. So the program may sleep, and need not be woken.

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syscall::Message;

use crate::broker_side::Observer;
use crate::descriptors::internal::Hidden;
use crate::own_thread;
use crate::process::{Process, State};

/// Tools at one time. A tool beyond this number gets an error.
const OBSERVERS_MAX: usize = 16;
/// How long captures have for their last packets when the program ends, and the time between two looks whether they do.
const FAREWELL: clock::Duration = clock::Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(1);

impl State {
    /// Begins to attend to a tool.
    pub(crate) fn on_observer(&mut self, observer: Observer) {
        let stream = Hidden::new(UnixStream::from(observer.stream), self.table);
        let Some(process) = crate::global::process() else { return };
        let Some(runtime) = &self.queue.runtime else {
            return refuse(stream.get(), "it has no queue");
        };
        if self.observers >= OBSERVERS_MAX {
            return refuse(stream.get(), &format!("{OBSERVERS_MAX} others are looking already"));
        }
        let engine = runtime.handle.nudging(|| process.obey());
        let program = observe::Program::new(&observer.program, vec![engine]).with_pid(observer.pid);
        // Without a thread the tool sees the end of the connection.
        let started = own_thread::start("sidestep-look", move || process.serve(stream, &program));
        self.observers += usize::from(started.is_some());
    }
}

impl Process {
    fn serve(&'static self, stream: Hidden<UnixStream>, program: &observe::Program) {
        let _leaving = Leaving(self); // Behind all else, as the last that is seen of it.
        observe::attend(stream.get(), program, &self.ending);
        drop(stream);
    }

    /// The program ends, or executes another: captures get their last packets, and say so.
    pub(crate) fn dismiss_observers(&self) {
        self.ending.store(true, Ordering::Relaxed);
        let never = AtomicU32::new(0);
        let until = self.now() + FAREWELL;
        while self.lock().observers > 0 && self.now() < until {
            syscall::futex_wait(&never, 0, Some(PAUSE));
        }
        self.ending.store(false, Ordering::Relaxed); // execve(2) may fail.
    }

    /// Lets the engine do what it was asked.
    fn obey(&self) {
        let mut state = self.lock();
        let now = self.now();
        if let Some(runtime) = &mut state.queue.runtime {
            runtime.engine.obey(now);
        }
    }
}

/// A thread that attends to a tool leaves.
struct Leaving(&'static Process);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.obey(); // What its capture had is given back.
        self.0.lock().observers -= 1;
    }
}

/// Says why there is nothing to see.
fn refuse(stream: &UnixStream, reason: &str) {
    let octets = observe::refusal(reason);
    let message = Message { buffers: &[IoSlice::new(&octets)], ..Message::default() };
    // It fits the socket's buffer, or the tool has gone.
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let _ = syscall::send_message(stream.as_raw_fd(), &message, flags);
}
