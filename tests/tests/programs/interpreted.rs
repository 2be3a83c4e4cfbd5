//! Programs of Python, Node and Java, and one of Rust on tokio.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use lab::SERVER_V4;
use lab::programs::{
    Program, Ready, asyncio_echo, http_server, java_http, java_nio, node_cluster, node_http, quic_echo,
    uvloop_echo,
};
use tests::Exchange;

use crate::trial::{Carrier, Figure, LOAD, Trial, number_after, server};

/// A page, what is posted, and a load on kept connections and on new ones.
fn http(trial: &Trial, program: &Program, port: u16, carrier: Carrier) {
    let running = trial.start(program);
    let url = format!("http://{SERVER_V4}:{port}/");
    assert_eq!(trial.ask(&format!("curl -sS -m 120 {url} {url}")), ["Hello, world!"; 2].join("\n"));
    let post = format!(
        "file=$(mktemp); head -c 1000000 /dev/urandom > $file\n\
         curl -sS -m 120 --data-binary @$file {url} | cmp - $file && echo same; rm $file"
    );
    assert_eq!(trial.ask_script(&post), "same");
    for (load, reuse) in [("32 clients", true), ("32 clients, a connection for each request", false)] {
        trial.load(load, carrier, || {
            let exchange = Exchange::hello(server(port), 32, reuse);
            let tally = trial.inside(|| exchange.run(LOAD));
            assert_eq!(tally.repeated, 0, "connections ended without a reason: {tally:?}");
            tally.into()
        });
    }
    trial.end(running);
}

/// Everything that is sent comes back: in one piece, in many, by datagrams, on many connections at a time.
fn echo(program: &Program) {
    let Some(trial) = Trial::of(program.name()).map(Trial::with_datagrams_in_tests) else { return };
    let running = trial.start(program);
    let large = (0..300_000u32).map(|at| (at ^ at >> 8) as u8).collect();
    for (load, octets, connections) in [
        ("300000 octets there and back, 1 client", large, 1),
        ("64 octets there and back, 32 clients", vec![7; 64], 32),
    ] {
        trial.load(load, Carrier::Stack, || {
            let exchange = Exchange::echo(server(7000), connections, octets);
            let tally = trial.inside(|| exchange.run(LOAD));
            assert_eq!(tally.repeated, 0, "connections ended without a reason: {tally:?}");
            tally.into()
        });
    }
    trial.load("datagrams there and back, 8 under way", Carrier::Stack, || {
        trial.inside(|| echo_datagrams(LOAD))
    });
    trial.end(running);
}

/// Sends eight datagrams of different lengths at a time and waits for all of them.
fn echo_datagrams(duration: Duration) -> Figure {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(server(7000)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (began, mut answered, mut lost) = (Instant::now(), 0u64, 0u64);
    while began.elapsed() < duration && lost == 0 {
        let mut missing: Vec<Vec<u8>> = (0..8).map(|at| vec![at as u8; 20 + at * 200]).collect();
        for datagram in &missing {
            socket.send(datagram).unwrap();
        }
        let mut octets = [0; 2048];
        while !missing.is_empty() {
            let Ok(len) = socket.recv(&mut octets) else { break };
            let at = missing.iter().position(|datagram| datagram == &octets[..len]);
            missing.swap_remove(at.expect("what comes back is what was sent"));
            answered += 1;
        }
        lost += missing.len() as u64;
    }
    let rate = answered as f64 / began.elapsed().as_secs_f64();
    Figure::new(rate, "datagrams/s").with_errors(lost, format!("{lost} lost, {answered} came back"))
}

#[test]
fn python_http_server() {
    let Some(trial) = Trial::of("Python http.server") else { return };
    let running = trial.start(&http_server());
    let url = format!("http://{SERVER_V4}:8000");
    let sum = trial.ask_script(&format!("curl -sS -m 120 {url}/large | sha256sum | cut -d' ' -f1"));
    assert_eq!(sum.trim(), running.read("large.sum").trim());
    trial.load("pages by curl, a connection for each", Carrier::Stack, || {
        let began = Instant::now();
        let pages =
            trial.ask(&format!("curl -sS -m 120 {url}/small?[1-300]")).matches("Hello, world!").count();
        Figure::new(300.0 / began.elapsed().as_secs_f64(), "pages/s")
            .with_errors(300 - pages as u64, "pages are missing")
    });
    trial.end(running);
}

#[test]
fn python_asyncio() {
    echo(&asyncio_echo());
}

#[test]
fn python_uvloop() {
    echo(&uvloop_echo());
}

/// What the client of [`quic_echo`] says.
fn quic_figure(output: &str) -> Figure {
    let (done, wrong) = (number_after(output, "done "), number_after(output, "wrong "));
    Figure::new(done, "streams in 1 s").with_errors(wrong as u64 + u64::from(done < 1.0), output)
}

#[test]
fn python_aioquic_as_server() {
    let Some(trial) = Trial::of("Python aioquic").map(Trial::with_datagrams_in_tests) else { return };
    let running = trial.start(&quic_echo("server"));
    let client = quic_echo("client 1");
    trial.load("streams there and back", Carrier::Stack, || {
        let mut client = trial.start_peer(&client);
        client.process.wait(crate::trial::PATIENCE).unwrap();
        quic_figure(&client.process.output())
    });
    trial.end(running);
}

#[test]
fn python_aioquic_as_client() {
    let Some(trial) = Trial::of_client("Python aioquic").map(Trial::with_datagrams_in_tests) else { return };
    let _server = trial.start_peer(&quic_echo("server"));
    trial.load("streams there and back", Carrier::Stack, || quic_figure(&trial.run(&quic_echo("client 1"))));
}

#[test]
fn node_http_server() {
    let Some(trial) = Trial::of("Node http") else { return };
    http(&trial, &node_http(), 3000, Carrier::Stack);
}

#[test]
fn node_cluster_that_passes_connections_on() {
    let Some(trial) = Trial::of("Node cluster") else { return };
    http(
        &trial,
        &node_cluster(false),
        3000,
        Carrier::Kernel("one process accepts and hands connections to others"),
    );
}

#[test]
fn node_cluster_that_shares_a_socket() {
    let Some(trial) = Trial::with_queues("Node cluster, shared socket", 2) else { return };
    http(
        &trial,
        &node_cluster(true),
        3000,
        Carrier::Either("the workers get a socket that another process made"),
    );
}

#[test]
fn java_http_server() {
    let Some(trial) = Trial::of("Java HttpServer") else { return };
    http(&trial, &java_http(), 8080, Carrier::Stack);
}

#[test]
fn java_nio_selector() {
    echo(&java_nio());
}

#[test]
fn rust_tokio() {
    let Some(trial) = Trial::of("Rust tokio") else { return };
    let program = Program::new("Rust tokio", &format!("{} 3000", env!("CARGO_BIN_EXE_tokio_hello")))
        .ready(Ready::Line("ready"));
    http(&trial, &program, 3000, Carrier::Stack);
}
