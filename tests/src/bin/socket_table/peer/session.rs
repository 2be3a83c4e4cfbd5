//! One conversation: reads requests, has them done, answers.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::commands;
use crate::sys::{self, Errno, Result};

/// Answers requests until there are no more.
pub(super) fn converse(stream: UnixStream) {
    let Ok(mut answers) = stream.try_clone() else { return };
    let mut session = Session::new();
    for line in BufReader::new(stream).lines().map_while(std::result::Result::ok) {
        let answer = match session.obey(&line.split_whitespace().collect::<Vec<_>>()) {
            Ok(words) => format!("ok {words}\n"),
            Err(errno) => format!("error {}\n", errno.0),
        };
        if answers.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// What a conversation is about. Clones share the sockets.
#[derive(Clone)]
pub(super) struct Session {
    slots: Arc<Mutex<Vec<RawFd>>>,
    /// The peer's address, this end.
    there: IpAddr,
    /// The program's address.
    here: IpAddr,
}

impl Session {
    fn new() -> Session {
        let none = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Session { slots: Arc::default(), there: none, here: none }
    }

    fn obey(&mut self, words: &[&str]) -> Result<String> {
        match words {
            ["hello", there, here] => {
                self.there = there.parse().map_err(|_| Errno(libc::EINVAL))?;
                self.here = here.parse().map_err(|_| Errno(libc::EINVAL))?;
                Ok(String::new())
            }
            ["later", ms, rest @ ..] => {
                let time = Duration::from_millis(parse(ms)? as u64);
                let session = self.clone();
                let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
                thread::spawn(move || {
                    thread::sleep(time);
                    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
                    commands::obey(&session, &words)
                });
                Ok(String::new())
            }
            words => commands::obey(self, words),
        }
    }

    /// The number of a new socket.
    pub(super) fn keep(&self, fd: RawFd) -> usize {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.push(fd);
        slots.len() - 1
    }

    /// The socket of that number.
    pub(super) fn fd(&self, slot: &str) -> Result<RawFd> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(parse(slot)? as usize).copied().ok_or(Errno(libc::EBADF))
    }

    /// An address of the peer's.
    pub(super) fn own_name(&self, port: u16) -> Vec<u8> {
        sys::name_of(SocketAddr::new(self.there, port))
    }

    /// An address of the program's.
    pub(super) fn other_name(&self, port: u16) -> Vec<u8> {
        sys::name_of(SocketAddr::new(self.here, port))
    }
}

/// A number.
pub(super) fn parse(word: &str) -> Result<i64> {
    word.parse().map_err(|_| Errno(libc::EINVAL))
}
