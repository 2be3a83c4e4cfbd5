//! `sidestep dns servers`: the table of servers as text.

use std::process::ExitCode;

use observe::protocol::{Reply, Request};
use observe::report::NameServerReport;

use super::NAME;
use super::options::ShowServers;
use crate::dns::stats::only;
use crate::observe::next_reply;
use crate::output::to_stdout;

/// Prints the table of a running resolver, the fastest server first.
pub(crate) fn print(options: &ShowServers) -> anyhow::Result<ExitCode> {
    let (answering, mut answer) = only(options.which.ask(&Request::NameServers)?, &[NAME])?;
    let mut servers = Vec::new();
    while let Some(reply) = next_reply(&answering, &mut answer)? {
        if let Reply::NameServers(some) = reply {
            servers.extend(some);
        }
    }
    servers.sort_by_key(|server| (server.silent > 0, server.srtt_us.unwrap_or(u64::MAX), server.address));
    to_stdout(|out| {
        writeln!(out, "{HEAD}")?;
        servers.iter().try_for_each(|server| writeln!(out, "{}", line(server)))?;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

const HEAD: &str = "server                                   srtt-ms   var-ms  penalty-ms  silent  queries  probes  answers  losses   age-s  lacks";

/// Times have a tenth of a millisecond; `-` is unknown.
fn line(server: &NameServerReport) -> String {
    let millis =
        |micros: Option<u64>| micros.map_or("-".to_owned(), |us| format!("{:.1}", us as f64 / 1000.0));
    let lacks = [("edns", server.edns), ("tcp", server.tcp)];
    let lacks: Vec<&str> = lacks.into_iter().filter(|(_, can)| !can).map(|(what, _)| what).collect();
    let line = format!(
        "{:<40} {:>7}  {:>7}  {:>10}  {:>6}  {:>7}  {:>6}  {:>7}  {:>6}  {:>6}  {}",
        server.address.to_string(),
        millis(server.srtt_us),
        millis(server.rttvar_us),
        millis(Some(server.penalty_us)),
        server.silent,
        server.queries,
        server.probes,
        server.answers,
        server.losses,
        server.age_ms / 1000,
        lacks.join(","),
    );
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_their_names() {
        let server = NameServerReport {
            address: "[2001:db8::1]:53".parse().unwrap(),
            srtt_us: Some(5120),
            rttvar_us: None,
            penalty_us: 0,
            silent: 2,
            edns: false,
            tcp: true,
            queries: 10,
            probes: 3,
            answers: 11,
            losses: 2,
            age_ms: 4200,
        };
        let line = line(&server);
        let end = |text: &str| HEAD.find(text).unwrap() + text.len();
        assert!(line[..end("srtt-ms")].ends_with(" 5.1") && line[..end("var-ms")].ends_with(" -"), "{line}");
        assert!(line[..end("silent")].ends_with(" 2") && line[..end("age-s")].ends_with(" 4"), "{line}");
        assert!(line.ends_with("  edns"));
    }
}
