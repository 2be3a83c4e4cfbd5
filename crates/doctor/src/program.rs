//! A program: what `sidestep run` will make of it.

use crate::shell::word;
use crate::{Finding, Known, Process, Program, Topic};

const FILE: Topic = Topic { id: "program.file", source: "the file, found as a shell finds it" };
const LINKING: Topic = Topic { id: "program.linking", source: "the file's ELF headers and mode" };
const CALLS: Topic = Topic { id: "program.calls", source: "the file's ELF notes and its code" };
const PROFILE: Topic = Topic { id: "program.profile", source: "the table of profiles" };
const SECCOMP: Topic =
    Topic { id: "program.seccomp", source: "the file's text; /proc/*/status of its processes" };
const LIBRARY: Topic = Topic { id: "program.library", source: "Sidestep's installation" };
const OUTCOME: Topic = Topic { id: "program.outcome", source: "all of the above" };

pub(crate) const TOPICS: [Topic; 7] = [FILE, LINKING, CALLS, PROFILE, SECCOMP, LIBRARY, OUTCOME];

pub(crate) fn examine(program: &Program, findings: &mut Vec<Finding>) {
    let Known::Is(path) = &program.path else {
        let Known::Not(because) = &program.path else { return };
        findings.push(FILE.bad(because.clone(), "there is nothing to run"));
        return;
    };
    findings.extend([
        FILE.good(match &program.interpreter {
            Some(interpreter) => format!("{path} is a script of {interpreter}, which is what counts"),
            None => path.clone(),
        }),
        match &program.obstacle {
            None => LINKING.good("it is linked dynamically: Sidestep's library can go before the C library"),
            Some(obstacle) => LINKING.bad(obstacle.clone(), "it runs on the kernel"),
        },
        match &program.own_calls {
            None => CALLS.good("it makes its system calls by the C library"),
            Some(own_calls) => CALLS
                .bad(own_calls.clone(), "it runs on the kernel; programs that it starts may be accelerated"),
        },
        profile(program),
        seccomp(program),
        match &program.library {
            Known::Is(path) => LIBRARY.good(format!("the library is {path}")),
            Known::Not(because) => {
                LIBRARY.bad(because.clone(), "nothing can be accelerated").command("make install")
            }
        },
    ]);
    findings.push(outcome(program, findings));
}

fn profile(program: &Program) -> Finding {
    match &program.profile {
        Known::Is(name) => PROFILE.good(format!("it gets the profile {name:?}")),
        Known::Not(because) => PROFILE
            .better(format!("it is left to the kernel: {because}"), "nothing of it is accelerated")
            .command(format!("sidestep run --profile default -- {}", word(&program.name))),
    }
}

fn seccomp(program: &Program) -> Finding {
    let confined = |process: &&Process| process.is_confined && !process.is_accelerated;
    if let Some(process) = program.running.iter().find(confined) {
        return SECCOMP
            .better(
                format!("its process {} has a filter of system calls (seccomp)", process.pid),
                "if the filter forbids what acceleration needs, it runs on the kernel",
            )
            .command("sidestep status # says so of a program that runs");
    }
    SECCOMP.of(&program.names_seccomp, |names| match (names, program.running.as_slice()) {
        (true, []) => SECCOMP
            .better(
                "its file names libseccomp: it may forbid itself system calls",
                "if it forbids what acceleration needs, it runs on the kernel",
            )
            .command("sidestep status # says so of a program that runs"),
        (_, []) => SECCOMP.good("its file does not name libseccomp"),
        (_, running) => {
            SECCOMP.good(format!("none of its {} processes has a filter of its own", running.len()))
        }
    })
}

