//! `sidestep counters`: like nstat(8), for Sidestep's counters.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use observe::client::{Answer, Answering};
use observe::protocol::Request;
use observe::report::{Count, CountersReport, DeviceCounters, EngineCounters};

use super::sockets::write_line;
use super::{Which, print_each, whole_counters};
use crate::output::to_stdout;

/// The options of `counters`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Counters {
    #[command(flatten)]
    which: Which,

    /// Print counters that are zero, too.
    #[arg(long, short)]
    zeros: bool,

    /// Print each engine and device separately instead of sums.
    #[arg(long, short)]
    engines: bool,

    /// Print one JSON object for each program, with each engine separately.
    #[arg(long)]
    json: bool,
}

impl Counters {
    /// The counters of `which`, without zeros.
    pub(super) fn of(which: Which, json: bool) -> Counters {
        Counters { which, zeros: false, engines: false, json }
    }
}

/// `sidestep counters`.
pub(crate) fn run(options: &Counters) -> anyhow::Result<ExitCode> {
    let answers = options.which.ask(&Request::Counters)?;
    to_stdout(|out| {
        print_each(answers, out, |answering, answer, out| print(answering, answer, options, out))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(
    answering: &Answering,
    answer: &mut Answer,
    options: &Counters,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if let Some(report) = whole_counters(answering, answer)? {
        if options.json {
            return write_line(out, answering, "counters", &report);
        }
        writeln!(out, "# {}/{}", answering.name, answering.pid)?;
        let (counts, devices) = match options.engines {
            true => (each_engine(&report), device_lines(&report)),
            false => (sums(&report), Vec::new()),
        };
        devices.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        for (name, value) in counts.into_iter().filter(|(_, value)| options.zeros || *value != 0) {
            writeln!(out, "{name:<40} {value}")?;
        }
    }
    Ok(())
}

/// Describes the devices, as comments.
pub(crate) fn device_lines(report: &CountersReport) -> Vec<String> {
    let engines = report.engines.iter().enumerate();
    let lines = engines.flat_map(|(number, engine)| {
        let of_device = move |device: &DeviceCounters| {
            format!("# engine {number} device {}: {}", device.device, device.description)
        };
        engine.devices.iter().map(of_device)
    });
    lines.collect()
}

/// All counters, those of engines and devices with their numbers in front.
pub(crate) fn each_engine(report: &CountersReport) -> Vec<Count> {
    let mut counts = report.own.clone();
    for (number, engine) in report.engines.iter().enumerate() {
        let of_engine = engine.engine.iter().chain(&engine.stack);
        counts.extend(of_engine.map(|(name, value)| (format!("engine_{number}_{name}"), *value)));
        for device in &engine.devices {
            let id = device.device;
            let of_device = device.counters.iter();
            counts.extend(
                of_device.map(|(name, value)| (format!("engine_{number}_device_{id}_{name}"), *value)),
            );
        }
        let gone = engine.devices_gone.iter().filter(|(_, value)| *value != 0);
        counts.extend(gone.map(|(name, value)| (format!("engine_{number}_devices_gone_{name}"), *value)));
    }
    counts
}

/// The program's own counters, then the sums of all stacks, all engines, and all devices.
fn sums(report: &CountersReport) -> Vec<Count> {
    let engines = || report.engines.iter();
    let stacks = sum("", engines().flat_map(|engine| &engine.stack));
    let own = sum("engine_", engines().flat_map(|engine| &engine.engine));
    let devices = sum("device_", engines().flat_map(of_devices));
    report.own.iter().cloned().chain(stacks).chain(own).chain(devices).collect()
}

/// The sum over all devices that an engine has or had.
fn of_devices(engine: &EngineCounters) -> impl Iterator<Item = &Count> {
    engine.devices.iter().flat_map(|device| &device.counters).chain(&engine.devices_gone)
}

/// Sums by name, in the order of names.
fn sum<'c>(prefix: &str, counts: impl Iterator<Item = &'c Count>) -> impl Iterator<Item = Count> {
    let mut sums = BTreeMap::new();
    for (name, value) in counts {
        *sums.entry(format!("{prefix}{name}")).or_default() += value;
    }
    sums.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> CountersReport {
        let count = |name: &str, value| vec![(name.to_owned(), value)];
        let engine = EngineCounters {
            engine: count("sleeps", 1),
            devices: vec![DeviceCounters {
                device: 4,
                description: String::new(),
                counters: count("rx_frames", 2),
            }],
            devices_gone: count("rx_frames", 5),
            stack: count("TcpInSegs", 3),
        };
        CountersReport { own: count("dns_queries", 9), engines: vec![engine.clone(), engine] }
    }

    #[test]
    fn sums_are_over_engines_and_devices() {
        let text: Vec<String> =
            sums(&report()).iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(text, ["dns_queries 9", "TcpInSegs 6", "engine_sleeps 2", "device_rx_frames 14"]);
    }

    #[test]
    fn each_engine_and_device_has_its_number() {
        let names: Vec<String> = each_engine(&report()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names[..4],
            ["dns_queries", "engine_0_sleeps", "engine_0_TcpInSegs", "engine_0_device_4_rx_frames"]
        );
        assert_eq!(names[4], "engine_0_devices_gone_rx_frames");
        assert_eq!(names.len(), 9);
    }
}
