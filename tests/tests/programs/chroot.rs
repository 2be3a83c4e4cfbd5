//! A program that changes its root and its user between binding and serving: the broker is reached by an abstract name, and nothing
//! else of the library's is a file, so that it stays on the stack.

use lab::programs::{Program, Ready};
use tests::Exchange;

use crate::trial::{Carrier, LOAD, Trial, server};

/// Sends back what comes. In its root there is nothing, which it says before it serves.
const SERVER: &str = "
import os, select, socket
listener = socket.create_server(('0.0.0.0', 7000), backlog=64)
listener.setblocking(False)
os.chroot('root')
os.chdir('/')
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print('serves in', os.listdir('/'), 'as', os.getuid(), flush=True)
connections, epoll = {}, select.epoll()
epoll.register(listener, select.EPOLLIN)
while True:
    for descriptor, _ in epoll.poll():
        if descriptor == listener.fileno():
            connection, _ = listener.accept()
            connections[connection.fileno()] = connection
            epoll.register(connection, select.EPOLLIN)
            continue
        try:
            octets = connections[descriptor].recv(65536)
        except ConnectionError:
            octets = b''
        if octets:
            connections[descriptor].sendall(octets)
        else:
            connections.pop(descriptor).close()
";

#[test]
fn a_server_that_changes_its_root_and_user_stays_on_the_stack() {
    let Some(trial) = Trial::of("chroot") else { return };
    let program = Program::new("chroot", "python3 -c")
        .argument(SERVER)
        .prepare("mkdir root")
        .ready(Ready::Line("serves in [] as 65534"));
    let running = trial.start(&program);
    trial.load("64 octets there and back, 16 clients", Carrier::Stack, || {
        let exchange = Exchange::echo(server(7000), 16, vec![7; 64]);
        trial.inside(|| exchange.run(LOAD)).into()
    });
    trial.end(running);
}
