//! What a script says, before anything is played.

mod call;
mod packet;

pub use call::{Call, Expression, ExpressionKind, Field};
pub use packet::{
    Body, Direction, Ecn, Flags, IcmpSpec, IpSpec, OptionSpec, OptionsSpec, PacketSpec, Quote, SequenceRange,
    TcpSpec, flag,
};

use std::fmt;

use clock::Duration;

/// A place in a script; lines and columns count from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A whole script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// `--name=value` lines in front of everything else.
    pub options: Vec<ScriptOption>,
    /// Shell commands in front of the first event.
    pub setup: Vec<Command>,
    /// What happens, in the order of the script.
    pub events: Vec<Event>,
    /// Shell commands behind the last event.
    pub cleanup: Vec<Command>,
}

/// An option of a script or of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOption {
    /// Its name without dashes.
    pub name: String,
    /// What stands behind `=`, if anything.
    pub value: Option<String>,
    /// Where it stands.
    pub at: Position,
}

/// A shell command in backquotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The text between the backquotes.
    pub text: String,
    /// Where it starts.
    pub at: Position,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When it is to happen.
    pub when: When,
    /// What happens.
    pub action: Action,
    /// Where it starts.
    pub at: Position,
    /// The script's own words, for reports.
    pub text: String,
}

/// When an event is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the start of the script.
    At(Duration),
    /// So long after the previous event.
    After(Duration),
    /// Between two times after the start; only for packets that come out.
    Between(Duration, Duration),
    /// Between two times after the previous event; only for packets that come out.
    AfterBetween(Duration, Duration),
    /// At any time; only for packets that come out.
    Anytime,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A packet goes into the stack or is expected to come out of it.
    Packet(PacketSpec),
    /// A program makes a system call.
    Call(Call),
    /// A shell command.
    Command(Command),
    /// Statements of Python, to be run with the fields of `tcp_info` as variables.
    Code(String),
}
