//! More processes than queues: those of one user share a queue, and all of them are on the stack.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Nginx, Program, Ready, Running};
use lab::{SERVER_V4, Side};
use rustix::process::{Pid, Signal, kill_process};
use tests::Exchange;

use crate::trial::{Carrier, Figure, KERNEL_SHARE_MAX, LOAD, PATIENCE, SETTLING, Trial, finish, server};

fn status(running: &Running) -> String {
    let broker = running.process.pid().to_string();
    finish(Command::new(lab::sidestep_binary()).args(["status", "--pid", &broker]))
}

/// How many processes have these queues.
fn sharers(status: &str, queues: &str) -> usize {
    status.lines().filter(|line| line.contains(&format!(": {queues} of "))).count()
}

/// Waits until so many processes have the one queue that there is, and their listeners take what is claimed.
fn await_sharers(trial: &Trial, running: &Running, count: usize) {
    await_sharers_of(trial, running, "queue 0", count);
}

/// The same for all of these queues.
fn await_sharers_of(trial: &Trial, running: &Running, queues: &str, count: usize) {
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = status(running);
        let sharers = sharers(&status, queues);
        let listeners =
            status.lines().filter(|line| line.contains(" LISTEN ") && line.ends_with(" accelerated"));
        if sharers == count && listeners.count() >= count {
            break;
        }
        assert!(Instant::now() < deadline, "{count} processes are to share {queues}\n{status}");
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(SETTLING); // The kernel has what begins until the claims of the last one hold.
}

fn redis_benchmark(trial: &Trial, port: u16) -> Figure {
    let output =
        trial.ask(&format!("redis-benchmark -h {SERVER_V4} -p {port} --csv -c 50 -n 20000 -t set,get"));
    let mut rates = output.lines().filter_map(|line| line.split("\",\"").nth(1)?.parse::<f64>().ok());
    let errors = u64::from(output.to_lowercase().contains("error"));
    Figure::new(rates.next_back().unwrap_or(0.0), "requests/s").with_errors(errors, output)
}

/// Runs a program as an ordinary user.
const ORDINARY: &str = "setpriv --reuid=4242 --clear-groups";

/// One at port 6379, run by `one`, and another one, run by `other`, at port 6380.
fn two_redis(one: &str, other: &str) -> Program {
    let redis = |port| {
        format!(
            "redis-server --port {port} --bind 0.0.0.0 --protected-mode no --dir . --daemonize no --save ''"
        )
    };
    let script = format!("cd {{dir}}; {other} {} & echo $! > other; exec {one} {}", redis(6380), redis(6379));
    Program::new("two redis", "sh -c").argument(&script).ready(Ready::Port(6379))
}

fn kill_other(running: &Running) {
    let other = running.read("other").trim().parse().unwrap();
    kill_process(Pid::from_raw(other).unwrap(), Signal::KILL).unwrap();
}

/// Two servers of one user, one after the other and both at a time; then one is killed, and the other serves.
#[test]
fn two_redis_on_one_queue() {
    let Some(trial) = Trial::of("two redis on one queue") else { return };
    let running = trial.start(&two_redis(ORDINARY, ORDINARY));
    await_sharers(&trial, &running, 2);
    for port in [6379, 6380] {
        trial
            .load(&format!("redis-benchmark, port {port}"), Carrier::Stack, || redis_benchmark(&trial, port));
    }
    trial.load("redis-benchmark, both ports", Carrier::Stack, || {
        let both = format!(
            "redis-benchmark -h {SERVER_V4} -p 6380 --csv -c 50 -n 20000 -t get > /dev/null & \
             redis-benchmark -h {SERVER_V4} -p 6379 --csv -c 50 -n 20000 -t get; wait $!"
        );
        let output = trial.ask_script(&both);
        Figure::new(1.0, "runs").with_errors(u64::from(output.to_lowercase().contains("error")), output)
    });
    kill_other(&running);
    await_sharers(&trial, &running, 1);
    trial.load("redis-benchmark, the other was killed", Carrier::Stack, || redis_benchmark(&trial, 6379));
    assert!(trial.end(running).success());
}

