//! The API table: small checks of what sockets do, each of which says what it saw and judges nothing. Run on the kernel it says what
//! is right; run under `sidestep run` it must say the same. `tests/tests/socket_table.rs` does both and compares.
//!
//! | usage | |
//! | --- | --- |
//! | `socket_table --list [FILTER]...` | names of checks |
//! | `socket_table --loopback [FILTER]...` | runs them on 127.0.0.1 and ::1, for writing checks without privileges |
//! | `socket_table --serve-peer PATH` | the other end of the checks' connections, at a Unix socket |
//! | `socket_table --peer-unix PATH --local IP --remote IP [OPTION]... [FILTER]...` | runs them; both twice, for IPv4 and IPv6 |
//!
//! Options: `--shard I/N`, each N-th check from the I-th; `--settle-ms MS`, see [`scene::Stage::settle`]; `--output FILE` in place of
//! the standard output. A filter is a part of a name. `table.rs` is what a check is, `scene.rs` what it has, `sys` what it calls, `peer` the other end,
//! `checks` the table itself.

mod after_exec;
mod checks;
mod pair;
mod peer;
mod runner;
mod scene;
mod show;
mod sys;
mod table;

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use runner::Run;
use scene::Stage;

const USAGE: &str = "usage: socket_table --list | --loopback | --serve-peer PATH | \
                     --peer-unix PATH --local IP --remote IP [--shard I/N] [--settle-ms MS] [--output FILE], \
                     and parts of names";

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match obey(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("socket_table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn obey(words: &[String]) -> Result<(), Error> {
    match words.first().map(String::as_str) {
        Some("--list") => list(&words[1..]),
        Some("--serve-peer") => peer::serve(words.get(1).ok_or(USAGE)?.as_ref())?,
        Some("--after-exec") => after_exec::obey(&words[1..]),
        Some("--loopback") => on_loopback(&words[1..])?,
        Some("--peer-unix") => {
            let (run, mut output) = parse(words)?;
            run.run(&mut output);
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn list(filters: &[String]) {
    for (check, variant) in runner::selected(&checks::all(), filters) {
        println!("{}{}", check.name, variant.suffix);
    }
}

/// Runs with a peer of its own, which lives as long.
fn on_loopback(filters: &[String]) -> Result<(), Error> {
    let path = std::env::temp_dir().join(format!("socket-table-{}.sock", std::process::id()));
    let listener = peer::listen(&path)?;
    let peer = sys::fork_to(|| peer::serve_on(&listener)).map_err(|errno| errno.to_string())?;
    let ips = || vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
    let stage = Stage { peer: path.clone(), local: ips(), remote: ips(), settle: Duration::ZERO };
    Run { stage, shard: (0, 1), filters: filters.to_vec() }.run(&mut std::io::stdout());
    sys::kill(peer, libc::SIGKILL).map_err(|errno| errno.to_string())?;
    Ok(std::fs::remove_file(path)?)
}

fn parse(words: &[String]) -> Result<(Run, Box<dyn Write>), Error> {
    let mut stage =
        Stage { peer: PathBuf::new(), local: Vec::new(), remote: Vec::new(), settle: Duration::ZERO };
    let mut run_filters = Vec::new();
    let mut shard = (0, 1);
    let mut output: Box<dyn Write> = Box::new(std::io::stdout());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(USAGE);
        match word.as_str() {
            "--peer-unix" => stage.peer = value()?.into(),
            "--local" => stage.local.push(value()?.parse()?),
            "--remote" => stage.remote.push(value()?.parse()?),
            "--settle-ms" => stage.settle = Duration::from_millis(value()?.parse()?),
            "--output" => output = Box::new(File::create(value()?)?),
            "--shard" => {
                let (own, all) = value()?.split_once('/').ok_or(USAGE)?;
                shard = (own.parse()?, all.parse()?);
            }
            filter => run_filters.push(filter.to_owned()),
        }
    }
    Ok((Run { stage, shard, filters: run_filters }, output))
}
