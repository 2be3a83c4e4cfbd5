//! An address of the interface that goes and comes back, under connections of an unmodified program.

use std::thread;
use std::time::Duration;

use lab::programs::{Program, Ready};
use lab::{SERVER_INTERFACE, Side};

use crate::ends::ECHO;
use crate::trial::{Trial, finish, number_after};

const ADDRESS: &str = "10.53.0.9";
/// The address goes and comes back so often, each time after a moment.
const TIMES: u32 = 6;
const MOMENT: Duration = Duration::from_millis(300);

/// All connections send at once, again and again: those that send when the address is back find out who gets their segments.
const CLIENT: &str = "
import socket, sys, time
address, until = sys.argv[1], time.monotonic() + float(sys.argv[2])
connections = [socket.create_connection((address, 7000), timeout=30) for _ in range(400)]
exchanges = reset = 0
def lives(step, connection):
    try: return bool(step(connection))
    except ConnectionError: return False
while time.monotonic() < until:
    for step in lambda it: it.send(b'x'), lambda it: it.recv(64):
        alive = [it for it in connections if lives(step, it)]
        reset += len(connections) - len(alive)
        connections = alive
    exchanges += len(connections)
print('exchanges:', exchanges)
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
    let span = MOMENT * (2 * TIMES + 4);
    let said = trial.on_the_stack(|| {
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut client = trial.lab.command(Side::Client, "python3");
                finish(client.args(["-c", CLIENT, ADDRESS, &span.as_secs_f64().to_string()]))
            });
            for _ in 0..TIMES {
                thread::sleep(MOMENT);
                change("delete");
                thread::sleep(MOMENT);
                change("add");
            }
            client.join().unwrap()
        })
    });
    println!("{said}");
    assert_eq!(number_after(&said, "reset:"), 0.0, "{said}");
    assert!(number_after(&said, "exchanges:") > 400.0, "{said}");
    trial.end(running);
}
