//! Dynamic updates (RFC 2136) that come side by side.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use lab::Directory;
use rustix::process::Signal;
use tests::{Dig, Serving, Transport};

const CLIENTS: usize = 16;
const UPDATES: usize = 12;

pub(crate) fn nsupdate(server: SocketAddr, options: &[&str], lines: &str) -> Output {
    let script = format!("server {} {}\nzone up.test\n{lines}", server.ip(), server.port());
    let mut nsupdate = Command::new("nsupdate")
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    nsupdate.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    nsupdate.wait_with_output().unwrap()
}

/// Sends updates one after the other, each when the one before is answered; all of them have to be carried out.
fn update(server: SocketAddr, client: usize) {
    let lines =
        (0..UPDATES).map(|number| format!("update add c{client}-{number}.up.test 60 A 192.0.2.9\nsend\n"));
    // BIND 9.18 fails with more than 32767 ms, now and then.
    let output = nsupdate(server, &["-u", "30"], &lines.collect::<String>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Sends updates until one has no answer. The names of those that were carried out.
fn update_until_killed(server: SocketAddr, prefix: &str) -> Vec<String> {
    let names = (0..).map(|number| format!("{prefix}-{number}.up.test."));
    // The journal is to become long now and then, and the file to be written anew.
    let text = format!("\"{}\" ", "x".repeat(250)).repeat(16);
    let is_answered = |name: &String| {
        let lines = format!("update add {name} 60 A 192.0.2.9\nupdate add {name} 60 TXT {text}\nsend\n");
        nsupdate(server, &["-v"], &lines).status.success()
    };
    names.take_while(is_answered).collect()
}

fn held(server: SocketAddr) -> BTreeSet<String> {
    let text = Dig::ask(server, Transport::Tcp, &["up.test", "AXFR"]).text;
    let ours = text.lines().filter(|line| line.ends_with("\t192.0.2.9"));
    ours.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

fn serial(server: SocketAddr) -> u32 {
    let dig = Dig::ask(server, Transport::Udp, &["up.test", "SOA"]);
    dig.section("ANSWER")[0].split(' ').nth(6).unwrap().parse().unwrap()
}

fn config_in(directory: &Directory, signing: &str) -> String {
    let zone = "$ORIGIN up.test.\n@ 60 SOA ns host 1 1 1 1000 1\n 60 NS ns\nns 60 A 192.0.2.1\n";
    directory.write("up.test.zone", zone).unwrap();
    let config = format!(
        "allow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"up.test.zone\"\nallow-update = [\"127.0.0.1\"]\n{signing}"
    );
    directory.write("dns.toml", &config).unwrap().display().to_string()
}

fn kill(server: &mut Serving) {
    server.process.signal(Signal::KILL);
    server.process.wait(Duration::from_secs(60)).unwrap();
}

#[test]
fn updates_that_come_side_by_side_are_all_carried_out_and_outlive_a_kill() {
    for signing in ["", "dnssec = true\n"] {
        let directory = Directory::new().unwrap();
        let config = config_in(&directory, signing);
        let mut server = Serving::start_in(directory, &["--config", &config], &[]);
        let first = serial(server.v4);
        thread::scope(|scope| {
            (0..CLIENTS).for_each(|client| drop(scope.spawn(move || update(server.v4, client))));
        });
        let all = CLIENTS * UPDATES;
        let last = serial(server.v4);
        assert_eq!(held(server.v4).len(), all);
        // Each update is a version of its own, except where versions are signed: there those that came together are one.
        let versions = usize::try_from(last - first).unwrap();
        assert!(
            if signing.is_empty() { versions == all } else { (1..=all).contains(&versions) },
            "{versions}"
        );

        kill(&mut server);
        let again = Serving::start_in(server.directory, &["--config", &config], &[]);
        assert_eq!((held(again.v4).len(), serial(again.v4)), (all, last));
    }
}

/// Killed while updates are on their way, again and again; what a client may have seen counts as much as what was answered.
#[test]
fn no_update_that_was_answered_is_lost_when_the_server_is_killed_at_any_instant() {
    const KILLS: u64 = 10;
    for signing in ["", "dnssec = true\n"] {
        let directory = Directory::new().unwrap();
        let config = config_in(&directory, signing);
        let mut server = Serving::start_in(directory, &["--config", &config], &[]);
        let mut answered = BTreeSet::new();
        for round in 0..KILLS {
            let address = server.v4;
            let seen = thread::scope(|scope| {
                let clients: Vec<_> = (0..4)
                    .map(|client| {
                        scope.spawn(move || update_until_killed(address, &format!("r{round}c{client}")))
                    })
                    .collect();
                thread::sleep(Duration::from_millis(50 + round * 7919 % 400));
                let seen = serial(address);
                thread::sleep(Duration::from_micros(round * 6007 % 10_000));
                kill(&mut server);
                answered.extend(clients.into_iter().flat_map(|client| client.join().unwrap()));
                seen
            });
            server = Serving::start_in(server.directory, &["--config", &config], &[]);
            let held = held(server.v4);
            let lost: Vec<&String> = answered.difference(&held).collect();
            assert!(lost.is_empty() && serial(server.v4) >= seen, "kill {round}: {lost:?}");
        }
        assert!(answered.len() > 20, "{}", answered.len());
    }
}

#[test]
fn updates_that_a_full_disk_refuses_fill_no_log() {
    const COUNT: usize = 300;
    let directory = Directory::new().unwrap();
    let config = config_in(&directory, "");
    let began = std::time::Instant::now();
    let by = ["sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""];
    let server = Serving::start_by(&by, directory, &["--config", &config], &[]);
    let lines: String =
        (0..COUNT).map(|number| format!("update add n{number}.up.test 60 A 192.0.2.9\nsend\n")).collect();
    let said = nsupdate(server.v4, &["-v"], &lines);
    assert_eq!(String::from_utf8_lossy(&said.stderr).matches("update failed: SERVFAIL").count(), COUNT);
    let lines = server.process.output().matches("updates that are not carried out").count();
    // 50 lines in 10 seconds.
    let times = began.elapsed().as_secs() as usize / 10 + 1;
    assert!(lines > 0 && lines <= 50 * times, "{lines} lines");
    assert_eq!(serial(server.v4), 1);
}
