//! `sidestep dns import`: the configuration of another server as ours.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use dns_import::{Reader, Server};

use crate::output::{complain, to_stdout};

/// Print the configuration of BIND, NSD or Knot as one of `dns serve`: `sidestep dns import bind /etc/bind/named.conf > dns.toml`.
///
/// Zones, their files, keys and signing, secondaries, access lists, notices, keys of TSIG and addresses to listen at come along. What does not
/// is listed on stderr and in comments at the beginning. Look at both, then run `sidestep dns check --config dns.toml`.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Import {
    /// Whose configuration it is.
    server: Whose,
    /// Its file, which may include others.
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Whose {
    /// BIND 9: named.conf.
    Bind,
    /// NSD 4: nsd.conf.
    Nsd,
    /// Knot DNS 3: knot.conf.
    Knot,
}

/// Prints the configuration. It exits well if something did not come along.
pub(crate) fn import(options: &Import) -> anyhow::Result<ExitCode> {
    let server = match options.server {
        Whose::Bind => Server::Bind,
        Whose::Nsd => Server::Nsd,
        Whose::Knot => Server::Knot,
    };
    let path = std::path::absolute(&options.file)?;
    let path = path.to_str().context("the path of the file is not UTF-8")?;
    let config = dns_import::import(server, path, &mut FileSystem)?;
    for note in &config.notes {
        complain!("not carried over: {note}");
    }
    to_stdout(|out| Ok(out.write_all(config.to_toml().as_bytes())?))?;
    Ok(ExitCode::SUCCESS)
}

/// The files of this machine.
struct FileSystem;

impl Reader for FileSystem {
    fn read(&mut self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn matching(&mut self, pattern: &str) -> io::Result<Vec<String>> {
        let paths = glob::glob(pattern).map_err(io::Error::other)?;
        let path = |found: glob::GlobResult| {
            let path = found.map_err(io::Error::from)?;
            path.into_os_string().into_string().map_err(|_| io::Error::other("a path is not UTF-8"))
        };
        paths.map(path).collect()
    }
}
