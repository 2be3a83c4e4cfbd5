//! What goes to stdout and stderr, which may be a terminal that was closed, a pipe that nobody reads, a file on a full disk.

use std::io::{self, Write};

use anyhow::Context;

/// Prints a line on stdout. What runs on is not ended by a reader that is gone: unlike `println!`, which panics.
macro_rules! say {
    ($($words:tt)*) => { $crate::output::write_line(&mut ::std::io::stdout(), format_args!($($words)*)) };
}

/// Prints a line on stderr, and goes on all the same where that cannot be: unlike `eprintln!`, which panics.
macro_rules! complain {
    ($($words:tt)*) => { $crate::output::write_line(&mut ::std::io::stderr(), format_args!($($words)*)) };
}

pub(crate) use {complain, say};

/// What [`say`] and [`complain`] have in common.
pub(crate) fn write_line(out: &mut dyn Write, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{line}"); // There is nobody to tell that nobody can be told.
}

/// Who reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// It may want more.
    Stays,
    /// It has seen enough.
    Gone,
}

/// Lets `write` write to stdout what is the command's result. A reader that goes, such as head(1), has seen enough: that is no
/// error; that the disk is full is one.
pub(crate) fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<Reader> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let is_gone = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(Reader::Stays),
        Err(error) if error.chain().any(is_gone) => Ok(Reader::Gone),
        // Those of others than stdout have said whose they are.
        Err(error) if error.is::<io::Error>() => Err(error).context("writing to stdout"),
        Err(error) => Err(error),
    }
}
