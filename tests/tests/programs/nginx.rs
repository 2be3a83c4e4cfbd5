//! nginx, and haproxy in front of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use lab::programs::{LARGE, Network, Nginx, Running, haproxy};
use lab::{SERVER_V4, SERVER_V6, Side, Wrk};
use rustix::process::{Pid, Signal, kill_process};
use tests::Exchange;

use crate::trial::{Carrier, Figure, LOAD, Trial, finish, server};

/// What nginx is for: pages over both versions of IP and by loopback, a large file, an upload, several requests on one connection.
fn assert_serves(trial: &Trial, nginx: &Running) {
    for address in [SERVER_V4, &format!("[{SERVER_V6}]")] {
        let url = format!("http://{address}/");
        assert_eq!(trial.ask(&format!("curl -sS -m 120 {url} {url} {url}")), ["Hello, world!"; 3].join("\n"));
    }
    let loopback = trial.ask_from(Side::Server, "curl -sS -m 120 http://127.0.0.1/");
    assert_eq!(loopback, "Hello, world!");
    assert_large_file(trial, nginx, &format!("http://{SERVER_V4}/large"));

    let upload =
        format!("curl -sS -m 120 -T {} http://{SERVER_V4}/put/large", nginx.path("www/large").display());
    trial.ask(&upload);
    let stored = std::fs::read(nginx.path("www/put/large")).unwrap();
    assert!(stored == std::fs::read(nginx.path("www/large")).unwrap(), "what was put is not what was stored");
    let head = trial.ask(&format!("curl -sS -m 120 -I http://{SERVER_V4}/large"));
    assert!(head.contains(&format!("Content-Length: {LARGE}")), "{head}");
}

/// Gets the large file whole.
fn assert_large_file(trial: &Trial, nginx: &Running, url: &str) {
    let sum = trial.ask_script(&format!("curl -sS -m 120 {url} | sha256sum | cut -d' ' -f1"));
    assert_eq!(sum.trim(), nginx.read("large.sum").trim());
}

/// A short run of wrk.
fn wrk(trial: &Trial, port: u16, close: bool) -> Figure {
    let url = format!("http://{SERVER_V4}:{port}/");
    let report = Wrk { url, connections: 64, seconds: LOAD.as_secs() as u32, close }.run(&trial.lab).unwrap();
    let errors = report.errors + u64::from(report.rate < 1.0);
    Figure::new(report.rate, "requests/s").with_errors(errors, format!("{report:?}"))
}

fn nginx_serves(workers: u32, reuseport: bool, name: &str) {
    let Some(trial) = Trial::with_queues(name, workers) else { return };
    let nginx = trial.start(&Nginx { reuseport, ..Nginx::with_workers(workers) }.program());
    assert_serves(&trial, &nginx);
    trial.load("wrk, 64 connections", Carrier::Stack, || wrk(&trial, 80, false));
    trial.load("wrk, 64 connections, Connection: close", Carrier::Stack, || wrk(&trial, 80, true));
    trial.load("32 clients, a connection for each request", Carrier::Stack, || {
        trial.inside(|| Exchange::hello(server(80), 32, false).run(LOAD)).into()
    });
    assert!(trial.end(nginx).success());
}

#[test]
fn nginx_with_one_worker() {
    nginx_serves(1, false, "nginx, 1 worker");
}

/// The client's kernel leaves its segments uncut then: the upload comes in packets of up to 64 KiB. They come by any queue but the last.
#[test]
fn nginx_where_xdp_runs_in_generic_mode() {
    let Some(trial) = Trial::with_queues("nginx, generic mode", 4) else { return };
    let trial = trial.with_options(&["--xdp-mode", "generic"]);
    let nginx = trial.start(&Nginx::with_workers(1).program());
    trial.on_the_stack(|| assert_serves(&trial, &nginx));
    trial.load("wrk, 64 connections", Carrier::Stack, || wrk(&trial, 80, false));
    if trial.network != Network::Kernel {
        let broker = nginx.process.pid().to_string();
        let status = finish(Command::new(lab::sidestep_binary()).args(["status", "--pid", &broker]));
        assert!(status.contains("AF_XDP, generic"), "{status}");
    }
    assert!(trial.end(nginx).success());
}

#[test]
fn nginx_with_two_workers() {
    nginx_serves(2, false, "nginx, 2 workers");
}

#[test]
fn nginx_with_two_workers_that_have_a_listener_each() {
    nginx_serves(2, true, "nginx, 2 workers, reuseport");
}

/// Linux chooses another hash for a connection whose segment times out, and with it another queue of a veth.
#[test]
fn connections_whose_peers_change_the_queue_live_on() {
    let Some(trial) = Trial::with_queues("nginx, 2 workers, other queues", 2) else { return };
    trial.lab.inside(Side::Client, || fs::write("/proc/sys/net/core/txrehash", "1")).unwrap();
    let nginx = trial.start(&Nginx::with_workers(2).program());
    let mut connections: Vec<TcpStream> =
        (0..24).map(|_| trial.inside(|| TcpStream::connect(server(80))).unwrap()).collect();
    connections.iter_mut().for_each(assert_page);
    let master = nginx.pid_in("pid").unwrap();
    let workers = fs::read_to_string(format!("/proc/{0}/task/{0}/children", master.as_raw_pid())).unwrap();
    for worker in workers.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()) {
        kill_process(worker, Signal::STOP).unwrap();
        connections.iter_mut().for_each(ask_for_page);
        thread::sleep(Duration::from_millis(1200)); // Several timeouts.
        kill_process(worker, Signal::CONT).unwrap();
        connections.iter_mut().for_each(assert_answered);
    }
    if trial.network != Network::Kernel {
        let broker = nginx.process.pid().to_string();
        let status = finish(Command::new(lab::sidestep_binary()).args(["status", "--pid", &broker]));
        assert!(!status.contains(" 0 moved there"), "no packet came by another queue: {status}");
    }
    assert!(trial.end(nginx).success());
}

fn ask_for_page(connection: &mut TcpStream) {
    connection.write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n").unwrap();
}

fn assert_answered(connection: &mut TcpStream) {
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, world!\n") {
        let mut part = [0; 1024];
        let count = connection.read(&mut part).expect("the connection lives");
        assert!(count > 0, "it was closed");
        answer.extend(&part[..count]);
    }
}

fn assert_page(connection: &mut TcpStream) {
    ask_for_page(connection);
    assert_answered(connection);
}

#[test]
fn haproxy_in_front_of_nginx() {
    let Some(trial) = Trial::of("haproxy, 2 threads") else { return };
    let nginx = trial.start_peer(&Nginx::with_workers(1).program());
    let proxy = trial.start(&haproxy());
    let url = format!("http://{SERVER_V4}:8080/");
    assert_eq!(trial.ask(&format!("curl -sS -m 120 {url} {url}")), ["Hello, world!"; 2].join("\n"));
    assert_large_file(&trial, &nginx, &format!("{url}large"));
    // Those to the web server behind it as well: all queues are one process's.
    trial.load("wrk, 64 connections", Carrier::Stack, || wrk(&trial, 8080, false));
    trial.load("wrk, 64 connections, Connection: close", Carrier::Stack, || wrk(&trial, 8080, true));
    trial.end(proxy);
}
