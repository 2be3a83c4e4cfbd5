//! Output to stdout and stderr, which may be a closed terminal, a pipe without a reader, or a file on a full disk.

use std::io::{self, Write};

use anyhow::Context;

/// Prints a line on stderr and ignores errors. `eprintln!` would panic.
macro_rules! complain {
    ($($words:tt)*) => { $crate::output::write_error_line(format_args!($($words)*)) };
}

pub(crate) use complain;

/// The function behind [`complain`].
pub(crate) fn write_error_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}"); // Nothing is left to report it with.
}

/// The reader of stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// It may read more.
    Stays,
    /// It has closed its end.
    Gone,
}

/// Lets `write` write the command's result to stdout. A reader that closes its end, such as head(1), is no error; a full disk
/// is one.
pub(crate) fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<Reader> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let is_gone = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => Ok(Reader::Stays),
        Err(error) if error.chain().any(is_gone) => Ok(Reader::Gone),
        // Errors of other outputs already name the output.
        Err(error) if error.is::<io::Error>() => Err(error).context("writing to stdout"),
        Err(error) => Err(error),
    }
}
