//! The same programs by `sidestep run`: their loopback connections stay the kernel's, and connections through a relay on the other side
//! of the wire are on our stack at both ends.

use std::path::Path;
use std::time::Duration;

use lab::programs::{Network, Program, Ready, Running};
use lab::{CLIENT_V4, Lab, Side};
use tests::Counters;

use crate::library::library;
use crate::transparency::compile;

/// Pairs connections as they come, and passes on what comes on one to the other.
const RELAY: &str = r#"
import socket, sys, threading
listener = socket.create_server((sys.argv[1], 7000))
print("ready", flush=True)
def accept():
    end, _ = listener.accept()
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end
def pass_on(source, sink):
    try:
        while octets := source.recv(65536):
            sink.sendall(octets)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
while True:
    ends = accept(), accept()
    for source, sink in [ends, ends[::-1]]:
        threading.Thread(target=pass_on, args=(source, sink), daemon=True).start()
"#;

const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn the_kernels_connections_are_the_same() {
    assert_same(
        &["transfer", "datagrams", "waiting", "mistakes", "signals", "processes", "streams", "threads"],
        false,
    );
}

#[test]
fn connections_on_our_stack_are_the_same() {
    assert_same(
        &[
            "transfer",
            "waiting",
            "mistakes",
            "signals",
            "processes",
            "streams",
            "threads",
            "confined",
            "confined_amid",
        ],
        true,
    );
}

#[test]
fn threads_that_are_cancelled_are_the_same() {
    assert_same(&["cancelled"], false);
    assert_same(&["cancelled"], true);
}

/// How often a program is run that may end before its queue comes.
const ATTEMPTS: usize = 5;

/// Runs each of `names` on the kernel and by `sidestep run`, and compares. What is relayed has to be on the stack in part, but for
/// "confined", whose children are the kernel's from the start.
fn assert_same(names: &[&str], relayed: bool) {
    if !lab::require_root_and_xdp() {
        return;
    }
    library(); // which `sidestep run` finds beside itself
    let lab = Lab::new().unwrap();
    let _relay = relayed.then(|| start_relay(&lab));
    for name in names {
        let program = compile(name, if relayed { "far" } else { "near" }, &["-O1"]);
        let expected = report(&lab, &Network::Kernel, &program, relayed);
        assert!(expected.ends_with("exit status: 0"), "{name}: {expected}");
        // One that ends before its queue comes is the kernel's, and has shown nothing of the stack.
        let was_on_stack = (0..ATTEMPTS).any(|_| {
            let before = Counters::of(&lab);
            // The filter that refuses rings would show in what "confined" asks of filters.
            let found = report(&lab, &Network::sidestep(&["--io-uring"]), &program, relayed);
            let share = Counters::of(&lab).kernel_share_since(&before);
            println!("{name}: the kernel took {share:.3} of the packets");
            let differing = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
            assert!(expected == found, "{name}: {differing:#?}\n{found}");
            !relayed || *name == "confined" || share < 0.95
        });
        assert!(was_on_stack, "{name}: the kernel took all of its packets, {ATTEMPTS} times");
    }
}

fn start_relay(lab: &Lab) -> Running {
    let relay = Program::new("relay", "python3 -c").argument(RELAY).argument(CLIENT_V4);
    relay.ready(Ready::Line("ready")).start(lab, Side::Client, &Network::Kernel).unwrap()
}

fn report(lab: &Lab, network: &Network, program: &Path, relayed: bool) -> String {
    let mut program = Program::new("calls", &program.display().to_string()).ready(Ready::AtOnce);
    if relayed {
        program = program.variable("SIDESTEP_RELAY", CLIENT_V4);
    }
    let mut running = program.start(lab, Side::Server, network).unwrap();
    let status = running.process.wait(PATIENCE);
    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    format!("{}\n{status}", running.process.output())
}
