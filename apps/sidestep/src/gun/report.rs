//! What came of one or several loads.

use std::net::SocketAddr;

use gun::Summary;
use serde::{Deserialize, Serialize};

/// What `--json` writes. A field is never given another meaning; new ones may come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of what this is a report: `gun dns`, `gun udp`, `gun http`, `gun connect`.
    pub(crate) kind: String,
    /// When it began, by the clock of this machine (RFC 3339).
    pub(crate) began: String,
    pub(crate) server: String,
    /// What was asked: a file, a name, a request.
    pub(crate) subject: String,
    /// How many questions that is.
    pub(crate) questions: usize,
    pub(crate) device: String,
    /// Or connections.
    pub(crate) ports: u32,
    /// What carried it, if not UDP: `tcp`, `tls`, `https`, `http/1.1`, `http/2`.
    #[serde(default)]
    pub(crate) transport: Option<String>,
    pub(crate) loads: Vec<Summary>,
    /// If it was searched.
    pub(crate) knee: Option<Found>,
    /// Connections that were held, of `gun connect`.
    #[serde(default)]
    pub(crate) held: Option<Held>,
}

/// Connections that were held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Held {
    /// At the same time.
    pub(crate) most: usize,
    /// Until the end.
    pub(crate) end: usize,
}

/// The knee.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The largest load that was carried, in questions a second.
    pub(crate) carried: Option<u32>,
    /// What keeps it there: `server` or `generator`.
    pub(crate) limit: String,
}

/// Words for what a report counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// What is sent.
    pub(crate) requests: &'static str,
    /// What it is sent by.
    pub(crate) places: &'static str,
    /// The lines of both figures.
    pub(crate) sent: &'static str,
    pub(crate) answered: &'static str,
}

impl Report {
    /// A report without loads, that begins now.
    pub(crate) fn begin(kind: &str, server: SocketAddr, subject: String) -> Report {
        Report {
            kind: kind.to_owned(),
            began: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            server: server.to_string(),
            subject,
            questions: 1,
            ..Report::default()
        }
    }

    pub(crate) fn words(&self) -> Words {
        let places = if self.transport.is_some() { "connections" } else { "ports" };
        let (sent, answered) = ("sent", "answered");
        match &self.kind[..] {
            "gun http" => Words { requests: "requests", places, sent, answered },
            "gun udp" => Words { requests: "datagrams", places, sent, answered },
            "gun connect" => Words { requests: "connections", places, sent: "begun", answered: "opened" },
            _ => Words { requests: "questions", places, sent, answered },
        }
    }

    /// The load that tells most: the one at the knee, else the last one.
    pub(crate) fn telling(&self) -> Option<&Summary> {
        let carried = self.knee.as_ref().and_then(|knee| knee.carried);
        let at_knee = self.loads.iter().rev().find(|load| Some(load.offered) == carried);
        at_knee.or(self.loads.last())
    }
}
