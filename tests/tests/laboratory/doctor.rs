//! `sidestep doctor` and `sidestep tune` on a veth pair: what they say is so, what they change the kernel shows, and what they undo is as
//! it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::MutexGuard;

use lab::{
    CLIENT_INTERFACE, Device, Directory, Lab, Peer, SERVER_INTERFACE, Side, Sidestep, Zone, sidestep_binary,
};
use serde_json::Value;

use crate::{has_xdp_program, turn};

const NOBODY: &str = "65534";
/// Findings whose steps would change this machine instead of the laboratory.
const MACHINE: [&str; 3] = ["cpu.governor", "kernel.bpf-jit", "interrupts.irqbalance"];
/// What `tune --busy-poll` changes on the laboratory's interface.
const STEPS: [(&str, &str, &str); 5] = [
    ("rx-gro", "off", "on"),
    ("receive queues", "1", "2"),
    ("transmit queues", "1", "2"),
    ("napi_defer_hard_irqs", "0", "2"),
    ("gro_flush_timeout", "0", "200000"),
];

/// A veth pair with room for two queues, of which one is used, and without GRO at the server's end.
struct Untuned {
    lab: Lab,
    directory: Directory,
    _turn: MutexGuard<'static, ()>,
}

impl Untuned {
    fn new() -> Option<Untuned> {
        let turn = turn()?;
        let lab = Lab::with_queues(2).unwrap();
        for (side, interface) in [(Side::Server, SERVER_INTERFACE), (Side::Client, CLIENT_INTERFACE)] {
            lab.run_in(side, "ethtool", &["-L", interface, "rx", "1", "tx", "1"]).unwrap();
        }
        lab.run_in(Side::Server, "ethtool", &["-K", SERVER_INTERFACE, "gro", "off"]).unwrap();
        Some(Untuned { lab, directory: Directory::new().unwrap(), _turn: turn })
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("tune.json")
    }

    fn doctor(&self, arguments: &[&str]) -> Output {
        let mut command = self.lab.command(Side::Server, &sidestep_binary().display().to_string());
        command.arg("doctor").args(arguments).output().unwrap()
    }

    /// The findings about the server's interface.
    fn findings(&self, arguments: &[&str]) -> Value {
        let output = self.doctor(&[&[SERVER_INTERFACE, "--json"], arguments].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// `sidestep tune` with the state in this laboratory, on one side or in front of other words.
    fn tune(&self, side: Side, before: &[&str], arguments: &[&str]) -> Output {
        let binary = sidestep_binary().display().to_string();
        let words: Vec<&str> = before.iter().copied().chain([binary.as_str()]).collect();
        let mut command = self.lab.command(side, words[0]);
        command.args(&words[1..]).args(["tune", "--state"]).arg(self.state()).args(arguments);
        command.output().unwrap()
    }

    fn plan_for(interface: &'static str) -> Vec<&'static str> {
        let without = MACHINE.iter().flat_map(|id| ["--without", id]);
        [interface, "--busy-poll"].into_iter().chain(without).collect()
    }

    fn apply(&self, before: &[&str]) -> Output {
        let plan = Untuned::plan_for(SERVER_INTERFACE);
        self.tune(Side::Server, before, &[&plan[..], &["--apply"]].concat())
    }

    fn undo(&self) -> String {
        succeed(self.tune(Side::Server, &[], &["--undo"]))
    }

    /// Everything that ethtool(8) and /sys show of the interface and that `tune` could change.
    fn kernel(&self) -> String {
        let show =
            |program: &str, arguments: &[&str]| self.lab.run_in(Side::Server, program, arguments).unwrap();
        let files = ["napi_defer_hard_irqs", "gro_flush_timeout"]
            .map(|name| show("cat", &[&format!("/sys/class/net/{SERVER_INTERFACE}/{name}")]));
        let [channels, features] = ["-l", "-k"].map(|option| show("ethtool", &[option, SERVER_INTERFACE]));
        format!("{channels}{features}{}", files.concat())
    }
}

/// The output of a command that succeeded.
fn succeed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn finding<'r>(report: &'r Value, id: &str) -> &'r Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["id"] == id).unwrap_or_else(|| panic!("{id} is not in {report}"))
}

#[test]
fn the_doctor_says_what_is_so_of_a_veth() {
    let Some(untuned) = Untuned::new() else { return };
    let report = untuned.findings(&[]);
    let cores = std::thread::available_parallelism().unwrap();
    let seen = |id| finding(&report, id)["seen"].as_str().unwrap();
    assert_eq!(report["interface"], SERVER_INTERFACE);
    assert!(seen("driver.name").contains("veth"), "{}", seen("driver.name"));
    assert_eq!(finding(&report, "driver.xdp")["verdict"], "good");
    assert_eq!(finding(&report, "driver.zero-copy")["verdict"], "could-be-better");
    assert!(seen("queues.count").starts_with("1 queue for "), "{cores} cores: {}", seen("queues.count"));
    assert_eq!(finding(&report, "offload.gro")["verdict"], "could-be-better");
    assert!(seen("interrupts.affinity").contains("no interrupts of its own"));
    assert_eq!(finding(&report, "limits.privileges")["verdict"], "good");
    let command = &finding(&report, "queues.count")["commands"][0];
    assert_eq!(command["command"], format!("ethtool -L {SERVER_INTERFACE} rx 2"));
    assert_eq!(command["tune"], true);
}

#[test]
fn the_report_for_people_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let Some(untuned) = Untuned::new() else { return };
    let text = succeed(untuned.doctor(&[SERVER_INTERFACE]));
    assert!(
        text.contains("COULD BE BETTER\n") && text.contains(" bad, ") && !text.contains('\x1b'),
        "{text}"
    );
    let words = text.lines().filter(|line| !line.trim_start().starts_with("do ") && !line.contains("tune "));
    words.for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
}

