//! Measuring tools, TLS and secure shells, in both roles.

use lab::SERVER_V4;
use lab::programs::{Program, iperf3, openssl_server, sockperf, sshd};

use crate::trial::{Carrier, Figure, Trial, number_after};

/// What `iperf3` says at the client's end; `bits_per_second` of the receiver, in MB/s.
fn iperf3_figure(output: &str, wanted_error: &str) -> Figure {
    let received =
        output.split_once("\"sum_received\"").or_else(|| output.split_once("\"sum\"")).map_or("", |s| s.1);
    let rate = number_after(received, "\"bits_per_second\":") / 8e6;
    let lost = number_after(received, wanted_error) as u64;
    let errors = lost + u64::from(output.contains("\"error\"") || rate < 0.05);
    Figure::new(rate, "MB/s").with_errors(errors, output)
}

/// The loads of iperf3, by name and options. The datagrams are few enough that one socket buffer holds those of most of a second: none
/// may be lost, however busy the machine is.
const IPERF3_LOADS: [(&str, &str); 4] = [
    ("TCP, to the server", ""),
    ("TCP, from the server", "--reverse"),
    ("TCP, 4 streams", "--parallel 4"),
    ("UDP, 1 Mbit/s", "--udp --bitrate 1M --length 1200"),
];

#[test]
fn iperf3_as_server() {
    let Some(trial) = Trial::of("iperf3").map(Trial::keeping_all_in_tests) else { return };
    let server = trial.start(&iperf3());
    for (load, options) in IPERF3_LOADS {
        let carrier = match options.contains("--udp") {
            true => Carrier::Kernel("its UDP sockets are connected"),
            false => Carrier::Stack,
        };
        trial.load(load, carrier, || {
            let output = trial.ask(&format!("iperf3 --client {SERVER_V4} --json --time 1 {options}"));
            iperf3_figure(&output, "\"lost_packets\":")
        });
    }
    trial.end(server);
}

#[test]
fn iperf3_as_client() {
    let Some(trial) = Trial::of_client("iperf3") else { return };
    let _server = trial.start_peer(&iperf3());
    for (load, options) in IPERF3_LOADS {
        let client = Program::new("iperf3", &format!("iperf3 --client {{peer}} --json --time 1 {options}"));
        trial.load(load, Carrier::Either("a client may be gone before its queue is its own"), || {
            iperf3_figure(&trial.run(&client), "\"lost_packets\":")
        });
    }
}

/// What sockperf says: the median of the round trip is twice that of its latency.
fn sockperf_figure(output: &str) -> Figure {
    let dropped = number_after(output, "# dropped messages =");
    let doubled = number_after(output, "# duplicated messages =");
    let turned = number_after(output, "# out-of-order messages =");
    let median = number_after(output, "percentile 50.000 =");
    let errors = (dropped + doubled + turned) as u64 + u64::from(median == 0.0);
    Figure::new(2.0 * median, "us round trip, median").with_errors(errors, output)
}

const PING_PONG: &str = "sockperf ping-pong -p 11111 -t 1 -m 64";

#[test]
fn sockperf_as_server() {
    for (tcp, option) in [(false, ""), (true, " --tcp")] {
        let protocol = if tcp { "TCP" } else { "UDP" };
        let Some(trial) = Trial::of("sockperf").map(Trial::with_datagrams_in_tests) else { return };
        let server = trial.start(&sockperf(tcp));
        trial.load(&format!("ping-pong of 64 octets, {protocol}"), Carrier::Stack, || {
            sockperf_figure(&trial.ask(&format!("{PING_PONG}{option} -i {SERVER_V4}")))
        });
        trial.end(server);
    }
}

#[test]
fn sockperf_as_client() {
    for (tcp, option) in [(false, ""), (true, " --tcp")] {
        let protocol = if tcp { "TCP" } else { "UDP" };
        let Some(trial) = Trial::of_client("sockperf") else { return };
        let _server = trial.start_peer(&sockperf(tcp));
        let client = Program::new("sockperf", &format!("{PING_PONG}{option} -i {{peer}}"));
        const WHY: Carrier = Carrier::Either("a client may be gone before its queue is its own");
        trial.load(&format!("ping-pong of 64 octets, {protocol}"), WHY, || {
            sockperf_figure(&trial.run(&client))
        });
    }
}

