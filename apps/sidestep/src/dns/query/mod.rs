//! `sidestep dns query`: a client in dig's words.
//!
//! | file | what it does |
//! | --- | --- |
//! | `words.rs` | the words of the command line |
//! | `question.rs` | the message that asks |
//! | `answer.rs` | an answer, read for people |
//! | `show.rs`, `json.rs` | how it is printed |
//! | `trace.rs` | `+trace`: from the root's servers to the answer |

mod answer;
mod json;
mod question;
mod show;
mod trace;
mod words;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use dns_client::{Client, Server, Transport};

use answer::{Answer, COOKIE_OF_CLIENT};
pub(in crate::dns) use answer::{extended_errors, flag_names, rcode_text};
pub(in crate::dns) use show::line;
use words::{Form, Words};

use crate::output;

/// The command line of `query`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Query {
    /// `@SERVER` (address or name; default: the first of /etc/resolv.conf), the name, its type (default A) and class, and `+OPTION`s, in
    /// any order.
    #[arg(required_unless_present = "reverse", value_name = "WORD")]
    words: Vec<String>,

    /// The server's port [default: 53; 853 for TLS and QUIC, 443 for HTTPS].
    #[arg(short = 'p', long, value_name = "PORT")]
    port: Option<u16>,

    /// Ask for the name of this address, with type PTR.
    #[arg(short = 'x', long, value_name = "ADDRESS")]
    reverse: Option<std::net::IpAddr>,
}

/// Asks, and prints what came.
pub(crate) fn query(options: &Query) -> anyhow::Result<ExitCode> {
    let words = Words::read(&options.words, options.reverse)?;
    let client = Client::new(words.trust.clone(), words.patience)?;
    let server = words.server(options.port)?;
    let asker = Asker { client, words: &words };
    output::to_stdout(|out| {
        if words.is_trace {
            return trace::trace(&asker, &server, out);
        }
        let answer = asker.ask(&server, words.transport, &words.question(), !words.is_truncation_kept)?;
        print(&answer, words.form, out)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(answer: &Answer, form: Form, out: &mut dyn Write) -> anyhow::Result<()> {
    match form {
        Form::Long => show::long(answer, out)?,
        Form::Short => show::short(answer, out)?,
        Form::Json => {
            serde_json::to_writer_pretty(&mut *out, &json::message(answer))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Who asks, and how.
struct Asker<'a> {
    client: Client,
    words: &'a Words,
}

/// By whom an answer was given.
#[derive(Clone, Debug)]
struct Source {
    address: SocketAddr,
    transport: Transport,
    took: Duration,
}

impl Asker<'_> {
    /// The answer of a server; over TCP if it does not fit UDP and `is_whole` is wanted.
    fn ask(
        &self,
        server: &Server,
        transport: Transport,
        question: &question::Question,
        is_whole: bool,
    ) -> anyhow::Result<Answer> {
        // Another one for each server: none learns what the others know us by (RFC 9018, 3).
        let cookie: [u8; COOKIE_OF_CLIENT] = question::random()?;
        let answer = self.exchange(server, transport, question.message(&cookie)?, is_whole)?;
        match answer.wanted_cookie(&cookie) {
            Some(cookie) => self.exchange(server, transport, question.message(cookie)?, is_whole),
            None => Ok(answer),
        }
    }

    fn exchange(
        &self,
        server: &Server,
        transport: Transport,
        asked: Vec<u8>,
        is_whole: bool,
    ) -> anyhow::Result<Answer> {
        let begin = Instant::now();
        let octets = self.client.ask(server, transport, &asked);
        let octets = octets.with_context(|| format!("{} over {}", server.address, transport.name()))?;
        // What is in it does not count, and may end in the middle of a record (RFC 2181, 9).
        if is_whole && transport == Transport::Udp && answer::is_truncated(&octets) {
            return self.exchange(server, Transport::Tcp, asked, is_whole);
        }
        let source = Source { address: server.address, transport, took: begin.elapsed() };
        Answer::read(&octets, source).context("the answer is malformed")
    }
}
