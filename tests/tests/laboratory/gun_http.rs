//! `sidestep gun http` and `gun connect` on a wire between two namespaces, against nginx.

use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Child, Directory, Lab, SERVER_V4, Side, sidestep_binary};
use serde_json::Value;
use tests::make_certificate;

use crate::{PATIENCE, empty_lab};

/// Requests of a load: few, as the machine may do other work too.
const REQUESTS: u64 = 200;
/// Ports of nginx: HTTP, HTTP/2 without TLS, both over TLS. On the last one nobody listens.
const PLAIN: u16 = 80;
const HTTP2: u16 = 81;
const SECURE: u16 = 443;
const NOBODY: u16 = 82;

struct Nginx {
    // Dropped in this order.
    _process: Child,
    directory: Directory,
}

fn start_nginx(lab: &Lab) -> Nginx {
    let directory = Directory::new().unwrap();
    make_certificate(&directory, "web.test");
    let place = directory.path().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {place}/{kind};\n"))
        .concat();
    // A connection has fifty requests: loads need several, one after the other.
    let text = format!(
        "worker_processes 1;\nmaster_process off;\ndaemon off;\npid {place}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{temporary}  access_log off;\n  keepalive_requests 50;\n  default_type text/plain;\n  \
         server {{ listen {SERVER_V4}:{PLAIN} backlog=4096; listen {SERVER_V4}:{HTTP2} http2; listen {SERVER_V4}:{SECURE} ssl http2;\n    \
         ssl_certificate {place}/certificate.pem; ssl_certificate_key {place}/key.pem;\n    \
         location / {{ return 200 \"Hello, world!\\n\"; }} location /missing {{ return 404; }} }}\n}}\n"
    );
    let file = directory.write("nginx.conf", &text).unwrap().display().to_string();
    let mut process = lab
        .spawn_in(Side::Server, "nginx", &["-c", &file, "-e", "stderr", "-p", &place.to_string()])
        .unwrap();
    let server = SocketAddr::new(SERVER_V4.parse().unwrap(), SECURE);
    let connect = || TcpStream::connect_timeout(&server, Duration::from_secs(2));
    let deadline = Instant::now() + PATIENCE;
    while lab.inside(Side::Client, connect).is_err() {
        let is_there = process.try_wait().is_none() && Instant::now() < deadline;
        assert!(is_there, "nginx does not serve: {}", process.output());
        thread::sleep(Duration::from_millis(20));
    }
    Nginx { _process: process, directory }
}

fn gun(lab: &Lab, words: &[&str]) -> Output {
    let mut command = lab.command(Side::Client, sidestep_binary().to_str().unwrap());
    command.arg("gun").args(words).output().unwrap()
}

/// The load of a report that is a success.
fn load(lab: &Lab, words: &[&str]) -> (Value, Value) {
    let output = gun(lab, &[words, &["--timeout", "60s", "--json", "-"]].concat());
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (report["loads"][0].clone(), report)
}

/// All requests of a second were sent, and answered with this status.
fn assert_all_answered(lab: &Lab, words: &[&str], status: &str) {
    let rate = REQUESTS.to_string();
    let (load, report) = load(lab, &[&["http", "--rate", &rate, "--duration", "1s"], words].concat());
    assert_eq!(load["counts"]["sent"], REQUESTS, "{words:?}: {report}");
    assert_eq!(load["rcodes"][status], REQUESTS, "{words:?}: {report}");
    assert_eq!(
        (load["lost"].as_u64(), &load["faults"]),
        (Some(0), &serde_json::json!({})),
        "{words:?}: {report}"
    );
}

fn url(scheme: &str, port: u16, path: &str) -> String {
    format!("{scheme}://{SERVER_V4}:{port}{path}")
}

#[test]
fn requests_of_http_1_are_answered_on_connections_that_are_kept_or_not() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let nginx = start_nginx(&lab);
    let plain = url("http", PLAIN, "/");
    assert_all_answered(&lab, &[&plain, "--connections", "3"], "200");
    assert_all_answered(&lab, &[&plain, "--close"], "200");
    assert_all_answered(&lab, &[&plain, "--connections", "16", "--pipeline", "4"], "200");
    assert_all_answered(&lab, &[&plain, "--body", "64k", "--header", "X-Test: 1"], "200");
    assert_all_answered(&lab, &[&plain, "--method", "HEAD"], "200");
    assert_all_answered(&lab, &[&url("http", PLAIN, "/missing?a")], "404");
    let trust = nginx.directory.path().join("certificate.pem").display().to_string();
    let secure = url("https", SECURE, "/");
    assert_all_answered(
        &lab,
        &[&secure, "--connections", "3", "--ca", &trust, "--tls-host", "web.test"],
        "200",
    );
}

