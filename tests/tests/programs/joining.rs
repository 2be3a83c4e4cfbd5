//! Several `sidestep run` on one interface: the first is the broker of all, and another one takes its place when it ends, in whatever way.
//! Pins are of the shell's mount namespace, and end with it.

use std::net::TcpStream;

use lab::programs::Network;
use lab::{Child, SERVER_INTERFACE, Side};
use rustix::process::{Pid, Signal, kill_process};

use crate::ends::{ECHO, answers, await_accelerated, is_accelerated, number, of_the_kernel, on_the_stack};
use crate::trial::{PATIENCE, Trial};

/// Three echoes of as many users, one of them root, on an interface with one queue, and at SIGUSR1 a fourth. Each says the process of its
/// `sidestep run`.
const THREE: &str = "
mount -t bpf bpf /sys/fs/bpf
sidestep=$0; interface=$1; echo=$2
begin() {
    port=$1; shift
    \"$sidestep\" run --share --device \"$interface\" -- \"$@\" /usr/bin/python3 -c \"$(echo \"$echo\" | sed s/7000/$port/)\" &
    echo run$port $!
}
begin 7000
sleep 1
begin 7100 setpriv --reuid=4242 --regid=4242 --clear-groups
begin 7200 setpriv --reuid=4243 --regid=4243 --clear-groups
trap 'begin 7300 setpriv --reuid=4244 --regid=4244 --clear-groups' USR1
echo all begun
until wait; do :; done
ip -d link show \"$interface\"
echo over $$";

/// A broker without a program, an echo that joins it, and when the file is there another broker.
const STAYING: &str = "
mount -t bpf bpf /sys/fs/bpf
sidestep=$0; interface=$1; echo=$2; again=$3
\"$sidestep\" run --broker --device \"$interface\" & echo first $!
sleep 1
\"$sidestep\" run --device \"$interface\" -- python3 -c \"$echo\" & echo program $!
while [ ! -e \"$again\" ]; do sleep 0.1; done
\"$sidestep\" run --verbose --broker --device \"$interface\" & echo second $!
wait; wait; wait
ip -d link show \"$interface\"
echo over $$";

const PORTS: [u16; 3] = [7000, 7100, 7200];

struct Three {
    trial: Trial,
    shell: Child,
    runs: Vec<Pid>,
    streams: Vec<Vec<TcpStream>>,
}

impl Three {
    /// `None` if there can be no laboratory, or the kernel is on trial.
    fn new(name: &str) -> Option<Three> {
        let trial = Trial::of(name)?;
        if trial.network == Network::Kernel {
            return None; // There is no broker.
        }
        let mut command = trial.lab.command(Side::Server, "sh");
        command.args(["-ec", THREE]).arg(lab::sidestep_binary()).args([SERVER_INTERFACE, ECHO]);
        let mut shell = Child::spawn("three runs", &mut command).unwrap();
        let mut told = |port| {
            let label = format!("run{port} ");
            number(&shell.wait_for_line(&label, PATIENCE).unwrap(), &label)
        };
        let runs: Vec<Pid> = PORTS.into_iter().map(&mut told).collect();
        shell.wait_for_line("all begun", PATIENCE).unwrap();
        PORTS.iter().for_each(|port| await_accelerated(runs[0], &format!(":{port} ")));
        let connect = |port: u16| (0..8).map(|_| on_the_stack(&trial, port)).collect();
        let streams = PORTS.into_iter().map(connect).collect();
        Some(Three { trial, shell, runs, streams })
    }

    /// After the end of one of them the connections of the others go on where they are, and what comes then is theirs as before.
    fn go_on_without(&mut self, place: usize) {
        self.runs.remove(place);
        self.streams.remove(place);
        self.streams.iter_mut().flatten().for_each(|stream| answers(stream, "x"));
    }

    /// One of these serves all that are left.
    fn await_successor(&self, ports: &[u16]) -> Pid {
        let serves = |run: Pid| ports.iter().all(|port| is_accelerated(run, &format!(":{port} ")).is_ok());
        let shown = || self.runs.iter().copied().find(|run| serves(*run));
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(successor) = shown() {
                return successor;
            }
            assert!(std::time::Instant::now() < deadline, "nobody has the place of the one that is gone");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    /// One more begins, and shares the queue with the others, as `broker` says.
    fn another_begins(&mut self, broker: Pid) {
        let shell = Pid::from_raw(self.shell.pid() as i32).unwrap();
        kill_process(shell, Signal::USR1).unwrap();
        self.runs.push(number(&self.shell.wait_for_line("run7300 ", PATIENCE).unwrap(), "run7300 "));
        await_accelerated(broker, ":7300 ");
        drop(on_the_stack(&self.trial, 7300));
    }

    /// All end, and the interface is as before.
    fn end(mut self) {
        self.runs.iter().for_each(|run| kill_process(*run, Signal::TERM).unwrap());
        self.shell.wait_for_line("over ", PATIENCE).unwrap();
        assert!(!self.shell.output().contains("prog/xdp"), "{}", self.shell.output());
        self.shell.wait(PATIENCE).unwrap();
    }
}

impl Drop for Three {
    fn drop(&mut self) {
        self.shell.end();
        for pid in self.trial.pids(Side::Server).lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL); // Ended this moment: all the better.
        }
    }
}

