//! Threads for operations that may take long: examining and closing clients' descriptors, and moving connections to the kernel, with all
//! their octets.
//!
//! Closing the last descriptor of a socket waits for its linger time (`SO_LINGER`, socket(7)). Closing a file waits for the server of its
//! file system. Reading a socket's address takes its lock, which a client's thread may hold as long as it likes. So the broker's
//! own thread does none of these. A received descriptor is a [`Theirs`] from the start, and dropping one makes a
//! helper close it. The same holds for the clients' own connections, because unread messages contain descriptors.
//!
//! A client that can block one thread can block several. Jobs are therefore counted by the user for whom they are done: each user has
//! at most [`THREADS_OF_ONE`] threads, and so delays itself first. Waiting jobs keep their descriptors open and
//! are limited. If a user has [`JOBS_OF_ONE`] jobs, and none has finished for a second, a client of this user that sends one
//! more is disconnected. Who is no client gives no jobs, as far as possible (see `strangers.rs`). While there are [`JOBS_MAX`] jobs of all users (only so many of each count), no client is accepted. If several
//! users block all threads, requests that need one are not answered, and their clients are disconnected after a timeout: their sockets
//! then run on the kernel.
//!
//! One operation stays on the broker's thread: the kernel itself closes received descriptors for which the broker has no numbers left.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::shares::User;

/// Threads at most, and those that work for one user.
const THREADS_MAX: usize = 64;
const THREADS_OF_ONE: usize = 4;
/// Jobs that are not done, of all and of one user.
const JOBS_MAX: usize = 1024;
const JOBS_OF_ONE: usize = 128;
/// How long a user's jobs may make no progress.
const STANDSTILL: Duration = Duration::from_secs(1);
/// How long a thread waits for something to do.
const IDLENESS: Duration = Duration::from_secs(1);
/// Enough for a system call and for a handler of signals.
const STACK_LEN: usize = 64 << 10;

type Job = Box<dyn FnOnce() + Send>;

/// See the module's page. Threads start when there is something to do, and end a second after that was done.
#[derive(Default)]
pub(super) struct Helpers {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    /// The users with waiting jobs.
    users: BTreeMap<User, Jobs>,
    /// The user that was served last: the next one follows it in order.
    last: User,
    threads: usize,
    /// Those of them that have no job.
    free: usize,
}

struct Jobs {
    waiting: VecDeque<Job>,
    /// How many are being done.
    busy: usize,
    /// When the last one was done, or the first one came.
    progress: Instant,
}

impl Helpers {
    /// Has a job done for a user, soon.
    pub(super) fn have_done(self: &Arc<Self>, user: User, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        let jobs = state.users.entry(user).or_insert_with(Jobs::new);
        if jobs.waiting.is_empty() {
            jobs.progress = Instant::now(); // Nobody had to wait until now.
        }
        jobs.waiting.push_back(Box::new(job));
        self.staff(&mut state);
    }

    /// Whether this user's clients may not send any more: nothing that they sent comes to an end.
    pub(super) fn is_too_much(&self, user: User) -> bool {
        let state = self.lock();
        let all = state.all();
        state.users.get(&user).is_some_and(|jobs| {
            jobs.len() >= JOBS_OF_ONE && (all >= JOBS_MAX || jobs.progress.elapsed() >= STANDSTILL)
        })
    }

    /// Whether jobs of this user come to an end.
    pub(super) fn has_progress(&self, user: User) -> bool {
        self.lock().users.get(&user).is_none_or(|jobs| jobs.progress.elapsed() < STANDSTILL)
    }

    /// The whole process has stood still, helpers as well: nobody's jobs are to blame that none was done.
    pub(super) fn begin_anew(&self) {
        let now = Instant::now();
        self.lock().users.values_mut().for_each(|jobs| jobs.progress = now);
    }

    /// Whether no more clients may connect, because closing them would be one more job.
    pub(super) fn are_overrun(&self) -> bool {
        self.lock().all() >= JOBS_MAX
    }

    /// Jobs of a user that are not done.
    #[cfg(test)]
    pub(super) fn count_of(&self, user: User) -> usize {
        self.lock().users.get(&user).map_or(0, Jobs::len)
    }

    /// Makes sure that a thread works on the jobs. If no thread can be started, the next call may start one.
    pub(super) fn retry(self: &Arc<Self>) {
        self.staff(&mut self.lock());
    }

