//! Zones from a real etcd: what is put is answered, a transaction as a whole; wrong records, lost connections, compactions, restarts.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::{Child, Directory, quiet_port, skip};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport};

const PATIENCE: Duration = Duration::from_secs(120);

/// One member, which is a cluster.
struct Etcd {
    directory: Directory,
    port: u16,
    /// Where it listens for peers first, of which its cluster has its number.
    peer: String,
    process: Child,
}

impl Etcd {
    /// `None` if it is not installed.
    fn start() -> Option<Etcd> {
        if Command::new("etcd").arg("--version").output().is_err() {
            skip("needs etcd-server and etcd-client");
            return None;
        }
        let directory = Directory::new().unwrap();
        let port = quiet_port();
        let (process, peer) = Etcd::run(&directory, port);
        Some(Etcd { directory, port, peer, process })
    }

    /// Runs etcd on a port of its own for peers, until it is healthy.
    fn run(directory: &Directory, port: u16) -> (Child, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (url, peer) = (url(port), url(quiet_port()));
            let data = directory.path().join("data").display().to_string();
            let mut command = Command::new("etcd");
            command.args([
                "--data-dir",
                &data,
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"]);
            let mut process = Child::spawn("etcd", &mut command).unwrap();
            while process.try_wait().is_none() {
                let health = etcdctl(port).args(["endpoint", "health"]).output().unwrap();
                if health.status.success() {
                    return (process, peer);
                }
                assert!(Instant::now() < deadline, "etcd is not healthy: {}", process.output());
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(Instant::now() < deadline, "etcd ends: {}", process.output());
        }
    }

    fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(PATIENCE).unwrap();
    }

    /// Starts it again with what it had.
    fn restart(&mut self) {
        (self.process, _) = Etcd::run(&self.directory, self.port);
    }

    /// Has it be away, do something where no server sees it, and come back.
    fn aside(&mut self, act: impl FnOnce(&Etcd)) {
        let port = std::mem::replace(&mut self.port, quiet_port());
        self.restart();
        act(self);
        self.kill();
        self.port = port;
        self.restart();
    }

    /// Puts a backup in the place of what it has. It stays the same cluster.
    fn restore(&self, backup: &str) {
        let data = self.directory.path().join("data");
        std::fs::remove_dir_all(&data).unwrap();
        let (data, members) = (data.display().to_string(), format!("default={}", self.peer));
        let words = ["snapshot", "restore", backup, "--data-dir", &data, "--name", "default"];
        let cluster = ["--initial-cluster", &members, "--initial-advertise-peer-urls", &self.peer];
        self.do_with(&[&words[..], &cluster].concat(), "");
    }

    fn do_with(&self, words: &[&str], input: &str) -> String {
        let mut command = etcdctl(self.port);
        let command = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn put(&self, key: &str, value: &str) {
        self.do_with(&["put", &format!("/dns/{key}"), value], "");
    }

    fn delete(&self, words: &[&str]) {
        self.do_with(&[&["del"], words].concat(), "");
    }

    /// Has it forget all revisions but the newest.
    fn forget(&self) {
        let answer: serde_json::Value =
            serde_json::from_str(&self.do_with(&["get", "/", "--write-out", "json"], "")).unwrap();
        self.do_with(&["compact", &answer["header"]["revision"].to_string()], "");
    }

    /// Lines such as `put KEY "VALUE"` as one transaction.
    fn transact(&self, lines: &str) {
        // Conditions, of which there are none; what is done; what is done otherwise.
        self.do_with(&["txn"], &format!("\n{lines}\n\n\n"));
    }

    /// A zone with records, all but the first of which are there before it is served.
    fn put_zone(&self, zone: &str) {
        self.put(&format!("records/{zone}/@/NS"), "300 ns1");
        self.put(&format!("records/{zone}/ns1/A"), "300 192.0.2.1");
        self.put(&format!("records/{zone}/www/A"), "300 192.0.2.80\n300 192.0.2.81");
        self.put(&format!("zones/{zone}"), "");
    }

    /// A server of ours that follows it; `rest` are more options of `[etcd]`.
    fn serve(&self, directory: Directory, rest: &str) -> Serving {
        let text = format!(
            "allow-transfer = [\"127.0.0.0/8\"]\n[etcd]\nendpoints = [\"http://127.0.0.1:{}\"]\nprefix = \"/dns\"\ndirectory = \"kept\"\n{rest}",
            self.port
        );
        std::fs::create_dir_all(directory.path().join("kept")).unwrap();
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        Serving::start_in(directory, &["--config", &config], &[])
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn etcdctl(port: u16) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &url(port), "--command-timeout", "60s"]);
    command
}

fn until(what: &str, serving: &Serving, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: {}", serving.process.output());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The data of an answer, in order.
fn ask(server: SocketAddr, name: &str, rtype: &str) -> Vec<String> {
    let answer = Dig::ask(server, Transport::Udp, &[name, rtype, "+norec"]).section("ANSWER");
    let mut data: Vec<String> =
        answer.iter().filter_map(|line| Some(line.splitn(5, ' ').nth(4)?.to_owned())).collect();
    data.sort();
    data
}

fn status(server: SocketAddr, name: &str) -> String {
    Dig::ask(server, Transport::Udp, &[name, "SOA", "+norec"]).status().to_owned()
}

fn serial(server: SocketAddr, zone: &str) -> u32 {
    ask(server, zone, "SOA")[0].split(' ').nth(2).unwrap().parse().unwrap()
}

#[test]
fn what_is_put_is_answered_by_two_servers_and_a_transaction_is_seen_as_a_whole() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.put_zone("one.test.");
    let servers = [(); 2].map(|()| etcd.serve(Directory::new().unwrap(), ""));
    let on_both = |what: &str, is_so: &dyn Fn(SocketAddr) -> bool| {
        servers.iter().for_each(|server| until(what, server, || is_so(server.v4)));
    };
    on_both("the zone is there", &|at| ask(at, "www.one.test", "A") == ["192.0.2.80", "192.0.2.81"]);

    // From here on both have seen the same, so their serials are the same.
    etcd.put("records/one.test./new/TXT", "60 \"hello etcd\"");
    on_both("a new name", &|at| ask(at, "new.one.test", "TXT") == ["\"hello etcd\""]);
    let [first, second] = [0, 1].map(|number: usize| serial(servers[number].v4, "one.test"));
    assert_eq!(first, second);

    // An alias gives way to an address, which needs a transaction.
    etcd.put("records/one.test./ftp/CNAME", "60 www");
    on_both("an alias", &|at| ask(at, "ftp.one.test", "CNAME") == ["www.one.test."]);
    etcd.transact("del /dns/records/one.test./ftp/CNAME\nput /dns/records/one.test./ftp/A \"60 192.0.2.21\"");
    on_both("an address", &|at| ask(at, "ftp.one.test", "A") == ["192.0.2.21"]);
    let change = Dig::ask(servers[0].v4, Transport::Tcp, &["one.test", &format!("IXFR={first}")]);
    assert!(
        change.text.contains("ftp.one.test.") && !change.text.contains("new.one.test."),
        "{}",
        change.text
    );

    // A record that is wrong changes nothing, and is told; nor does what is right in the same transaction, until all is.
    etcd.transact(
        "put /dns/records/one.test./www/A \"300 192.0.2.800\"\nput /dns/records/one.test./mail/A \"300 192.0.2.25\"",
    );
    etcd.put("records/one.test./later/A", "60 192.0.2.7");
    on_both("what comes later", &|at| ask(at, "later.one.test", "A") == ["192.0.2.7"]);
    for server in &servers {
        assert_eq!(ask(server.v4, "www.one.test", "A"), ["192.0.2.80", "192.0.2.81"]);
        assert!(ask(server.v4, "mail.one.test", "A").is_empty());
        let log = server.process.output();
        assert!(
            log.contains("zone one.test.: not as etcd has it") && log.contains("www.one.test. A: line 1"),
            "{log}"
        );
    }
    etcd.put("records/one.test./www/A", "300 192.0.2.82");
    on_both("it is mended", &|at| {
        ask(at, "www.one.test", "A") == ["192.0.2.82"] && ask(at, "mail.one.test", "A") == ["192.0.2.25"]
    });
    etcd.delete(&["/dns/records/one.test./new/TXT"]);
    on_both("a name is deleted", &|at| status(at, "new.one.test") == "NXDOMAIN");

    // Whoever transfers the zone sees both names of each transaction, or none of them.
    for round in 1..=20 {
        let line = |name: &str| format!("put /dns/records/one.test./{name}/TXT \"60 round{round}\"");
        etcd.transact(&format!("{}\n{}", line("left"), line("right")));
        let text = Dig::ask(servers[0].v4, Transport::Tcp, &["one.test", "AXFR"]).text;
        let of = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name}.one.test.")))?;
            Some(line.rsplit('\t').next()?.to_owned())
        };
        assert_eq!(of("left"), of("right"), "{text}");
    }
    on_both("the last round", &|at| ask(at, "right.one.test", "TXT") == ["\"round20\""]);
}

