//! redis, memcached and PostgreSQL.

use std::thread;
use std::time::{Duration, Instant};

use lab::SERVER_V4;
use lab::programs::{Program, Running, memcached, postgresql, redis};
use tests::{Answer, Exchange};

use crate::trial::{Carrier, Figure, LOAD, PATIENCE, Trial, number_after, server};

/// One command of redis, and what it answers.
fn ask_redis(trial: &Trial, command: &str) -> String {
    trial.ask(&format!("redis-cli -h {SERVER_V4} {command}"))
}

/// Values of all sizes come back, and messages reach those who have subscribed.
fn assert_redis_serves(trial: &Trial) {
    assert_eq!(ask_redis(trial, "SET key value"), "OK");
    assert_eq!(ask_redis(trial, "GET key"), "value");
    assert_eq!(ask_redis(trial, "INCRBY number 42"), "42");
    let large = trial.ask_script(&format!(
        "head -c 3000000 /dev/zero | tr '\\0' x | redis-cli -h {SERVER_V4} -x SET large; \
         redis-cli -h {SERVER_V4} GET large | head -c 3000000 | tr -d x | wc -c; redis-cli -h {SERVER_V4} STRLEN large"
    ));
    assert_eq!(large, "OK\n0\n3000000");
    let heard = trial.ask_script(&format!(
        "heard=$(mktemp)\ntimeout 120 redis-cli -h {SERVER_V4} SUBSCRIBE channel > $heard & subscriber=$!\n\
         until [ \"$(redis-cli -h {SERVER_V4} PUBLISH channel message)\" = 1 ]; do sleep 0.05; done\n\
         until grep -q ^message $heard; do sleep 0.05; done; kill $subscriber; cat $heard; rm $heard"
    ));
    assert!(heard.contains("message\nchannel\nmessage"), "{heard}");
}

/// A run of redis-benchmark with these options; the rate is that of its last test.
fn redis_benchmark(trial: &Trial, options: &str) -> Figure {
    let output = trial.ask(&format!("redis-benchmark -h {SERVER_V4} --csv {options}"));
    // "GET","86206.90",... after a head line; errors are words of their own.
    let mut rates = output.lines().filter_map(|line| line.split("\",\"").nth(1)?.parse::<f64>().ok());
    let errors = u64::from(output.to_lowercase().contains("error"));
    Figure::new(rates.next_back().unwrap_or(0.0), "requests/s").with_errors(errors, output)
}

fn redis_serves(name: &str, program: &Program) {
    let Some(trial) = Trial::of(name) else { return };
    let redis = trial.start(program);
    assert_redis_serves(&trial);
    for (load, options) in [
        ("redis-benchmark SET, 50 connections", "-c 50 -n 20000 -t set"),
        ("redis-benchmark GET, 50 connections", "-c 50 -n 20000 -t get"),
        ("redis-benchmark GET, pipelined by 16", "-c 50 -n 100000 -P 16 -t get"),
    ] {
        trial.load(load, Carrier::Stack, || redis_benchmark(&trial, options));
    }
    assert!(trial.end(redis).success());
}

#[test]
fn redis_on_one_thread() {
    redis_serves("redis", &redis(""));
}

#[test]
fn redis_with_io_threads() {
    // They wait for each other by spinning: on one core they would do nothing else.
    let program = redis("--io-threads 2 --io-threads-do-reads yes").on_cores("0,1");
    redis_serves("redis, 2 io-threads", &program);
}

/// Takes a snapshot, and waits until it is written.
fn save_redis(trial: &Trial) {
    let answer = ask_redis(trial, "BGSAVE");
    assert_eq!(answer, "Background saving started");
    let deadline = Instant::now() + PATIENCE;
    while !ask_redis(trial, "INFO persistence").contains("rdb_bgsave_in_progress:0") {
        assert!(Instant::now() < deadline, "no snapshot");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn redis_saves_under_load() {
    let Some(trial) = Trial::of("redis, BGSAVE under load") else { return };
    let redis: Running = trial.start(&redis(""));
    ask_redis(&trial, "DEBUG POPULATE 200000");
    trial.load("redis-benchmark SET, 50 connections, three BGSAVEs", Carrier::Stack, || {
        thread::scope(|scope| {
            let load = scope.spawn(|| redis_benchmark(&trial, "-c 50 -n 150000 -t set"));
            (0..3).for_each(|_| save_redis(&trial));
            load.join().unwrap()
        })
    });
    assert!(ask_redis(&trial, "INFO persistence").contains("rdb_last_bgsave_status:ok"));
    assert!(redis.path("dump.rdb").exists());
    assert!(trial.end(redis).success());
}

#[test]
fn memcached_with_four_threads() {
    let Some(trial) = Trial::of("memcached, 4 threads").map(Trial::keeping_all_in_tests) else { return };
    let memcached = trial.start(&memcached(4));
    let capable = trial.ask(&format!("memccapable -h {SERVER_V4} -p 11211 -a"));
    assert!(capable.contains("All tests passed"), "{capable}");

    let value = vec![b'v'; 100_000];
    let set = [b"set large 0 0 100000\r\n".as_slice(), &value, b"\r\n"].concat();
    let stored = exchange(b"STORED\r\n".to_vec(), set, 1);
    trial.load("sets of 100000 octets, 1 connection", Carrier::Stack, || {
        trial.inside(|| stored.run(LOAD / 2)).into()
    });
    let large = [b"VALUE large 0 100000\r\n".as_slice(), &value, b"\r\nEND\r\n"].concat();
    let got = exchange(large, b"get large\r\n".to_vec(), 4);
    trial.load("gets of 100000 octets, 4 connections", Carrier::Stack, || {
        trial.inside(|| got.run(LOAD / 2)).into()
    });
    let missed = exchange(b"END\r\n".to_vec(), b"get nothing\r\n".to_vec(), 32);
    trial.load("gets, 32 connections", Carrier::Stack, || trial.inside(|| missed.run(LOAD)).into());
    trial.end(memcached);
}

fn exchange(answer: Vec<u8>, request: Vec<u8>, connections: usize) -> Exchange {
    Exchange {
        request,
        answer: Answer::Octets(answer),
        ..Exchange::echo(server(11211), connections, Vec::new())
    }
}

#[test]
fn postgresql_serves_queries_and_transactions() {
    let Some(trial) = Trial::of("PostgreSQL") else { return };
    let postgresql = trial.start(&postgresql());
    let host = format!("-h {SERVER_V4} -U postgres");
    let sum = trial.ask_script(&format!(
        "psql {host} -Atc 'select sum(n), length(string_agg(md5(n::text), chr(44))) from generate_series(1, 100000) n'"
    ));
    assert_eq!(sum.trim(), "5000050000|3299999");
    trial.ask(&format!("pgbench {host} --initialize --quiet --scale 1 postgres"));
    const WHY: Carrier = Carrier::Kernel("accepts, then forks: a process for each connection");
    let pgbench = |options: &str| {
        let output = trial.ask(&format!("pgbench {host} --no-vacuum --client 8 --time 1 {options} postgres"));
        let failed = number_after(&output, "number of failed transactions:") as u64;
        let aborted = u64::from(output.contains("aborted"));
        Figure::new(number_after(&output, "tps ="), "transactions/s").with_errors(failed + aborted, output)
    };
    trial.load("pgbench, 8 clients, select only", WHY, || pgbench("--select-only"));
    trial.load("pgbench, 8 clients", WHY, || pgbench(""));
    trial.load("pgbench, 8 clients, a connection for each", WHY, || pgbench("--select-only --connect"));
    assert!(trial.end(postgresql).success());
}
