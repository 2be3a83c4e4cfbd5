//! `sidestep gun`: loads on a wire between two namespaces, and what it says of them.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use lab::{CLIENT_INTERFACE, Lab, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side, Zone, sidestep_binary};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::{PATIENCE, Setting, empty_lab};

/// Questions a second: few, as the machine may do other work too.
const RATE: u64 = 500;

fn gun(setting: &Setting, words: &[&str]) -> Command {
    let mut command = setting.lab.command(Side::Client, sidestep_binary().to_str().unwrap());
    command.args(["gun", "dns"]).args(words);
    command
}

fn run(setting: &Setting, words: &[&str]) -> Output {
    gun(setting, words).output().unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// A load of two seconds whose report is read.
fn report(setting: &Setting, words: &[&str]) -> Value {
    let rate = RATE.to_string();
    let always = ["--rate", &rate, "--duration", "2s", "--timeout", "10s", "--json", "-"];
    let output = run(setting, &[words, &always].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All questions were asked and answered with this code.
fn assert_all_answered(report: &Value, code: &str) {
    let load = &report["loads"][0];
    assert_eq!(load["counts"]["sent"], 2 * RATE, "{report}");
    assert_eq!(load["rcodes"][code], 2 * RATE, "{report}");
    let faults = ["refused", "mismatched", "unexpected", "malformed"];
    assert!(faults.iter().all(|fault| load["counts"][fault] == 0) && load["lost"] == 0, "{report}");
    assert!(load["latency_us"]["max"].as_f64() >= load["latency_us"]["p50"].as_f64(), "{report}");
}

#[test]
fn each_question_of_a_load_is_asked_and_its_answer_found() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    for server in [SERVER_V4, SERVER_V6] {
        let known = ["--name", "mail.example.com", "--dnssec"];
        assert_all_answered(&report(&setting, &[&[server], &known[..]].concat()), "0");
        let unknown = ["--name", "{random}.example.com", "--type", "AAAA", "--order", "random"];
        assert_all_answered(&report(&setting, &[&[server], &unknown[..]].concat()), "3");
        let by_xdp = ["--name", "mail.example.com", "--device", CLIENT_INTERFACE, "--ports", "5"];
        let report = report(&setting, &[&[server], &by_xdp[..]].concat());
        assert_all_answered(&report, "0");
        assert!(report["device"].as_str().unwrap().contains("AF_XDP"), "{report}");
    }
}

/// A server of DNS that answers so many questions with `len` octets, and says from which addresses they came.
fn answer_at_length(
    lab: &Lab,
    port: u16,
    questions: u64,
    len: usize,
) -> thread::JoinHandle<BTreeSet<IpAddr>> {
    let socket = lab.inside(Side::Server, || UdpSocket::bind((SERVER_V4, port))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    thread::spawn(move || {
        let mut clients = BTreeSet::new();
        for _ in 0..questions {
            let mut room = [0; 512];
            let (asked, client) = socket.recv_from(&mut room).unwrap();
            let mut answer = room[..asked].to_vec();
            answer[2] |= 0x80;
            answer.resize(len.max(asked), 0);
            socket.send_to(&answer, client).unwrap();
            clients.insert(client.ip());
        }
        clients
    })
}

#[test]
fn answers_in_fragments_come_by_the_kernel_and_are_counted_apart() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let server = format!("{SERVER_V4}:5301");
    let answering = answer_at_length(&lab, 5301, 200, 3000);
    let mut command = lab.command(Side::Client, sidestep_binary().to_str().unwrap());
    let words = ["gun", "dns", &server, "--name", "a.example", "--payload", "4096", "--timeout", "10s"];
    command.args(words).args(["--device", CLIENT_INTERFACE, "--rate", "100", "--duration", "2s"]);
    let output = command.output().unwrap();
    answering.join().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("answered  200 (100.00 %"), "{said}");
    assert!(said.contains("by kernel 200 of the answers, which came in fragments"), "{said}");
    assert!(!said.contains("faults"), "{said}");
}

#[test]
fn many_addresses_of_an_interface_ask_by_it() {
    let Some((lab, _turn)) = empty_lab() else { return };
    for host in 97..=110 {
        lab.ip(Side::Client, &format!("address add 10.53.0.{host}/24 dev {CLIENT_INTERFACE}")).unwrap();
    }
    lab.ip(Side::Client, "address add 10.53.1.1/32 dev lo").unwrap();
    let server = format!("{SERVER_V4}:5302");
    let gun = |source: &str| {
        let mut command = lab.command(Side::Client, sidestep_binary().to_str().unwrap());
        command.args(["gun", "dns", &server, "--source", source, "--device", CLIENT_INTERFACE]);
        command.args([
            "--ports",
            "16",
            "--rate",
            "200",
            "--duration",
            "1s",
            "--timeout",
            "10s",
            "--json",
            "-",
        ]);
        command.output().unwrap()
    };
    let answering = answer_at_length(&lab, 5302, 200, 0);
    let output = gun("10.53.0.96/28");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = &report["loads"][0]["counts"];
    assert_eq!((&counts["answered"], &counts["by_kernel"]), (&Value::from(200), &Value::from(0)), "{report}");
    let expected: BTreeSet<IpAddr> = (97..=110).map(|host| [10, 53, 0, host].into()).collect();
    let clients = answering.join().unwrap();
    assert_eq!(clients, expected);
    for (source, said) in [
        ("10.53.1.1/32", &format!("10.53.1.1 is no address of {CLIENT_INTERFACE}")[..]),
        ("10.53.0.200/32", "is 10.53.0.200 an address of this host?"),
    ] {
        let error = text(&gun(source).stderr);
        assert!(error.contains(said), "{source}: {error}");
    }
}

#[test]
fn a_server_that_comes_back_with_another_hardware_address_is_asked_there() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let server = format!("{SERVER_V4}:5303");
    let socket = lab.inside(Side::Server, || UdpSocket::bind((SERVER_V4, 5303))).unwrap();
    thread::spawn(move || {
        let mut room = [0; 512];
        while let Ok((len, client)) = socket.recv_from(&mut room) {
            let _ = socket.send_to(&room[..len], client); // There is no link for a moment.
        }
    });
    let mut command = lab.command(Side::Client, sidestep_binary().to_str().unwrap());
    command.args(["gun", "udp", &server, "--device", CLIENT_INTERFACE, "--rate", "200", "--duration", "12s"]);
    command.args(["--json", "-"]).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    thread::sleep(Duration::from_secs(4));
    let set = |change: &str| lab.ip(Side::Server, &format!("link set {SERVER_INTERFACE} {change}")).unwrap();
    set("down");
    // The kernel forgets its neighbours when it notices, which it does not if the link is back by then.
    let until = Instant::now() + PATIENCE;
    while !lab.ip(Side::Client, &format!("link show {CLIENT_INTERFACE}")).unwrap().contains("DOWN mode") {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(10));
    }
    set("address 02:00:00:00:53:99");
    set("up");
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seconds = report["loads"][0]["seconds"].as_array().unwrap();
    let answered: Vec<u64> = seconds.iter().map(|second| second["answered"].as_u64().unwrap()).collect();
    // 200 each, but for answers that came in the second before or behind.
    assert!(answered[1] > 150 && answered[11] > 150, "{answered:?}");
}

