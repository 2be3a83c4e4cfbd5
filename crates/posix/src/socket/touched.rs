//! What a program has done to a kernel socket: reading all options, and where it is bound, takes as long as connecting.

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

/// A bit for each of [`PLAIN`], one for an address, and one for all other options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched(u16);

/// The kernel's socket may have an address or a port.
const NAMED: u16 = 1 << PLAIN.len();

impl Touched {
    /// None was set.
    pub(crate) const NONE: Touched = Touched(0);
    /// Any may have been set.
    pub(crate) const ANY: Touched = Touched(u16::MAX);

    /// The program sets an option.
    pub(crate) fn note(&mut self, level: i32, option: i32) {
        match bit_of(level, option) {
            Some(bit) => self.0 |= bit,
            // Nothing is kept of it.
            None if (level, option) == (libc::SOL_TCP, libc::TCP_QUICKACK) => {}
            None => *self = Touched::ANY,
        }
    }

    /// The kernel's socket gets an address or a port, or may get one.
    pub(crate) fn note_named(&mut self) {
        self.0 |= NAMED;
    }

    /// Whether the kernel's socket may have an address or a port.
    pub(crate) fn may_be_named(self) -> bool {
        self.0 & NAMED != 0
    }

    /// Whether an option may have been set.
    pub(crate) fn has(self, level: i32, option: i32) -> bool {
        self == Touched::ANY || bit_of(level, option).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Has those that were set cleared by `clear`, if that makes the socket as good as new; false otherwise.
    pub(crate) fn restore(self, mut clear: impl FnMut(i32, i32) -> bool) -> bool {
        // What may be cleared by a zero.
        const SWITCHES: usize = 3;
        let switches = (1 << SWITCHES) - 1;
        let mut set = PLAIN[..SWITCHES].iter().filter(|(level, option)| self.has(*level, *option));
        self.0 & !switches == 0 && set.all(|(level, option)| clear(*level, *option))
    }

    /// Whether only options were set, if any, that change nothing but themselves.
    pub(crate) fn is_plain(self) -> bool {
        self != Touched::ANY
    }
}

fn bit_of(level: i32, option: i32) -> Option<u16> {
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
    fn only_switches_are_cleared() {
        let mut touched = Touched::NONE;
        touched.note(libc::SOL_TCP, libc::TCP_NODELAY);
        touched.note(libc::SOL_SOCKET, libc::SO_KEEPALIVE);
        let mut cleared = Vec::new();
        assert!(touched.restore(|level, option| {
            cleared.push((level, option));
            true
        }));
        assert_eq!(cleared, [(libc::SOL_TCP, libc::TCP_NODELAY), (libc::SOL_SOCKET, libc::SO_KEEPALIVE)]);
        assert!(!touched.restore(|_, _| false), "the kernel refuses");
        touched.note(libc::SOL_SOCKET, libc::SO_LINGER);
        assert!(!touched.restore(|_, _| true), "a time is no switch");
        assert!(!Touched::ANY.restore(|_, _| true));
    }

    #[test]
    fn all_of_the_plain_ones_are_not_any() {
        let mut touched = Touched::NONE;
        PLAIN.iter().for_each(|(level, option)| touched.note(*level, *option));
        assert!(touched.is_plain());
    }

    #[test]
    fn an_address_is_no_option() {
        let mut touched = Touched::NONE;
        assert!(!touched.may_be_named() && Touched::ANY.may_be_named());
        touched.note_named();
        assert!(touched.may_be_named() && touched.is_plain());
        assert!(!touched.has(libc::SOL_TCP, libc::TCP_NODELAY));
    }
}
