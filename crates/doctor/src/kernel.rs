//! The kernel: its version, known faults, and what BPF programs need of it.

use crate::{Finding, Interface, Machine, Setting, Step, Topic};

const VERSION: Topic = Topic { id: "kernel.version", source: "/proc/sys/kernel/osrelease" };
const FAULTS: Topic = Topic { id: "kernel.faults", source: "a table of reports, by version and driver" };
const JIT: Topic = Topic { id: "kernel.bpf-jit", source: "/proc/sys/net/core/bpf_jit_enable" };
const FILES: Topic = Topic { id: "kernel.bpf-files", source: "/proc/self/mountinfo" };

pub(crate) const TOPICS: [Topic; 4] = [VERSION, FAULTS, JIT, FILES];

type Version = (u32, u32);

/// What the steering program takes. All else that Sidestep uses is older: BPF links for XDP (5.9), SO_PREFER_BUSY_POLL (5.11).
const STEERING: Version = (5, 13);

/// A fault of kernels from one version to before another, with one driver or all.
struct Fault {
    driver: Option<&'static str>,
    from: Version,
    before: Option<Version>,
    seen: &'static str,
    cost: &'static str,
}

const FAULTS_KNOWN: [Fault; 2] = [
    // Upstream 99099c6bc75a, 405d9999aa0b, 9da75a511c55, 7e3b407ccbea: github.com/intel/ethernet-linux-ice, pull request 62.
    Fault {
        driver: Some("ice"),
        from: (5, 5),
        before: Some((6, 11)),
        seen: "ice: opening or closing zero-copy sockets under load may hang the NIC",
        cost: "the NIC may not come back before a reboot; distributions may have the fix in older kernels. Before a newer kernel, use no zero-copy",
    },
    // Measured: docs/limits.md, "Speed under `sidestep run`".
    Fault {
        driver: Some("veth"),
        from: (5, 9),
        before: None,
        seen: "veth: with an XDP program attached, the kernel receives large transfers at a fifth of its rate",
        cost: "connections with large uploads are slower, whoever serves them; a NIC does not have this",
    },
];

pub(crate) fn examine(machine: &Machine, interface: Option<&Interface>, findings: &mut Vec<Finding>) {
    findings.extend([
        VERSION.of(&machine.kernel, |release| version(release)),
        FAULTS.of(&machine.kernel, |release| faults(release, interface)),
        JIT.of(&machine.bpf_jit, |jit| match jit {
            0 => JIT
                .bad("the kernel interprets BPF programs", "the steering program takes several times as long per packet")
                .step(Step::new(Setting::machine_file("/proc/sys/net/core/bpf_jit_enable"), 0, 1)),
            _ => JIT.good("the kernel compiles BPF programs"),
        }),
        FILES.of(&machine.bpf_files, |mounted| match mounted {
            true => FILES.good("a BPF file system is mounted at /sys/fs/bpf"),
            false => FILES
                .better(
                    "no BPF file system is mounted at /sys/fs/bpf",
                    "if `sidestep run` is killed, its programs lose their connections: nobody can take over its XDP program",
                )
                .command("mount -t bpf bpf /sys/fs/bpf"),
        }),
    ]);
}

fn parse(release: &str) -> Option<Version> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn version(release: &str) -> Finding {
    match parse(release) {
        None => VERSION.unknown(&format!("{release:?} is no version of Linux")),
        Some(version) if version < STEERING => VERSION.bad(
            format!("Linux {release}"),
            format!(
                "Sidestep's XDP program takes Linux {}.{}: without it Sidestep cannot use an interface; DNS runs on kernel sockets",
                STEERING.0, STEERING.1
            ),
        ),
        Some(_) => VERSION.good(format!("Linux {release} has all that Sidestep uses")),
    }
}

fn faults(release: &str, interface: Option<&Interface>) -> Finding {
    let Some(version) = parse(release) else {
        return FAULTS.unknown(&format!("{release:?} is no version of Linux"));
    };
    let driver = interface.and_then(|interface| interface.driver.get()).map(|driver| driver.name.as_str());
    let concerns = |fault: &&Fault| {
        fault.from <= version
            && fault.before.is_none_or(|before| version < before)
            && fault.driver.is_none_or(|its| Some(its) == driver)
    };
    let found: Vec<&Fault> = FAULTS_KNOWN.iter().filter(concerns).collect();
    match (found.as_slice(), driver) {
        ([], Some(driver)) => {
            FAULTS.good(format!("no fault of Linux {}.{} with {driver} is known", version.0, version.1))
        }
        ([], None) => FAULTS.good(format!("no fault of Linux {}.{} is known", version.0, version.1)),
        (found, _) => {
            let join =
                |text: fn(&Fault) -> &str| found.iter().map(|it| text(it)).collect::<Vec<_>>().join("; ");
            FAULTS.better(join(|fault| fault.seen), join(|fault| fault.cost))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Known, Verdict};

    fn found(machine: &Machine, driver: &str, id: &str) -> Finding {
        let driver = Known::Is(Driver { name: driver.to_owned(), bus: String::new() });
        let interface = Interface { driver, ..Interface::default() };
        let mut findings = Vec::new();
        examine(machine, Some(&interface), &mut findings);
        findings.into_iter().find(|finding| finding.id == id).unwrap()
    }

    fn linux(release: &str) -> Machine {
        Machine { kernel: Known::Is(release.to_owned()), ..Machine::default() }
    }

    #[test]
    fn the_version_says_what_is_there() {
        let verdict = |release| found(&linux(release), "ice", "kernel.version").verdict;
        assert_eq!(verdict("6.18.44-fc"), Verdict::Good);
        assert_eq!(verdict("5.13.0"), Verdict::Good);
        assert_eq!(verdict("5.10.0-28-amd64"), Verdict::Bad, "Debian 11");
        assert_eq!(verdict("4.18.0-348.el8"), Verdict::Bad);
        assert_eq!(verdict("next"), Verdict::NotKnown);
    }

    #[test]
    fn a_fault_is_that_of_a_version_and_a_driver() {
        let verdict = |release, driver| found(&linux(release), driver, "kernel.faults").verdict;
        assert_eq!(verdict("6.1.0-28-amd64", "ice"), Verdict::CouldBeBetter);
        assert_eq!(verdict("6.11.0", "ice"), Verdict::Good);
        assert_eq!(verdict("6.1.0", "virtio_net"), Verdict::Good);
        assert_eq!(verdict("6.18.0", "veth"), Verdict::CouldBeBetter);
        assert_eq!(verdict("next", "ice"), Verdict::NotKnown);
    }

    #[test]
    fn interpreted_programs_are_bad() {
        let with = |jit| Machine { bpf_jit: Known::Is(jit), ..Machine::default() };
        let finding = found(&with(0), "ice", "kernel.bpf-jit");
        assert_eq!(finding.verdict, Verdict::Bad);
        assert_eq!(finding.commands[0].line(), "sysctl -w net.core.bpf_jit_enable=1");
        assert_eq!(found(&with(1), "ice", "kernel.bpf-jit").verdict, Verdict::Good);
    }

    #[test]
    fn a_missing_file_system_could_be_there() {
        let with = |mounted| Machine { bpf_files: Known::Is(mounted), ..Machine::default() };
        assert_eq!(found(&with(true), "ice", "kernel.bpf-files").verdict, Verdict::Good);
        let finding = found(&with(false), "ice", "kernel.bpf-files");
        assert_eq!(finding.commands[0].line(), "mount -t bpf bpf /sys/fs/bpf");
    }
}
