//! Two engines over wires in memory with faults, made of seeds. A seed that fails is printed with the command that plays it again.

use std::ops::Range;
use std::panic::catch_unwind;

use simnet::engines::{EngineReport, EngineScenario};

/// Plays all `seeds`, or as many times more as SIMNET_TIMES says.
fn each_seed(seeds: Range<u64>) -> Vec<EngineReport> {
    let times = from_environment("SIMNET_TIMES").unwrap_or(1);
    let (mut failed, mut reports) = (Vec::new(), Vec::new());
    for seed in (0..times).flat_map(|round| seeds.clone().map(move |seed| seed + round * 1_000_000)) {
        match play(seed) {
            Ok(report) => reports.push(report),
            Err(reason) => {
                println!("{reason}\nto play it again: {}\n", replay(seed));
                failed.push(seed);
            }
        }
    }
    assert!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
    reports
}

fn replay(seed: u64) -> String {
    format!("SIMNET_SEED={seed} cargo test -p simnet --test engines -- --nocapture one_seed")
}

fn play(seed: u64) -> Result<EngineReport, String> {
    let run = || EngineScenario::new(seed).run();
    catch_unwind(run).unwrap_or_else(|_| Err("an engine, or the simulation, panicked".to_owned()))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn octets_arrive_whole_and_in_order_and_frames_return_to_their_pools() {
    let reports = each_seed(0..300);
    let troubled = reports.iter().filter(|report| report.faults > 0).count();
    assert!(troubled * 2 > reports.len(), "wires without faults prove little: {troubled}");
}

#[test]
fn a_seed_always_plays_the_same() {
    for seed in 0..20 {
        assert_eq!(play(seed), play(seed), "{}", replay(seed));
    }
}

/// Plays the seed that the environment names, if it names one.
#[test]
fn one_seed() {
    let Some(seed) = from_environment("SIMNET_SEED") else { return };
    let scenario = EngineScenario::new(seed);
    println!("{scenario:#?}");
    match scenario.run() {
        Ok(report) => println!("{report:#?}"),
        Err(violation) => panic!("{violation}"),
    }
}
