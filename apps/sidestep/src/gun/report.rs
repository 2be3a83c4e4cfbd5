//! What came of one or several loads.

use gun::Summary;
use serde::{Deserialize, Serialize};

use super::options::Dns;

/// What `--json` writes. A field is never given another meaning; new ones may come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of what this is a report.
    pub(crate) kind: String,
    /// When it began, by the clock of this machine (RFC 3339).
    pub(crate) began: String,
    pub(crate) server: String,
    /// What was asked: a file or a name.
    pub(crate) subject: String,
    /// How many questions that is.
    pub(crate) questions: usize,
    pub(crate) device: String,
    pub(crate) ports: u16,
    pub(crate) loads: Vec<Summary>,
    /// If it was searched.
    pub(crate) knee: Option<Found>,
}

/// The knee.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The largest load that was carried, in questions a second.
    pub(crate) carried: Option<u32>,
    /// What keeps it there: `server` or `generator`.
    pub(crate) limit: String,
}

impl Report {
    pub(crate) fn begin(options: &Dns, device: &str, questions: usize) -> Report {
        Report {
            kind: "gun dns".to_owned(),
            began: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            server: options.server.to_string(),
            subject: options.subject(),
            questions,
            device: device.to_owned(),
            ports: options.ports,
            loads: Vec::new(),
            knee: None,
        }
    }

    /// The load that tells most: the one at the knee, else the last one.
    pub(crate) fn telling(&self) -> Option<&Summary> {
        let carried = self.knee.as_ref().and_then(|knee| knee.carried);
        let at_knee = self.loads.iter().rev().find(|load| Some(load.offered) == carried);
        at_knee.or(self.loads.last())
    }
}