/// A connection comes by either queue: each of the two has a place on both.
#[test]
fn two_redis_on_two_queues() {
    let Some(trial) = Trial::with_queues("two redis on two queues", 2) else { return };
    let trial = trial.with_options(&["--share"]);
    let running = trial.start(&two_redis(ORDINARY, ORDINARY));
    await_sharers_of(&trial, &running, "queues 0 1", 2);
    for port in [6379, 6380] {
        let load = format!("redis-benchmark, port {port}");
        trial.load(&load, Carrier::Stack, || redis_benchmark(&trial, port));
    }
    kill_other(&running);
    assert!(trial.end(running).success());
}

/// The web server behind them answers by either queue: with a place on both, each worker has its connections to it on the stack.
#[test]
fn workers_of_a_proxy_share_the_queues_that_their_connections_need() {
    let Some(trial) = Trial::with_queues("nginx, 2 workers, a proxy", 2) else { return };
    let trial = trial.with_options(&["--share"]);
    let _web = trial.start_peer(&Nginx::with_workers(1).program());
    let proxy = trial.start(&Nginx::with_workers(2).in_front_of_a_peer());
    let exchange = || Exchange::hello(server(80), 16, true).run(LOAD).into();
    if trial.network != Network::Kernel {
        // A busy machine may give all connections of a load to one of the workers.
        let deadline = Instant::now() + PATIENCE;
        while sharers(&status(&proxy), "queues 0 1") < 2 && Instant::now() < deadline {
            trial.inside(|| Exchange::hello(server(80), 16, false).run(LOAD));
        }
        await_sharers_of(&trial, &proxy, "queues 0 1", 2);
    }
    trial.load("16 clients, kept connections", Carrier::Stack, || trial.inside(exchange));
    assert!(trial.end(proxy).success());
}

/// Packets of which the kernel may not have more, whatever the reason.
const MOST: f64 = 0.5;

/// What a worker has no time to accept goes to the others by the kernel, and `sidestep status` counts it. Nothing else is the kernel's: of connections for a
/// request each the kernel has no larger part of the packets than of the connections, and never most of them.
fn serve(trial: &Trial, nginx: &Running, load: &str, keeps: bool) {
    let carrier = Carrier::Either("a busy machine may not run a worker in time");
    let (before, mut answered) = (on_the_kernel(&status(nginx)), 0);
    let share = trial.load(load, carrier, || {
        let tally = trial.inside(|| Exchange::hello(server(80), 24, keeps).run(LOAD));
        answered = tally.answered;
        tally.into()
    });
    if trial.network == Network::Kernel || share <= KERNEL_SHARE_MAX {
        return;
    }
    let status = status(nginx);
    let were_there = on_the_kernel(&status) - before;
    let part = were_there as f64 / answered as f64;
    let is_explained = if keeps { were_there > 0 } else { share <= KERNEL_SHARE_MAX + part && share < MOST };
    assert!(
        is_explained,
        "{load}: the kernel took {share:.3} of the packets, and had {were_there} of {answered} connections\n{status}"
    );
}

/// Connections that all processes have had on the kernel, as `sidestep status` says: accepted there, or moved.
fn on_the_kernel(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| line.split_once("so far on the kernel: "));
    let numbers =
        counts.flat_map(|(_, counts)| counts.split(' ')).filter_map(|word| word.parse::<u64>().ok());
    numbers.sum()
}

/// Each takes a part of the connections, those of a worker that was killed among them.
#[test]
fn nginx_with_more_workers_than_queues() {
    const WORKERS: usize = 3;
    let Some(trial) = Trial::of("nginx, 3 workers on one queue") else { return };
    let nginx = trial.start(&Nginx::with_workers(WORKERS as u32).program());
    await_sharers(&trial, &nginx, WORKERS);
    serve(&trial, &nginx, "24 clients, kept connections", true);
    serve(&trial, &nginx, "24 clients, a connection for each request", false);
    for _ in 0..3 {
        let master = nginx.pid_in("pid").unwrap();
        let workers = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", master.as_raw_pid()));
        let worker = workers.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while rustix::process::test_kill_process(Pid::from_raw(worker).unwrap()).is_ok() {
            assert!(Instant::now() < deadline, "it was killed");
            thread::sleep(Duration::from_millis(10));
        }
        await_sharers(&trial, &nginx, WORKERS);
        serve(&trial, &nginx, "24 clients, after a worker was killed", false);
    }
    assert!(trial.end(nginx).success());
}

