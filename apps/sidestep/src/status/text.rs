//! A report for people.
//!
//! ```text
//! nginx 1234: queue 0 of eth0
//!   TCP  LISTEN  0.0.0.0:80                                    accelerated
//!   TCP  LISTEN  127.0.0.1:8080                                kernel: bound to loopback
//!   12 connections on the stack, 3 on the kernel; so far on the kernel: 1 accepted, 2 made, 0 moved there
//!   rx_dropped_full 3
//! eth0: AF_XDP, native; 1 of 2 queues lent
//!   redirected 1234, passed_not_ip 3
//! ```

use std::fmt::Write as _;

use broker::protocol::{ProgramReport, SocketReport};
use broker::server::{ClaimStatus, InterfaceStatus, ProgramStatus, StatusReport};

use super::process::Process;

/// What a program reports of a socket that it has not used yet (posix/src/turns/report.rs).
const NOT_WAITED: &str = "the program has not waited there";

/// The report of one `sidestep run`; `look` says what the kernel knows of a process.
pub(super) fn report(pid: u32, report: &StatusReport, look: &dyn Fn(u32) -> Option<Process>) -> String {
    let mut text = String::new();
    if report.programs.is_empty() {
        let _ = writeln!(text, "sidestep run {pid}: no program has made a socket yet");
    }
    let is_lent = |status: &InterfaceStatus| status.lent > 0 || status.left > 0;
    let has_lent = report.interfaces.is_empty() || report.interfaces.iter().any(is_lent);
    report.programs.iter().for_each(|status| program(&mut text, (status, has_lent), look(status.pid)));
    report.interfaces.iter().for_each(|status| interface(&mut text, status));
    text
}

fn program(text: &mut String, (status, has_lent): (&ProgramStatus, bool), process: Option<Process>) {
    let _ = writeln!(text, "{} {}: {}", status.program, status.pid, queues(status, has_lent, process));
    if let Some(reason) = &status.profile {
        let _ = writeln!(text, "  profile: {reason}");
    }
    match &status.report {
        Some(report) => {
            let age = status.report_age_ms.map(|age| age.div_ceil(1000));
            let _ =
                age.map(|age| writeln!(text, "  as of {age} s ago: the program does not answer just now"));
            sockets(text, report, process);
        }
        None => {
            claims(text, &status.claims);
            if let Some(Process { connections: count @ 1.., .. }) = process {
                let _ = writeln!(text, "  {count} connections on the kernel");
            }
        }
    }
}

/// Its queues, or why it has none; `has_lent`: somebody has one.
fn queues(status: &ProgramStatus, has_lent: bool, process: Option<Process>) -> String {
    let of = |(interface, queues): &(String, Vec<u16>)| {
        let numbers: Vec<String> = queues.iter().map(u16::to_string).collect();
        let noun = if queues.len() == 1 { "queue" } else { "queues" };
        format!("{noun} {} of {interface}", numbers.join(" "))
    };
    if !status.queues.is_empty() {
        return status.queues.iter().map(of).collect::<Vec<_>>().join(", ");
    }
    let why = match (status.is_confined, status.waits) {
        (true, _) => ": it has forbidden itself system calls (seccomp)",
        (false, true) if !has_lent => ": no interface gives it a queue, see below",
        (false, true) if status.is_kept_apart => {
            ", until others leave it a queue: only processes of one user share one, and none that is root's or has capabilities (see --share)"
        }
        (false, true) => ", until other processes leave it a queue",
        (false, false) => why_without_queue(status.report.as_ref(), process.unwrap_or_default()),
    };
    format!("on the kernel{why}")
}

/// Why a program never wanted a queue.
fn why_without_queue(report: Option<&ProgramReport>, process: Process) -> &'static str {
    let was_refused = |socket: &SocketReport| socket.why.as_deref().is_some_and(|why| why != NOT_WAITED);
    match process {
        Process { is_go: true, .. } => ": it is a Go program, which makes its own system calls",
        _ if report.is_some_and(|report| report.sockets.iter().any(was_refused)) => {
            ": none of its sockets can be accelerated"
        }
        Process { listeners: 1.., .. } => {
            ": it waits at no listener that can be accelerated, as a master leaves that to its workers"
        }
        Process { connections: 1.., .. } => ": it has connections of the kernel only",
        Process { udp: 1.., .. } => ": it has not waited at its UDP sockets",
        _ => ": it has no TCP connections, listeners or UDP ports",
    }
}

