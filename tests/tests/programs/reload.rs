//! nginx is given a new configuration, and a new binary, while clients ask: none of them notices.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Nginx, Running};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit, test_kill_process};
use tests::{Exchange, ExchangeTally};

use crate::trial::{Carrier, Figure, PATIENCE, Trial, server};

/// Longer than a program waits for an answer of its broker.
const STOPPED: Duration = Duration::from_secs(5);

/// How long packets take to peers that are far away.
const FAR: Duration = Duration::from_millis(150);

/// Asks on new connections and on kept ones while `change` is made; returns what came back to the one and the other.
fn ask_meanwhile(trial: &Trial, change: impl FnOnce()) -> [ExchangeTally; 2] {
    let stop = AtomicBool::new(false);
    let clients = [Exchange::hello(server(80), 12, false), Exchange::hello(server(80), 12, true)];
    thread::scope(|scope| {
        let running = clients.each_ref().map(|client| {
            let stop = &stop;
            scope.spawn(move || trial.inside(|| client.run_until(stop)))
        });
        thread::sleep(Duration::from_millis(300));
        {
            let _stop = StopAtEnd(&stop); // Also if the change fails.
            change();
            thread::sleep(Duration::from_millis(300));
        }
        running.map(|client| client.join().unwrap())
    })
}

/// Tells clients to stop when it goes.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Both together: no request may fail.
fn figure(tallies: &[ExchangeTally; 2]) -> Figure {
    let failed: u64 = tallies.iter().map(|tally| tally.failed() + u64::from(tally.answered == 0)).sum();
    let rate = tallies.iter().map(ExchangeTally::rate).sum();
    Figure::new(rate, "answers/s").with_errors(failed, format!("{tallies:?}"))
}

