//! Name servers: UDP, and TCP beside it.

use lab::SERVER_V4;
use lab::programs::{Program, dnsmasq, nsd};
use tests::{Load, Tally};

use crate::trial::{Carrier, Figure, Trial, server};

/// Queries of the load.
const QUERIES: u64 = 20_000;

fn serves(program: &Program) {
    let Some(trial) = Trial::of(program.name()) else { return };
    let running = trial.start(program);
    for transport in ["+notcp", "+tcp"] {
        let answer =
            trial.ask(&format!("dig @{SERVER_V4} {transport} +short +tries=1 +time=30 mail.example.com A"));
        assert_eq!(answer, "192.0.2.3", "{transport}");
    }
    trial.load("queries, 16 under way", Carrier::Stack, || {
        let load = Load { queries_max: QUERIES, ..Load::new(server(53), "mail.example.com") };
        let began = std::time::Instant::now();
        let tally: Tally = trial.inside(|| load.run(&false.into())).unwrap();
        let rate = tally.answered as f64 / began.elapsed().as_secs_f64();
        Figure::new(rate, "answers/s").with_errors(tally.lost + tally.wrong, format!("{tally:?}"))
    });
    trial.end(running);
}

#[test]
fn dnsmasq_answers() {
    serves(&dnsmasq());
}

#[test]
fn nsd_answers() {
    serves(&nsd());
}