#[test]
fn a_probe_attaches_a_program_and_takes_it_away() {
    let Some(untuned) = Untuned::new() else { return };
    assert_eq!(finding(&untuned.findings(&["--probe"]), "driver.probe")["verdict"], "good");
    crate::assert_program_goes(&untuned.lab);
}

#[test]
fn something_bad_is_an_exit_status() {
    let Some(untuned) = Untuned::new() else { return };
    untuned.lab.ip(Side::Server, &format!("link set {SERVER_INTERFACE} down")).unwrap();
    let output = untuned.doctor(&[SERVER_INTERFACE]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("do ip link set dev {SERVER_INTERFACE} up\n")), "{text}");
}

#[test]
fn a_plan_changes_nothing() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    let plan = succeed(untuned.tune(Side::Server, &[], &Untuned::plan_for(SERVER_INTERFACE)));
    for (what, from, to) in STEPS {
        let line = format!("{from} becomes {to}");
        assert!(plan.lines().any(|it| it.contains(what) && it.ends_with(&line)), "{what}: {plan}");
    }
    assert_eq!(untuned.kernel(), before);
    assert!(!untuned.state().exists());
}

#[test]
fn what_is_applied_the_kernel_shows_and_what_is_undone_is_as_it_was() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    succeed(untuned.apply(&[]));
    let tuned = untuned.kernel();
    assert!(tuned.contains("generic-receive-offload: on") && tuned.ends_with("2\n200000\n"), "{tuned}");
    assert_eq!(finding(&untuned.findings(&[]), "queues.count")["verdict"], "good");
    let again = succeed(untuned.apply(&[]));
    assert!(again.starts_with("Nothing is to be tuned"), "{again}");

    let undone = untuned.undo();
    assert_eq!(undone.lines().count(), STEPS.len(), "{undone}");
    let (latest, ..) = STEPS[STEPS.len() - 1];
    assert!(undone.lines().next().unwrap().contains(latest), "the latest change is undone first: {undone}");
    assert_eq!(untuned.kernel(), before);
    assert!(!untuned.state().exists());
    assert!(untuned.undo().starts_with("Nothing is to be undone"));
    let in_json = succeed(untuned.tune(Side::Server, &[], &["--undo", "--json"]));
    assert_eq!(in_json.trim(), "[]");
}

#[test]
fn what_others_have_changed_since_is_left_alone() {
    let Some(untuned) = Untuned::new() else { return };
    succeed(untuned.apply(&[]));
    let theirs = format!("echo 5 > /sys/class/net/{SERVER_INTERFACE}/napi_defer_hard_irqs");
    untuned.lab.run_in(Side::Server, "sh", &["-c", &theirs]).unwrap();
    let undone = untuned.undo();
    let line = undone.lines().find(|line| line.contains("napi_defer_hard_irqs")).unwrap();
    assert!(line.contains("left alone: others have changed it from 2 to 5"), "{undone}");
    assert!(untuned.kernel().ends_with("5\n0\n"), "{}", untuned.kernel());
}

#[test]
fn the_changes_of_one_interface_can_be_undone_alone() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    untuned.lab.ip(Side::Server, "link add other numrxqueues 2 type veth peer name end").unwrap();
    succeed(untuned.apply(&[]));
    let plan = [&Untuned::plan_for("other")[..], &["--apply"]].concat();
    succeed(untuned.tune(Side::Server, &[], &plan));
    let undone = succeed(untuned.tune(Side::Server, &[], &[SERVER_INTERFACE, "--undo"]));
    assert!(!undone.contains("other"), "{undone}");
    assert_eq!(untuned.kernel(), before);
    let undone = untuned.undo();
    assert!(undone.contains("of other: ") && !undone.contains(SERVER_INTERFACE), "{undone}");
    assert!(!untuned.state().exists());
}

