//! The MTU of interfaces: it changes under connections of an unmodified program, and that of two interfaces differs.

use std::thread;
use std::time::Duration;

use lab::programs::{Network, Program, Ready};
use lab::{CLIENT_INTERFACE, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side};

use crate::trial::{Trial, finish, number_after};

const PORT: u16 = 7000;

const SERVER: &str = "
import socket, threading
listener = socket.create_server(('::', 7000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=16)
def echo(connection):
    while octets := connection.recv(65536): connection.sendall(octets)
while True: threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
";

const CLIENT: &str = "
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 7000), timeout=30)
until, exchanges = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < until:
    request = exchanges.to_bytes(8, 'big') * 4096
    connection.sendall(request)
    answer = b''
    while len(answer) < len(request): answer += connection.recv(65536) or sys.exit('the connection has ended')
    assert answer == request
    exchanges += 1
print('exchanges:', exchanges)
";

/// A moment after each other: within the frames and back, beyond them, back, and beyond them again.
const CHANGES: [(Side, u16); 9] = [
    (Side::Server, 1280),
    (Side::Server, 1500),
    (Side::Server, 3000),
    (Side::Client, 3000),
    (Side::Client, 1500),
    (Side::Server, 1500),
    (Side::Server, 3000),
    (Side::Client, 3000),
    (Side::Server, 1500),
];
const MOMENT: Duration = Duration::from_millis(150);

#[test]
fn the_mtu_may_outgrow_the_frames_under_a_programs_connections() {
    for address in [SERVER_V4, SERVER_V6] {
        let Some(trial) = Trial::of("echo").map(Trial::keeping_all) else { return };
        let server = Program::new("echo", "python3 -c").argument(SERVER).ready(Ready::Port(PORT));
        let running = trial.start(&server);
        let span = MOMENT * (CHANGES.len() as u32 + 2);
        let said = trial.on_the_stack(|| {
            thread::scope(|scope| {
                let client = scope.spawn(|| {
                    let mut client = trial.lab.command(Side::Client, "python3");
                    finish(client.args(["-c", CLIENT, address, &span.as_secs_f64().to_string()]))
                });
                for (side, mtu) in CHANGES {
                    thread::sleep(MOMENT);
                    let interface = if side == Side::Server { SERVER_INTERFACE } else { CLIENT_INTERFACE };
                    trial.lab.ip(side, &format!("link set {interface} mtu {mtu}")).unwrap();
                }
                client.join().unwrap()
            })
        });
        println!("{address}: {said}");
        assert!(number_after(&said, "exchanges:") > f64::from(CHANGES.len() as u32), "{said}");
        trial.end(running);
    }
}

const ASK_FOR_MSS: &str = "
import socket, sys
connection = socket.create_connection((sys.argv[1], 7000), timeout=30)
connection.sendall(b'x')
assert connection.recv(1) == b'x'
print('mss:', connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
";

#[test]
fn the_largest_segment_can_be_clamped() {
    let clamp = |trial: Trial| trial.with_options(&["--mss-clamp", "1000"]);
    let Some(trial) = Trial::of("echo").map(clamp) else { return };
    let is_clamped = trial.network != Network::Kernel;
    let server = Program::new("echo", "python3 -c").argument(SERVER).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let said = trial.on_the_stack(|| {
        let mut client = trial.lab.command(Side::Client, "python3");
        finish(client.args(["-c", ASK_FOR_MSS, SERVER_V4]))
    });
    // Timestamps take twelve octets.
    assert!(!is_clamped || number_after(&said, "mss:") == 988.0, "{said}");
    trial.end(running);
}

/// A second wire between the two sides, of 3500 octets.
pub(crate) const WIDE_INTERFACES: [&str; 2] = ["veth-ws", "veth-wc"];
pub(crate) const WIDE_ADDRESSES: [&str; 2] = ["10.54.0.1", "10.54.0.2"];

#[test]
fn connections_by_interfaces_of_different_mtu_go_on_together() {
    let use_both = |trial: Trial| trial.with_options(&["--device", WIDE_INTERFACES[0]]);
    let Some(trial) = Trial::of("echo").map(use_both) else { return };
    lay_wide_wire(&trial);
    let server = Program::new("echo", "python3 -c").argument(SERVER).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let said = trial.on_the_stack(|| {
        thread::scope(|scope| {
            let clients = [SERVER_V4, WIDE_ADDRESSES[0]].map(|address| {
                let mut client = trial.lab.command(Side::Client, "python3");
                scope.spawn(move || finish(client.args(["-c", CLIENT, address, "1"])))
            });
            clients.map(|client| client.join().unwrap())
        })
    });
    println!("{said:?}");
    assert!(said.iter().all(|said| number_after(said, "exchanges:") > 0.0), "{said:?}");
    trial.end(running);
}

pub(crate) fn lay_wide_wire(trial: &Trial) {
    let [here, there] = WIDE_INTERFACES;
    let peer = trial.lab.namespace(Side::Client);
    let add = format!("link add {here} mtu 3500 type veth peer name {there} mtu 3500 netns {peer}");
    trial.lab.ip(Side::Server, &add).unwrap();
    for (side, interface, address) in
        [(Side::Server, here, WIDE_ADDRESSES[0]), (Side::Client, there, WIDE_ADDRESSES[1])]
    {
        trial.lab.ip(side, &format!("address add {address}/24 dev {interface}")).unwrap();
        trial.lab.ip(side, &format!("link set {interface} up")).unwrap();
    }
}
