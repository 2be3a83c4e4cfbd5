//! All counters of a program.

use engine::{DeviceReport, EngineHandle};

use super::Program;
use super::engines::ask;
use crate::report::{Count, CountersReport, DeviceCounters, EngineCounters};

/// Reads them now.
pub(super) fn read(program: &Program) -> CountersReport {
    CountersReport {
        own: program.subject.counters(),
        engines: program.engines.iter().map(of_engine).collect(),
    }
}

fn of_engine(engine: &EngineHandle) -> EngineCounters {
    let stack = ask(engine, |stack, _| stack.counters().clone());
    let stack =
        stack.map(|counters| counters.named().map(|(name, value)| (name.to_owned(), value)).collect());
    let reports = engine.device_reports();
    EngineCounters {
        engine: engine.counters().named(),
        devices: reports.present.into_iter().map(of_device).collect(),
        devices_gone: owned(&reports.gone.named()),
        stack: stack.unwrap_or_default(),
    }
}

fn of_device(report: DeviceReport) -> DeviceCounters {
    let counters = owned(&report.counters.named());
    DeviceCounters { device: report.id.0, description: report.description, counters }
}

fn owned(counters: &[(&str, u64)]) -> Vec<Count> {
    counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}
