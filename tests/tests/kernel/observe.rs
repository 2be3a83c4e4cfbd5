//! Looking at a server: sockets, counters, traces, captures. The directory of control sockets is the test's own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::{Child, Directory, Zone, sidestep_binary};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `sidestep` to its end, where programs are looked for in `directory`.
fn look(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(sidestep_binary());
    command.env("SIDESTEP_RUNTIME_DIR", directory).args(arguments).output().unwrap()
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// `sidestep capture` of a server, once it captures.
fn capture(server: &Serving, arguments: &[&str]) -> Child {
    let control = server.directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["capture", "--control", &control]).args(arguments);
    let mut capture = Child::spawn("capture", &mut command).unwrap();
    capture.wait_for_line("capturing at dns/", PATIENCE).unwrap();
    capture
}

fn ask(server: &Serving) {
    let answer = Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A"]);
    assert_eq!(answer.status(), "NOERROR", "{}", answer.text);
}

/// What tcpdump reads in a file.
fn tcpdump(file: &Path) -> String {
    let output = Command::new("tcpdump").args(["-n", "-r"]).arg(file).output().unwrap();
    told(&output)
}

/// What the metrics' server says to a GET: status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The metrics of a server, and where they are.
fn metrics(server: &Serving) -> (Child, String) {
    let control = server.directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["metrics", "--listen", "127.0.0.1:0", "--control", &control]);
    let mut metrics = Child::spawn("metrics", &mut command).unwrap();
    let ready = metrics.wait_for_line("ready: metrics at http://", PATIENCE).unwrap();
    let address = ready.split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    (metrics, address)
}

#[test]
fn prometheus_gets_the_counters_of_all_programs_and_health_is_that_one_answers() {
    let server = Serving::start(&Zone::sample().file, &[]);
    ask(&server);
    let (_metrics, address) = metrics(&server);
    let (status, text) = get(&address, "/metrics");
    let pid = server.process.pid();
    assert_eq!(status, 200, "{text}");
    for line in [
        "# TYPE sidestep_dns_queries_udp untyped".to_owned(),
        format!("sidestep_dns_queries_udp{{program=\"dns\",pid=\"{pid}\"}} 1"),
        format!("sidestep_up{{program=\"dns\",pid=\"{pid}\"}} 1"),
        format!("sidestep_zones{{program=\"dns\",pid=\"{pid}\"}} 1"),
        format!("sidestep_zone_serial{{program=\"dns\",pid=\"{pid}\",zone=\"example.com.\"}} 1"),
        "sidestep_programs_without_answer 0".to_owned(),
    ] {
        assert!(text.lines().any(|own| own == line), "{line}: {text}");
    }
    assert_eq!(get(&address, "/health"), (200, "ok\n".to_owned()));
    assert_eq!(get(&address, "/ready"), (200, "ok\n".to_owned()));
    assert_eq!(get(&address, "/").0, 404);
    drop(server);
    let (status, text) = get(&address, "/health");
    assert_eq!(status, 503, "{text}");
}

