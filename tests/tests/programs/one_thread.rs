//! A program with one thread does what only such programs may.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lab::programs::{Program, Ready};
use lab::{SERVER_V4, Side};

use crate::trial::Trial;

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves one peer, and tells it whether the process could unshare its descriptors, and become the first of a user namespace; and how
/// many threads it has then.
const SERVING: &str = "
import ctypes, os, socket, time
CLONE_FILES, CLONE_NEWUSER = 0x400, 0x10000000
libc = ctypes.CDLL(None, use_errno=True)
def unshared(flags):
    done = libc.unshare(flags) == 0
    with open('/proc/self/stat') as stat:
        threads = stat.read().rsplit(')', 1)[1].split()[17]
    return threads if done else os.strerror(ctypes.get_errno())
listener = socket.create_server(('', 7000))
print('waits')
connection, _ = listener.accept()
connection.recv(1)
found = [unshared(CLONE_FILES)]
connection.recv(1)
found.append(unshared(CLONE_NEWUSER))
connection.sendall(' '.join(found).encode())
connection.recv(1)
time.sleep(1)
connection.recv(1)
connection.sendall(b'.')
listener.accept()
";

#[test]
fn a_program_with_one_thread_may_enter_a_user_namespace_and_is_served_there() {
    let name = "a program with one thread";
    let Some(trial) = Trial::of(name).map(Trial::keeping_all) else { return };
    let server = Program::new(name, "python3 -uc").argument(SERVING).ready(Ready::Line("waits"));
    let running = trial.start(&server);
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(b"1").expect("connected");
        stream.write_all(b"2").expect("connected");
        let mut found = [0; 100];
        let len = stream.read(&mut found).expect("an answer");
        stream.write_all(b"34").expect("connected");
        stream.read_exact(&mut [0]).expect("it is served as before");
        String::from_utf8_lossy(&found[..len]).into_owned()
    };
    let found = trial.on_the_stack(|| trial.lab.inside(Side::Client, ask));
    assert_eq!(found, "1 1");
    trial.end(running);
}
