//! Metrics for Prometheus: what the last round of each resolver of the list found, and how the watch itself does.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

use super::history::word;
use super::state::State;
use crate::observe::{Exposition, serve_metrics};

/// Serves on a thread of its own, which ends with the process.
pub(super) fn serve(address: SocketAddr, state: &Arc<Mutex<State>>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("metrics at {address}"))?;
    let state = Arc::clone(state);
    let read = move || Ok(exposition(&state.lock().unwrap_or_else(PoisonError::into_inner)));
    let serve = move || {
        if let Err(error) = serve_metrics(listener, read) {
            log::error!("metrics at {address}: {error}");
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(serve).map(drop).context("starting a thread")
}

fn exposition(state: &State) -> Exposition {
    let mut exposition = Exposition::default();
    for (resolver, latest) in &state.resolvers {
        let Some(latest) = &latest.latest else { continue };
        let label = || ("resolver", resolver.clone());
        if let Some(points) = latest.points {
            exposition.add_sample("sidestep_audit_score", &[label()], points.into());
        }
        exposition.add_sample("sidestep_audit_round_seconds", &[label()], latest.at_s);
        for (verdict, count) in &latest.counts {
            let labels = [label(), ("verdict", word(*verdict))];
            exposition.add_sample("sidestep_audit_findings", &labels, *count);
        }
    }
    for (name, value) in [
        ("sidestep_audit_rounds_total", state.rounds),
        ("sidestep_audit_rounds_failed_total", state.failed),
        ("sidestep_audit_history_errors_total", state.unwritten),
        ("sidestep_audit_history_written", state.is_written.into()),
    ] {
        exposition.add_sample(name, &[], value);
    }
    exposition
}
