//! What `sidestep run` decides about a program before it starts it. `sidestep doctor` shows the same.

use std::ffi::OsStr;
use std::path::PathBuf;

use broker::protocol::Profile;

use super::executable::{Executable, NotFound, Obstacle, OwnCalls};
use super::{library, profile};

/// What is accelerated of a program, and what prevents it.
pub(crate) struct Judgement {
    /// Its file.
    pub(crate) path: PathBuf,
    /// The program that interprets it, if it is a script.
    pub(crate) interpreter: Option<PathBuf>,
    /// The profile; otherwise why it runs on the kernel.
    pub(crate) profile: Result<Profile, String>,
    /// What prevents preloading.
    pub(crate) obstacle: Option<Obstacle>,
    /// Whether it is neither ELF nor a script.
    pub(crate) is_foreign: bool,
    /// Which system calls it makes itself.
    pub(crate) own_calls: Option<OwnCalls>,
    /// Our library; otherwise why there is none.
    pub(crate) library: Result<PathBuf, String>,
}

impl Judgement {
    pub(super) fn of(program: &Executable, asked: Option<profile::Name>) -> Judgement {
        Judgement {
            path: program.path().to_owned(),
            interpreter: program.interpreter(),
            profile: profile::choose(asked, program.name()),
            obstacle: program.obstacle(),
            is_foreign: program.is_foreign(),
            own_calls: program.own_calls(),
            library: library::find(),
        }
    }
}

/// Judges a program by its name, as a shell finds it.
pub(crate) fn judge(name: &OsStr) -> Result<Judgement, NotFound> {
    Executable::find_whole(name).map(|program| Judgement::of(&program, None))
}