#[test]
fn an_interface_that_was_renamed_is_undone_under_its_name_of_today() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    succeed(untuned.apply(&[]));
    let rename = |from: &str, to: &str| {
        untuned.lab.ip(Side::Server, &format!("link set {from} down")).unwrap();
        untuned.lab.ip(Side::Server, &format!("link set {from} name {to}")).unwrap();
    };
    rename(SERVER_INTERFACE, "renamed");
    // What has the name now is another interface, and left as it is.
    let other = format!("link add {SERVER_INTERFACE} numrxqueues 2 numtxqueues 2 type veth peer name end");
    untuned.lab.ip(Side::Server, &other).unwrap();
    let others = untuned.kernel();
    let undone = untuned.undo();
    let line = format!("receive queues of {SERVER_INTERFACE}, which is renamed now: 2 is 1 again");
    assert!(undone.lines().any(|it| it == line), "{undone}");
    assert_eq!(untuned.kernel(), others);
    untuned.lab.ip(Side::Server, &format!("link del {SERVER_INTERFACE}")).unwrap();
    rename("renamed", SERVER_INTERFACE);
    assert_eq!(untuned.kernel(), before);
    assert!(!untuned.state().exists());
}

#[test]
fn after_a_reboot_nothing_is_to_be_undone() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    succeed(untuned.apply(&[]));
    let tuned = untuned.kernel();
    let kept = fs::read_to_string(untuned.state()).unwrap();
    // A boot has another identity and other namespaces; what has a value of ours has it from somebody else.
    let namespace = kept.split("net:[").nth(1).unwrap().split(']').next().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let of_another_boot = kept.replace(boot.trim(), "another").replace(namespace, "1");
    fs::write(untuned.state(), &of_another_boot).unwrap();
    let undone = untuned.undo();
    assert!(undone.starts_with("Nothing is to be undone: the machine was started again"), "{undone}");
    assert_eq!(untuned.kernel(), tuned);
    assert!(!untuned.state().exists());
    // Applied again, it is undone to what this boot had.
    fs::write(untuned.state(), kept).unwrap();
    untuned.undo();
    fs::write(untuned.state(), of_another_boot).unwrap();
    succeed(untuned.apply(&[]));
    untuned.undo();
    assert_eq!(untuned.kernel(), before);
}

#[test]
fn a_crash_between_steps_can_be_undone() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    // Writing the state of a later step exceeds this size, and the kernel kills the process.
    let output = untuned.apply(&["prlimit", "--fsize=700", "--core=0"]);
    assert_eq!(output.status.code(), None, "a signal ends it: {output:?}");
    let changes = fs::read_to_string(untuned.state()).unwrap().matches("\"before\"").count();
    assert!((1..STEPS.len()).contains(&changes), "{changes} changes");
    assert_ne!(untuned.kernel(), before);
    untuned.undo();
    assert_eq!(untuned.kernel(), before);
}