fn wait_until(nginx: &Running, what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happens() {
        if Instant::now() >= deadline {
            let status = tests::command(&["status"]);
            let status = String::from_utf8_lossy(&status.stdout).into_owned();
            let (log, output) = (nginx.read("error.log"), nginx.process.output());
            panic!("{what} does not happen\nerror.log:\n{log}\nnginx says:\n{output}\nstatus:\n{status}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// How often nginx has said this.
fn count(nginx: &Running, words: &str) -> usize {
    nginx.read("error.log").matches(words).count()
}

fn reload_under_load(workers: u32) {
    let name = format!("nginx, {workers} worker{}, reload", if workers == 1 { "" } else { "s" });
    let Some(trial) = Trial::with_queues(&name, workers) else { return };
    reload_repeatedly(trial, workers, "24 clients, four reloads");
}

fn reload_repeatedly(trial: Trial, workers: u32, load: &str) {
    let nginx = trial.start(&Nginx::with_workers(workers).program());
    const RELOADS: usize = 4;
    let carrier = Carrier::Either("the connections of workers that end are moved to the kernel");
    trial.load(load, carrier, || {
        figure(&ask_meanwhile(&trial, || {
            for reload in 1..=RELOADS {
                kill_process(nginx.pid_in("pid").unwrap(), Signal::HUP).unwrap();
                wait_until(&nginx, "a reload", || {
                    count(&nginx, "exited with code 0") >= reload * workers as usize
                });
            }
        }))
    });
    assert_eq!(count(&nginx, "exited on signal"), 0, "{}", nginx.read("error.log"));
    assert!(trial.end(nginx).success());
}

#[test]
fn one_worker_is_replaced_under_load() {
    reload_under_load(1);
}

#[test]
fn two_workers_are_replaced_under_load() {
    reload_under_load(2);
}

/// Whoever connects meanwhile waits for it: the port is the old workers' until the broker says otherwise.
#[test]
fn nobody_is_lost_when_workers_are_replaced_while_the_broker_is_stopped() {
    let Some(trial) = Trial::with_queues("nginx, 2 workers, reload, broker stopped", 2) else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let nginx = trial.start(&Nginx::with_workers(2).program());
    let carrier = Carrier::Either("the connections of workers that end are moved to the kernel");
    trial.load("24 clients, one reload", carrier, || {
        figure(&ask_meanwhile(&trial, || {
            nginx.process.signal(Signal::STOP);
            kill_process(nginx.pid_in("pid").unwrap(), Signal::HUP).unwrap();
            thread::sleep(STOPPED);
            nginx.process.signal(Signal::CONT);
            wait_until(&nginx, "a reload", || count(&nginx, "exited with code 0") >= 2);
        }))
    });
    assert!(trial.end(nginx).success());
}

/// Their handshakes take longer than a worker that ends waits for anything.
#[test]
fn peers_that_are_far_away_notice_nothing_of_a_reload() {
    let Some(trial) = Trial::with_delay("nginx, 1 worker, reload, 300 ms away", FAR) else { return };
    reload_repeatedly(trial, 1, "24 clients, four reloads");
}

/// As <https://nginx.org/en/docs/control.html> has it: start the new binary beside the old one, let the old workers end, then the old
/// master. `meanwhile` happens while the old worker is about to end.
fn upgrade(nginx: &Running, meanwhile: impl FnOnce()) -> Pid {
    let old = nginx.pid_in("pid").unwrap();
    kill_process(old, Signal::USR2).unwrap();
    wait_until(nginx, "the new master", || {
        nginx.path("pid.oldbin").exists() && nginx.pid_in("pid").is_some_and(|pid| pid != old)
    });
    let new = nginx.pid_in("pid").unwrap();
    thread::sleep(Duration::from_millis(200)); // Both serve.
    kill_process(old, Signal::WINCH).unwrap();
    wait_until(nginx, "that the old worker is about to end", || {
        count(nginx, "gracefully shutting down") >= 1
    });
    meanwhile();
    wait_until(nginx, "the end of the old workers", || count(nginx, "exited with code 0") >= 1);
    kill_process(old, Signal::QUIT).unwrap();
    wait_until(nginx, "the end of the old master", || !nginx.path("pid.oldbin").exists());
    new
}

#[test]
fn the_binary_is_replaced_under_load() {
    let Some(trial) = Trial::of("nginx, 1 worker, binary upgrade") else { return };
    replace_binary(&trial);
}

#[test]
fn peers_that_are_far_away_notice_nothing_of_a_new_binary() {
    let Some(trial) = Trial::with_delay("nginx, 1 worker, binary upgrade, 300 ms away", FAR) else { return };
    replace_binary(&trial);
}

fn replace_binary(trial: &Trial) {
    let mut nginx = trial.start(&Nginx { daemon: true, ..Nginx::with_workers(1) }.program());
    let mut new = None;
    let carrier = Carrier::Either("the connections of workers that end are moved to the kernel");
    trial.load("24 clients, one upgrade", carrier, || {
        figure(&ask_meanwhile(trial, || new = Some(upgrade(&nginx, || ()))))
    });
    let new = new.unwrap();
    assert_eq!(trial.ask(&format!("curl -sS -m 120 http://{}/", server(80))), "Hello, world!");
    assert_eq!(count(&nginx, "exited on signal"), 0, "{}", nginx.read("error.log"));
    kill_process(new, Signal::QUIT).unwrap();
    wait_until(&nginx, "the end of the new master", || test_kill_process(new).is_err());
    nginx.process.wait(PATIENCE).unwrap();
    trial.assert_nothing_left(&nginx.process.output());
}

/// Connections that a worker has when it is replaced.
const MANY: usize = 10_000;
/// Held by the test that has them: a process may have no descriptors for twice as many.
static TURN: Mutex<()> = Mutex::new(());
/// The two halves of a request.
const HALVES: [&[u8]; 2] = [b"GET / HTTP/1.1\r\nHost: lab\r\n", b"Connection: close\r\n\r\n"];

/// Opens [`MANY`] connections and sends half a request on each: no worker may close one before it has read the other half.
fn ask_by_half(trial: &Trial) -> Vec<TcpStream> {
    allow_many_descriptors();
    let connect = |_| {
        let mut stream = TcpStream::connect(server(80))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(HALVES[0])?;
        Ok(stream)
    };
    trial.inside(|| (0..MANY).map(connect).collect::<io::Result<_>>()).unwrap()
}

/// Sends the other half of each request; returns how often what came back.
fn ask_the_rest(streams: Vec<TcpStream>) -> BTreeMap<String, usize> {
    let ask = |mut stream: TcpStream| {
        let mut answer = String::new();
        stream.write_all(HALVES[1])?;
        stream.read_to_string(&mut answer)?;
        Ok::<_, io::Error>(answer.lines().next().unwrap_or("nothing").to_owned())
    };
    let mut answers = BTreeMap::new();
    for stream in streams {
        let answer = ask(stream).unwrap_or_else(|error| error.to_string());
        *answers.entry(answer).or_default() += 1;
    }
    answers
}

fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn all_are_answered() -> BTreeMap<String, usize> {
    BTreeMap::from([("HTTP/1.1 200 OK".to_owned(), MANY)])
}

#[test]
fn ten_thousand_requests_under_way_are_answered_by_the_worker_that_is_replaced() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(trial) = Trial::of("nginx, 1 worker, reload, 10 000 connections") else { return };
    let nginx = trial.start(&Nginx::with_workers(1).program());
    let streams = trial.on_the_stack(|| ask_by_half(&trial));
    kill_process(nginx.pid_in("pid").unwrap(), Signal::HUP).unwrap();
    wait_until(&nginx, "that the old worker is about to end", || {
        count(&nginx, "gracefully shutting down") >= 1
    });
    assert_eq!(trial.ask(&format!("curl -sS -m 120 http://{}/", server(80))), "Hello, world!");
    assert_eq!(ask_the_rest(streams), all_are_answered());
    wait_until(&nginx, "the end of the old worker", || count(&nginx, "exited with code 0") >= 1);
    assert!(trial.end(nginx).success());
}

#[test]
fn ten_thousand_requests_under_way_are_answered_by_the_binary_that_is_replaced() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(trial) = Trial::of("nginx, 1 worker, binary upgrade, 10 000 connections") else { return };
    let mut nginx = trial.start(&Nginx { daemon: true, ..Nginx::with_workers(1) }.program());
    let streams = trial.on_the_stack(|| ask_by_half(&trial));
    let mut answers = BTreeMap::new();
    let new = upgrade(&nginx, || answers = ask_the_rest(streams));
    assert_eq!(answers, all_are_answered());
    assert_eq!(trial.ask(&format!("curl -sS -m 120 http://{}/", server(80))), "Hello, world!");
    kill_process(new, Signal::QUIT).unwrap();
    wait_until(&nginx, "the end of the new master", || test_kill_process(new).is_err());
    nginx.process.wait(PATIENCE).unwrap();
    trial.assert_nothing_left(&nginx.process.output());
}
