//! Unmodified programs on the kernel's network and by `sidestep run`, in turns: nginx, redis, sockperf, and what a hooked call costs on
//! descriptors that are the kernel's.
//!
//! Usage: `run [ROUNDS] [SECONDS] [SCENARIO...]` (default: 3 rounds of 3 seconds, all scenarios)
#![forbid(unsafe_code)]

mod hooks;
mod scenarios;
mod stateless;

use std::process::ExitCode;

use bench::processor::Shares;
use bench::record::{Figure, Run};
use lab::{
    Conditions, Lab, LabError, Place, Placed, VETH, all_places, all_then_by_place, in_one_place,
    markdown_table,
};

use scenarios::{SCENARIOS, Scenario, Serving, Wanted};

/// What a run found.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    value: f64,
    errors: u64,
    busy: Shares,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == hooks::CALLS) {
        hooks::call();
        return ExitCode::SUCCESS;
    }
    if words.first().is_some_and(|word| word == stateless::SERVE) {
        return stateless::main(words.get(1));
    }
    if !lab::require_root_and_xdp() {
        return ExitCode::SUCCESS;
    }
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(3);
    match measure(number(0), number(1), words.get(2..).unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("run: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: u32, seconds: u32, names: &[String]) -> Result<(), LabError> {
    let offered = format!("by each scenario's client on core 0, {seconds} s");
    let conditions = Conditions::here("make bench FIGURES=run", VETH, &offered);
    println!("# Unmodified programs: sidestep run against the kernel\n\n{conditions}");
    println!(
        "- clients on the kernel where nothing else is said; programs on core 1, in turns; medians of {rounds} rounds, and where the cores moved, those of each place too"
    );
    println!(
        "- client's core, server's core: how much of their time they worked; with all of the client's, the client is the bound"
    );
    println!("- where nothing is said of spinning, it is what `sidestep run` does by itself\n");
    let wanted =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| scenario.name.contains(name));
    let (mut rows, mut figures) = (Vec::new(), Vec::new());
    for scenario in SCENARIOS.iter().filter(wanted) {
        let measured = rounds_of(scenario, rounds, seconds)?;
        figures.extend(figures_of(scenario, &all_places(&measured)));
        rows.extend(all_then_by_place(measured).iter().flat_map(|place| rows_in(scenario, place)));
    }
    let head = [
        "scenario",
        "unit",
        "cores apart",
        "network",
        "rounds",
        "median",
        "lowest and highest",
        "client's core",
        "server's core",
        "errors",
        "ratio",
        "target",
    ];
    println!("{}", markdown_table(&head, &rows));
    let kernel = Serving::Kernel.to_string();
    Run { name: "run", conditions: &conditions, figures, against: &[&kernel] }.keep()
}

/// Who serves, in the order in which they take turns: the kernel first.
fn servings(scenario: &Scenario) -> impl Iterator<Item = Serving> {
    let contenders = scenario.contenders.iter().map(|contender| contender.serving);
    std::iter::once(Serving::Kernel).chain(contenders)
}

fn figures_of(scenario: &Scenario, measured: &[Vec<Measurement>]) -> Vec<Figure> {
    let figure = |(serving, found): (Serving, &Vec<Measurement>)| {
        let values: Vec<f64> = found.iter().map(|measurement| measurement.value).collect();
        Figure::of(scenario.name, &serving.to_string(), scenario.unit, &values)
    };
    servings(scenario).zip(measured).filter_map(figure).collect()
}

/// All contenders of a scenario, in turns: the rounds of each, the kernel's first.
fn rounds_of(
    scenario: &Scenario,
    rounds: u32,
    seconds: u32,
) -> Result<Vec<Vec<Placed<Measurement>>>, LabError> {
    let mut found: Vec<Vec<Placed<Measurement>>> = vec![Vec::new(); scenario.contenders.len() + 1];
    for round in 1..=rounds {
        for (serving, found) in servings(scenario).zip(&mut found) {
            let measurement = in_one_place(|| (scenario.measure)(&Lab::for_figures()?, serving, seconds))?;
            eprintln!("round {round}: {}: {serving}: {measurement:?}", scenario.name);
            found.push(measurement);
        }
    }
    Ok(found)
}

fn rows_in(scenario: &Scenario, place: &Place<Measurement>) -> Vec<Vec<String>> {
    let kernel = &place.contenders[0];
    let base = median(kernel);
    let mut rows = vec![row(scenario, place, Serving::Kernel, kernel, String::new(), String::new())];
    for (contender, found) in scenario.contenders.iter().zip(&place.contenders[1..]) {
        let (ratio, verdict) = match (base, median(found)) {
            (Some(base), Some(value)) => judge(scenario, contender.target, base, value),
            _ => Default::default(),
        };
        rows.push(row(scenario, place, contender.serving, found, ratio, verdict));
    }
    rows.into_iter().flatten().collect()
}

/// None for a contender without a round in this place.
fn row(
    scenario: &Scenario,
    place: &Place<Measurement>,
    serving: Serving,
    found: &[Measurement],
    ratio: String,
    verdict: String,
) -> Option<Vec<String>> {
    let values = || found.iter().map(|measurement| measurement.value);
    let (lowest, highest) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let show = |value: f64| if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let errors: u64 = found.iter().map(|measurement| measurement.errors).sum();
    Some(vec![
        scenario.name.to_owned(),
        scenario.unit.to_owned(),
        format!("{} - {}", place.apart.0, place.apart.1),
        serving.to_string(),
        found.len().to_string(),
        show(median(found)?),
        format!("{} - {}", show(lowest), show(highest)),
        format!("{:.0} %", middle(found, |measurement| measurement.busy.client)?),
        format!("{:.0} %", middle(found, |measurement| measurement.busy.server)?),
        errors.to_string(),
        ratio,
        verdict,
    ])
}

/// The ratio to the kernel's value, or the difference, and whether it is as wanted.
fn judge(scenario: &Scenario, target: Option<f64>, base: f64, value: f64) -> (String, String) {
    let (figure, text) = match scenario.wanted {
        Wanted::HigherRatio | Wanted::LowerRatio => (value / base, format!("{:.2}", value / base)),
        Wanted::LowerDifference => (value - base, format!("{:+.1}", value - base)),
    };
    let Some(target) = target else { return (text, "none".to_owned()) };
    let (is_met, sign) = match scenario.wanted {
        Wanted::HigherRatio => (figure >= target, "at least"),
        Wanted::LowerRatio | Wanted::LowerDifference => (figure <= target, "at most"),
    };
    (text, format!("{sign} {target}: {}", if is_met { "met" } else { "MISSED" }))
}

fn median(found: &[Measurement]) -> Option<f64> {
    middle(found, |measurement| measurement.value)
}

fn middle(found: &[Measurement], figure: impl Fn(&Measurement) -> f64) -> Option<f64> {
    (!found.is_empty()).then(|| bench::report::median(&mut found.iter().map(figure).collect::<Vec<_>>()))
}
