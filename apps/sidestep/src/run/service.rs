//! Who serves our programs: this process, as the broker, or another `sidestep run` that has the interfaces, whose place we take when it ends.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use broker::server::{Config, Handle, JoinError, Member, OpenError, Reporter, Server};

use crate::status;

/// How long the broker waits for connections of an ended program to move to the kernel.
const LINGER_MAX: clock::Duration = clock::Duration::from_secs(2);
/// How long another broker may take to end, or to begin: longer than its connections have to move.
const CHANGE_MAX: Duration = Duration::from_secs(4);
/// How often the place of a broker that is gone is tried, which others may be about to take.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// What was found for the programs that are to be started.
pub(super) enum Found {
    /// Nobody has the interfaces: we are the broker.
    Own(Box<Server>),
    /// Another `sidestep run` has.
    Others(Member),
}

impl Found {
    /// Looks for the broker of another `sidestep run`, and makes one if there is none; otherwise the reason why there is none. One that has the interfaces may
    /// be about to end, or has just begun: then this is tried for some time.
    pub(super) fn search(config: &Config) -> Result<Found, String> {
        let until = Instant::now() + CHANGE_MAX;
        loop {
            match Found::look(config) {
                Ok(found) => return Ok(found),
                Err((_, refused))
                    if Instant::now() < until
                        && refused.as_ref().is_none_or(JoinError::may_pass)
                        && Member::is_in_sight(config) =>
                {
                    thread::sleep(RETRY_EVERY);
                }
                Err((reason, _)) => return Err(reason),
            }
        }
    }

    /// After an error there is none, and perhaps one that does not take us.
    fn look(config: &Config) -> Result<Found, (String, Option<JoinError>)> {
        let refused = match Member::join(config) {
            Ok(Some(member)) => {
                log::info!("another `sidestep run` has the interfaces, and is the broker of this one");
                return Ok(Found::Others(member));
            }
            Ok(None) => None,
            Err(reason) => Some(reason),
        };
        let error = match Server::open(config.clone()) {
            Ok(server) => return Ok(Found::Own(Box::new(server))),
            Err(error) => error,
        };
        let reason = match &refused {
            None => error.to_string(),
            Some(why) => format!("{error}; the `sidestep run` that is there cannot be joined: {why}"),
        };
        Err((reason, refused))
    }

    /// The broker's name, for programs.
    pub(super) fn name(&self) -> &str {
        match self {
            Found::Own(server) => server.name(),
            Found::Others(member) => member.name(),
        }
    }

    /// Interfaces that are left out, and why.
    pub(super) fn notes(&self) -> Vec<String> {
        match self {
            Found::Own(server) => server.notes(),
            Found::Others(_) => Vec::new(),
        }
    }

    /// Serves from now on.
    pub(super) fn start(self, config: Config) -> io::Result<Service> {
        let state = match self {
            Found::Own(server) => State::Broker(Serving::start(*server)?),
            Found::Others(member) => State::Member(Arc::new(member)),
        };
        let service = Service { state: Arc::new(Mutex::new(state)), config };
        service.stand_by()?;
        Ok(service)
    }
}

/// What serves our programs until it is ended.
pub(super) struct Service {
    state: Arc<Mutex<State>>,
    config: Config,
}

enum State {
    Broker(Serving),
    Member(Arc<Member>),
    Over,
}

impl Service {
    /// Waits, on a thread of its own, for the end of the broker that we have joined.
    fn stand_by(&self) -> io::Result<()> {
        let State::Member(member) = &*lock(&self.state) else { return Ok(()) };
        let (mut member, state, config) = (Arc::clone(member), Arc::clone(&self.state), self.config.clone());
        let follow = move || loop {
            member.wait();
            let mut state = lock(&state);
            if matches!(*state, State::Over) {
                return;
            }
            match succeed(&member, &config) {
                Succession::Broker(serving) => {
                    log::info!(
                        "the `sidestep run` that served this program has ended; this one has its place"
                    );
                    *state = State::Broker(serving);
                    return;
                }
                Succession::Member(next) => {
                    member = Arc::new(next);
                    *state = State::Member(Arc::clone(&member));
                }
                Succession::Nobody => return,
                Succession::Unknown => {
                    drop(state);
                    thread::sleep(RETRY_EVERY);
                }
            }
        };
        thread::Builder::new().name("successor".to_owned()).spawn(follow)?;
        Ok(())
    }

    /// Our programs have ended. What others have is left to one of them.
    pub(super) fn end(self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Over);
        match state {
            State::Broker(serving) => serving.end(),
            State::Member(member) => {
                member.leave();
                // The broker may have left its place to us at the very moment at which we left it. If it is there, it has not.
                if let Some(serving) = take_place(&member, &self.config) {
                    serving.end();
                }
            }
            State::Over => {}
        }
    }
}

/// What comes after a broker.
enum Succession {
    /// We are.
    Broker(Serving),
    /// Another one is, or it is still there.
    Member(Member),
    /// Nobody is: it has left nothing.
    Nobody,
    /// Somebody may be about to take the place.
    Unknown,
}

fn succeed(member: &Member, config: &Config) -> Succession {
    let join = || Member::join_at(member.name().to_owned(), config);
    match Server::succeed(member, config.clone()) {
        Ok(server) => Serving::start(server).map_or(Succession::Unknown, Succession::Broker),
        Err(OpenError::NothingLeft) => Succession::Nobody,
        Err(_) => join().map_or(Succession::Unknown, Succession::Member),
    }
}

fn take_place(member: &Member, config: &Config) -> Option<Serving> {
    Server::succeed(member, config.clone()).ok().and_then(|server| Serving::start(server).ok())
}

/// This process is the broker.
pub(super) struct Serving {
    handle: Handle,
    status: Option<status::StatusSocket>,
}

impl Serving {
    pub(super) fn start(server: Server) -> io::Result<Serving> {
        let handle = server.start()?;
        // Only `sidestep status` needs it, so programs run without it, too.
        let status = status::serve(handle.reporter())
            .inspect_err(|error| log::warn!("`sidestep status` will not show these programs: {error}"));
        Ok(Serving { handle, status: status.ok() })
    }

    /// For who waits until nobody is there.
    pub(super) fn reporter(&self) -> Reporter {
        self.handle.reporter()
    }

    /// Our programs have ended: their connections get some time to move.
    fn end(self) {
        self.reporter().linger(LINGER_MAX);
        self.stop();
    }

    pub(super) fn stop(self) {
        drop(self.status);
        self.handle.stop();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
