//! TCP on our own stack over AF_XDP, with the kernel as its peer. Nothing listens in the server's kernel at the ports that are
//! asked here: whoever gets an answer got it from the stack.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::MutexGuard;
use std::thread;

use lab::{
    CLIENT_INTERFACE, CLIENT_V4, Child, Lab, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side, example_binary,
};

use crate::coexistence::{stream, tcp_echo};
use crate::{PATIENCE, empty_lab};

/// A laboratory in which an example serves port 80 of all addresses of the server.
pub(crate) struct Serving {
    // Dropped in this order.
    pub(crate) process: Child,
    pub(crate) lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Serving {
    pub(crate) fn start(example: &str, listen: &str) -> Option<Serving> {
        Some(Serving::start_in(empty_lab()?, example, listen))
    }

    /// The same in a laboratory that was prepared.
    pub(crate) fn start_in(
        (lab, turn): (Lab, MutexGuard<'static, ()>),
        example: &str,
        listen: &str,
    ) -> Serving {
        let core = lab::server_core().to_string();
        let program = example_binary(example).display().to_string();
        let arguments = ["--device", SERVER_INTERFACE, "--listen", listen, "--core", &core];
        let mut process = lab.spawn_in(Side::Server, &program, &arguments).unwrap();
        process.wait_for_line("ready", PATIENCE).unwrap();
        Serving { process, lab, _turn: turn }
    }

    pub(crate) fn connect(&self, server: &str) -> TcpStream {
        let server = SocketAddr::new(server.parse::<IpAddr>().unwrap(), 80);
        let stream = self.lab.inside(Side::Client, || TcpStream::connect_timeout(&server, PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends all of `request` at once; returns all that comes until the end of the stream.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect(SERVER_V4);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends the stream and takes it back at the same time.
    fn exchange(&self, server: &str) -> Vec<u8> {
        exchange_by(self.connect(server))
    }
}

/// The same on a connection.
fn exchange_by(client: TcpStream) -> Vec<u8> {
    let (mut reader, mut writer) = (client.try_clone().unwrap(), client);
    let sender = thread::spawn(move || {
        writer.write_all(&stream()).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    received
}

#[test]
fn pipelined_requests_are_answered_in_order_until_the_client_wants_no_more() {
    let Some(serving) = Serving::start("http_hello", "0.0.0.0:80") else { return };
    let answer = serving.ask(
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answer}");
    assert_eq!(answer.matches("\r\n\r\nHello, world!\n").count(), 2, "HEAD has no body: {answer}");
    assert!(serving.ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_client_of_the_trade_gets_the_page() {
    let Some(serving) = Serving::start("http_hello", "10.53.0.1:80") else { return };
    let url = format!("http://{SERVER_V4}/");
    let page = serving.lab.run_in(Side::Client, "curl", &["-sS", "--max-time", "60", &url, &url]).unwrap();
    assert_eq!(page, "Hello, world!\nHello, world!\n");
}

#[test]
fn a_stream_comes_back_unchanged_over_ipv4_and_ipv6() {
    for (listen, server) in [("0.0.0.0:80", SERVER_V4), ("[::]:80", SERVER_V6)] {
        let Some(serving) = Serving::start("echo", listen) else { return };
        assert!(serving.exchange(server) == stream(), "the stream came back changed from {server}");
    }
}

#[test]
fn the_kernel_serves_its_own_tcp_on_the_same_interface() {
    let Some(serving) = Serving::start("echo", "0.0.0.0:80") else { return };
    let own = thread::scope(|scope| {
        let through_kernel = scope.spawn(|| tcp_echo(&serving.lab));
        assert!(serving.exchange(SERVER_V4) == stream(), "the stream came back changed from the stack");
        through_kernel.join().unwrap()
    });
    assert!(own == stream(), "the stream came back changed from the kernel");
}

#[test]
fn a_server_that_ends_leaves_nothing_behind() {
    let Some(mut serving) = Serving::start("echo", "0.0.0.0:80") else { return };
    let mut stream = serving.connect(SERVER_V4);
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    serving.process.signal(rustix::process::Signal::TERM);
    let status = serving.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(stream.read(&mut [0; 5]).unwrap(), 0, "the connection was closed, not forgotten");
    crate::assert_program_goes(&serving.lab);
}

#[test]
fn a_live_connection_follows_another_mtu() {
    let Some(mut serving) = Serving::start("echo", "0.0.0.0:80") else { return };
    let client = serving.connect(SERVER_V4);
    serving.lab.ip(Side::Server, &format!("link set {SERVER_INTERFACE} mtu 1280")).unwrap();
    serving.process.wait_for_line("MTU 1280", PATIENCE).unwrap();
    // From now on the wire drops what is longer.
    serving.lab.ip(Side::Client, &format!("link set {CLIENT_INTERFACE} mtu 1280")).unwrap();
    assert!(exchange_by(client) == stream(), "the stream came back changed");
}

#[test]
fn a_live_connection_follows_a_neighbour_that_moves() {
    const MOVED: &str = "02:00:00:00:00:77";
    let Some(serving) = Serving::start("echo", "0.0.0.0:80") else { return };
    let mut client = serving.connect(SERVER_V4);
    serving.lab.ip(Side::Client, &format!("link set {CLIENT_INTERFACE} address {MOVED}")).unwrap();
    // The client asks for the server anew, by which the server's kernel learns where the client is.
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn a_connection_of_ours_reaches_a_server_of_the_kernel() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let listener = lab.inside(Side::Client, || TcpListener::bind((CLIENT_V4, 80)).unwrap());
    let serving = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut request = [0; 5];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(&self::stream()).unwrap();
        (request, peer.ip())
    });
    // The neighbour is unknown: it is looked for by ARP.
    lab.ip(Side::Server, &format!("neigh flush dev {SERVER_INTERFACE}")).unwrap();
    let program = example_binary("fetch").display().to_string();
    let mut fetch = lab.command(Side::Server, &program);
    fetch.args(["--device", SERVER_INTERFACE, "--connect", &format!("{CLIENT_V4}:80")]);
    let mut child = fetch.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout == stream(), "{} octets came", output.stdout.len());
    assert_eq!(serving.join().unwrap(), (*b"hello", SERVER_V4.parse::<IpAddr>().unwrap()));
}