#[test]
fn when_the_one_that_has_the_interface_ends_another_takes_its_place_and_no_connection_is_cut() {
    let Some(mut three) = Three::new("three runs, the first ends") else { return };
    kill_process(three.runs[0], Signal::TERM).unwrap();
    three.go_on_without(0);
    let successor = three.await_successor(&[7100, 7200]);
    for port in [7100, 7200] {
        assert_eq!(of_the_kernel(&three.trial, port), 0, "connections of {port} are the kernel's");
        drop(on_the_stack(&three.trial, port));
    }
    three.another_begins(successor);
    three.end();
}

#[test]
fn when_the_one_that_has_the_interface_is_killed_all_programs_go_on() {
    let Some(mut three) = Three::new("three runs, the first is killed") else { return };
    kill_process(three.runs[0], Signal::KILL).unwrap();
    three.runs.remove(0);
    three.streams.iter_mut().flatten().for_each(|stream| answers(stream, "x"));
    three.await_successor(&PORTS);
    for port in PORTS {
        assert_eq!(of_the_kernel(&three.trial, port), 0, "connections of {port} are the kernel's");
        drop(on_the_stack(&three.trial, port));
    }
}

#[test]
fn when_one_that_has_joined_ends_the_others_notice_nothing() {
    let Some(mut three) = Three::new("three runs, the second ends") else { return };
    kill_process(three.runs[1], Signal::TERM).unwrap();
    three.go_on_without(1);
    await_accelerated(three.runs[0], ":7200 ");
    for port in [7000, 7200] {
        assert_eq!(of_the_kernel(&three.trial, port), 0, "connections of {port} are the kernel's");
        drop(on_the_stack(&three.trial, port));
    }
    three.end();
}

#[test]
fn a_broker_that_stays_may_be_replaced_while_programs_run() {
    let Some(trial) = Trial::of("a broker that stays") else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let directory = lab::Directory::new().unwrap();
    let again = directory.path().join("again");
    let mut command = trial.lab.command(Side::Server, "sh");
    command.args(["-ec", STAYING]).arg(lab::sidestep_binary()).args([SERVER_INTERFACE, ECHO]).arg(&again);
    let mut shell = Child::spawn("a broker that stays", &mut command).unwrap();
    let told = |shell: &mut Child, label| number(&shell.wait_for_line(label, PATIENCE).unwrap(), label);
    let (first, program) = (told(&mut shell, "first "), told(&mut shell, "program "));
    await_accelerated(first, ":7000 ");
    let mut stream = on_the_stack(&trial, 7000);
    kill_process(first, Signal::TERM).unwrap();
    await_accelerated(program, ":7000 ");
    answers(&mut stream, "x");
    std::fs::write(&again, "").unwrap();
    let second = told(&mut shell, "second ");
    shell.wait_for_line("the broker of this one", PATIENCE).unwrap();
    kill_process(program, Signal::TERM).unwrap();
    shell.wait_for_line("this one has its place", PATIENCE).unwrap();
    kill_process(second, Signal::TERM).unwrap();
    shell.wait_for_line("over ", PATIENCE).unwrap();
    assert!(!shell.output().contains("prog/xdp"), "{}", shell.output());
}
