//! Processors: how many, how fast, what they are careful about, and who takes their time.

use std::collections::BTreeMap;

use crate::{CoreList, Finding, Machine, Setting, Step, Topic};

const CORES: Topic = Topic { id: "cpu.cores", source: "/sys/devices/system/cpu/online" };
const GOVERNOR: Topic =
    Topic { id: "cpu.governor", source: "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor" };
const MITIGATIONS: Topic = Topic { id: "cpu.mitigations", source: "/sys/devices/system/cpu/vulnerabilities" };
const STOLEN: Topic = Topic { id: "cpu.stolen", source: "/proc/stat" };

pub(crate) const TOPICS: [Topic; 4] = [CORES, GOVERNOR, MITIGATIONS, STOLEN];

/// Thousandths of the time that may be stolen before that is worth a word.
const STOLEN_MAX: u32 = 10;

pub(crate) fn examine(machine: &Machine, findings: &mut Vec<Finding>) {
    findings.extend([
        CORES.of(&machine.cores, |cores| match cores.len() {
            1 => CORES.better("there is one core", "a server shares it with the kernel and everything else"),
            count => CORES.good(format!("{count} cores are online ({cores})")),
        }),
        GOVERNOR.of(&machine.governors, governor),
        MITIGATIONS.of(&machine.vulnerabilities, mitigations),
        STOLEN.of(&machine.stolen, |stolen| stolen_time(*stolen)),
    ]);
}

fn governor(governors: &BTreeMap<u32, String>) -> Finding {
    if governors.is_empty() {
        return GOVERNOR.good("the kernel does not set frequencies: firmware or a hypervisor does");
    }
    let slow: BTreeMap<_, _> = governors.iter().filter(|(_, name)| *name != "performance").collect();
    let Some(name) = slow.values().next() else {
        return GOVERNOR.good("the governor of all cores is performance");
    };
    let cores: CoreList = slow.keys().map(|core| **core).collect();
    let step = |(core, name): (&&u32, &&String)| {
        let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
        Step::new(Setting::machine_file(path), name, "performance")
    };
    GOVERNOR
        .better(
            format!("the governor of cores {cores} is {name}"),
            "a core that has slept is slow at first: single requests take longer",
        )
        .steps(slow.iter().map(step))
}

fn mitigations(vulnerabilities: &BTreeMap<String, String>) -> Finding {
    let of = |start: &str| -> Vec<&str> {
        let entries = vulnerabilities.iter().filter(|(_, state)| state.starts_with(start));
        entries.map(|(name, _)| name.as_str()).collect()
    };
    let (open, closed) = (of("Vulnerable"), of("Mitigation"));
    if !open.is_empty() {
        return MITIGATIONS.better(
            format!("the processor is open to {}", open.join(", ")),
            "programs may read what is not theirs; newer microcode, kernel or boot options close that, at the cost of slower system calls",
        );
    }
    match closed.as_slice() {
        [] => MITIGATIONS.good("the processor has none of the flaws that the kernel knows"),
        closed => MITIGATIONS.good(format!(
            "the kernel makes up for {}: system calls are slower for it, and packets past the kernel need few",
            closed.join(", ")
        )),
    }
}

fn stolen_time(stolen: u32) -> Finding {
    let seen =
        format!("the hypervisor gave {}.{} % of the time to others since boot", stolen / 10, stolen % 10);
    if stolen <= STOLEN_MAX {
        return STOLEN.good(seen);
    }
    STOLEN.better(
        seen,
        "while that happens the server stands still, and its queues fill; ask for dedicated cores",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Verdict};

    fn map<K: Ord>(entries: impl IntoIterator<Item = (K, &'static str)>) -> Known<BTreeMap<K, String>> {
        Known::Is(entries.into_iter().map(|(key, value)| (key, value.to_owned())).collect())
    }

    fn found(machine: &Machine, id: &str) -> Finding {
        let mut findings = Vec::new();
        examine(machine, &mut findings);
        findings.into_iter().find(|finding| finding.id == id).unwrap()
    }

    #[test]
    fn one_core_could_be_more() {
        let with = |cores: &str| Machine { cores: Known::Is(cores.parse().unwrap()), ..Machine::default() };
        assert_eq!(found(&with("0"), "cpu.cores").verdict, Verdict::CouldBeBetter);
        assert_eq!(found(&with("0-1"), "cpu.cores").verdict, Verdict::Good);
    }

    #[test]
    fn each_core_that_saves_power_gets_a_step() {
        let machine = Machine {
            governors: map([(0, "performance"), (1, "powersave"), (2, "powersave")]),
            ..Machine::default()
        };
        let finding = found(&machine, "cpu.governor");
        assert_eq!(finding.seen, "the governor of cores 1-2 is powersave");
        assert_eq!(
            finding.commands[0].line(),
            "echo performance > /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"
        );
        assert_eq!(finding.commands.len(), 2);
        let machine = Machine { governors: map([(0, "performance")]), ..Machine::default() };
        assert_eq!(found(&machine, "cpu.governor").verdict, Verdict::Good);
        let machine = Machine { governors: map::<u32>([]), ..Machine::default() };
        assert_eq!(found(&machine, "cpu.governor").verdict, Verdict::Good);
    }

    #[test]
    fn open_flaws_are_named_and_no_mitigation_is_switched_off() {
        let with = |entries: [(String, &'static str); 2]| Machine {
            vulnerabilities: map(entries),
            ..Machine::default()
        };
        let open = with([("retbleed".to_owned(), "Vulnerable"), ("l1tf".to_owned(), "Mitigation: PTI")]);
        let finding = found(&open, "cpu.mitigations");
        assert_eq!((finding.verdict, finding.commands.len()), (Verdict::CouldBeBetter, 0));
        assert!(finding.seen.contains("retbleed") && !finding.seen.contains("l1tf"));
        let closed = with([("mds".to_owned(), "Not affected"), ("l1tf".to_owned(), "Mitigation: PTI")]);
        let finding = found(&closed, "cpu.mitigations");
        assert_eq!((finding.verdict, finding.commands.len()), (Verdict::Good, 0));
    }

    #[test]
    fn stolen_time_is_told_in_percent() {
        let with = |stolen| Machine { stolen: Known::Is(stolen), ..Machine::default() };
        assert_eq!(found(&with(3), "cpu.stolen").verdict, Verdict::Good);
        let finding = found(&with(123), "cpu.stolen");
        assert_eq!(finding.verdict, Verdict::CouldBeBetter);
        assert!(finding.seen.contains("12.3 %"));
    }
}