/// A configuration file with these tables, and a server with it.
fn serve(directory: Directory, tables: &str) -> Serving {
    let config = directory.write("dns.toml", tables).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// Looks at a server until it is as it should be.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const SMALL: &str = "@ 60 SOA ns host 7 3600 600 86400 60\n@ 60 NS ns\nns 60 A 192.0.2.53\n";

#[test]
fn metrics_sum_up_all_zones_and_of_those_that_do_not_all_fit_they_show_the_bad_ones() {
    let tables = |directory: &Directory, max: usize| {
        directory.write("small.zone", SMALL).unwrap();
        let zone =
            |number: usize| format!("[[zone]]\nfile = \"small.zone\"\norigin = \"z{number}.example\"\n");
        let bad = "[[zone]]\nfile = \"nowhere.zone\"\norigin = \"bad.example\"\n";
        format!("zone-metrics-max = {max}\n{}{bad}", (0..300).map(zone).collect::<String>())
    };
    let has = |counts: &[(String, u64)], name: &str| counts.iter().any(|(own, _)| own == name);
    for max in [2, 10_000] {
        let directory = Directory::new().unwrap();
        let tables = tables(&directory, max);
        let server = serve(directory, &tables);
        // It is counted in a moment, and the server is ready before.
        wait_until("the bad one is known", || server.counter("zones_with_problem") > 0);
        let counts = tests::stats(server.directory.path());
        let value = |name: &str| counts.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
        assert_eq!((value("zones"), value("zones_with_problem")), (Some(301), Some(1)), "{max}");
        assert_eq!(value("zones_in_state{state=\"failed\"}"), Some(1));
        assert_eq!(value("zone_has_problem{zone=\"bad.example.\"}"), Some(1));
        assert!(has(&counts, "zone_serial{zone=\"z0.example.\"}"));
        assert_eq!(has(&counts, "zone_serial{zone=\"z299.example.\"}"), max == 10_000);
    }
}

#[test]
fn metrics_say_when_secondary_zones_expire() {
    let directory = Directory::new().unwrap();
    directory.write("example.org.zone", SMALL).unwrap();
    let primary =
        "allow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"example.org.zone\"\norigin = \"example.org\"\n";
    let primary = serve(directory, primary);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let tables = format!("[[secondary]]\nzone = \"example.org\"\nprimaries = [\"{}\"]\n", primary.v4);
    let secondary = serve(Directory::new().unwrap(), &tables);
    wait_until("it has come", || secondary.counter("zones_expires_at_min") > 0);
    let expires_at = secondary.counter("zone_expires_at{zone=\"example.org.\"}");
    assert!((now + 86_000..now + 90_000).contains(&expires_at), "{expires_at} of {now}");
    assert_eq!(secondary.counter("zones_with_problem"), 0);
    assert_eq!(secondary.counter("zones_in_state{state=\"served\"}"), 1);
}

#[test]
fn a_secondary_is_ready_when_its_primaries_have_been_asked_whatever_they_say() {
    // They listen, and say nothing: each is waited for.
    let silent: Vec<TcpListener> = (0..20).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let primaries: Vec<String> =
        silent.iter().map(|primary| format!("\"{}\"", primary.local_addr().unwrap())).collect();
    let tables = format!("[[secondary]]\nzone = \"example.org\"\nprimaries = [{}]\n", primaries.join(", "));
    let server = serve(Directory::new().unwrap(), &tables);
    let (_metrics, address) = metrics(&server);
    let (status, text) = get(&address, "/ready");
    assert_eq!((status, text), (503, format!("not ready: dns {}\n", server.process.pid())));
    assert_eq!(get(&address, "/health").0, 200);
    drop(silent);
    wait_until("it is ready", || get(&address, "/ready").0 == 200);
    assert_eq!(server.counter("zones_in_state{state=\"waiting\"}"), 1);
    wait_until("the zone has a problem", || server.counter("zones_with_problem") == 1);
    let control = server.directory.path().join("control.sock").display().to_string();
    let zones = told(&tests::command(&["dns", "zones", "--control", &control]));
    assert!(zones.contains("SERVFAIL: its primaries give nothing: 127.0.0.1:"), "{zones}");
    drop(server);
    assert_eq!(get(&address, "/ready").0, 503);
}

/// Whether samples have this name. Those of a histogram have the type of that.
fn is_metric(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
}

/// A name in the dashboard that no server has is a panel that stays empty.
#[test]
fn the_dashboard_shows_metrics_that_servers_have() {
    let dashboard =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/grafana.json")).unwrap();
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut shown: Vec<&str> = dashboard.split(|char| !is_part(char)).collect();
    shown.retain(|word| word.starts_with("sidestep_"));
    shown.sort_unstable();
    shown.dedup();
    assert!(shown.len() > 30, "{shown:?}");

    let directory = Directory::new().unwrap();
    let zone = Zone::sample().file;
    let own = directory.path().join("example.com.zone");
    std::fs::copy(&zone, &own).unwrap();
    let config = "query-log = \"queries.json\"\n[rate]\nper-address = 4\nburst-ms = 10000\nslip = 2\nexempt = [\"192.0.2.1\"]\n\
                  [[zone]]\nfile = \"example.com.zone\"\ndnssec = true\n";
    let config = directory.write("dns.toml", config).unwrap().display().to_string();
    let server = Serving::start_in(directory, &["--config", &config], &[]);
    for rtype in ["A", "AAAA", "NS", "MX", "TXT", "SOA", "DS", "DNSKEY", "HTTPS"] {
        Dig::ask(server.v4, Transport::Udp, &["mail.example.com", rtype]);
    }
    for (words, status) in [
        (&["none.example.com"][..], "NXDOMAIN"),
        (&["example.net"], "REFUSED"),
        (&["example.com", "+opcode=3"], "NOTIMP"),
        (&["example.com", "OPT"], "FORMERR"),
    ] {
        assert_eq!(Dig::ask(server.v4, Transport::Udp, words).status(), status, "{words:?}");
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"short", server.v4).unwrap();
    let query = lab::message::query(1, "mail.example.com", lab::message::A);
    (0..100).for_each(|_| assert!(socket.send_to(&query, server.v4).is_ok()));
    let (_metrics, address) = metrics(&server);
    let (_, text) = get(&address, "/metrics");
    // Nothing here fails so badly, or is encrypted.
    let never = [
        "sidestep_dns_responses_SERVFAIL",
        "sidestep_dns_queries_tls",
        "sidestep_dns_queries_https",
        "sidestep_dns_queries_quic",
    ];
    let missing: Vec<&&str> =
        shown.iter().filter(|name| !never.contains(name) && !is_metric(&text, name)).collect();
    assert!(missing.is_empty(), "{missing:?}: {text}");
    assert_eq!(text.matches("# TYPE sidestep_dns_latency_ns histogram\n").count(), 1, "{text}");
    let count = server.counter("dns_latency_ns_count{transport=\"udp\"}");
    assert!(count > 0 && count == server.counter("dns_latency_ns_bucket{transport=\"udp\",le=\"+Inf\"}"));
}

#[test]
fn where_nothing_runs_it_is_said_where_was_looked() {
    let directory = Directory::new().unwrap();
    for command in ["sockets", "counters", "trace", "capture"] {
        let message = complaint(&look(directory.path(), &[command]));
        let wanted = format!("no Sidestep process is running here; looked in {}", directory.path().display());
        assert!(message.contains(&wanted), "{message}");
    }
    let message = complaint(&look(directory.path(), &["sockets", "--pid", "1"]));
    assert!(message.contains("no Sidestep process 1 is running here"), "{message}");
}

/// Accepts one tool at `directory`/`process`.sock, and says this and no more: not all programs mean well.
fn say_once(directory: &Path, process: u32, replies: &[&str]) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(directory.join(format!("{process}.sock"))).unwrap();
    let message =
        |reply: &&str| [&(reply.len() as u32).to_le_bytes(), b"J".as_slice(), reply.as_bytes()].concat();
    let messages = replies.iter().map(message).collect::<Vec<_>>().concat();
    std::thread::spawn(move || {
        let (mut tool, _) = listener.accept().unwrap();
        let _ = tool.read(&mut [0; 1024]);
        let _ = tool.write_all(&messages);
    })
}

