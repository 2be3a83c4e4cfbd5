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