#[test]
fn zones_join_and_leave_with_their_keys_and_not_all_at_once() {
    let Some(etcd) = Etcd::start() else { return };
    let directory = Directory::new().unwrap();
    // Somebody else has a zone there, of which etcd knows nothing.
    std::fs::create_dir(directory.path().join("kept")).unwrap();
    let other = directory.write("kept/mine.test.zone", "@ 60 SOA ns host 1 1 1 1 1\n").unwrap();
    let server = etcd.serve(directory, "");
    ["one.test.", "two.test."].iter().for_each(|zone| etcd.put_zone(zone));
    let is_there = |zone: &str| !ask(server.v4, &format!("www.{zone}"), "A").is_empty();
    until("both zones", &server, || is_there("one.test") && is_there("two.test"));
    let file = server.directory.path().join("kept/one.test.etcd-zone");
    until("its file", &server, || file.exists());

    etcd.delete(&["/dns/zones/one.test."]);
    until("one leaves", &server, || status(server.v4, "one.test") == "REFUSED");
    until("its file goes", &server, || !file.exists());
    assert!(other.exists(), "it is not ours");
    assert!(is_there("two.test"));

    etcd.delete(&["--prefix", "/dns/"]);
    etcd.put("zones/Three.test", "");
    until("it is told", &server, || {
        let log = server.process.output();
        log.contains("has lost all of its zones at once")
            && log.contains("expected the spelling /dns/zones/three.test.")
    });
    assert!(is_there("two.test"));
    etcd.put_zone("three.test.");
    until("there are others", &server, || {
        is_there("three.test") && status(server.v4, "two.test") == "REFUSED"
    });
}

