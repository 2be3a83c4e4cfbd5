//! Dynamic updates (RFC 2136) that come side by side.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use lab::Directory;
use rustix::process::Signal;
use tests::{Dig, Serving, Transport};

const CLIENTS: usize = 16;
const UPDATES: usize = 12;

/// Sends updates one after the other, each when the one before is answered; all of them have to be carried out.
fn update(server: SocketAddr, client: usize) {
    let lines =
        (0..UPDATES).map(|number| format!("update add c{client}-{number}.up.test 60 A 192.0.2.9\nsend\n"));
    let script =
        format!("server {} {}\nzone up.test\n{}", server.ip(), server.port(), lines.collect::<String>());
    let mut nsupdate = Command::new("nsupdate")
        .args(["-u", "30"]) // BIND 9.18 fails with more than 32767 ms, now and then.
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    nsupdate.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = nsupdate.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn serial(server: SocketAddr) -> u32 {
    let dig = Dig::ask(server, Transport::Udp, &["up.test", "SOA"]);
    dig.section("ANSWER")[0].split(' ').nth(6).unwrap().parse().unwrap()
}

fn names(server: SocketAddr) -> usize {
    Dig::ask(server, Transport::Tcp, &["up.test", "AXFR"]).text.matches("\t192.0.2.9").count()
}

#[test]
fn updates_that_come_side_by_side_are_all_carried_out_and_outlive_a_kill() {
    for signing in ["", "dnssec = true\n"] {
        let directory = Directory::new().unwrap();
        let zone = "$ORIGIN up.test.\n@ 60 SOA ns host 1 1 1 1000 1\n 60 NS ns\nns 60 A 192.0.2.1\n";
        directory.write("up.test.zone", zone).unwrap();
        let config = format!(
            "allow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"up.test.zone\"\nallow-update = [\"127.0.0.1\"]\n{signing}"
        );
        let config = directory.write("dns.toml", &config).unwrap().display().to_string();
        let mut server = Serving::start_in(directory, &["--config", &config], &[]);
        let first = serial(server.v4);
        std::thread::scope(|scope| {
            (0..CLIENTS).for_each(|client| drop(scope.spawn(move || update(server.v4, client))));
        });
        let all = CLIENTS * UPDATES;
        let last = serial(server.v4);
        assert_eq!(names(server.v4), all);
        // Each update is a version of its own, except where versions are signed: there those that came together are one.
        let versions = usize::try_from(last - first).unwrap();
        assert!(
            if signing.is_empty() { versions == all } else { (1..=all).contains(&versions) },
            "{versions}"
        );

        server.process.signal(Signal::KILL);
        server.process.wait(std::time::Duration::from_secs(60)).unwrap();
        let again = Serving::start_in(server.directory, &["--config", &config], &[]);
        assert_eq!((names(again.v4), serial(again.v4)), (all, last));
    }
}
