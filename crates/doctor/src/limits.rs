//! Limits of this user: privileges, descriptors, locked memory.

use crate::{Finding, Limit, Machine, Topic};

const PRIVILEGES: Topic = Topic { id: "limits.privileges", source: "/proc/self/status (CapEff)" };
const FILES: Topic = Topic { id: "limits.files", source: "/proc/self/limits" };
const LOCKED: Topic = Topic { id: "limits.locked-memory", source: "/proc/self/limits" };

pub(crate) const TOPICS: [Topic; 3] = [PRIVILEGES, FILES, LOCKED];

/// What an interface needs, by number: capabilities(7).
const NEEDED: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];
/// Descriptors that a busy server may want.
const FILES_WANTED: u64 = 65_536;
/// Frames of a queue: 4096 of 2 KiB.
const LOCKED_OF_A_QUEUE: u64 = 8 << 20;

pub(crate) fn examine(machine: &Machine, findings: &mut Vec<Finding>) {
    findings.extend([
        PRIVILEGES.of(&machine.capabilities, |held| privileges(*held)),
        FILES.of(&machine.files, files),
        LOCKED.of(&machine.locked_memory, locked),
    ]);
}

fn privileges(held: u64) -> Finding {
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(number, _)| held >> number & 1 == 0).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return PRIVILEGES.good("this user may use interfaces");
    }
    PRIVILEGES
        .better(
            format!("this user lacks {}", missing.join(", ")),
            "interfaces cannot be used: DNS runs on kernel sockets, and `sidestep run` accelerates nothing. Some facts are hidden, too",
        )
        .command("sudo sidestep doctor")
}

fn files(limit: &Limit) -> Finding {
    match limit.hard {
        Some(hard) if hard < FILES_WANTED => FILES
            .better(
                format!("a process may have {hard} descriptors"),
                "a server with more connections than that refuses the rest",
            )
            .command(format!("systemctl edit NAME.service # [Service] LimitNOFILE={FILES_WANTED}")),
        Some(hard) => FILES.good(format!("a process may have {hard} descriptors")),
        None => FILES.good("a process may have any number of descriptors"),
    }
}

fn locked(limit: &Limit) -> Finding {
    match limit.hard {
        Some(hard) if hard < LOCKED_OF_A_QUEUE => LOCKED
            .better(
                format!("a process may lock {} KiB of memory", hard >> 10),
                "a queue needs 8 MiB, so only a process that may raise the limit (CAP_SYS_RESOURCE), as root may, opens one",
            )
            .command("systemctl edit NAME.service # [Service] LimitMEMLOCK=infinity"),
        Some(hard) => LOCKED.good(format!("a process may lock {} MiB of memory, 8 MiB a queue", hard >> 20)),
        None => LOCKED.good("a process may lock any amount of memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Verdict};

    fn verdicts(capabilities: u64, files: Option<u64>, locked: Option<u64>) -> Vec<Verdict> {
        let limit = |hard| Known::Is(Limit { soft: hard, hard });
        let machine = Machine {
            capabilities: Known::Is(capabilities),
            files: limit(files),
            locked_memory: limit(locked),
            ..Machine::default()
        };
        let mut findings = Vec::new();
        examine(&machine, &mut findings);
        assert!(findings.iter().all(|it| (it.verdict == Verdict::Good) == it.commands.is_empty()));
        findings.iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn root_without_limits_is_good() {
        assert_eq!(verdicts(u64::MAX, None, None), [Verdict::Good; 3]);
        assert_eq!(verdicts(u64::MAX, Some(1 << 20), Some(64 << 20)), [Verdict::Good; 3]);
    }

    #[test]
    fn a_user_with_small_limits_is_told_each() {
        assert_eq!(verdicts(0, Some(1024), Some(64 << 10)), [Verdict::CouldBeBetter; 3]);
        assert_eq!(verdicts(!(1 << 39), None, None)[0], Verdict::CouldBeBetter);
    }

    #[test]
    fn what_nobody_has_read_is_not_known() {
        let mut findings = Vec::new();
        examine(&Machine::default(), &mut findings);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::NotKnown));
    }
}
