//! Which connections there are, where the broker finds them if this process is killed: it tells their peers.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use broker::book::{ENTRIES_MAX, ENTRY_WORDS, entry};
use syscall::SharedWords;

/// The book of a stack.
pub(crate) struct Book(SharedWords);

impl Book {
    /// An empty one, and its file.
    pub(crate) fn new() -> io::Result<(Book, OwnedFd)> {
        let (words, file) = SharedWords::new(c"sidestep-book", ENTRIES_MAX * ENTRY_WORDS)?;
        Ok((Book(words), file))
    }
}

impl stack::Book for Book {
    /// The process may be killed between any two of these stores: what is read then is a connection as it was, or none.
    fn note(&mut self, place: u32, ends: Option<(SocketAddr, SocketAddr)>) {
        let at = place as usize * ENTRY_WORDS;
        let Some([first @ .., is_there]) = self.0.words().get(at..at + ENTRY_WORDS) else { return };
        is_there.store(0, Relaxed);
        fence(Release); // None of what follows is written before that.
        let Some((local, remote)) = ends else { return };
        let words = entry(local, remote);
        first.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        is_there.store(words[ENTRY_WORDS - 1], Release);
    }
}
