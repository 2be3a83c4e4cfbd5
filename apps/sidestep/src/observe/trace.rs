//! `sidestep trace`: the trace rings of the stacks.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use observe::client::{Answer, Answering};
use observe::protocol::{Reply, Request};
use observe::report::TraceReport;

use super::sockets::write_line;
use super::time_of_day::time_of_day;
use super::{Which, filter_of, next_reply, print_each};
use crate::output::to_stdout;

/// The options of `trace`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Trace {
    #[command(flatten)]
    which: Which,

    /// Print only this connection, by its id in `sidestep sockets`: `12.3`, or `12` for all that used slot 12.
    #[arg(long, value_name = "ID")]
    connection: Option<String>,

    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,

    /// Print only matching connections. Connections that are closed have no addresses and do not match.
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

/// `sidestep trace`.
pub(crate) fn run(options: &Trace) -> anyhow::Result<ExitCode> {
    let connection = options.connection.as_ref();
    let connection = connection.map(|id| id.strip_prefix("id:").unwrap_or(id).to_owned());
    let request = Request::Trace { filter: filter_of(&options.filter)?, connection };
    let answers = options.which.ask(&request)?;
    to_stdout(|out| {
        print_each(answers, out, |answering, answer, out| print(answering, answer, options.json, out))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(answering: &Answering, answer: &mut Answer, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    while let Some(reply) = next_reply(answering, answer)? {
        let Reply::Trace(records) = reply else { continue };
        for record in records {
            if json {
                write_line(out, answering, "trace", &record)?;
            } else {
                writeln!(out, "{}", line(answering, &record))?;
            }
        }
    }
    Ok(())
}

/// Time (UTC), process, engine and connection, its addresses, and the event.
fn line(answering: &Answering, record: &TraceReport) -> String {
    let mut words = vec![
        time_of_day(record.time_ns),
        format!("{}/{} engine {} id:{}", answering.name, answering.pid, record.engine, record.connection),
    ];
    words.extend(record.ends.map(|(local, remote)| format!("{local} {remote}")));
    words.push(record.event.clone());
    words.extend(record.state.clone());
    words.extend(record.segment.as_ref().map(|segment| {
        let (flags, seq, ack) = (&segment.flags, segment.seq, segment.ack);
        format!("[{flags}] seq {seq} ack {ack} win {} len {}", segment.window, segment.len)
    }));
    words.extend(record.cwnd.map(|cwnd| format!("cwnd {cwnd}")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use observe::report::SegmentReport;

    use super::*;

    #[test]
    fn a_record_is_a_line() {
        let segment = SegmentReport { flags: "P.".to_owned(), seq: 1, ack: 2, window: 502, len: 5 };
        let record = TraceReport {
            engine: 0,
            time_ns: 3_600_000_000_000,
            connection: "12.3".to_owned(),
            ends: Some(("192.0.2.1:80".parse().unwrap(), "192.0.2.2:9".parse().unwrap())),
            event: "sent".to_owned(),
            state: None,
            segment: Some(segment),
            cwnd: Some(14_480),
        };
        let answering = Answering { pid: 7, name: "echo".to_owned(), engines: 1 };
        let wanted = "01:00:00.000000 echo/7 engine 0 id:12.3 192.0.2.1:80 192.0.2.2:9 sent [P.] seq 1 ack 2 win 502 \
                      len 5 cwnd 14480";
        assert_eq!(line(&answering, &record), wanted);
    }
}
