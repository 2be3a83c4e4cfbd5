//! An address of the interface that goes and comes back, under connections of an unmodified program.

use std::thread;
use std::time::Duration;

use lab::programs::{Program, Ready};
use lab::{Child, SERVER_INTERFACE, Side};

use crate::ends::ECHO;
use crate::trial::{PATIENCE, Trial, number_after};

const ADDRESS: &str = "10.53.0.9";
/// The address goes and comes back so often, and is away for less than a peer takes to send something again.
const TIMES: u32 = 8;
const AWAY: Duration = Duration::from_millis(100);
const THERE: Duration = Duration::from_millis(400);

/// All connections send all the time, without waiting for answers, so that some do in the moment when the address is back: they find out who
/// gets their segments.
const CLIENT: &str = "
import socket, sys, time
address = sys.argv[1]
connections = [socket.create_connection((address, 7000), timeout=30) for _ in range(200)]
answers = reset = 0
for connection in connections:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print('connected', flush=True)
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    for connection in list(connections):
        try:
            connection.send(b'x')
            answers += len(connection.recv(64))
        except BlockingIOError: pass
        except ConnectionError:
            connections.remove(connection)
            reset += 1
    time.sleep(0.02)
print('answers:', answers)
print('reset:', reset)
";

#[test]
fn no_connection_of_an_address_that_comes_back_is_reset() {
    let Some(trial) = Trial::of("echo").map(Trial::keeping_all) else { return };
    let change = |verb: &str| {
        let words = format!("address {verb} {ADDRESS}/24 dev {SERVER_INTERFACE}");
        trial.lab.ip(Side::Server, &words).unwrap();
    };
    change("add");
    let running = trial.start(&Program::new("echo", "python3 -c").argument(ECHO).ready(Ready::Port(7000)));
    let span = (AWAY + THERE) * (TIMES + 1);
    let said = trial.on_the_stack(|| {
        let mut client = trial.lab.command(Side::Client, "python3");
        client.args(["-c", CLIENT, ADDRESS, &span.as_secs_f64().to_string()]);
        let mut client = Child::spawn("a client", &mut client).unwrap();
        client.wait_for_line("connected", PATIENCE).unwrap(); // While it connects, the address has to be there.
        for _ in 0..TIMES {
            thread::sleep(THERE);
            change("delete");
            thread::sleep(AWAY);
            change("add");
        }
        assert!(client.wait(PATIENCE).unwrap().success(), "{}", client.output());
        client.output()
    });
    println!("{said}");
    assert_eq!(number_after(&said, "reset:"), 0.0, "{said}");
    assert!(number_after(&said, "answers:") > 1000.0, "{said}");
    trial.end(running);
}