fn sockets(text: &mut String, report: &ProgramReport, process: Option<Process>) {
    report.sockets.iter().for_each(|report| socket(text, report));
    if report.more > 0 {
        let _ = writeln!(text, "  and {} more", report.more);
    }
    let ProgramReport { accelerated, accepted_from_kernel, made_by_kernel, moved_to_kernel, .. } = report;
    let now = process.map(|process| format!(", {} on the kernel", process.connections)).unwrap_or_default();
    let _ = writeln!(
        text,
        "  {accelerated} connections on the stack{now}; so far on the kernel: {accepted_from_kernel} accepted, {made_by_kernel} made, {moved_to_kernel} moved there"
    );
    for (why, made) in &report.made_because {
        let _ = writeln!(text, "  {made} of those made because {why}");
    }
    for (why, moved) in &report.moved_because {
        let _ = writeln!(
            text,
            "  {moved} of those moved because {why}, which the kernel does faster (--profile accelerate keeps them)"
        );
    }
    counters(text, &report.counters);
}

fn socket(text: &mut String, report: &SocketReport) {
    let SocketReport { transport, state, local, remote, accelerated, why, .. } = report;
    let ends = match remote {
        Some(remote) => format!("{local} - {remote}"),
        None => local.to_string(),
    };
    let verdict = match (accelerated, why) {
        (true, None) => "accelerated".to_owned(),
        (true, Some(why)) => format!("accelerated, but {why}"),
        (false, None) => "kernel".to_owned(),
        (false, Some(why)) => format!("kernel: {why}"),
    };
    // The formatter pads strings only, and transports are not strings.
    let transport = transport.to_string();
    let _ = writeln!(text, "  {transport:<4} {state:<10} {ends:<45} {verdict}");
}

/// What the broker knows about a program that does not report.
fn claims(text: &mut String, claims: &[ClaimStatus]) {
    if claims.is_empty() {
        return;
    }
    text.push_str("  the program does not answer just now; its claims:\n");
    for ClaimStatus { transport, local, draining, .. } in claims {
        let transport = transport.to_string();
        let remark = if *draining { "closed, with connections left" } else { "" };
        let _ = writeln!(text, "  {}", format!("{transport:<4} {local:<45} {remark}").trim_end());
    }
}

fn interface(text: &mut String, status: &InterfaceStatus) {
    let InterfaceStatus { name, mode, failure, queues, lent, left, is_doubted, .. } = status;
    let _ = match mode {
        Some(mode) => writeln!(text, "{name}: {mode}; {lent} of {queues} queues lent"),
        None => writeln!(text, "{name}: not used"),
    };
    if let Some(failure) = failure {
        let _ = writeln!(text, "  {failure}");
    }
    if *left > 0 {
        let _ = writeln!(
            text,
            "  {left} more are of programs of a killed broker that have not come back: they are stopped, or of another version of Sidestep"
        );
    }
    if *is_doubted {
        let _ = writeln!(
            text,
            "  answers came by other queues than its RSS key and indirection table say: programs that have some of its queues connect by the kernel"
        );
    }
    counters(text, &status.counters);
}

