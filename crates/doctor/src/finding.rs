//! What a finding is.

use serde::{Serialize, Serializer};

use crate::{Known, Step};

/// How good something is. The order is that of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is in the way.
    Bad,
    /// It works, and something else would be faster or safer.
    CouldBeBetter,
    /// Nobody can say.
    NotKnown,
    /// Nothing is to be done.
    Good,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name, `family.subject`. It does not change from version to version.
    pub id: &'static str,
    /// Where the facts come from.
    pub source: &'static str,
}

/// What was found about a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The topic's name.
    pub id: &'static str,
    /// How good it is.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What that costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// What changes it.
    pub commands: Vec<Command>,
    /// Where the facts come from.
    pub source: &'static str,
}

/// One command that changes what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `sidestep tune` can do and undo it.
    Step(Step),
    /// The user has to do it.
    Manual(String),
}

impl Command {
    /// As it is typed into a shell.
    pub fn line(&self) -> String {
        match self {
            Command::Step(step) => step.setting.command(&step.to),
            Command::Manual(line) => line.clone(),
        }
    }
}

impl Serialize for Command {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Line {
            command: String,
            tune: bool,
        }
        Line { command: self.line(), tune: matches!(self, Command::Step(_)) }.serialize(serializer)
    }
}

impl Topic {
    /// Nothing is to be done.
    pub(crate) fn good(self, seen: impl Into<String>) -> Finding {
        self.finding(Verdict::Good, seen.into(), None)
    }

    /// Something else would be faster or safer.
    pub(crate) fn better(self, seen: impl Into<String>, cost: impl Into<String>) -> Finding {
        self.finding(Verdict::CouldBeBetter, seen.into(), Some(cost.into()))
    }

    /// It is in the way.
    pub(crate) fn bad(self, seen: impl Into<String>, cost: impl Into<String>) -> Finding {
        self.finding(Verdict::Bad, seen.into(), Some(cost.into()))
    }

    /// Nobody can say.
    pub(crate) fn unknown(self, because: &str) -> Finding {
        self.finding(Verdict::NotKnown, format!("not known: {because}"), None)
    }

    /// Judges a fact if it is known.
    pub(crate) fn of<T>(self, fact: &Known<T>, judge: impl FnOnce(&T) -> Finding) -> Finding {
        match fact {
            Known::Is(fact) => judge(fact),
            Known::Not(because) => self.unknown(because),
        }
    }

    fn finding(self, verdict: Verdict, seen: String, cost: Option<String>) -> Finding {
        Finding { id: self.id, verdict, seen, cost, commands: Vec::new(), source: self.source }
    }
}

impl Finding {
    /// With a step of `sidestep tune`.
    pub(crate) fn step(mut self, step: Step) -> Finding {
        self.commands.push(Command::Step(step));
        self
    }

    /// With several.
    pub(crate) fn steps(self, steps: impl IntoIterator<Item = Step>) -> Finding {
        steps.into_iter().fold(self, Finding::step)
    }

    /// With a command for the user.
    pub(crate) fn command(mut self, line: impl Into<String>) -> Finding {
        self.commands.push(Command::Manual(line.into()));
        self
    }
}
