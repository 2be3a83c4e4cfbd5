//! A broker that is killed, its programs, which go on, and the broker that takes its place. Pins are of the shell's mount namespace, and
//! end with it.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::Network;
use lab::{Child, SERVER_INTERFACE, Side};
use rustix::process::{Pid, Signal, kill_process};

use crate::ends::{ECHO, answers, await_accelerated, connect, number, of_the_kernel, on_the_stack};
use crate::trial::{PATIENCE, Trial, server};

/// Runs the echo, and when the file is there another `sidestep run` on the same interface, by the other arguments.
const TWICE: &str = "
mount -t bpf bpf /sys/fs/bpf
sidestep=$0; interface=$1; echo=$2; again=$3; shift 3
\"$sidestep\" run --device \"$interface\" -- python3 -c \"$echo\" &
echo broker $!
wait $! || true
while [ ! -e \"$again\" ]; do sleep 0.1; done
echo again $$
exec \"$sidestep\" run --device \"$interface\" \"$@\"";

/// Connections that are there when the broker is killed.
const CONNECTIONS: usize = 24;

/// An echo whose broker was killed, and will be followed by another.
struct Killed {
    trial: Trial,
    shell: Child,
    again: PathBuf,
    _directory: lab::Directory,
    streams: Vec<TcpStream>,
}

impl Killed {
    /// `None` if there can be no laboratory, or the kernel is on trial.
    fn new(name: &str, queues: u32, then: &[&str]) -> Option<Killed> {
        let trial = Trial::with_queues(name, queues)?;
        if trial.network == Network::Kernel {
            return None; // There is no broker.
        }
        let directory = lab::Directory::new().unwrap();
        let again = directory.path().join("again");
        let mut command = trial.lab.command(Side::Server, "sh");
        command.args(["-ec", TWICE]).arg(lab::sidestep_binary()).args([SERVER_INTERFACE, ECHO]).arg(&again);
        let mut shell = Child::spawn("two brokers", command.args(then)).unwrap();
        let broker = number(&shell.wait_for_line("broker ", PATIENCE).unwrap(), "broker ");
        let mut killed = Killed { trial, shell, again, _directory: directory, streams: Vec::new() };
        killed.streams = (0..CONNECTIONS).map(|_| on_the_stack(&killed.trial, 7000)).collect();
        kill_process(broker, Signal::KILL).unwrap();
        Some(killed)
    }

    /// Waits until a program listens, be it on the kernel.
    fn await_listener(&self, port: u16) {
        let deadline = Instant::now() + PATIENCE;
        while self.trial.ask_from(Side::Server, &format!("ss -Htln sport = :{port}")).trim().is_empty() {
            assert!(Instant::now() < deadline, "nobody listens on {port}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts the next broker, and waits until the echo has found it.
    fn start_next(&mut self) -> Pid {
        std::fs::write(&self.again, "").unwrap();
        let next = number(&self.shell.wait_for_line("again ", PATIENCE).unwrap(), "again ");
        await_accelerated(next, ":7000 ");
        next
    }

    /// The echo of the killed broker, which was there before others.
    fn program(&self) -> Pid {
        let found = self.trial.ask_from(Side::Server, "pgrep python3");
        let pids = self.trial.pids(Side::Server);
        let is_inside = |pid: &&str| pids.lines().any(|inside| inside == *pid);
        Pid::from_raw(found.lines().find(is_inside).unwrap().parse().unwrap()).unwrap()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.shell.end();
        for pid in self.trial.pids(Side::Server).lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _ = kill_process(pid, Signal::KILL); // Ended this moment: all the better.
        }
    }
}

#[test]
fn a_program_whose_broker_was_killed_keeps_its_connections_and_the_next_broker_cuts_none() {
    let Some(mut killed) = Killed::new("echo, broker killed and followed", 1, &["--take-over"]) else {
        return;
    };
    thread::sleep(Duration::from_millis(500));
    let mut streams = std::mem::take(&mut killed.streams);
    answers(&mut streams[0], "listen 7001");
    answers(&mut connect(&killed.trial, server(7001)).unwrap(), "y");

    // Under load all the while.
    let (over, mut last) = (AtomicBool::new(false), streams.pop().unwrap());
    let next = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                answers(&mut last, "x");
            }
        });
        let next = killed.start_next();
        over.store(true, Ordering::Relaxed);
        next
    });
    streams.push(last);
    streams.iter_mut().for_each(|stream| answers(stream, "x"));
    assert_eq!(of_the_kernel(&killed.trial, 7000), 0, "connections are the kernel's");
    answers(&mut streams[0], "listen 7002");
    drop(on_the_stack(&killed.trial, 7002));

    // Tools look into programs that this broker has not started.
    let program = killed.program().as_raw_nonzero().to_string();
    let looked = Command::new(lab::sidestep_binary()).args(["sockets", "--pid", &program]).output().unwrap();
    let (shown, refused) = (String::from_utf8_lossy(&looked.stdout), String::from_utf8_lossy(&looked.stderr));
    assert!(looked.status.success() && shown.contains(":7000"), "{shown}{refused}");

    // Its orderly end moves all to the kernel.
    kill_process(next, Signal::TERM).unwrap();
    killed.shell.wait(PATIENCE).unwrap();
    streams.iter_mut().for_each(|stream| answers(stream, "x"));
    assert_eq!(of_the_kernel(&killed.trial, 7000), CONNECTIONS);
    answers(&mut connect(&killed.trial, server(7000)).unwrap(), "x");
}

#[test]
fn the_broker_of_another_program_takes_over_those_of_a_killed_one() {
    let second = ECHO.replace("7000", "7100");
    let then = ["--", "python3", "-c", &second];
    let Some(mut killed) = Killed::new("two echoes, broker killed between", 2, &then) else { return };
    let mut streams = std::mem::take(&mut killed.streams);
    let next = killed.start_next();
    streams.iter_mut().for_each(|stream| answers(stream, "x"));
    killed.await_listener(7100);
    // The first has all queues, until it ends.
    answers(&mut connect(&killed.trial, server(7100)).unwrap(), "x");
    assert_eq!(of_the_kernel(&killed.trial, 7000), 0, "connections are the kernel's");
    kill_process(killed.program(), Signal::KILL).unwrap();
    await_accelerated(next, ":7100 ");
    drop(on_the_stack(&killed.trial, 7100));
}

#[test]
fn what_a_killed_broker_leaves_of_a_program_that_has_ended_is_no_obstacle() {
    let then = ["--", "python3", "-c", ECHO];
    let Some(mut killed) = Killed::new("echo twice, broker killed between", 1, &then) else { return };
    kill_process(killed.program(), Signal::KILL).unwrap();
    killed.streams.clear();
    killed.start_next();
    drop(on_the_stack(&killed.trial, 7000));
}
