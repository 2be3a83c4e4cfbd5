//! A program with threads that sleep in calls of their own: one of them sleeps for all, on the devices, and has to know what the others
//! have begun meanwhile.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use lab::programs::{Network, Program, Ready};
use lab::{SERVER_V4, Side, sidestep_binary};

use crate::trial::{Trial, finish};

const PORT: u16 = 7000;

/// One thread waits for connections, for ever. Others ask their peers something now and then, at times at which nothing else is under
/// way, nor any acknowledgement due.
const ASKING: &str = "
import socket, threading, time
listener = socket.create_server(('', 7000), backlog=16)
def ask(connection):
    while True:
        connection.sendall(b'?')
        if not connection.recv(1): break
        time.sleep(0.05)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=ask, args=[connection], daemon=True).start()
";

/// A thread for each connection.
const ECHOING: &str = "
import socket, threading
listener = socket.create_server(('', 7000), backlog=16)
def echo(connection):
    while data := connection.recv(4096):
        connection.sendall(data)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=echo, args=[connection], daemon=True).start()
";

const QUESTIONS: usize = 80;
/// What is lost is sent again after a fifth of a second, and what is lost four times in a row, after three.
const PATIENCE: Duration = Duration::from_secs(5);

/// One thread waits for connections, for ever. Another is told of two at a time, answers the first, and is busy with something else.
const BUSY: &str = "
import select, socket, threading, time
listener = socket.create_server(('', 7000), backlog=16)
def serve(first, second):
    epoll = select.epoll()
    epoll.register(first, select.EPOLLIN)
    epoll.register(second, select.EPOLLIN)
    time.sleep(0.5)
    assert len(epoll.poll()) == 2
    question, _ = first.recv(1), second.recv(1)
    first.sendall(question)
    time.sleep(3600)
print('waits')
connections = [listener.accept()[0], listener.accept()[0]]
threading.Thread(target=serve, args=connections, daemon=True).start()
listener.accept()
";

#[test]
fn what_is_lost_of_one_thread_is_sent_again_while_another_sleeps_for_all() {
    let Some(trial) = Trial::with_loss("a thread for each connection", "0.05") else { return };
    let server =
        Program::new("a thread for each connection", "python3 -c").argument(ASKING).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let answered = trial.on_the_stack(|| trial.lab.inside(Side::Client, || answer(address)));
    assert_eq!(answered.unwrap_or_else(|error| panic!("{error}")), QUESTIONS);
    trial.end(running);
}

#[test]
fn an_answer_does_not_wait_until_its_thread_comes_back_while_another_sleeps_for_all() {
    let Some(trial) = Trial::of("a thread for all connections") else { return };
    let server = Program::new("a thread for all connections", "python3 -uc")
        .argument(BUSY)
        .ready(Ready::Line("waits"));
    let running = trial.start(&server);
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let ask = || {
        let [mut first, mut second] = [connect(address)?, connect(address)?];
        first.write_all(b"1")?;
        second.write_all(b"2")?;
        let mut answer = [0];
        first.read_exact(&mut answer)?;
        Ok(answer)
    };
    let answer = trial.on_the_stack(|| trial.lab.inside(Side::Client, ask));
    assert_eq!(answer.unwrap_or_else(|error: io::Error| panic!("{error}")), *b"1");
    trial.end(running);
}

#[test]
fn connections_with_a_thread_each_move_to_the_kernel_and_are_counted() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 500;
    let Some(trial) = Trial::of("a thread for each of several connections") else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let name = "a thread for each of several connections";
    let server = Program::new(name, "python3 -c").argument(ECHOING).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let ask = || {
        let mut streams = (0..CLIENTS).map(|_| connect(address)).collect::<io::Result<Vec<_>>>()?;
        for round in 0..ROUNDS {
            let question = [round as u8; 16];
            streams.iter_mut().try_for_each(|stream| stream.write_all(&question))?;
            for stream in &mut streams {
                let mut answer = [0; 16];
                stream.read_exact(&mut answer)?;
                assert_eq!(answer, question);
            }
        }
        Ok(())
    };
    trial.lab.inside(Side::Client, ask).unwrap_or_else(|error: io::Error| panic!("{error}"));
    let broker = running.process.pid().to_string();
    let status = finish(Command::new(sidestep_binary()).args(["status", "--pid", &broker]));
    assert!(status.contains("moved because a thread for each of them slept in it"), "{status}");
    trial.end(running);
}

#[test]
fn a_thread_that_sleeps_takes_no_descriptor_of_the_program() {
    /// Descriptors that the program may have, and connections, each with a thread: with one more for each thread there would be too few.
    const LIMIT: usize = 128;
    const CLIENTS: usize = 90;
    const ROUNDS: usize = 3;
    let name = "a thread for each connection, and few descriptors";
    let Some(trial) = Trial::of(name).map(Trial::keeping_all) else { return };
    let limit = format!("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))");
    let server =
        Program::new(name, "python3 -c").argument(&format!("{limit}{ECHOING}")).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let address = SocketAddr::new(SERVER_V4.parse().expect("an address"), PORT);
    let ask = || {
        let mut streams = Vec::new();
        for client in 0..CLIENTS * ROUNDS {
            if client < CLIENTS {
                streams.push(connect(address)?);
            }
            let stream = &mut streams[client % CLIENTS];
            stream.write_all(&[client as u8])?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            assert_eq!(answer, [client as u8]);
        }
        Ok(())
    };
    let answered = trial.on_the_stack(|| trial.lab.inside(Side::Client, ask));
    answered.unwrap_or_else(|error: io::Error| panic!("{error}"));
    trial.end(running);
}

#[test]
fn a_program_to_which_nobody_comes_is_hardly_ever_woken() {
    /// Between two counts, of which one has to be low: a broker that sees the machine change has something to tell.
    const WATCHED: Duration = Duration::from_secs(2);
    const TIMES: usize = 5;
    /// Somebody looks three times a second whether all is well.
    const WAKES_MAX: u64 = 20;
    let Some(trial) = Trial::of("a program that waits") else { return };
    let server = Program::new("a program that waits", "python3 -c").argument(ASKING).ready(Ready::Port(PORT));
    let running = trial.start(&server);
    let program = running.program().expect("it runs").as_raw_nonzero().get();
    let wakes: Vec<u64> = (0..TIMES)
        .map(|_| {
            let before = sleeps_of(program);
            thread::sleep(WATCHED);
            sleeps_of(program) - before
        })
        .take_while(|wakes| *wakes > WAKES_MAX)
        .collect();
    assert!(wakes.len() < TIMES, "{wakes:?}, each in {WATCHED:?}");
    trial.end(running);
}

/// How often the threads of a process went to sleep.
fn sleeps_of(process: i32) -> u64 {
    const COUNT: &str = "voluntary_ctxt_switches:";
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
    let counts = tasks.filter_map(|task| -> Option<u64> {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix(COUNT))?.trim().parse().ok()
    });
    counts.sum()
}

/// Answers questions; how many, until one does not come.
fn answer(server: SocketAddr) -> io::Result<usize> {
    let mut stream = connect(server)?;
    for answered in 0..QUESTIONS {
        if stream.read(&mut [0]).is_err() {
            return Ok(answered);
        }
        stream.write_all(b"!")?;
    }
    Ok(QUESTIONS)
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}