/// The counters that are not zero.
fn counters(text: &mut String, counters: &[(String, u64)]) {
    let counted = counters.iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    if !words.is_empty() {
        let _ = writeln!(text, "  {}", words.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use broker::protocol::{Purpose, Transport};

    use super::*;

    fn status(report: Option<ProgramReport>) -> ProgramStatus {
        let claim = ClaimStatus {
            transport: Transport::Tcp,
            purpose: Purpose::Listener,
            local: "*:80".to_owned(),
            draining: true,
        };
        ProgramStatus {
            pid: 7,
            program: "nginx".to_owned(),
            waits: false,
            is_kept_apart: false,
            is_confined: false,
            queues: vec![("eth0".to_owned(), vec![0, 2])],
            profile: None,
            claims: vec![claim],
            report,
            report_age_ms: None,
        }
    }

    fn lines(report: &StatusReport) -> Vec<String> {
        super::report(1, report, &|_| None).lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_socket_says_where_it_runs_and_why() {
        let socket = |local: &str, accelerated, why: Option<&str>| SocketReport {
            fd: 3,
            transport: Transport::Tcp,
            local: local.parse().unwrap(),
            remote: None,
            state: "LISTEN".to_owned(),
            accelerated,
            why: why.map(str::to_owned),
        };
        let sockets =
            vec![socket("0.0.0.0:80", true, None), socket("127.0.0.1:81", false, Some("bound to loopback"))];
        let counters = vec![("drops".to_owned(), 3), ("none".to_owned(), 0)];
        let (accepted_from_kernel, made_by_kernel, moved_to_kernel) = (1, 2, 4);
        let report = ProgramReport {
            sockets,
            more: 2,
            accelerated: 5,
            accepted_from_kernel,
            made_by_kernel,
            moved_to_kernel,
            made_because: vec![("there was no queue".to_owned(), 2)],
            moved_because: vec![("they transferred large amounts".to_owned(), 3)],
            counters,
        };
        let report = StatusReport { programs: vec![status(Some(report))], interfaces: Vec::new() };
        let expected = [
            "nginx 7: queues 0 2 of eth0",
            "  TCP  LISTEN     0.0.0.0:80                                    accelerated",
            "  TCP  LISTEN     127.0.0.1:81                                  kernel: bound to loopback",
            "  and 2 more",
            "  5 connections on the stack; so far on the kernel: 1 accepted, 2 made, 4 moved there",
            "  2 of those made because there was no queue",
            "  3 of those moved because they transferred large amounts, which the kernel does faster (--profile accelerate keeps them)",
            "  drops 3",
        ];
        assert_eq!(lines(&report), expected);
    }

    #[test]
    fn what_a_program_said_before_is_told_with_its_age() {
        let told = |report_age_ms| {
            let status = ProgramStatus { report_age_ms, ..status(Some(ProgramReport::default())) };
            lines(&StatusReport { programs: vec![status], interfaces: Vec::new() })[1].clone()
        };
        assert_eq!(told(Some(11_001)), "  as of 12 s ago: the program does not answer just now");
        assert!(told(None).starts_with("  0 connections on the stack"));
    }

    #[test]
    fn of_a_program_that_says_nothing_its_claims_are_told() {
        let report = StatusReport { programs: vec![status(None)], interfaces: Vec::new() };
        assert_eq!(lines(&report)[2].split_whitespace().take(2).collect::<Vec<_>>(), ["TCP", "*:80"]);
    }

    #[test]
    fn a_program_without_a_queue_says_why() {
        let interface = |lent| InterfaceStatus {
            name: "eth0".to_owned(),
            mode: None,
            failure: None,
            queues: 1,
            lent,
            left: 0,
            is_doubted: false,
            counters: Vec::new(),
        };
        let told_of = |is_confined, waits, lent| {
            let bare = ProgramStatus { is_confined, waits, queues: Vec::new(), ..status(None) };
            lines(&StatusReport { programs: vec![bare], interfaces: vec![interface(lent)] })[0].clone()
        };
        let told = |is_confined, waits| told_of(is_confined, waits, 1);
        assert_eq!(
            told_of(false, true, 0),
            "nginx 7: on the kernel: no interface gives it a queue, see below",
            "nobody else has one"
        );
        assert_eq!(
            told(true, true),
            "nginx 7: on the kernel: it has forbidden itself system calls (seccomp)"
        );
        assert_eq!(told(false, true), "nginx 7: on the kernel, until other processes leave it a queue");
        let apart = ProgramStatus { waits: true, is_kept_apart: true, queues: Vec::new(), ..status(None) };
        let told = lines(&StatusReport { programs: vec![apart], interfaces: vec![interface(1)] })[0].clone();
        assert!(
            told.ends_with(
                "only processes of one user share one, and none that is root's or has capabilities (see --share)"
            ),
            "{told}"
        );
    }

    #[test]
    fn what_the_kernel_knows_of_a_program_without_a_queue_is_told() {
        let told = |process: Process| {
            let bare = ProgramStatus { queues: Vec::new(), claims: Vec::new(), ..status(None) };
            let report = StatusReport { programs: vec![bare], interfaces: Vec::new() };
            super::report(1, &report, &|_| Some(process)).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let nothing = Process::default();
        assert_eq!(
            told(nothing),
            ["nginx 7: on the kernel: it has no TCP connections, listeners or UDP ports"]
        );
        assert!(
            told(Process { listeners: 1, ..nothing })[0]
                .contains("it waits at no listener that can be accelerated")
        );
        assert!(told(Process { is_go: true, listeners: 1, ..nothing })[0].contains("Go program"));
        assert_eq!(told(Process { connections: 2, ..nothing })[1], "  2 connections on the kernel");
    }

    #[test]
    fn an_interface_that_is_not_used_says_why() {
        let interface = InterfaceStatus {
            name: "eth0".to_owned(),
            mode: None,
            failure: Some("it is somebody else's".to_owned()),
            queues: 0,
            lent: 0,
            left: 0,
            is_doubted: true,
            counters: Vec::new(),
        };
        let report = StatusReport { programs: Vec::new(), interfaces: vec![interface] };
        assert_eq!(lines(&report)[1..3], ["eth0: not used", "  it is somebody else's"]);
        assert!(lines(&report)[3].starts_with("  answers came by other queues"));
    }
}
