//! Metrics for Prometheus: what the last round of each resolver found.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

use super::history::History;
use crate::observe::{Exposition, serve_metrics};

/// Serves on a thread of its own, which ends with the process.
pub(super) fn serve(address: SocketAddr, history: &Arc<Mutex<History>>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("metrics at {address}"))?;
    let history = Arc::clone(history);
    let read = move || exposition(&history.lock().unwrap_or_else(PoisonError::into_inner));
    let serve = move || {
        if let Err(error) = serve_metrics(listener, read) {
            log::error!("metrics at {address}: {error}");
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(serve).map(drop).context("starting a thread")
}

fn exposition(history: &History) -> anyhow::Result<Exposition> {
    let mut exposition = Exposition::default();
    for (resolver, points, at) in history.scores()? {
        let labels = [("resolver", resolver)];
        exposition.add_sample("sidestep_audit_score", &labels, points.into());
        exposition.add_sample("sidestep_audit_round_seconds", &labels, at);
    }
    for (resolver, verdict, count) in history.counts()? {
        exposition.add_sample(
            "sidestep_audit_findings",
            &[("resolver", resolver), ("verdict", verdict)],
            count,
        );
    }
    Ok(exposition)
}
