//! dig, a resolver's eye that none of us wrote.

use std::net::SocketAddr;
use std::process::Command;

/// How a query travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP, without a second try over TCP.
    Udp,
    /// TCP.
    Tcp,
}

/// What dig says about one query.
#[derive(Clone, Debug)]
pub struct Dig {
    /// Everything.
    pub text: String,
}

impl Dig {
    /// Asks with the `dig` that `command` starts: dig itself, or dig somewhere else.
    pub fn ask_by(mut command: Command, server: SocketAddr, transport: Transport, question: &[&str]) -> Dig {
        let transport = match transport {
            Transport::Udp => ["+notcp", "+ignore"],
            Transport::Tcp => ["+tcp", "+ignore"],
        };
        command.args([&format!("@{}", server.ip()), "-p", &server.port().to_string()]);
        let output = command.args(transport).args(["+tries=1", "+time=30"]).args(question).output().unwrap();
        Dig { text: String::from_utf8(output.stdout).unwrap() }
    }

    /// Asks from here.
    pub fn ask(server: SocketAddr, transport: Transport, question: &[&str]) -> Dig {
        Dig::ask_by(Command::new("dig"), server, transport, question)
    }

    /// Response code, `NOERROR` and so on; empty without an answer.
    pub fn status(&self) -> &str {
        let after = self.text.split_once("status: ").map_or("", |(_, after)| after);
        after.split(',').next().unwrap_or_default()
    }

    /// Whether the header has a flag, `aa` and so on.
    pub fn has_flag(&self, flag: &str) -> bool {
        let line = self.text.lines().find_map(|line| line.strip_prefix(";; flags: ")).unwrap_or_default();
        line.split(';').next().unwrap_or_default().split_whitespace().any(|own| own == flag)
    }

    /// Records of a section, `ANSWER` and so on: owner, TTL, class, type, data, with one blank between them.
    pub fn section(&self, name: &str) -> Vec<String> {
        let head = format!(";; {name} SECTION:");
        let lines = self.text.lines().skip_while(|line| *line != head).skip(1);
        let records = lines.take_while(|line| !line.is_empty());
        records.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }
}
