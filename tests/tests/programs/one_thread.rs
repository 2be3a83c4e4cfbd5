//! A program with one thread does what only such programs may.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lab::programs::{Network, Program, Ready};
use lab::{SERVER_V4, Side};

use crate::trial::Trial;

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves one peer, and tells it whether the process could do what the arguments name, one after the other: unshare something, or enter a mount
/// namespace by setns(2); and how many threads it has after each.
const SERVING: &str = "
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def threads_after(what):
    if what == 'setns':
        done = libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0x20000) == 0
    else:
        done = libc.unshare(int(what, 16)) == 0
    with open('/proc/self/stat') as stat:
        threads = stat.read().rsplit(')', 1)[1].split()[17]
    return threads if done else os.strerror(ctypes.get_errno())
listener = socket.create_server(('', 7000))
print('waits')
connection, _ = listener.accept()
connection.recv(1)
found = []
for what in sys.argv[1:]:
    found.append(threads_after(what))
    connection.recv(1)
connection.sendall(' '.join(found).encode())
connection.recv(1)
time.sleep(1)
connection.recv(1)
connection.sendall(b'.')
listener.accept()
";

const CLONE_FILES: &str = "400";
const CLONE_NEWUSER: &str = "10000000";
const CLONE_NEWPID: &str = "20000000";

/// What it tells of two calls.
fn found(name: &str, calls: [&str; 2]) -> Option<String> {
    let trial = Trial::of(name).map(Trial::keeping_all)?;
    let server = Program::new(name, "python3 -uc").argument(SERVING);
    let server = server.argument(calls[0]).argument(calls[1]).ready(Ready::Line("waits"));
    let running = trial.start(&server);
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(b"1").expect("connected");
        stream.write_all(b"23").expect("connected");
        let mut found = [0; 100];
        let len = stream.read(&mut found).expect("an answer");
        stream.write_all(b"45").expect("connected");
        stream.read_exact(&mut [0]).expect("it is served as before");
        String::from_utf8_lossy(&found[..len]).into_owned()
    };
    let found = trial.on_the_stack(|| trial.lab.inside(Side::Client, ask));
    trial.end(running);
    Some(found)
}

#[test]
fn a_program_with_one_thread_may_enter_a_user_namespace_and_is_served_there() {
    let found = found("a program with one thread", [CLONE_FILES, CLONE_NEWUSER]);
    assert!(found.as_deref().is_none_or(|found| found == "1 1"), "{found:?}");
}

#[test]
fn a_program_with_one_thread_may_enter_a_mount_namespace() {
    let found = found("a program with a mount namespace", ["setns", "setns"]);
    assert!(found.as_deref().is_none_or(|found| found == "1 1"), "{found:?}");
}

#[test]
fn a_program_whose_children_get_a_pid_namespace_keeps_the_thread_that_serves_it() {
    let found = found("a program with a PID namespace", [CLONE_NEWPID, "0"]);
    // On the kernel there is none.
    let threads = if matches!(Network::wanted(), Network::Kernel) { "1 1" } else { "2 2" };
    assert!(found.as_deref().is_none_or(|found| found == threads), "{found:?}");
}