#[test]
fn requests_of_http_2_are_answered_with_tls_and_without() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let nginx = start_nginx(&lab);
    let secure = url("https", SECURE, "/");
    let trust = nginx.directory.path().join("certificate.pem").display().to_string();
    let trusting = ["--http2", "--ca", &trust, "--tls-host", "web.test"];
    assert_all_answered(&lab, &[&[&secure[..], "--connections", "8"], &trusting[..]].concat(), "200");
    let insecure = ["--http2", "--insecure", "--connections", "8", "--pipeline", "4"];
    assert_all_answered(&lab, &[&[&secure[..]], &insecure[..]].concat(), "200");
    assert_all_answered(&lab, &[&url("http", HTTP2, "//%20?[]"), "--http2", "--body", "64k"], "200");
    assert_all_answered(&lab, &[&url("http", HTTP2, "?"), "--http2", "--close"], "200");
    // Four times as many at a time as nginx takes.
    let many = ["http", &url("http", HTTP2, "?"), "--http2", "--pipeline", "512", "--duration", "1s"];
    let (of_many, report) = load(&lab, &many);
    assert_eq!((&of_many["lost"], &of_many["faults"]), (&0.into(), &serde_json::json!({})), "{report}");
    let stranger = gun(&lab, &["http", &secure, "--http2", "--ca", &trust, "--duration", "200ms"]);
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(stranger.status.code() == Some(1) && said.contains("TLS handshakes failed"), "{said}");
}

#[test]
fn without_a_rate_requests_are_sent_as_answers_come_and_the_report_says_so() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let _nginx = start_nginx(&lab);
    let output = gun(&lab, &["http", &url("http", PLAIN, "/"), "--duration", "1s", "--timeout", "60s"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("each when there was room for it"), "{said}");
    for line in ["sent ", "answered ", "codes     200 ", "latency   p50 ", "generator "] {
        assert!(said.lines().any(|it| it.starts_with(line)), "{line}: {said}");
    }
    assert!(!said.contains("faults"), "{said}");
}

#[test]
fn connections_are_opened_and_held() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let _nginx = start_nginx(&lab);
    let server = format!("{SERVER_V4}:{PLAIN}");
    let words = ["connect", &server, "--connections", "200", "--rate", "400", "--duration", "300ms"];
    let (load, report) = load(&lab, &words);
    assert_eq!(
        (load["counts"]["sent"].as_u64(), load["counts"]["answered"].as_u64()),
        (Some(200), Some(200)),
        "{report}"
    );
    // What was measured, and not 200 / 400.
    assert!(load["length_s"].as_f64() > Some(0.5), "{report}");
    assert_eq!(
        (report["held"]["most"].as_u64(), report["held"]["end"].as_u64()),
        (Some(200), Some(200)),
        "{report}"
    );
    assert_eq!(load["faults"], serde_json::json!({}), "{report}");
}

#[test]
fn a_port_where_nobody_listens_is_a_failure_that_says_why() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let server = format!("{SERVER_V4}:{NOBODY}");
    let output = gun(&lab, &["connect", &server, "--connections", "5", "--rate", "100"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && said.contains("5 connections refused"), "{said}");
    let output = gun(&lab, &["http", &format!("http://{server}/"), "--duration", "300ms", "--timeout", "1s"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && said.contains("answered nothing: connections refused"),
        "{said}"
    );
}

#[test]
fn what_is_wrong_with_a_request_is_said_and_nothing_is_sent() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let own = url("http", PLAIN, "/");
    for (words, why) in [
        (&["http", "http://192.88.99.1/"][..], "is a public address"),
        (&["http", "192.0.2.1"], "is no URL such as"),
        (&["http", "ftp://192.0.2.1/"], "is no URL such as"),
        (&["http", &own, "--body", "/nonexistent"], "no size such as 64k"),
        (&["http", &own, "--header", "nonsense"], "is no field such as"),
        (&["http", &own, "--method", "CONNECT"], "asks a proxy"),
        (&["http", &own, "--http2", "--header", "Connection: close"], "HTTP/2 has no field connection"),
        (&["connect", "192.88.99.1:80"], "is a public address"),
        (&["dns", SERVER_V4, "--transport", "tcp", "--device", "lo"], "--device is for UDP"),
    ] {
        let output = gun(&lab, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    }
    let mut few = lab.command(Side::Client, "prlimit");
    let server = format!("{SERVER_V4}:{PLAIN}");
    few.arg("--nofile=100").arg(sidestep_binary()).args(["gun", "connect", &server, "--connections", "200"]);
    let said = String::from_utf8_lossy(&few.output().unwrap().stderr).into_owned();
    assert!(said.contains("200 connections need 264 descriptors, and this process may have 100"), "{said}");
}