#[test]
fn reports_are_compared_and_shown_as_pages() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    let directory = lab::Directory::new().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (path("report.json"), path("both.html"));
    let words =
        [SERVER_V4, "--name", "mail.example.com", "--rate", "200", "--duration", "3s", "--json", &json];
    let output = run(&setting, &words);
    let said = text(&output.stdout);
    for line in
        ["sent      600 ", "answered  600 (100.00 %", "codes     NOERROR 600", "latency   p50 ", "generator "]
    {
        assert!(said.lines().any(|it| it.starts_with(line)), "{line}: {said}");
    }
    let compare =
        Command::new(sidestep_binary()).args(["gun", "compare", &json, &json, "--html", &page]).output();
    let said = text(&compare.unwrap().stdout);
    assert!(
        said.lines().any(|line| line.starts_with("answered, a second") && line.ends_with("1.00")),
        "{said}"
    );
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 9, "rate, times and errors of each, and three of both");
    assert!(!page.contains("http://") && !page.contains("https://"), "it needs nothing else");
}

#[test]
fn a_knee_is_searched_from_the_rate_that_is_given() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    let words =
        ["--name", "mail.example.com", "--find-knee", "--rate", "4M", "--step", "100ms", "--json", "-"];
    let output = run(&setting, &[&[SERVER_V4], &words[..]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let loads = report["loads"].as_array().unwrap();
    assert_eq!(loads[0]["offered"], 4_000_000);
    assert!(loads[0]["bottleneck"].is_string(), "nothing sends that many by kernel sockets: {report}");
    assert!(loads.len() > 3, "{report}");
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_sent() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    for (words, why) in [
        (&["192.88.99.1"][..], "is a public address"),
        (&["224.0.0.1", "--yes-i-own-it"], "is no address of one server"),
        (&[SERVER_V4, "--names", "/nonexistent"], "No such file"),
        (&[SERVER_V4, "--name", "a..b"], "line 1: \"a..b\": a label is empty"),
        (&[SERVER_V4, "--device", "veth-none"], "there is no interface veth-none"),
        (&[SERVER_V4, "--device", "lo"], "do not leave by lo"),
        (&[SERVER_V4, "--rate", "0"], "a rate is 1 to 100M"),
        (&["ns1.example"], "no address such as"),
        (&["10.53.0.77", "--device", CLIENT_INTERFACE], "does not answer ARP or NDP"),
    ] {
        let output = run(&setting, words);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn a_server_that_is_not_there_is_a_failure() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    let output = run(&setting, &[&format!("{SERVER_V4}:54"), "--duration", "200ms", "--timeout", "200ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("answered nothing"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("faults    200 lost"), "{}", text(&output.stdout));
}

#[test]
fn a_load_that_is_interrupted_says_what_was_measured() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    let words = [SERVER_V4, "--name", "mail.example.com", "--rate", "200", "--duration", "1h"];
    let mut command = gun(&setting, &words);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let child = command.spawn().unwrap();
    thread::sleep(Duration::from_secs(3));
    kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("codes     NOERROR"), "{said}");
}
