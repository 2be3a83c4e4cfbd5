//! Which options a program has set on a kernel socket: reading all of them takes as long as connecting.

/// Options that are set often, change nothing but themselves, and have no say in where packets go.
const PLAIN: [(i32, i32); 7] = [
    (libc::SOL_TCP, libc::TCP_NODELAY),
    (libc::SOL_TCP, libc::TCP_CORK),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL),
    (libc::SOL_TCP, libc::TCP_KEEPCNT),
    (libc::SOL_SOCKET, libc::SO_LINGER),
];

/// A bit for each of [`PLAIN`], and one for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched(u8);

impl Touched {
    /// None was set.
    pub(crate) const NONE: Touched = Touched(0);
    /// Any may have been set.
    pub(crate) const ANY: Touched = Touched(u8::MAX);

    /// The program sets an option.
    pub(crate) fn note(&mut self, level: i32, option: i32) {
        match bit_of(level, option) {
            Some(bit) => self.0 |= bit,
            // Nothing is kept of it.
            None if (level, option) == (libc::SOL_TCP, libc::TCP_QUICKACK) => {}
            None => *self = Touched::ANY,
        }
    }

    /// Whether an option may have been set.
    pub(crate) fn has(self, level: i32, option: i32) -> bool {
        self == Touched::ANY || bit_of(level, option).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Whether only options were set, if any, that change nothing but themselves.
    pub(crate) fn is_plain(self) -> bool {
        self != Touched::ANY
    }
}

fn bit_of(level: i32, option: i32) -> Option<u8> {
    PLAIN.iter().position(|plain| *plain == (level, option)).map(|place| 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_known_and_what_may_have_been() {
        let mut touched = Touched::NONE;
        assert!(touched.is_plain() && !touched.has(libc::SOL_TCP, libc::TCP_NODELAY));
        touched.note(libc::SOL_TCP, libc::TCP_QUICKACK);
        assert_eq!(touched, Touched::NONE);
        touched.note(libc::SOL_TCP, libc::TCP_NODELAY);
        assert!(touched.is_plain() && touched.has(libc::SOL_TCP, libc::TCP_NODELAY));
        assert!(!touched.has(libc::SOL_TCP, libc::TCP_CORK) && !touched.has(libc::SOL_IP, libc::IP_TOS));
        touched.note(libc::SOL_IP, libc::IP_TOS);
        assert!(!touched.is_plain() && touched.has(libc::SOL_SOCKET, libc::SO_PRIORITY), "it sets that too");
    }

    #[test]
    fn all_of_the_plain_ones_are_not_any() {
        let mut touched = Touched::NONE;
        PLAIN.iter().for_each(|(level, option)| touched.note(*level, *option));
        assert!(touched.is_plain());
    }
}
