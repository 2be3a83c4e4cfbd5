//! The zone, its log and the wall clock: what answers a message, whichever way it came.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use dns_audit::authority::{Answer, Asked, Entry, Log, Via, Zone};

use super::super::clock::unix_ms;

/// What all transports share.
pub(super) struct Service {
    zone: Zone,
    servers: Vec<SocketAddr>,
    log: Mutex<Log>,
    /// None if there is no file, or it cannot be written any more.
    lines: Mutex<Option<(PathBuf, BufWriter<File>)>>,
}

impl Service {
    pub(super) fn new(
        zone: Zone,
        servers: Vec<SocketAddr>,
        entries: usize,
        file: Option<&Path>,
    ) -> anyhow::Result<Service> {
        let open = |path: &Path| {
            let file = File::options().append(true).create(true).open(path);
            let file = file.with_context(|| format!("log file {}", path.display()))?;
            anyhow::Ok((path.to_owned(), BufWriter::new(file)))
        };
        let lines = Mutex::new(file.map(open).transpose()?);
        Ok(Service { zone, servers, log: Mutex::new(Log::new(entries)), lines })
    }

    /// Answers a message that came to `destination`.
    pub(super) fn answer(
        &self,
        message: &[u8],
        source: SocketAddr,
        destination: SocketAddr,
        via: Via,
    ) -> Answer {
        let server = self.servers.iter().position(|own| *own == destination).unwrap_or(0);
        let asked = Asked { message, source, server, via };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.zone.answer(&asked, &mut log, unix_ms());
        drop(log);
        if let Some(entry) = &answer.entry {
            self.write(entry);
        }
        answer
    }

    fn write(&self, entry: &Entry) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((path, file)) = lines.as_mut() else { return };
        let text = serde_json::to_string(entry).unwrap_or_default();
        if let Err(error) = writeln!(file, "{text}").and_then(|()| file.flush()) {
            super::complain_once(path, &error);
            *lines = None;
        }
    }
}