/// What `openssl s_time` says: connections in real seconds.
fn openssl_figure(output: &str) -> Figure {
    let rate =
        output.lines().find_map(|line| line.split_once(" connections in ")?.0.trim().parse::<f64>().ok());
    Figure::new(rate.unwrap_or(0.0), "connections/s")
        .with_errors(u64::from(rate.unwrap_or(0.0) < 1.0), output)
}

#[test]
fn openssl_s_server() {
    let Some(trial) = Trial::of("openssl s_server") else { return };
    let server = trial.start(&openssl_server());
    let page = trial.ask(&format!("curl -sS -m 120 -k https://{SERVER_V4}:4433/page"));
    assert_eq!(page, "Hello, world!");
    trial.load("openssl s_time, new sessions", Carrier::Stack, || {
        openssl_figure(
            &trial.ask(&format!("openssl s_time -connect {SERVER_V4}:4433 -www /page -new -time 1")),
        )
    });
    trial.end(server);
}

#[test]
fn openssl_s_client() {
    let Some(trial) = Trial::of_client("openssl s_client") else { return };
    let _server = trial.start_peer(&openssl_server());
    let client = Program::new("openssl s_client", "sh -c")
        .argument("printf 'GET /page HTTP/1.0\\r\\n\\r\\n' | openssl s_client -connect {peer}:4433 -quiet -ign_eof 2>&1");
    assert!(trial.run(&client).contains("Hello, world!"));
    let timed = Program::new("openssl s_time", "openssl s_time -connect {peer}:4433 -www /page -new -time 1");
    trial.load("openssl s_time, new sessions", Carrier::Either("each connection lasts for a page"), || {
        openssl_figure(&trial.run(&timed))
    });
}

/// Options of ssh and scp that trust everybody and ask nobody.
fn ssh_options(key: &str) -> String {
    format!(
        "-q -F none -i {key} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o ConnectTimeout=20"
    )
}

#[test]
fn sshd_serves_shells_and_copies() {
    let Some(trial) = Trial::of("OpenSSH sshd") else { return };
    let sshd = trial.start(&sshd());
    let options = ssh_options(&sshd.path("user").display().to_string());
    let directory = sshd.directory.path().display().to_string();
    assert_eq!(trial.ask(&format!("ssh {options} -p 2222 root@{SERVER_V4} echo done")), "done");
    const WHY: Carrier = Carrier::Kernel("accepts, then forks: a process for each connection");
    trial.load("scp of 20 MB there and back", WHY, || {
        let script = format!(
            "cd {directory}; head -c 20000000 /dev/urandom > sent\n\
             scp {options} -P 2222 sent root@{SERVER_V4}:{directory}/there\n\
             scp {options} -P 2222 root@{SERVER_V4}:{directory}/there back\n\
             cmp sent back; cmp sent there"
        );
        let began = std::time::Instant::now();
        trial.ask_script(&script);
        Figure::new(40.0 / began.elapsed().as_secs_f64(), "MB/s")
    });
    trial.load("8 shells, two at a time", WHY, || {
        let began = std::time::Instant::now();
        let done = trial
            .ask_script(&format!("seq 8 | xargs -P 2 -I N ssh {options} -p 2222 root@{SERVER_V4} echo done"));
        let missing = 8 - done.matches("done").count() as u64;
        Figure::new(8.0 / began.elapsed().as_secs_f64(), "shells/s").with_errors(missing, done)
    });
    trial.end(sshd);
}

#[test]
fn ssh_and_scp_as_clients() {
    let Some(trial) = Trial::of_client("OpenSSH ssh, scp") else { return };
    let sshd = trial.start_peer(&sshd());
    let options = ssh_options(&sshd.path("user").display().to_string());
    let shell = Program::new("ssh", &format!("ssh {options} -p 2222 root@{{peer}} echo done"));
    assert!(trial.run(&shell).contains("done"));
    let sent = sshd.path("sent").display().to_string();
    trial.ask_script(&format!("head -c 20000000 /dev/urandom > {sent}"));
    let copy = Program::new("scp", "sh -ec").argument(&format!(
        "scp {options} -P 2222 {sent} root@{{peer}}:{sent}.there; scp {options} -P 2222 root@{{peer}}:{sent}.there back; \
         cmp {sent} back"
    ));
    trial.load(
        "scp of 20 MB there and back",
        Carrier::Either("ssh is started by scp, at the end of a pipe"),
        || {
            let began = std::time::Instant::now();
            trial.run(&copy);
            Figure::new(40.0 / began.elapsed().as_secs_f64(), "MB/s")
        },
    );
}