#[test]
fn a_program_that_does_not_answer_keeps_nobody_from_the_others() {
    let directory = Directory::new().unwrap();
    let name = |name: &str| format!(r#"{{"program":{{"pid":1,"name":"{name}","engines":0}}}}"#);
    let programs = [
        say_once(directory.path(), 70, &[]),
        say_once(directory.path(), 71, &[&name(r"\u001b[2J")]),
        say_once(
            directory.path(),
            72,
            &[&name("well"), r#"{"counters":{"own":[["answers",5]],"engines":[]}}"#, r#""end""#],
        ),
        say_once(directory.path(), 73, &[&name("short")]),
        say_once(directory.path(), 74, &[r#"{"\u001b[2J":1}"#]),
    ];
    let output = look(directory.path(), &["counters"]);
    programs.into_iter().for_each(|program| program.join().unwrap());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(said.starts_with("# well/72\nanswers "), "its number is that of its socket: {said}");
    let complaints = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(complaints.contains("70.sock: the program ended in the middle of its answer"), "{complaints}");
    assert!(
        complaints.contains("71.sock: unexpected answer") && !complaints.contains('\x1b'),
        "{complaints}"
    );
    assert!(complaints.contains("74.sock: unexpected answer"), "{complaints}");
    assert!(complaints.contains("short 73: the program ended in the middle"), "{complaints}");
}

#[test]
fn a_server_is_found_in_the_directory_that_all_know() {
    let directory = Directory::new().unwrap();
    let zone = Zone::sample().file.display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.env("SIDESTEP_RUNTIME_DIR", directory.path());
    command.args(["dns", "serve", "--zone", &zone, "--listen", "127.0.0.1:0", "--cores", "0"]);
    let mut server = Child::spawn("sidestep", &mut command).unwrap();
    server.wait_for_line("sidestep dns: ready", PATIENCE).unwrap();
    let pid = server.pid().to_string();
    for arguments in [vec!["counters"], vec!["counters", "--pid", &pid], vec!["dns", "stats"]] {
        let text = told(&look(directory.path(), &arguments));
        assert!(text.contains("engine"), "{arguments:?}: {text}");
    }
    let sockets = told(&look(directory.path(), &["sockets"]));
    assert!(sockets.contains(&format!("# dns/{pid} engine 0")), "{sockets}");

    server.kill();
    let message = complaint(&look(directory.path(), &["sockets"]));
    assert!(message.contains("no Sidestep process is running here"), "{message}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "what the dead left is removed");
}

#[test]
fn a_filter_that_is_wrong_is_shown_with_its_place() {
    let directory = Directory::new().unwrap();
    for command in ["sockets", "trace", "capture"] {
        let message = complaint(&look(directory.path(), &[command, "tcp", "host", "foo"]));
        assert!(message.ends_with("not `foo`\n  tcp host foo\n           ^\n"), "{message}");
    }
}

#[test]
fn nothing_is_no_count() {
    let directory = Directory::new().unwrap();
    for command in ["capture", "top"] {
        let output = look(directory.path(), &[command, "--count", "0"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("'0'") && message.contains("--count"), "{message}");
    }
}

#[test]
fn a_capture_in_a_file_is_read_by_tcpdump() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let file = server.directory.path().join("capture.pcapng");
    let arguments = ["-w", &file.display().to_string(), "--count", "2", "udp", "host", "127.0.0.1"];
    let mut capture = capture(&server, &arguments);
    ask(&server);
    assert!(capture.wait(PATIENCE).unwrap().success(), "{}", capture.output());
    assert!(capture.output().contains("2 packets captured"), "{}", capture.output());
    let text = tcpdump(&file);
    let port = server.v4.port();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains(&format!("> 127.0.0.1.{port}: UDP")), "{text}");
    assert!(text.contains(&format!("127.0.0.1.{port} > ")), "{text}");
}

#[test]
fn a_capture_that_is_interrupted_leaves_a_whole_file_and_says_what_was_lost() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let file = server.directory.path().join("capture.pcapng");
    let mut capture = capture(&server, &["-w", &file.display().to_string()]);
    ask(&server);
    capture.signal(Signal::INT);
    assert!(capture.wait(PATIENCE).unwrap().success());
    let summary = "2 packets captured, 2 passed the filter, 0 dropped";
    assert!(capture.output().contains(summary), "{}", capture.output());
    assert_eq!(tcpdump(&file).lines().count(), 2);
}

#[test]
fn a_capture_ends_with_the_server() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let mut capture = capture(&server, &[]);
    ask(&server);
    capture.wait_for_line("udp length", PATIENCE).unwrap();
    server.process.signal(Signal::TERM);
    assert!(capture.wait(PATIENCE).unwrap().success(), "{}", capture.output());
    assert!(capture.output().contains("2 packets captured"), "{}", capture.output());
}

#[test]
fn a_capture_ends_when_its_reader_goes_though_nothing_comes() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let control = server.directory.path().join("control.sock").display().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["capture", "--control", &control, "-w", "-"]).stdout(Stdio::piped());
    let mut capture = command.stderr(Stdio::null()).spawn().unwrap();
    drop(capture.stdout.take());
    let deadline = Instant::now() + PATIENCE;
    while capture.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(capture.wait().unwrap().success());
}
