//! A program whose threads have a listener each at one port (`SO_REUSEPORT`), as haproxy's groups of threads have.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lab::programs::{Network, Program, Ready};
use lab::{SERVER_V4, Side};

use crate::trial::Trial;

const PORT: u16 = 7000;
const LISTENERS: usize = 4;
/// That one of four listeners gets none of them happens once in some ten million runs.
const CLIENTS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// Each thread answers by its number. Told to stop, it first waits until it is told again, then closes its listener, then answers.
const SERVING: &str = "
import socket, threading
def listener():
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(('', 7000))
    made.listen(256)
    return made
def serve(number, listener):
    stops = False
    while not stops:
        connection, _ = listener.accept()
        stops = connection.recv(1) == b's'
        if stops:
            connection.sendall(b'!')
            connection.recv(1)
            listener.close()
        connection.sendall(str(number).encode())
        connection.close()
listeners = [listener() for _ in range(4)]
threads = [threading.Thread(target=serve, args=it) for it in enumerate(listeners)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";

/// How many answers came from each thread.
type Answers = BTreeMap<u8, usize>;

#[test]
fn each_listener_of_a_process_gets_a_part_of_the_connections() {
    let Some(trial) = Trial::of("a listener for each thread").map(Trial::keeping_all) else { return };
    let running = trial.start(&server("a listener for each thread"));
    let answers = trial.on_the_stack(|| trial.lab.inside(Side::Client, || ask_all(connect_all()?)));
    let answers = answers.unwrap_or_else(|error: io::Error| panic!("{error}"));
    assert_eq!(answers.values().sum::<usize>(), CLIENTS);
    assert_eq!(answers.len(), LISTENERS, "{answers:?}");
    trial.end(running);
}

#[test]
fn who_waits_at_a_listener_that_is_closed_is_answered_by_the_others() {
    let name = "a listener for each thread, one closes";
    let Some(trial) = Trial::of(name).map(Trial::keeping_all) else { return };
    if trial.network == Network::Kernel {
        return; // They are reset there, unless `net.ipv4.tcp_migrate_req` is on.
    }
    let running = trial.start(&server(name));
    let ask = || {
        let mut stopped = connect()?;
        stopped.write_all(b"s")?;
        assert_eq!(answer(&mut stopped)?, b'!');
        let waiting = connect_all()?;
        stopped.write_all(b"!")?;
        let closed = answer(&mut stopped)?;
        Ok((closed, ask_all(waiting)?, ask_all(connect_all()?)?))
    };
    let found = trial.on_the_stack(|| trial.lab.inside(Side::Client, ask));
    let (closed, waited, later) = found.unwrap_or_else(|error: io::Error| panic!("{error}"));
    for answers in [waited, later] {
        assert_eq!(answers.values().sum::<usize>(), CLIENTS);
        assert_eq!(answers.len(), LISTENERS - 1, "{answers:?}");
        assert!(!answers.contains_key(&closed), "{closed} answers: {answers:?}");
    }
    trial.end(running);
}

fn server(name: &'static str) -> Program {
    Program::new(name, "python3 -c").argument(SERVING).ready(Ready::Port(PORT))
}

fn connect() -> io::Result<TcpStream> {
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn connect_all() -> io::Result<Vec<TcpStream>> {
    (0..CLIENTS).map(|_| connect()).collect()
}

fn ask_all(mut streams: Vec<TcpStream>) -> io::Result<Answers> {
    streams.iter_mut().try_for_each(|stream| stream.write_all(b"?"))?;
    let mut answers = Answers::new();
    for stream in &mut streams {
        *answers.entry(answer(stream)?).or_default() += 1;
    }
    Ok(answers)
}

fn answer(stream: &mut TcpStream) -> io::Result<u8> {
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}
