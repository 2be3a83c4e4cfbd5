//! Playing seeds, and saying how to play one again.
#![allow(dead_code, unreachable_pub)]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use simnet::net::{Peers, Scenario, Weather};

/// Plays all `seeds`, or as many times more as SIMNET_TIMES says.
pub fn each_seed(test: &str, seeds: Range<u64>, peers: Peers, weather: Weather) {
    let times = from_environment("SIMNET_TIMES").unwrap_or(1);
    let mut failed = Vec::new();
    for round in 0..times {
        for seed in seeds.clone().map(|seed| seed + round * 1_000_000) {
            if let Err(reason) = play(seed, peers, weather) {
                let replay = format!(
                    "SIMNET_SEED={seed} SIMNET_PEERS={peers:?} SIMNET_WEATHER={weather:?} cargo test -p simnet --test {test} \
                     -- --nocapture one_seed"
                );
                println!("{reason}\nto play it again: {replay}\n");
                failed.push(seed);
            }
        }
    }
    assert!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
}

/// Plays the seed that the environment names, if it names one.
pub fn one(peers: Peers) {
    let Some(seed) = from_environment("SIMNET_SEED") else {
        return;
    };
    let peers = match std::env::var("SIMNET_PEERS").as_deref() {
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

fn play(seed: u64, peers: Peers, weather: Weather) -> Result<(), String> {
    let run = AssertUnwindSafe(|| Scenario::new(seed, peers, weather).run());
    match catch_unwind(run) {
        Ok(result) => result.map(drop).map_err(|violation| violation.to_string()),
        Err(_) => Err("the stack, or the simulation, panicked".to_owned()),
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
