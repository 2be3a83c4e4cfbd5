//! What came of playing a script.

use std::fmt;

use super::ast::Position;
use super::parser::{ParseError, Problem};

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything went as the script says.
    Passed,
    /// Something did not.
    Failed(Finding),
    /// The script wants something that this player cannot do, or is none that it understands.
    Unsupported(Finding),
}

/// Where a script ended, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place in the script, if the end is at one.
    pub at: Option<Position>,
    /// The script's words there.
    pub text: String,
    /// What differed, or what is not supported; a line each.
    pub details: Vec<String>,
}

/// A verdict and what else there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub verdict: Verdict,
    /// What was left out or only told, a line each.
    pub notes: Vec<String>,
    /// Every packet and call in order, a line each, if they were asked for.
    pub trace: Vec<String>,
}

impl Report {
    pub(super) fn of(verdict: Verdict) -> Report {
        Report { verdict, notes: Vec::new(), trace: Vec::new() }
    }

    pub(super) fn of_parse_error(error: &ParseError, script: &str) -> Report {
        let line = script.lines().nth(error.at.line.saturating_sub(1) as usize).unwrap_or_default().trim();
        let details = match &error.problem {
            Problem::Syntax(message) => format!("not understood: {message}"),
            unsupported @ Problem::Unsupported(_) => unsupported.to_string(),
        };
        let finding = Finding { at: Some(error.at), text: line.to_owned(), details: vec![details] };
        Report::of(Verdict::Unsupported(finding))
    }

    /// Whether nothing differed; a script that could not be played did not pass.
    pub fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }

    /// The report on the script called `name`: one line if all is well, else also where and why.
    pub fn display<'a>(&'a self, name: &'a str) -> impl fmt::Display + 'a {
        Display { report: self, name }
    }
}

struct Display<'a> {
    report: &'a Report,
    name: &'a str,
}

impl fmt::Display for Display<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.report.trace {
            writeln!(f, "    {line}")?;
        }
        let (word, finding) = match &self.report.verdict {
            Verdict::Passed => ("ok", None),
            Verdict::Failed(finding) => ("FAILED", Some(finding)),
            Verdict::Unsupported(finding) => ("NOT SUPPORTED", Some(finding)),
        };
        write!(f, "{}: {word}", self.name)?;
        if let Some(finding) = finding {
            if let Some(at) = finding.at {
                write!(f, "\n  {}:{at}: {}", self.name, finding.text)?;
            }
            for line in &finding.details {
                write!(f, "\n    {line}")?;
            }
        }
        for note in &self.report.notes {
            write!(f, "\n  note: {note}")?;
        }
        Ok(())
    }
}
