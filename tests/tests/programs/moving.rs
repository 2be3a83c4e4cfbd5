//! Connections that become the kernel's while their peer speaks: nothing of what it says is lost.
//!
//! A server accepts, answers on the stack, and forks: the child gets the connection from the kernel. Its peer asks again at all moments
//! of that. What was lost the peer has sent again; what it sent again because the machine was busy the server had already, and said so
//! (D-SACK, RFC 2883).

use lab::programs::{Program, Ready};
use lab::{SERVER_V4, SERVER_V6, Side};

use crate::trial::{Trial, finish, number_after};

const PORT: u16 = 7000;

const SERVER: &str = "
import os, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(('::', 7000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=16)
def answer(connection):
    request = connection.recv(64)
    connection.sendall(request)
    return request
while True:
    connection, _ = listener.accept()
    answer(connection)
    if os.fork() == 0:
        while answer(connection): pass
        os._exit(0)
    connection.close()
";

/// Offsets in `struct tcp_info`: `tcpi_total_retrans` and `tcpi_dsack_dups`.
const CLIENT: &str = "
import socket, struct, sys, time
address, moves = sys.argv[1], int(sys.argv[2])
lost = again = 0
for move in range(moves):
    connection = socket.create_connection((address, 7000), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for request in range(4):
        if request == 1:
            until = time.perf_counter() + 0.003 * move / moves
            while time.perf_counter() < until: pass
        connection.sendall(b'%15d' % request)
        answer = b''
        while len(answer) < 15: answer += connection.recv(64) or sys.exit('the connection has ended')
        assert int(answer) == request
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    (sent_again,), (in_vain,) = struct.unpack_from('I', info, 100), struct.unpack_from('I', info, 216)
    lost += max(sent_again - in_vain, 0)
    again += sent_again
    connection.close()
print('moves:', moves, 'lost:', lost, 'sent again:', again)
";

const MOVES: u32 = 300;

/// Answers on the stack, and then by three processes in turn: two children, and the parent, which has the connection open all the time. Or by a child, while
/// its own child has inherited the connection over exec.
const FAMILY: &str = "
import os, signal, socket, sys
listener = socket.create_server(('', 7000), backlog=16)
def answer(connection):
    connection.sendall(connection.recv(64))
def answer_in_turn(connection):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        answer(connection)
        os._exit(0)
    os.close(writer)
    if os.fork() == 0:
        os.read(reader, 1)
        answer(connection)
        os._exit(0)
    os.close(reader)
    os.wait(), os.wait()
    answer(connection)
def answer_beside_another_program(connection):
    if os.fork() == 0:
        connection.set_inheritable(True)
        if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '0.2'])
        for _ in range(3): answer(connection)
        os._exit(0)
    connection.close()
    os.wait()
while True:
    connection, _ = listener.accept()
    for _ in range(4): answer(connection)
    dict(turn=answer_in_turn, beside=answer_beside_another_program)[sys.argv[1]](connection)
    connection.close()
";

const FAMILYS_CLIENT: &str = "
import socket, sys
ends = []
for connection in range(40):
    with socket.create_connection((sys.argv[1], 7000), timeout=30) as connection:
        try:
            for request in range(7):
                connection.sendall(b'x')
                assert connection.recv(1) == b'x'
            ends.append(connection.recv(1))
        except ConnectionResetError:
            ends.append('reset')
print('well:', ends.count(b''), 'reset:', ends.count('reset'))
";

/// Answers on the stack, forks, and ends; then the child answers. Its own parent keeps the listener.
const SURVIVOR: &str = "
import os, socket, time
listener = socket.create_server(('', 7000), backlog=64)
def answer(connection):
    request = connection.recv(64)
    connection.sendall(request)
    return request
def serve():
    connections = []
    while len(connections) < 20: # Who only looks whether there is a server asks nothing.
        connection, _ = listener.accept()
        if answer(connection): connections.append(connection)
    for _ in range(3):
        for connection in connections: answer(connection)
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent: time.sleep(0.001)
        for _ in range(3):
            for connection in connections: answer(connection)
    os._exit(0)
if os.fork() == 0: serve()
os.wait()
time.sleep(60)
";

const SURVIVORS_CLIENT: &str = "
import socket, sys
alive = {socket.create_connection((sys.argv[1], 7000), timeout=30) for _ in range(20)}
def each(act):
    for connection in list(alive):
        try: act(connection)
        except (ConnectionResetError, BrokenPipeError): alive.remove(connection)
def hear(expected):
    def act(connection): assert connection.recv(1) == expected
    return act
for request in range(7):
    each(lambda connection: connection.sendall(b'x'))
    each(hear(b'x'))
each(hear(b''))
print('well:', len(alive), 'reset:', 20 - len(alive))
";

#[test]
fn nothing_is_lost_that_a_peer_says_while_its_connection_moves() {
    let Some(trial) = Trial::of("accept, answer, fork") else { return };
    let server = Program::new("accept, answer, fork", "python3 -c").argument(SERVER).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    for address in [SERVER_V4, SERVER_V6] {
        let mut client = trial.lab.command(Side::Client, "python3");
        let said = trial.on_the_stack(|| finish(client.args(["-c", CLIENT, address, &MOVES.to_string()])));
        println!("{address}: {said}");
        assert_eq!(number_after(&said, "moves:"), f64::from(MOVES), "{said}");
        assert_eq!(number_after(&said, "lost:"), 0.0, "{said}");
    }
    trial.end(running);
}

#[test]
fn a_connection_is_answered_by_all_processes_that_have_it() {
    assert_family_answers("turn");
}

#[test]
fn a_connection_is_answered_by_a_child_while_another_program_has_it_too() {
    assert_family_answers("beside");
}

#[test]
fn a_connection_is_answered_by_a_child_that_outlives_its_parent() {
    let Some(trial) = Trial::of("accept, fork and end") else { return };
    let server =
        Program::new("accept, fork and end", "python3 -c").argument(SURVIVOR).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let mut client = trial.lab.command(Side::Client, "python3");
    let said = trial.on_the_stack(|| finish(client.args(["-c", SURVIVORS_CLIENT, SERVER_V4])));
    assert_eq!(said.trim(), "well: 20 reset: 0");
    trial.end(running);
}

fn assert_family_answers(how: &str) {
    let Some(trial) = Trial::of(&format!("accept and fork, {how}")) else { return };
    let server = Program::new(how, "python3 -c").argument(FAMILY).argument(how).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let mut client = trial.lab.command(Side::Client, "python3");
    let said = trial.on_the_stack(|| finish(client.args(["-c", FAMILYS_CLIENT, SERVER_V4])));
    assert_eq!(said.trim(), "well: 40 reset: 0");
    trial.end(running);
}
