//! Playing seeds, and saying how to play one again.
#![allow(dead_code, unreachable_pub)]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use simnet::net::{Peers, Report, Scenario, Weather};

/// Plays all `seeds`, or as many times more as SIMNET_TIMES says.
pub fn each_seed(test: &str, seeds: Range<u64>, peers: Peers, weather: Weather) {
    let times = from_environment("SIMNET_TIMES").unwrap_or(1);
    let (mut failed, mut complete, mut connections) = (Vec::new(), 0, 0);
    for seed in (0..times).flat_map(|round| seeds.clone().map(move |seed| seed + round * 1_000_000)) {
        match play(seed, peers, weather) {
            Ok(report) => {
                complete += report.complete;
                connections += report.connections;
            }
            Err(reason) => {
                println!("{reason}\nto play it again: {}\n", replay(test, seed, peers, weather));
                failed.push(seed);
            }
        }
    }
    assert!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
    // One plan in nine has a reset; else a scenario that does not complete proves little.
    assert!(complete * 4 > connections * 3, "{complete} of {connections} connections were complete");
}

fn replay(test: &str, seed: u64, peers: Peers, weather: Weather) -> String {
    format!(
        "SIMNET_SEED={seed} SIMNET_PEERS={peers:?} SIMNET_WEATHER={weather:?} cargo test -p simnet --test {test} -- \
         --nocapture one_seed"
    )
}

/// Plays the seed that the environment names, if it names one.
pub fn one(peers: Peers) {
    let Some(seed) = from_environment("SIMNET_SEED") else {
        return;
    };
    let peers = match std::env::var("SIMNET_PEERS").as_deref() {
        Ok("OursMoving") => Peers::OursMoving,
        Ok("SmoltcpServer") => Peers::SmoltcpServer,
        Ok("SmoltcpClient") => Peers::SmoltcpClient,
        _ => peers,
    };
    let weather = match std::env::var("SIMNET_WEATHER").as_deref() {
        Ok("Calm") => Weather::Calm,
        Ok("Lossy") => Weather::Lossy,
        _ => Weather::Rough,
    };
    let scenario = Scenario::new(seed, peers, weather);
    println!("{scenario:#?}");
    match scenario.run() {
        Ok(report) => println!("{report:#?}"),
        Err(violation) => panic!("{violation}"),
    }
}

fn play(seed: u64, peers: Peers, weather: Weather) -> Result<Report, String> {
    let run = AssertUnwindSafe(|| Scenario::new(seed, peers, weather).run());
    match catch_unwind(run) {
        Ok(result) => result.map_err(|violation| violation.to_string()),
        Err(_) => Err("the stack, or the simulation, panicked".to_owned()),
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