#[test]
fn zones_are_served_without_etcd_also_after_a_restart_and_followed_when_it_is_back() {
    let Some(mut etcd) = Etcd::start() else { return };
    etcd.put_zone("one.test.");
    let mut server = etcd.serve(Directory::new().unwrap(), "");
    let text = |server: &Serving| ask(server.v4, "text.one.test", "TXT");
    let follows = |server: &Serving, etcd: &Etcd, value: &str| {
        etcd.put("records/one.test./text/TXT", &format!("60 {value}"));
        until(value, server, || text(server) == [format!("\"{value}\"")]);
    };
    follows(&server, &etcd, "first");

    etcd.kill();
    server.process.wait_for_line("zones stay as they are meanwhile", PATIENCE).unwrap();
    assert_eq!(text(&server), ["\"first\""]);
    etcd.restart();
    follows(&server, &etcd, "second");

    // While the server cannot connect, records change, and etcd forgets how they came to be so.
    etcd.kill();
    etcd.aside(|etcd| {
        etcd.put("records/one.test./text/TXT", "60 third");
        etcd.delete(&["/dns/records/one.test./www/A"]);
        etcd.put("records/one.test./late/A", "60 192.0.2.9");
        etcd.forget();
    });
    server.process.wait_for_line("all zones are read anew", PATIENCE).unwrap();
    until("what is there now", &server, || {
        text(&server) == ["\"third\""] && status(server.v4, "www.one.test") == "NXDOMAIN"
    });
    follows(&server, &etcd, "fourth");

    let journal = server.directory.path().join("kept/one.test.etcd-zone.journal");
    let has = |octets: &[u8], text: &[u8]| octets.windows(text.len()).any(|window| window == text);
    until("it is kept", &server, || has(&std::fs::read(&journal).unwrap_or_default(), b"fourth"));
    let before = serial(server.v4, "one.test");
    etcd.kill();
    server.process.kill();
    let again = etcd.serve(server.directory, "");
    assert_eq!((text(&again), serial(again.v4, "one.test")), (vec!["\"fourth\"".to_owned()], before));
    let control = again.directory.path().join("control.sock").display().to_string();
    let zones = tests::command(&["dns", "zones", "--control", &control]).stdout;
    assert!(
        String::from_utf8_lossy(&zones)
            .lines()
            .any(|line| line.starts_with("one.test.") && line.contains(" etcd "))
    );
    etcd.restart();
    follows(&again, &etcd, "fifth");
}

