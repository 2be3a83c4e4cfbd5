//! What a check is.

use std::panic::Location;

use crate::scene::Scene;
use crate::sys::Errno;

/// One line of the table: a name and what to do.
pub(crate) struct Check {
    /// Stable, with dots: theme, then what is looked at.
    pub(crate) name: String,
    /// The settings in which it runs, each one a check with a name of its own.
    pub(crate) variants: &'static [Variant],
    /// Whether it needs a process of its own, since it changes more than its sockets: signals, limits, processes, threads.
    pub(crate) alone: bool,
    /// Does something with sockets and says what it sees.
    pub(crate) run: Box<dyn Fn(&mut Scene) -> Done>,
}

/// Which addresses are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Who calls whom in [`Scene::pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The peer connects, the program accepts.
    Accepted,
    /// The program connects.
    Connected,
}

/// A setting of a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    /// What is added to the name.
    pub(crate) suffix: &'static str,
    /// Addresses.
    pub(crate) family: Family,
    /// Direction.
    pub(crate) way: Way,
}

const fn variant(suffix: &'static str, family: Family, way: Way) -> Variant {
    Variant { suffix, family, way }
}

/// Runs once, with IPv4.
pub(crate) const ONCE: &[Variant] = &[variant("", Family::V4, Way::Accepted)];
/// Runs with each family.
pub(crate) const BOTH: &[Variant] =
    &[variant(".v4", Family::V4, Way::Accepted), variant(".v6", Family::V6, Way::Accepted)];
/// Runs once, with IPv4, for a program that connects.
pub(crate) const ONE_CALL: &[Variant] = &[variant("", Family::V4, Way::Connected)];
/// Runs with each family, for a program that connects.
pub(crate) const CALLS: &[Variant] =
    &[variant(".v4", Family::V4, Way::Connected), variant(".v6", Family::V6, Way::Connected)];
/// Runs with connections from both directions.
pub(crate) const WAYS: &[Variant] =
    &[variant(".accepted", Family::V4, Way::Accepted), variant(".connected", Family::V4, Way::Connected)];
/// As [`WAYS`], with IPv6.
pub(crate) const V6_WAYS: &[Variant] =
    &[variant(".accepted", Family::V6, Way::Accepted), variant(".connected", Family::V6, Way::Connected)];
/// Runs with connections from both directions, each by its own family.
pub(crate) const PAIRS: &[Variant] = &[
    variant(".v4.accepted", Family::V4, Way::Accepted),
    variant(".v6.connected", Family::V6, Way::Connected),
];

/// What a check returns: it goes to its end unless something fails that it does not look at.
pub(crate) type Done = Result<(), Failure>;

/// What went wrong on the way to what a check looks at.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl From<Errno> for Failure {
    #[track_caller]
    fn from(errno: Errno) -> Failure {
        let at = Location::caller();
        Failure(format!("{errno} at {}:{}", at.file().rsplit('/').next().unwrap_or_default(), at.line()))
    }
}

/// Makes `checks()` of functions: the theme, and for each kind of variants a list of functions, which give the rest of their names.
/// With `alone` in front each gets a process of its own.
macro_rules! checks {
    (alone $theme:literal: $($lists:tt)*) => {
        checks! { @ true, $theme: $($lists)* }
    };
    ($theme:literal: $($lists:tt)*) => {
        checks! { @ false, $theme: $($lists)* }
    };
    (@ $alone:literal, $theme:literal: $($variants:ident [$($run:ident),* $(,)?]),* $(,)?) => {
        pub(crate) fn checks() -> Vec<crate::table::Check> {
            vec![$($(crate::table::Check {
                name: concat!($theme, ".", stringify!($run)).to_owned(),
                variants: crate::table::$variants,
                alone: $alone,
                run: Box::new($run),
            },)*)*]
        }
    };
}
pub(crate) use checks;