/// A connection comes to one of the workers, and it may be another's turn to accept. The kernel gives it to whoever has the turn.
#[test]
fn a_listener_whose_workers_take_turns_is_left_to_the_kernel() {
    let Some(trial) = Trial::with_queues("nginx, 2 workers that take turns", 2) else { return };
    let nginx = trial.start(&Nginx { takes_turns: true, ..Nginx::with_workers(2) }.program());
    let exchange = || Exchange::hello(server(80), 32, false).run(LOAD);
    let is_left = || {
        let status = status(&nginx);
        let listeners: Vec<&str> = status.lines().filter(|line| line.contains(" LISTEN ")).collect();
        let mut of_port = listeners.iter().filter(|line| line.contains(" 0.0.0.0:80 "));
        of_port.any(|line| line.contains("often not taken by the process that it came to"))
    };
    let deadline = Instant::now() + PATIENCE;
    while trial.network != Network::Kernel && !is_left() {
        assert!(Instant::now() < deadline, "{}", status(&nginx));
        trial.inside(exchange); // Some may wait until their worker has the turn.
    }
    let carrier = Carrier::Either("its workers take turns");
    trial.load("32 clients", carrier, || trial.inside(|| exchange().into()));
    assert!(trial.end(nginx).success());
}

/// It waits for connections, and starts a program for each that accepts one and ends, as Postfix and Dovecot do.
const MASTER: &str = r#"
import os, select, signal, socket, sys, time
if len(sys.argv) > 1:
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.settimeout(5)
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        sys.exit()
    connection.settimeout(60)
    connection.sendall(b"echo " + connection.recv(100))
    sys.exit()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(("0.0.0.0", 7000), backlog=100)
listener.setblocking(True)
os.set_inheritable(listener.fileno(), True)
script = sys.orig_argv[sys.orig_argv.index("-c") + 1]
while True:
    select.select([listener], [], [])
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", script, str(listener.fileno())])
    time.sleep(0.02)
"#;

/// Twenty connections at a time, ten times: each is to be answered.
const BURSTS: &str = r#"
import socket, sys, threading
answered = []
def ask(number):
    with socket.create_connection((sys.argv[1], 7000), timeout=60) as connection:
        connection.sendall(b"%d" % number)
        answered.append(connection.recv(100) == b"echo %d" % number)
