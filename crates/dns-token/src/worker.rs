//! Modules on threads of their own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::session::Module;
use crate::{KeyUri, PublicKey, TokenError};

/// How long anybody waits for a module.
pub const LIMIT: Duration = Duration::from_secs(5);
/// A module that hangs is left alone for so long, and a key that fails: what else wants signatures has to go on meanwhile.
const HANG_REST: Duration = Duration::from_secs(60);
const FAILURE_REST: Duration = Duration::from_secs(5);
/// A module begins anew so often at most: other tokens of it may be in use, and wait meanwhile.
const START_REST: Duration = Duration::from_secs(5);
/// Calls that wait for a module at most.
const WAITING_MAX: usize = 64;

/// A key in a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    uri: KeyUri,
}

/// Something to do with a module.
type Call = Box<dyn FnOnce(&mut Module) + Send>;

/// The thread of one module.
struct Worker {
    calls: SyncSender<Call>,
    /// Since when it hangs.
    hangs: Option<Instant>,
    /// Since when keys fail, and why.
    failed: HashMap<KeyUri, (Instant, TokenError)>,
    /// When it began anew last.
    begun_anew: Option<Instant>,
}

/// By the paths of modules: a process may initialise each once.
static WORKERS: LazyLock<Mutex<HashMap<PathBuf, Worker>>> = LazyLock::new(Mutex::default);

impl Token {
    /// The key that `uri` names. No token is looked at yet.
    pub fn new(uri: KeyUri) -> Token {
        Token { uri }
    }

    /// The name of the key.
    pub fn uri(&self) -> &KeyUri {
        &self.uri
    }

    /// What the token says of the key.
    ///
    /// # Errors
    /// See [`TokenError`]. Whoever asks again at once gets the same error.
    pub fn public_key(&self) -> Result<PublicKey, TokenError> {
        let uri = self.uri.clone();
        self.call(move |module| module.public_key(&uri))
    }

    /// A signature by the private half of `public`, as RRSIG records have it.
    ///
    /// # Errors
    /// See [`TokenError`]. Whoever asks again at once gets the same error.
    pub fn sign(&self, public: &PublicKey, octets: &[u8]) -> Result<Vec<u8>, TokenError> {
        let (uri, public, octets) = (self.uri.clone(), public.clone(), octets.to_vec());
        self.call(move |module| module.sign(&uri, &public, &octets))
    }

    fn call<T: Send + 'static>(
        &self,
        act: impl Fn(&mut Module) -> Result<T, TokenError> + Send + 'static,
    ) -> Result<T, TokenError> {
        let (reply, heard) = sync_channel(1);
        let path = self.uri.module.clone();
        let module_path = path.clone();
        let call: Call = Box::new(move |module| {
            let done = with_new_start(module, &module_path, act);
            let _ = reply.send(done); // Nobody may wait for it any more.
        });
        self.send(&path, call)?;
        let done = heard.recv_timeout(LIMIT).unwrap_or_else(|_| Err(TokenError::Hangs(path.clone())));
        if let Err(error) = &done
            && let Some(worker) = workers().get_mut(&path)
        {
            match error {
                TokenError::Hangs(_) => worker.hangs = Some(Instant::now()),
                error => drop(worker.failed.insert(self.uri.clone(), (Instant::now(), error.clone()))),
            }
        }
        done
    }

    /// Leaves a call with the thread of the module, unless that is left alone.
    fn send(&self, path: &Path, call: Call) -> Result<(), TokenError> {
        let mut workers = workers();
        if !workers.contains_key(path) {
            workers.insert(path.to_owned(), Worker::start(path)?);
        }
        let worker = workers.get_mut(path).expect("it was put there");
        worker.failed.retain(|_, (since, _)| since.elapsed() < FAILURE_REST);
        worker.hangs = worker.hangs.filter(|since| since.elapsed() < HANG_REST);
        if worker.hangs.is_some() {
            return Err(TokenError::Hangs(path.to_owned()));
        }
        if let Some((_, error)) = worker.failed.get(&self.uri) {
            return Err(error.clone());
        }
        worker.calls.try_send(call).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => TokenError::Hangs(path.to_owned()),
        })
    }
}

/// Has the module begin anew if that may help, and tries once more.
fn with_new_start<T>(
    module: &mut Module,
    path: &Path,
    act: impl Fn(&mut Module) -> Result<T, TokenError>,
) -> Result<T, TokenError> {
    let done = act(module);
    let has_to = done.as_ref().is_err_and(TokenError::may_end_with_new_start);
    if !has_to || !take_new_start(path) {
        return done;
    }
    module.end();
    act(module)
}

/// Whether a module may begin anew now, which counts as done then.
fn take_new_start(path: &Path) -> bool {
    let mut workers = workers();
    let Some(worker) = workers.get_mut(path) else { return false };
    if worker.begun_anew.is_some_and(|at| at.elapsed() < START_REST) {
        return false;
    }
    worker.begun_anew = Some(Instant::now());
    true
}

/// Has all keys be tried at once that have failed: whoever says that something has changed may have mended them. A module that hangs is left alone.
pub fn forget_failures() {
    for worker in workers().values_mut() {
        worker.failed.clear();
        worker.begun_anew = None;
    }
}

impl Worker {
    fn start(path: &Path) -> Result<Worker, TokenError> {
        let (calls, waiting): (_, Receiver<Call>) = sync_channel(WAITING_MAX);
        let mut module = Module::new(path.to_owned());
        let work = move || {
            waiting.iter().for_each(|call| call(&mut module));
        };
        let failed =
            |error: std::io::Error| TokenError::Module { module: path.to_owned(), error: error.to_string() };
        thread::Builder::new().name("token".to_owned()).spawn(work).map_err(failed)?;
        Ok(Worker { calls, hangs: None, failed: HashMap::new(), begun_anew: None })
    }
}

fn workers() -> MutexGuard<'static, HashMap<PathBuf, Worker>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}