/// What is accelerated in the end.
fn outcome(program: &Program, findings: &[Finding]) -> Finding {
    let is_hindered = program.obstacle.is_some()
        || program.own_calls.is_some()
        || program.profile.get().is_none()
        || program.library.get().is_none();
    if is_hindered {
        let why: Vec<&str> = findings
            .iter()
            .filter(|it| [LINKING.id, CALLS.id, PROFILE.id, LIBRARY.id].contains(&it.id))
            .filter(|it| it.cost.is_some())
            .map(|it| it.id)
            .collect();
        return OUTCOME.bad(
            format!("it runs on the kernel, because of {}", why.join(", ")),
            "it is as fast as without Sidestep",
        );
    }
    let accelerated = program.running.iter().filter(|process| process.is_accelerated).count();
    let now = match (program.running.len(), accelerated) {
        (0, _) => String::new(),
        (all, accelerated) => format!(" Now {accelerated} of its {all} processes run under `sidestep run`."),
    };
    OUTCOME
        .good(format!(
            "TCP and UDP sockets on addresses of an interface are accelerated; sockets on loopback, IPv6 link-local addresses, Unix sockets and large transfers stay on the kernel.{now}"
        ))
        .command(format!("sidestep run -- {}", word(&program.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    fn nginx() -> Program {
        Program {
            name: "nginx".to_owned(),
            path: Known::Is("/usr/sbin/nginx".to_owned()),
            profile: Known::Is("default".to_owned()),
            library: Known::Is("/usr/lib/sidestep/x.so".to_owned()),
            names_seccomp: Known::Is(false),
            ..Program::default()
        }
    }

    fn examined(program: &Program) -> Vec<Finding> {
        let mut findings = Vec::new();
        examine(program, &mut findings);
        findings
    }

    fn verdict(program: &Program, topic: Topic) -> Verdict {
        examined(program).iter().find(|finding| finding.id == topic.id).unwrap().verdict
    }

    #[test]
    fn an_ordinary_server_is_good_throughout() {
        let findings = examined(&nginx());
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Good), "{findings:?}");
        assert_eq!(findings.len(), TOPICS.len());
        assert_eq!(findings.last().unwrap().commands[0].line(), "sidestep run -- nginx");
    }

    #[test]
    fn a_missing_program_is_one_bad_finding() {
        let missing = Program { path: Known::Not("nginx: command not found".to_owned()), ..nginx() };
        let findings = examined(&missing);
        assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::Bad));
    }

    #[test]
    fn whatever_hinders_shows_in_the_outcome_by_name() {
        let hindered = [
            (Program { obstacle: Some("it is static".to_owned()), ..nginx() }, LINKING),
            (Program { own_calls: Some("it is a Go program".to_owned()), ..nginx() }, CALLS),
            (Program { profile: Known::Not("it configures the network".to_owned()), ..nginx() }, PROFILE),
            (Program { library: Known::Not("no file".to_owned()), ..nginx() }, LIBRARY),
        ];
        for (program, topic) in hindered {
            assert_ne!(verdict(&program, topic), Verdict::Good);
            let outcome = examined(&program).pop().unwrap();
            assert_eq!((outcome.id, outcome.verdict), (OUTCOME.id, Verdict::Bad));
            assert!(outcome.seen.contains(topic.id), "{}", outcome.seen);
        }
    }

    #[test]
    fn a_filter_may_hinder_unless_it_is_ours() {
        let process = |is_confined, is_accelerated| Process { pid: 7, is_confined, is_accelerated };
        let with = |process| Program { running: vec![process], ..nginx() };
        assert_eq!(verdict(&with(process(true, false)), SECCOMP), Verdict::CouldBeBetter);
        assert_eq!(verdict(&with(process(true, true)), SECCOMP), Verdict::Good);
        assert_eq!(verdict(&with(process(false, false)), SECCOMP), Verdict::Good);
        let names = Program { names_seccomp: Known::Is(true), ..nginx() };
        assert_eq!(verdict(&names, SECCOMP), Verdict::CouldBeBetter);
        let hidden = Program { names_seccomp: Known::Not("permission denied".to_owned()), ..nginx() };
        assert_eq!(verdict(&hidden, SECCOMP), Verdict::NotKnown);
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let script = Program { interpreter: Some("/bin/sh".to_owned()), ..nginx() };
        assert!(examined(&script)[0].seen.contains("script of /bin/sh"));
    }
}