    /// Wakes a thread, or starts one: only one at a time, because a thread that takes a job looks for the next one.
    fn staff(self: &Arc<Self>, state: &mut State) {
        if state.next_user().is_none() {
            return;
        }
        if state.free > 0 {
            self.came.notify_one();
        } else if state.threads < THREADS_MAX {
            let helpers = Arc::clone(self);
            let builder = thread::Builder::new().name("broker-helper".to_owned()).stack_size(STACK_LEN);
            if builder.spawn(move || helpers.help()).is_ok() {
                state.threads += 1;
                state.free += 1;
            }
        }
    }

    /// What a thread does.
    fn help(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            while let Some((user, job)) = state.take() {
                state.free -= 1;
                self.staff(&mut state);
                drop(state);
                // A job that panics is one that is done: its client is not answered, and the thread serves others.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                state.free += 1;
                state.on_done(user);
            }
            let waited = self.came.wait_timeout_while(state, IDLENESS, |state| state.next_user().is_none());
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() {
                state.threads -= 1;
                state.free -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // Jobs are done outside.
    }
}

impl State {
    /// Whose job is next: users take turns.
    fn next_user(&self) -> Option<User> {
        let is_next = |(_, jobs): &(&User, &Jobs)| !jobs.waiting.is_empty() && jobs.busy < THREADS_OF_ONE;
        let behind = self.users.range(self.last.saturating_add(1)..).find(is_next);
        behind.or_else(|| self.users.iter().find(is_next)).map(|(user, _)| *user)
    }

    /// Jobs that count towards [`JOBS_MAX`]: jobs of one user beyond its limit do not lock other users out.
    fn all(&self) -> usize {
        self.users.values().map(|jobs| jobs.len().min(JOBS_OF_ONE)).sum()
    }

    fn take(&mut self) -> Option<(User, Job)> {
        let user = self.next_user()?;
        let jobs = self.users.get_mut(&user)?;
        let job = jobs.waiting.pop_front()?;
        jobs.busy += 1;
        self.last = user;
        Some((user, job))
    }

    fn on_done(&mut self, user: User) {
        let Some(jobs) = self.users.get_mut(&user) else { return };
        jobs.busy -= 1;
        jobs.progress = Instant::now();
        if jobs.len() == 0 {
            self.users.remove(&user);
        }
    }
}

impl Jobs {
    fn new() -> Jobs {
        Jobs { waiting: VecDeque::new(), busy: 0, progress: Instant::now() }
    }

    fn len(&self) -> usize {
        self.waiting.len() + self.busy
    }
}

/// A descriptor of a file that a client has, or had. Dropped, it is closed by a helper.
pub(super) struct Theirs {
    fd: Option<OwnedFd>,
    user: User,
    helpers: Arc<Helpers>,
}

impl Theirs {
    /// What a client of this user sent, or is sent.
    pub(super) fn new(fd: OwnedFd, user: User, helpers: &Arc<Helpers>) -> Theirs {
        Theirs { fd: Some(fd), user, helpers: Arc::clone(helpers) }
    }

    /// What is kept for a client in the place of this, which is closed on this thread.
    pub(super) fn replaced_by(self, fd: OwnedFd) -> Theirs {
        let kept = Theirs::new(fd, self.user, &self.helpers);
        self.close();
        kept
    }

    /// Whose it is.
    pub(super) fn user(&self) -> User {
        self.user
    }

    /// One more descriptor of the same file.
    pub(super) fn try_clone(&self) -> std::io::Result<Theirs> {
        let fd = self.as_fd().try_clone_to_owned()?;
        Ok(Theirs::new(fd, self.user, &self.helpers))
    }

    /// Has a helper do something with the file, and close it then, unless `job` returns it for another purpose.
    pub(super) fn have_done(self, job: impl FnOnce(Theirs) + Send + 'static) {
        let (helpers, user) = (Arc::clone(&self.helpers), self.user);
        helpers.have_done(user, move || job(self));
    }

    /// Closes it on this thread, which may take long.
    pub(super) fn close(mut self) {
        drop(self.fd.take());
    }
}

impl AsFd for Theirs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.helpers.have_done(self.user, move || drop(fd));
        }
    }
}

/// Closes many, as one job for each user.
pub(super) fn close_all(many: impl IntoIterator<Item = Theirs>) {
    let mut by_user: BTreeMap<User, Vec<Theirs>> = BTreeMap::new();
    many.into_iter().for_each(|fd| by_user.entry(fd.user).or_default().push(fd));
    for fds in by_user.into_values() {
        let Some((helpers, user)) = fds.first().map(|fd| (Arc::clone(&fd.helpers), fd.user)) else {
            continue;
        };
        helpers.have_done(user, move || fds.into_iter().for_each(Theirs::close));
    }
}