for _ in range(10):
    threads = [threading.Thread(target=ask, args=[number]) for number in range(20)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print(answered.count(True))
"#;

/// What comes to the master, or to a program that has accepted one already, is for whoever accepts next.
#[test]
fn no_connection_is_lost_where_a_master_watches_for_programs_that_accept_one_each() {
    let Some(trial) = Trial::with_queues("a master and its programs", 2) else { return };
    let master = trial.start(&Program::new("master", "python3 -c").argument(MASTER).ready(Ready::Port(7000)));
    let mut client = trial.lab.command(Side::Client, "python3");
    assert_eq!(finish(client.args(["-c", BURSTS, SERVER_V4])).trim(), "200");
    trial.end(master);
}

/// Two workers, which the parent replaces by others at SIGHUP. It sends SIGTERM to those of before until they have ended, as gunicorn does: the second one finds no
/// handler any more, and kills a worker with what it has not accepted.
const REPLACED: &str = r#"
import os, signal, socket, time
listener = socket.create_server(("0.0.0.0", 7000), backlog=100)
def work():
    going = [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    listener.settimeout(0.2)
    while going:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        connection.settimeout(60)
        time.sleep(0.005)
        connection.sendall(b"echo " + connection.recv(100))
        connection.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(60)
def start():
    worker = os.fork()
    if not worker:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        work()
    return worker
workers, asked = [start(), start()], []
signal.signal(signal.SIGHUP, lambda *_: asked.append(1))
# Also those that are just being replaced: one that sleeps would keep `sidestep run` from ending.
os.setpgid(0, 0)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
while True:
    time.sleep(0.02)
    if not asked: continue
    asked.clear()
    before, workers = workers, [start(), start()]
    while before:
        for worker in before: os.kill(worker, signal.SIGTERM)
        time.sleep(0.02)
        before = [worker for worker in before if os.waitpid(worker, os.WNOHANG)[0] == 0]
"#;

/// Eight clients with a connection for each of 150 requests. Each is to be answered.
const REQUESTS: &str = r#"
import socket, sys, threading
answered = []
def ask():
    for number in range(150):
        with socket.create_connection((sys.argv[1], 7000), timeout=60) as connection:
            connection.sendall(b"%d" % number)
            answered.append(connection.recv(100) == b"echo %d" % number)
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(answered.count(True))
"#;

#[test]
fn what_waits_at_a_worker_that_is_killed_while_it_ends_is_for_the_next() {
    let Some(trial) = Trial::with_queues("workers that are killed while they end", 2) else { return };
    let trial = trial.keeping_all(); // They serve one connection at a time, which the kernel does better.
    let program = Program::new("parent", "python3 -c").argument(REPLACED).ready(Ready::Port(7000));
    let parent = trial.start(&program);
    let mut client = trial.lab.command(Side::Client, "python3");
    let requests = thread::scope(|scope| {
        let asking = scope.spawn(|| finish(client.args(["-c", REQUESTS, SERVER_V4])));
        while !asking.is_finished() {
            thread::sleep(Duration::from_millis(500));
            parent.signal_program(Signal::HUP);
        }
        asking.join().unwrap()
    });
    assert_eq!(requests.trim(), "1200");
    trial.end(parent);
}

/// Four workers on two queues, each of which serves as many connections at a time as it has threads, for 5 ms each.
const POOLS: &str = r#"
import os, signal, socket, sys, threading, time
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
os.setpgid(0, 0)
listener = socket.create_server(("0.0.0.0", 7000), backlog=100)
for _ in range(3):
    if os.fork() == 0: break
def work():
    while True:
        connection, _ = listener.accept()
        request = connection.recv(100)
        time.sleep(0.005)
        connection.sendall(b"echo " + request)
        connection.close()
for _ in range(THREADS - 1): threading.Thread(target=work).start()
work()
"#;

/// Those with a queue would have all connections wait, while the others have nothing to do. gunicorn, unicorn and starman have one thread, puma has several.
#[test]
fn a_listener_whose_workers_take_few_connections_at_a_time_is_left_to_the_kernel() {
    for (name, threads) in
        [("workers that serve one at a time", "1"), ("workers that serve two at a time", "2")]
    {
        let Some(trial) = Trial::with_queues(name, 2) else { return };
        let program = POOLS.replace("THREADS", threads);
        let parent =
            trial.start(&Program::new("parent", "python3 -c").argument(&program).ready(Ready::Port(7000)));
        let ask = || {
            let mut client = trial.lab.command(Side::Client, "python3");
            assert_eq!(finish(client.args(["-c", REQUESTS, SERVER_V4])).trim(), "1200");
            if trial.network == Network::Kernel { String::new() } else { status(&parent) }
        };
        let is_left = |status: &str| {
            let mut listeners = status.lines().filter(|line| line.contains(" LISTEN "));
            status.contains("kernel: connections wait there while few are served at a time")
                && listeners.all(|line| !line.ends_with(" accelerated"))
        };
        // What waits while a worker has no processor counts for nothing: on a busy machine it takes more of them.
        let mut said = ask();
        let deadline = Instant::now() + PATIENCE;
        while trial.network != Network::Kernel && !is_left(&said) {
            assert!(Instant::now() < deadline, "{said}");
            said = ask();
        }
        trial.end(parent);
    }
}

/// Whoever shares a queue could read the other's packets.
#[test]
fn users_do_not_share_a_queue() {
    let Some(trial) = Trial::of("two users on one queue") else { return };
    one_has_the_queue(&trial, &two_redis("setpriv --reuid=4243 --clear-groups", ORDINARY));
}

/// One of root's may become another user's later, and would keep the memory.
#[test]
fn processes_of_root_do_not_share_a_queue() {
    let Some(trial) = Trial::of("two of root on one queue") else { return };
    one_has_the_queue(&trial, &two_redis("", ""));
}

fn one_has_the_queue(trial: &Trial, program: &Program) {
    let running = trial.start(program);
    if trial.network != Network::Kernel {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = status(&running);
            if status.contains("only processes of one user share one") && status.contains(": queue 0 of ") {
                break;
            }
            assert!(Instant::now() < deadline, "{status}\n{}", running.process.output());
            thread::sleep(Duration::from_millis(50));
        }
    }
    for port in [6379, 6380] {
        let ping = format!("until redis-cli -h {SERVER_V4} -p {port} PING | grep PONG; do sleep 0.05; done");
        assert_eq!(trial.ask_script(&ping).trim(), "PONG");
    }
    kill_other(&running); // The script ends with the one at port 6379 only.
    assert!(trial.end(running).success());
}