#[test]
fn a_step_that_fails_undoes_the_steps_before_it() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    // A veth whose peer runs an XDP program gets no more transmit queues than the peer has receive queues.
    let server = Peer::Sidestep(Sidestep::on(Device::Xdp)).start(&untuned.lab, &Zone::sample()).unwrap();
    assert!(has_xdp_program(&untuned.lab));
    let show = || untuned.lab.run_in(Side::Client, "ethtool", &["-l", CLIENT_INTERFACE]).unwrap();
    let (channels, plan) = (show(), Untuned::plan_for(CLIENT_INTERFACE));
    let output = untuned.tune(Side::Client, &[], &[&plan[..], &["--apply"]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = errors(&output);
    assert!(said.contains(&format!("ethtool -L {CLIENT_INTERFACE} tx 2: ")), "{said}");
    assert!(said.contains("everything is as it was before"), "{said}");
    assert_eq!(show(), channels);
    assert!(!untuned.state().exists());
    drop(server);
    assert_eq!(untuned.kernel(), before);
}

#[test]
fn a_port_gets_no_queues_of_its_own_where_the_nic_has_no_rules() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    let plan = Untuned::plan_for(SERVER_INTERFACE);
    let arguments = [&plan[..], &["--port", "53/udp", "--queues", "0", "--apply"]].concat();
    let output = untuned.tune(Side::Server, &[], &arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(errors(&output).contains("has no rules for flows"), "{output:?}");
    assert_eq!(untuned.kernel(), before);
}

#[test]
fn an_interface_that_is_not_there_is_one_clear_line() {
    let Some(untuned) = Untuned::new() else { return };
    let outputs = [untuned.doctor(&["eth9"]), untuned.tune(Side::Server, &[], &["eth9", "--apply"])];
    for output in outputs {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let expected = format!("sidestep: there is no interface eth9; there are lo, {SERVER_INTERFACE}\n");
        assert_eq!(errors(&output), expected);
    }
}

#[test]
fn without_root_the_doctor_looks_and_nothing_can_be_tuned() {
    let Some(untuned) = Untuned::new() else { return };
    let before = untuned.kernel();
    let directory = Directory::new().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = directory.path().join("sidestep");
    fs::copy(sidestep_binary(), &binary).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = untuned.lab.command(Side::Server, "setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(&binary);
        command.args(arguments).output().unwrap()
    };
    let report = succeed(run(&["doctor", SERVER_INTERFACE, "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(finding(&report, "limits.privileges")["verdict"], "could-be-better");
    assert_eq!(finding(&report, "queues.count")["verdict"], "could-be-better");

    let state = directory.path().join("tune.json");
    let plan = Untuned::plan_for(SERVER_INTERFACE);
    let words = [&["tune", "--apply", "--state", state.to_str().unwrap()], &plan[..]].concat();
    let output = run(&words);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(errors(&output).contains("Operation not permitted"), "{output:?}");
    assert_eq!(untuned.kernel(), before);
    assert!(!state.exists());
}

#[test]
fn of_a_program_the_doctor_says_what_run_says() {
    let Some(_turn) = turn() else { return };
    let directory = Directory::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["plain", "privileged", "sshd"] {
        fs::copy("/bin/sh", path(name)).unwrap();
    }
    std::os::unix::fs::chown(path("privileged"), NOBODY.parse().ok(), None).unwrap();
    fs::set_permissions(path("privileged"), fs::Permissions::from_mode(0o4755)).unwrap();
    directory.write("script", &format!("#!{} -e\nexit 0\n", path("privileged").display())).unwrap();
    fs::set_permissions(path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let source = directory.write("fixed.c", "int main(void) { return 0; }\n").unwrap();
    let compiled = Command::new("cc").arg("-static").arg("-o").args([path("fixed"), source]).status();
    assert!(compiled.unwrap().success());

    let cases = [
        ("fixed", "program.linking", false),
        ("privileged", "program.linking", false),
        ("script", "program.linking", false),
        ("sshd", "program.profile", false),
        ("plain", "program.library", true),
    ];
    for (name, id, without_library) in cases {
        let command = |word: &str| {
            let mut command = Command::new(sidestep_binary());
            command.arg(word);
            if without_library {
                command.env("SIDESTEP_LIBRARY", path("no-such-library"));
            }
            command
        };
        let run = command("run").arg("--").arg(path(name)).args(["-c", "true"]).output().unwrap();
        let said = errors(&run);
        let (_, reason) =
            said.trim_end().split_once("runs on the kernel: ").unwrap_or_else(|| panic!("{run:?}"));
        let look = command("doctor").arg("--json").arg("--").arg(path(name)).output().unwrap();
        assert_eq!(look.status.code(), Some(1), "{look:?}");
        let report: Value = serde_json::from_slice(&look.stdout).unwrap();
        let seen = finding(&report, id)["seen"].as_str().unwrap();
        assert!(seen.ends_with(reason), "{name}: {seen:?} and {reason:?}");
        let outcome = finding(&report, "program.outcome");
        assert!(outcome["verdict"] == "bad" && outcome["seen"].as_str().unwrap().contains(id), "{outcome}");
    }
    let plain = Command::new(sidestep_binary()).args(["doctor", "--"]).arg(path("plain")).output().unwrap();
    assert!(succeed(plain).contains("0 bad, 0 could be better"));
}

#[test]
fn another_network_namespace_is_not_mistaken_for_this_one() {
    let Some(untuned) = Untuned::new() else { return };
    // The thread is in the laboratory, but /sys shows the machine's own interfaces.
    let look =
        || Command::new(sidestep_binary()).args(["doctor", SERVER_INTERFACE, "--json"]).output().unwrap();
    let output = untuned.lab.inside(Side::Server, look);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seen = &finding(&report, "interrupts.busy-poll")["seen"];
    assert_eq!(seen, "not known: /sys shows another network namespace than this one");

    succeed(untuned.apply(&[]));
    let tuned = untuned.kernel();
    let elsewhere = untuned.tune(Side::Client, &[], &["--undo"]);
    assert_eq!(elsewhere.status.code(), Some(2), "{elsewhere:?}");
    assert!(errors(&elsewhere).contains("another network namespace"), "{elsewhere:?}");
    assert_eq!(untuned.kernel(), tuned);
    untuned.undo();
}
