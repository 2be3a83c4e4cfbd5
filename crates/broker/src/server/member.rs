//! A `sidestep run` beside another one on the same interfaces: its programs are programs of the broker that is there.
//!
//! An interface has one XDP program, and so one broker. Who finds one there joins it, as long as its own programs run, and is ready to take its place.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with,
};

use super::broker::own_namespace;
use super::choice;
use super::config::Config;
use super::pins::{Kept, Pins, interface_name};
use super::queues_left::QueuesLeft;
use crate::peer::Peer;
use crate::protocol::{Answer, FromBroker, News, Refusal, Request, ToBroker, VERSION, decode, encode};
use crate::transfer::{Arrival, Inbox, send};

/// How long a broker may take to answer, or to see that we go.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is said to a broker, and by what it hears that we are there.
#[derive(Debug)]
pub struct Member {
    name: String,
    socket: OwnedFd,
    left: QueuesLeft,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The broker does not take us.
    #[error("{0}")]
    Refused(Refusal),
    /// It is not there, or does not answer.
    #[error("{0}")]
    NotReached(String),
}

impl JoinError {
    /// Whether it is of use to try again soon.
    pub fn may_pass(&self) -> bool {
        matches!(self, JoinError::NotReached(_) | JoinError::Refused(Refusal::Ends))
    }
}

impl Member {
    /// Joins the broker that has the interfaces which are wanted: all of those that are named, or else any that can be used. `Ok(None)` if there is
    /// none; an error if it does not take us.
    pub fn join(config: &Config) -> Result<Option<Member>, JoinError> {
        let found = find(config).map_err(|error| JoinError::NotReached(error.to_string()))?;
        let Some(name) = found else { return Ok(None) };
        Member::join_at(name, config).map(Some)
    }

    /// Whether there is one to join, though it may be about to end.
    pub fn is_in_sight(config: &Config) -> bool {
        matches!(find(config), Ok(Some(_)))
    }

    /// Joins the broker with this name.
    pub fn join_at(name: String, config: &Config) -> Result<Member, JoinError> {
        let not_there = |error: &dyn std::fmt::Display| {
            JoinError::NotReached(format!("the broker is not there: {error}"))
        };
        let socket = reach(&name).map_err(|error| not_there(&error))?;
        let request = Request::Join { version: VERSION, options: config.options() };
        let octets =
            encode(&ToBroker { id: 1, request }).map_err(|error| JoinError::NotReached(error.to_string()))?;
        send(&socket, &octets, &[]).map_err(|error| not_there(&error))?;
        match hear(&socket).map_err(JoinError::NotReached)? {
            Answer::Done => Ok(Member { name, socket, left: QueuesLeft::default() }),
            Answer::Refused(refusal) => Err(JoinError::Refused(refusal)),
            other => Err(JoinError::NotReached(format!("an answer that fits no question: {other:?}"))),
        }
    }

    /// The name of the broker's socket, for [`crate::protocol::ENVIRONMENT`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the broker is gone.
    pub fn wait(&self) {
        self.wait_for_end(None);
    }

    /// Leaves the broker, and waits until it knows: from then on it does not leave its place to us.
    pub fn leave(&self) {
        let _ = shutdown(&self.socket, Shutdown::Write); // It may be gone.
        self.wait_for_end(Some(PATIENCE));
    }

    /// What the broker has said when it left.
    pub(super) fn queues_left(&self) -> QueuesLeft {
        self.left.clone()
    }

    /// Waits until the broker's end is closed, for so much time at most, and takes what it leaves.
    fn wait_for_end(&self, patience: Option<Duration>) {
        let until = patience.map(|patience| Instant::now() + patience);
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut inbox = Inbox::new();
        while wait_for(&self.socket, left()) {
            match inbox.receive(&self.socket, |fd| fd) {
                Ok(Arrival::Message(parcel)) => {
                    if let Ok(FromBroker::News(News::QueueLeft(queue))) = decode(parcel.octets) {
                        self.left.add(queue, parcel.fds);
                    }
                }
                Ok(Arrival::Nothing) => {}
                Ok(Arrival::End) | Err(_) => return,
            }
        }
    }
}

/// The broker to join.
fn find(config: &Config) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let Some(pins) = Pins::in_directory(config.kept_in.as_deref().unwrap_or("".as_ref()), own_namespace()?)
    else {
        return Ok(None);
    };
    let wanted = if config.interfaces.is_empty() { choice::candidates()? } else { config.interfaces.clone() };
    let served: Vec<(Kept, String)> = pins
        .served()
        .into_iter()
        .filter_map(|kept| Some((kept.clone(), interface_name(kept.interface)?)))
        .collect();
    Ok(choose(&served, &wanted, config.interfaces.is_empty()).map(str::to_owned))
}

/// The broker that has all of the wanted interfaces, or with `any_will_do` one that has one of them.
fn choose<'s>(served: &'s [(Kept, String)], wanted: &[String], any_will_do: bool) -> Option<&'s str> {
    let has =
        |broker: &str, name: &String| served.iter().any(|(kept, it)| kept.broker == broker && it == name);
    let is_right = |broker: &str| match any_will_do {
        true => wanted.iter().any(|name| has(broker, name)),
        false => wanted.iter().all(|name| has(broker, name)),
    };
    served.iter().map(|(kept, _)| kept.broker.as_str()).find(|broker| is_right(broker))
}

fn reach(name: &str) -> Result<OwnedFd, Errno> {
    // Whoever has the name may accept nobody.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    // Anybody can bind an abstract name first.
    if Peer::of(&socket)?.is_root_or_oneself() { Ok(socket) } else { Err(Errno::PERM) }
}

fn hear(socket: &OwnedFd) -> Result<Answer, String> {
    let gone = || "the broker is gone, or does not take us".to_owned();
    if !wait_for(socket, Some(PATIENCE)) {
        return Err("the broker does not answer".to_owned());
    }
    match Inbox::new().receive(socket, drop::<OwnedFd>) {
        Ok(Arrival::Message(parcel)) => match decode::<FromBroker>(parcel.octets) {
            Ok(FromBroker::Answer { answer, .. }) => Ok(answer),
            Ok(_) | Err(_) => Err(gone()),
        },
        Ok(_) | Err(_) => Err(gone()),
    }
}

/// Whether something is to be read, or the other end is closed, after so much time at most.
fn wait_for(socket: &OwnedFd, patience: Option<Duration>) -> bool {
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
            Err(Errno::INTR) => {}
            // Where the kernel cannot wait, the next call on the socket says what there is.
            ready => return ready.map_or(true, |ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(of: &[(&str, &str)]) -> Vec<(Kept, String)> {
        let kept = |broker: &str| Kept { interface: 1, link: 0, broker: broker.to_owned() };
        of.iter().map(|(broker, name)| (kept(broker), (*name).to_owned())).collect()
    }

    #[test]
    fn who_names_interfaces_joins_who_has_all_of_them_and_others_who_has_one() {
        let served = served(&[("a", "eth0"), ("b", "eth1"), ("b", "eth2")]);
        let wanted = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose(&served, &wanted(&["eth1", "eth2"]), false), Some("b"));
        assert_eq!(choose(&served, &wanted(&["eth2"]), false), Some("b"));
        assert_eq!(choose(&served, &wanted(&["eth0", "eth1"]), false), None);
        assert_eq!(choose(&served, &wanted(&["eth3", "eth1"]), true), Some("b"));
        assert_eq!(choose(&served, &wanted(&["eth3"]), true), None);
        assert_eq!(choose(&served, &[], true), None);
    }
}