#[test]
fn a_backup_that_is_restored_is_followed_also_if_it_has_as_many_changes_as_were_lost() {
    let Some(mut etcd) = Etcd::start() else { return };
    etcd.put_zone("one.test.");
    let server = etcd.serve(Directory::new().unwrap(), "");
    until("it is there", &server, || !ask(server.v4, "www.one.test", "A").is_empty());
    let backup = etcd.directory.path().join("backup").display().to_string();
    etcd.do_with(&["snapshot", "save", &backup], "");
    let text = || ask(server.v4, "text.one.test", "TXT");
    for lost in ["first", "second"] {
        etcd.put("records/one.test./text/TXT", &format!("60 {lost}"));
    }
    until("what is lost then", &server, || text() == ["\"second\""]);
    let before = serial(server.v4, "one.test");

    etcd.kill();
    etcd.restore(&backup);
    etcd.aside(|etcd| {
        ["one", "two"]
            .iter()
            .for_each(|name| etcd.put(&format!("records/one.test./{name}/A"), "60 192.0.2.9"))
    });
    until("what is there now", &server, || {
        text().is_empty()
            && ["one", "two"].iter().all(|name| !ask(server.v4, &format!("{name}.one.test"), "A").is_empty())
    });
    let restored = serial(server.v4, "one.test");
    assert!(restored > before, "{restored} {before}");
    etcd.put("records/one.test./text/TXT", "60 third");
    until("it is followed", &server, || text() == ["\"third\""]);
    assert!(serial(server.v4, "one.test") > restored);
}

#[test]
fn a_zone_is_signed_if_its_settings_say_so() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.put_zone("one.test.");
    let directory = Directory::new().unwrap();
    std::fs::create_dir(directory.path().join("keys")).unwrap();
    let server = etcd.serve(directory, "keys = \"keys\"\nnew-keys = true\n");
    until("it is there", &server, || !ask(server.v4, "www.one.test", "A").is_empty());
    let signatures = |name: &str| {
        let dig = Dig::ask(server.v4, Transport::Udp, &[name, "A", "+norec", "+dnssec"]);
        dig.section("ANSWER").iter().filter(|line| line.contains(" RRSIG A ")).count()
    };
    assert_eq!(signatures("www.one.test"), 0);
    etcd.put("zones/one.test.", "dnssec = true");
    until("it is signed", &server, || signatures("www.one.test") == 1);
    etcd.put("records/one.test./new/A", "60 192.0.2.9");
    until("what is new is signed", &server, || signatures("new.one.test") == 1);
    etcd.put("zones/one.test.", "");
    until("it is not signed any more", &server, || signatures("www.one.test") == 0);
    assert_eq!(ask(server.v4, "new.one.test", "A"), ["192.0.2.9"]);
}
