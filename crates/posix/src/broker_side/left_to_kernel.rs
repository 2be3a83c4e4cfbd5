//! How many connections are the kernel's, and why.

/// Why the kernel makes a connection that the program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeBecause {
    ThisHost,
    Profile,
    NoQueue,
    Threads,
    Identified,
    Socket,
    NotOurs,
    Broker,
    OtherQueues,
    NoPort,
    SharedPort,
    Unanswered,
}

impl MadeBecause {
    /// In the order in which they are told.
    const ALL: [(MadeBecause, &'static str); 12] = [
        (MadeBecause::ThisHost, "it goes to a loopback address, or to that of no single host"),
        (MadeBecause::Profile, "the program's profile says so"),
        (MadeBecause::NoQueue, "there was no queue"),
        (MadeBecause::Threads, "a thread for each of those before slept in it"),
        (
            MadeBecause::Identified,
            "the program asked which those before were (fstat(2), SO_COOKIE), and they had to move",
        ),
        (MadeBecause::Socket, "of the socket: by an option, or as other processes have it, too"),
        (MadeBecause::NotOurs, "no interface that is used leads to the peer"),
        (MadeBecause::Broker, "the broker did not tell the way to the peer, or not in time"),
        (MadeBecause::OtherQueues, "answers may come by queues of other processes"),
        (
            MadeBecause::NoPort,
            "the socket has a port whose answers come by other queues, or none is free whose answers come by the program's",
        ),
        (
            MadeBecause::SharedPort,
            "the program bound the socket to a port that others may have, too (SO_REUSEADDR or SO_REUSEPORT)",
        ),
        (MadeBecause::Unanswered, "the peer did not answer by the program's queues"),
    ];
}

/// Connections of the kernel's: so far, also those that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftToKernel {
    /// Accepted from the kernel's queue of a listener, or left to us by another process.
    pub(crate) accepted: u64,
    /// Begun by the program, and made by the kernel: as many for each of [`MadeBecause::ALL`].
    made: [u64; MadeBecause::ALL.len()],
    /// Connections that have left the stack.
    pub(crate) moved: u64,
    /// Those of them that moved much by large calls.
    pub(crate) bulk: u64,
    /// Those of them whose threads mostly had to be woken by another thread.
    pub(crate) threads: u64,
}

impl LeftToKernel {
    /// The kernel makes a connection.
    pub(crate) fn note_made(&mut self, why: MadeBecause) {
        self.made[why as usize] += 1;
    }

    /// Those that the kernel has made.
    pub(crate) fn made(&self) -> u64 {
        self.made.iter().sum()
    }

    /// How many of them why, as far as there are any.
    pub(crate) fn made_because(&self) -> Vec<(&'static str, u64)> {
        let all = MadeBecause::ALL.into_iter().map(|(why, text)| (text, self.made[why as usize]));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// How many of those that have left the stack why, as far as that was for the kernel to be faster.
    pub(crate) fn moved_because(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("they transferred large amounts", self.bulk),
            ("a thread for each of them slept in it", self.threads),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_what_left_them_to_the_kernel() {
        let mut left = LeftToKernel { moved: 3, threads: 2, ..LeftToKernel::default() };
        for (place, (why, _)) in MadeBecause::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, place);
            left.note_made(why);
        }
        left.note_made(MadeBecause::NoQueue);
        assert_eq!((left.made(), left.made_because().len()), (13, 12));
        assert!(left.made_because().contains(&("there was no queue", 2)));
        assert_eq!(left.moved_because(), [("a thread for each of them slept in it", 2)]);
    }
}
