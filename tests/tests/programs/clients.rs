//! Clients: they run under `sidestep run`, and the servers they ask are the kernel's.

use lab::programs::{Network, Nginx, Program, Running};
use lab::{CLIENT_V4, CLIENT_V6, Side};

use crate::trial::{Carrier, Figure, Trial};

/// Who carries short-lived clients.
const SHORT: Carrier = Carrier::Either("a client that ends at once may be gone before its queue is its own");

/// Requests of a load.
const REQUESTS: u64 = 500;

/// The program fetches the large file from `nginx` into its directory, whole.
fn assert_fetches(trial: &Trial, nginx: &Running, program: &Program) {
    let sum = nginx.read("large.sum");
    let checked = Program::new(program.name(), "sh -ec")
        .argument(&format!("{} && sha256sum < got | cut -d' ' -f1", program.command_line()));
    assert!(trial.run(&checked).contains(sum.trim()), "{}: what came is not what was sent", program.name());
}

#[test]
fn curl() {
    let Some(trial) = Trial::of_client("curl") else { return };
    let nginx = trial.start_peer(&Nginx::with_workers(1).program());
    assert_fetches(&trial, &nginx, &Program::new("curl", "curl -sS -m 120 -o got http://{peer}/large"));
    for address in [CLIENT_V4, &format!("[{CLIENT_V6}]")] {
        let page = trial.run(&Program::new("curl", &format!("curl -sS -m 120 http://{address}/")));
        assert!(page.contains("Hello, world!"), "{page}");
    }
    let put = Program::new("curl", "curl -sS -m 120 -T file http://{peer}/put/file")
        .prepare("head -c 3000000 /dev/urandom > file; sha256sum file");
    trial.run(&put);
    assert_eq!(std::fs::metadata(nginx.path("www/put/file")).unwrap().len(), 3_000_000);
    let refused = trial.start(&Program::new("curl", "curl -sS -m 120 http://{peer}:81/"));
    assert_eq!(exit_code(refused), Some(7), "nobody listens there");

    for (load, options) in [("one connection", ""), ("a connection for each", "-H Connection:close")] {
        trial.load(&format!("{REQUESTS} pages, {load}"), SHORT, || {
            let began = std::time::Instant::now();
            let words = format!("curl -sS -m 120 {options} http://{{peer}}/?[1-{REQUESTS}]");
            let pages = trial.run(&Program::new("curl", &words)).matches("Hello, world!").count() as u64;
            let rate = REQUESTS as f64 / began.elapsed().as_secs_f64();
            Figure::new(rate, "pages/s").with_errors(REQUESTS - pages, "pages are missing")
        });
    }
}

fn exit_code(mut running: Running) -> Option<i32> {
    running.process.wait(crate::trial::PATIENCE).unwrap().code()
}

#[test]
fn wget() {
    let Some(trial) = Trial::of_client("wget") else { return };
    let nginx = trial.start_peer(&Nginx::with_workers(1).program());
    assert_fetches(&trial, &nginx, &Program::new("wget", "wget -q -T 30 -t 1 -O got http://{peer}/large"));
    trial.load(&format!("{REQUESTS} pages, one connection"), SHORT, || {
        let began = std::time::Instant::now();
        let program = Program::new("wget", "wget -q -T 30 -t 1 -O - -i urls")
            .prepare(&format!("for n in $(seq {REQUESTS}); do echo http://{{peer}}/?$n; done > urls"));
        let pages = trial.run(&program).matches("Hello, world!").count() as u64;
        let rate = REQUESTS as f64 / began.elapsed().as_secs_f64();
        Figure::new(rate, "pages/s").with_errors(REQUESTS - pages, "pages are missing")
    });
}

/// The load generator is a program as others are: all of its calls can be taken over.
#[test]
fn the_load_generator() {
    let Some(trial) = Trial::of_client("gun") else { return };
    let _nginx = trial.start_peer(&Nginx::with_workers(1).program());
    let gun = format!(
        "{} gun http http://{{peer}}/ --connections 8 --timeout 60s --json -",
        lab::sidestep_binary().display()
    );
    trial.load("pages of gun http", Carrier::Stack, || {
        let report = trial.run(&Program::new("gun", &format!("{gun} --duration 1s")));
        // Beside what `sidestep run` says.
        let json =
            report.split_once("\n{").map(|(_, rest)| format!("{{{}", &rest[..=rest.rfind('}').unwrap()]));
        let report: serde_json::Value = serde_json::from_str(&json.unwrap_or(report)).unwrap();
        let (load, count) = (&report["loads"][0], |name: &str| report["loads"][0]["counts"][name].as_u64());
        let (sent, answered) = (count("sent").unwrap(), count("answered").unwrap());
        assert_eq!(load["faults"], serde_json::json!({}), "{report}");
        Figure::new(answered as f64, "pages/s").with_errors(sent - answered, "pages are missing")
    });
}

/// Asks for pages, a connection for each, for some time; in a child at the same time; and while the way changes.
const MANY_CONNECTIONS: &str = r#"
import errno, os, socket, subprocess, sys, time
peer = sys.argv[1]
def ask():
    with socket.create_connection((peer, 80)) as connection:
        port = connection.getsockname()[1]
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        page = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b"Hello, world!" in page, page
        return port
def ask_for(seconds):
    until = time.time() + seconds
    return [ask() for _ in iter(lambda: time.time() < until, False)]
ports = ask_for(1)
child = os.fork()
if child == 0:
    try:
        ask_for(0.5)
        os._exit(0)
    finally:
        os._exit(1)
ask_for(0.5)
assert os.waitpid(child, 0)[1] == 0
def ends():
    try:
        ask()
        return None
    except OSError as error:
        return error.errno
def route(change, expected):
    subprocess.run(["ip", "route", change, "unreachable", peer], check=True)
    # Whoever tells of the change needs a moment, on a busy machine a long one.
    until = time.time() + 60
    while (ended := ends()) != expected:
        assert time.time() < until, (change, ended)
assert ends() is None
route("add", errno.EHOSTUNREACH)
route("del", None)
print("connections", len(ports), "ports", len(set(ports)))
"#;

#[test]
fn connections_one_after_the_other() {
    let Some(trial) = Trial::of_client("many connections") else { return };
    let _nginx = trial.start_peer(&Nginx::with_workers(1).program());
    let program = Program::new("many connections", "python3 -c").argument(MANY_CONNECTIONS);
    let report = trial.run(&program.with_words("{peer}"));
    let count = |label| crate::trial::number_after(&report, label);
    let (connections, ports) = (count("connections "), count("ports "));
    // Some rest while others are used; on a machine that is busy with other things there is nothing to be seen.
    let are_used_again = connections < 1000.0 || ports < connections * 0.7;
    assert!(
        are_used_again || trial.network == Network::Kernel,
        "{ports} ports for {connections} connections"
    );
}

#[test]
fn a_client_of_a_server_on_its_own_host() {
    let Some(trial) = Trial::of_client("curl to its own host") else { return };
    let nginx = Nginx::with_workers(1).program().start(&trial.lab, Side::Server, &Network::Kernel);
    let _nginx = nginx.unwrap();
    for address in ["127.0.0.1", "[::1]", "{own}", "[{own6}]"] {
        let page = trial.run(&Program::new("curl", &format!("curl -sS -m 120 http://{address}/")));
        assert!(page.contains("Hello, world!"), "{address}: {page}");
    }
}
