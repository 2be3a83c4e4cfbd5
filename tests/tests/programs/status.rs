//! `sidestep status`, and `sidestep top` in lines: what they say of a program whose sockets are on the stack, and on the kernel.

use std::process::Command;
use std::time::{Duration, Instant};

use lab::programs::{Network, Nginx, Program, Ready, redis};
use lab::{SERVER_INTERFACE, SERVER_V4, Side, sidestep_binary};
use rustix::process::Signal;

use crate::trial::{PATIENCE, Trial, finish, number_after, server};

/// What the command says, which has to end well.
fn said(words: &[&str]) -> String {
    finish(Command::new(sidestep_binary()).args(words))
}

/// What a client asks for on one connection, again and again.
const PAGES: u32 = 100;

#[test]
fn a_connection_that_sends_in_bulk_moves_to_the_kernel_and_is_counted() {
    let Some(trial) = Trial::of("nginx, a large page again and again") else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let page = Program::prepare(Nginx::with_workers(1).program(), "head -c 100000 www/large > www/page");
    let nginx = trial.start(&page);
    let broker = nginx.process.pid().to_string();
    let expected = trial.ask_script(&format!("curl -sS -m 60 http://{SERVER_V4}/page | sha256sum"));
    let urls = format!("http://{SERVER_V4}/page?[1-{PAGES}]");
    let sums = trial.ask_script(&format!("curl -sS -m 120 '{urls}' | split -b 100000 --filter=sha256sum"));
    assert!(sums.lines().all(|sum| sum == expected.trim()), "{sums}");
    assert_eq!(sums.lines().count(), PAGES as usize);
    let status = said(&["status", "--pid", &broker]);
    assert!(status.contains("1 of those moved because they transferred large amounts"), "{status}");
    trial.end(nginx);
}

#[test]
fn each_socket_is_told_with_where_it_runs_and_why() {
    let Some(trial) = Trial::of("redis, looked at") else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let redis = trial.start(&redis(&format!("--bind {SERVER_V4} 127.0.0.1")));
    let broker = redis.process.pid().to_string();
    let peer = trial.inside(|| std::net::TcpStream::connect_timeout(&server(6379), PATIENCE).unwrap());
    // Within the host packets go by the kernel's loopback interface.
    let connect = || std::net::TcpStream::connect_timeout(&server(6379), PATIENCE).unwrap();
    let accepted = number_after(&said(&["status", "--pid", &broker]), "so far on the kernel:");
    let _neighbour = trial.lab.inside(Side::Server, connect);
    let counts = format!(
        "1 connections on the stack, 1 on the kernel; so far on the kernel: {} accepted, 0 made, 0 moved",
        accepted + 1.0
    );
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        let status = said(&["status", "--pid", &broker]);
        if status.contains(&counts) {
            break status;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let line = |what: &str| status.lines().find(|line| line.contains(what)).unwrap_or("nothing").to_owned();
    assert!(line("redis-server ").ends_with(&format!(": queue 0 of {SERVER_INTERFACE}")), "{status}");
    assert!(line(&format!("LISTEN     {SERVER_V4}:6379 ")).ends_with(" accelerated"), "{status}");
    assert!(line("LISTEN     127.0.0.1:6379 ").contains(" kernel"), "{status}");
    let ends = format!("{SERVER_V4}:6379 - {}", peer.local_addr().unwrap());
    assert!(line(&ends).contains("ESTAB") && line(&ends).ends_with(" accelerated"), "{status}");
    assert!(line(SERVER_INTERFACE).contains("queue"), "{status}");

    let json = said(&["status", "--pid", &broker, "--json"]);
    assert_eq!(json.lines().count(), 1);
    assert!(
        json.starts_with(&format!("{{\"pid\":{broker},")) && json.contains("\"accelerated\":true"),
        "{json}"
    );
    let looks = said(&["top", "--pid", &broker, "--count", "2"]);
    // It may be too busy for one of the looks, but not for both.
    assert_eq!(looks.matches("program redis-server/").count(), 2, "{looks}");
    assert!(looks.contains(&format!(" {SERVER_INTERFACE}:0: in ")), "{looks}");
    assert!(looks.contains("engine redis-server/") && looks.contains("1 connections"), "{looks}");
    trial.end(redis);
    let gone = Command::new(sidestep_binary()).args(["status", "--pid", &broker]).output().unwrap();
    assert!(!gone.status.success());
    assert_eq!(
        String::from_utf8_lossy(&gone.stderr),
        format!("sidestep: no `sidestep run` {broker} is running here\n")
    );
}

/// A master process with a helper beside it: its child accepts.
const MASTER: &str = "
import os, signal, socket, subprocess
helper = subprocess.Popen(['sleep', '600'], close_fds=True)
listener = socket.create_server(('', 7000), backlog=16)
kept = []
child = os.fork()
while child == 0: kept.append(listener.accept())
def end(*_):
    helper.kill()
    os.kill(child, signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
helper.wait()
";

#[test]
fn each_process_without_a_queue_says_why() {
    let Some(trial) = Trial::of("a master process, looked at") else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let program = Program::new("master", "python3 -c").argument(MASTER).ready(Ready::Port(7000));
    let master = trial.start(&program);
    let connect = || std::net::TcpStream::connect_timeout(&server(7000), PATIENCE).unwrap();
    // Within the host packets go by the kernel's loopback interface.
    let _neighbour = trial.lab.inside(Side::Server, connect);
    let broker = master.process.pid().to_string();
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        let status = said(&["status", "--pid", &broker]);
        if counts_one_on_kernel(&status) || Instant::now() > deadline {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let is_told =
        |program: &str, why: &str| status.lines().any(|line| line.starts_with(program) && line.contains(why));
    assert!(is_told("python3 ", &format!("queue 0 of {SERVER_INTERFACE}")), "{status}");
    assert!(
        is_told(
            "python3 ",
            "it waits at no listener that can be accelerated, as a master leaves that to its workers"
        ),
        "{status}"
    );
    assert!(is_told("sleep ", "it has no TCP connections, listeners or UDP ports"), "{status}");
    assert!(counts_one_on_kernel(&status), "{status}");
    trial.end(master);
}

/// Whether a process has accepted connections on the kernel, and has them still. The first one, which says that the program is ready, may
/// be another.
fn counts_one_on_kernel(status: &str) -> bool {
    let counts = status.lines().find_map(|line| line.split_once(" on the kernel; so far on the kernel: "));
    let Some((now, so_far)) = counts else { return false };
    let now = now.rsplit(' ').next();
    now.is_some_and(|count| count != "0") && !so_far.starts_with("0 accepted")
}

#[test]
fn a_broker_that_does_not_answer_is_named_and_does_not_hide_another() {
    let stopped = Trial::of("redis, its broker stopped");
    let (Some(stopped), Some(other)) = (stopped, Trial::of("redis, looked at beside it")) else { return };
    if stopped.network == Network::Kernel {
        return; // There is no broker.
    }
    let (first, second) = (stopped.start(&redis("")), other.start(&redis("")));
    first.process.signal(Signal::STOP);
    let asked = Command::new(sidestep_binary()).args(["status", "--json"]).output().unwrap();
    first.process.signal(Signal::CONT);
    let (told, failures) = (String::from_utf8_lossy(&asked.stdout), String::from_utf8_lossy(&asked.stderr));
    let pid = first.process.pid();
    assert!(failures.contains(&format!("`sidestep run` {pid} does not answer")), "{failures}");
    assert!(
        told.contains(&format!("{{\"pid\":{},", second.process.pid())) && asked.status.success(),
        "{told}"
    );
    stopped.end(first);
    other.end(second);
}
