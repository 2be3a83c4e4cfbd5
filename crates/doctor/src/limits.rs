//! Limits of this user: privileges, descriptors, locked memory.

use crate::queues::counted;
use crate::{Finding, Interface, Limit, Machine, Topic};

const PRIVILEGES: Topic = Topic { id: "limits.privileges", source: "/proc/self/status (CapEff)" };
const FILES: Topic = Topic { id: "limits.files", source: "/proc/self/limits" };
const LOCKED: Topic = Topic { id: "limits.locked-memory", source: "/proc/self/limits" };

pub(crate) const TOPICS: [Topic; 3] = [PRIVILEGES, FILES, LOCKED];

/// What an interface needs, by number: capabilities(7).
const NEEDED: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];
/// Descriptors that a busy server may want.
const FILES_WANTED: u64 = 65_536;
/// Octets that a queue locks of an interface that nobody has looked at: 4096 frames of 2 KiB.
const QUEUE_MEMORY: u64 = 8 << 20;

pub(crate) fn examine(machine: &Machine, interface: Option<&Interface>, findings: &mut Vec<Finding>) {
    findings.extend([
        PRIVILEGES.of(&machine.capabilities, |held| privileges(*held)),
        FILES.of(&machine.files, files),
        LOCKED.of(&machine.locked_memory, |limit| locked(limit, interface)),
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

/// Packet memory is locked, and the kernel counts that of all queues of a user together.
fn locked(limit: &Limit, interface: Option<&Interface>) -> Finding {
    let Some(hard) = limit.hard else { return LOCKED.good("a process may lock any amount of memory") };
    let queues = interface.and_then(Interface::queue_pairs).unwrap_or(1).max(1);
    let of_a_queue = interface.and_then(|interface| interface.queue_memory.get()).copied();
    let wanted = u64::from(queues) * of_a_queue.unwrap_or(QUEUE_MEMORY);
    let whose = match interface {
        Some(interface) => format!("{} of {}", counted(queues, "queue"), interface.name),
        None => "one queue".to_owned(),
    };
    let seen = format!(
        "a process may lock {} of memory, and {whose} {} {}",
        size(hard),
        if queues == 1 { "needs" } else { "need" },
        size(wanted)
    );
    if hard >= wanted {
        return LOCKED.good(seen);
    }
    LOCKED
        .better(
            seen,
            "only a process that may raise the limit (CAP_SYS_RESOURCE), as root may, opens them all",
        )
        .command("systemctl edit NAME.service # [Service] LimitMEMLOCK=infinity")
}

/// In MiB, as far as that says something.
fn size(octets: u64) -> String {
    if octets < 1 << 20 { format!("{} KiB", octets >> 10) } else { format!("{} MiB", octets >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounded, Known, Verdict};

    fn verdicts(capabilities: u64, files: Option<u64>, locked: Option<u64>) -> Vec<Verdict> {
        let limit = |hard| Known::Is(Limit { soft: hard, hard });
        let machine = Machine {
            capabilities: Known::Is(capabilities),
            files: limit(files),
            locked_memory: limit(locked),
            ..Machine::default()
        };
        let mut findings = Vec::new();
        examine(&machine, None, &mut findings);
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
    fn locked_memory_has_to_do_for_all_queues() {
        let of = |queues, queue_memory| {
            let interface = Interface {
                name: "eth0".to_owned(),
                combined_queues: Known::Is(Bounded { current: queues, max: queues }),
                queue_memory,
                ..Interface::default()
            };
            let hard = Some(64 << 20);
            locked(&Limit { soft: hard, hard }, Some(&interface))
        };
        assert_eq!(of(8, Known::Is(8 << 20)).verdict, Verdict::Good);
        let nine = of(9, Known::Is(8 << 20));
        assert_eq!(nine.verdict, Verdict::CouldBeBetter);
        assert_eq!(nine.seen, "a process may lock 64 MiB of memory, and 9 queues of eth0 need 72 MiB");
        assert_eq!(of(8, Known::Is(16 << 20)).verdict, Verdict::CouldBeBetter, "larger frames");
        assert_eq!(of(9, Known::default()).verdict, Verdict::CouldBeBetter, "frames of the usual size");
    }

    #[test]
    fn what_nobody_has_read_is_not_known() {
        let mut findings = Vec::new();
        examine(&Machine::default(), None, &mut findings);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::NotKnown));
    }
}