/// A descriptor on its way to a client.
pub(super) enum Passed {
    /// No other process has had it, so closing it takes no time.
    Own(OwnedFd),
    /// Another process has it, or gets it, and may do with it what it likes before the broker's copy is closed.
    Theirs(Theirs),
}

impl AsFd for Passed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Passed::Own(fd) => fd.as_fd(),
            Passed::Theirs(fd) => fd.as_fd(),
        }
    }
}

impl From<OwnedFd> for Passed {
    fn from(fd: OwnedFd) -> Passed {
        Passed::Own(fd)
    }
}

impl From<Theirs> for Passed {
    fn from(fd: Theirs) -> Passed {
        Passed::Theirs(fd)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Longer than anything takes that comes at all.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Jobs of this user that last until the sender is dropped, and come one after the other to the receiver when they begin.
    fn hold_up(helpers: &Arc<Helpers>, user: User, count: usize) -> (Sender<()>, Receiver<usize>) {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, begins) = channel();
        for number in 0..count {
            let (held, begun) = (Arc::clone(&held), begun.clone());
            helpers.have_done(user, move || {
                let _ = begun.send(number);
                let _ = held.lock().unwrap().recv(); // An error is the release.
            });
        }
        (release, begins)
    }

    fn is_served(helpers: &Arc<Helpers>, user: User) -> bool {
        let (done, is_done) = channel();
        helpers.have_done(user, move || done.send(()).unwrap());
        is_done.recv_timeout(PATIENCE).is_ok()
    }

    fn wait_until(mut happens: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !happens() {
            assert!(Instant::now() < deadline, "it does not happen");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn who_is_held_up_waits_for_itself_and_nobody_else() {
        let helpers = Arc::<Helpers>::default();
        let (release, begins) = hold_up(&helpers, 1, THREADS_OF_ONE + 3);
        let mut begun: Vec<usize> =
            (0..THREADS_OF_ONE).map(|_| begins.recv_timeout(PATIENCE).unwrap()).collect();
        begun.sort_unstable();
        assert_eq!(begun, [0, 1, 2, 3]);
        assert!(is_served(&helpers, 2) && is_served(&helpers, 0));
        assert!(begins.try_recv().is_err(), "one user has so many threads and no more");
        drop(release);
        assert!(is_served(&helpers, 1));
    }

    #[test]
    fn one_that_is_held_up_does_not_hold_up_what_comes_with_it() {
        let helpers = Arc::<Helpers>::default();
        let (_release, _begins) = hold_up(&helpers, 1, 1);
        assert!(is_served(&helpers, 1));
    }

    #[test]
    fn threads_end_when_there_is_nothing_to_do_and_one_is_enough_for_one_thing_after_the_other() {
        let helpers = Arc::<Helpers>::default();
        assert_eq!(helpers.lock().threads, 0);
        for _ in 0..100 {
            assert!(is_served(&helpers, 1));
            wait_until(|| {
                let state = helpers.lock();
                state.free == state.threads
            });
        }
        assert!(helpers.lock().threads <= 1);
        wait_until(|| helpers.lock().threads == 0);
        assert!(helpers.lock().users.is_empty());
        assert!(is_served(&helpers, 1));
    }

    #[test]
    fn who_piles_up_what_does_not_end_is_told_from_who_has_much_to_do() {
        let helpers = Arc::<Helpers>::default();
        let (release, _begins) = hold_up(&helpers, 1, JOBS_OF_ONE - 1);
        thread::sleep(STANDSTILL);
        assert!(!helpers.is_too_much(1), "it is not much");
        let (_other, _begins) = hold_up(&helpers, 2, JOBS_OF_ONE);
        let (_same, _begins) = hold_up(&helpers, 1, 1);
        assert!(helpers.is_too_much(1) && !helpers.are_overrun());
        wait_until(|| helpers.is_too_much(2));
        let (_many, _begins) = hold_up(&helpers, 3, JOBS_MAX);
        assert!(!helpers.are_overrun(), "one user keeps nobody else out");
        let users = JOBS_MAX / JOBS_OF_ONE;
        let _more: Vec<_> =
            (0..users).map(|number| hold_up(&helpers, 10 + number as User, JOBS_OF_ONE)).collect();
        assert!(helpers.are_overrun() && helpers.is_too_much(10), "there is no room to wait for progress");
        assert!(!helpers.is_too_much(4));
        drop(release);
        wait_until(|| !helpers.is_too_much(1));
    }
}
