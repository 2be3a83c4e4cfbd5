//! How things end: the program is killed, the broker is killed, both end well. The kernel takes over, and nothing stays behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Nginx, Program, Ready, Running, redis};
use lab::{Child, SERVER_INTERFACE, Side};
use rustix::process::{Pid, Signal, kill_process};

use crate::trial::{PATIENCE, Trial, finish, server};

/// Within this time the kernel has to have taken over.
const TAKE_OVER_MAX: Duration = Duration::from_secs(1);
/// How often it may be seen to be late: what is late is late every time, and who looks may be late now and then, on a machine that does
/// other work too.
const TAKE_OVERS: usize = 3;
/// The kernel takes down programs and maps some time after their last owner has gone.
const TAKE_DOWN_MAX: Duration = Duration::from_secs(60);

/// What `sidestep run` has made, and what must be gone when it is.
#[derive(Debug)]
struct Footprint {
    /// The XDP program on the interface, and its maps.
    programs: BTreeSet<u64>,
    maps: BTreeSet<u64>,
    /// What is pinned on the machine.
    pinned: BTreeSet<String>,
    /// How the namespace is called in /proc.
    namespace: String,
}

impl Footprint {
    fn of(trial: &Trial) -> Footprint {
        let link = trial.lab.ip(Side::Server, &format!("-d link show {SERVER_INTERFACE}")).unwrap();
        let programs: BTreeSet<u64> = numbers_after(&link, "prog/xdp id ").collect();
        let shown = programs.iter().filter_map(|id| bpftool("prog", *id));
        let maps = shown.flat_map(|text| {
            let list = text.split_once("\"map_ids\":[").map_or("", |(_, rest)| rest);
            let list = list.split(']').next().unwrap_or_default();
            list.split(',').filter_map(|id| id.trim().parse().ok()).collect::<Vec<u64>>()
        });
        let inode = fs::metadata(format!("/run/netns/{}", trial.lab.namespace(Side::Server))).unwrap().ino();
        Footprint { maps: maps.collect(), programs, pinned: pinned(), namespace: format!("net:[{inode}]") }
    }

    /// Waits until nothing of it is left.
    fn assert_gone(&self, trial: &Trial) {
        let deadline = Instant::now() + TAKE_DOWN_MAX;
        loop {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < deadline, "left behind: {left:?}");
            thread::sleep(Duration::from_millis(50));
        }
        trial.assert_nothing_left("");
    }

    fn left(&self) -> Vec<String> {
        let objects = [("prog", &self.programs), ("map", &self.maps)];
        let objects = objects.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| (kind, *id)));
        let mut left: Vec<String> = objects
            .filter(|(kind, id)| bpftool(kind, *id).is_some())
            .map(|(kind, id)| format!("BPF {kind} {id}"))
            .collect();
        left.extend(pinned().difference(&self.pinned).map(|path| format!("pinned {path}")));
        left.extend(holders(&self.namespace));
        left
    }
}

/// How many connections of a port the kernel has.
pub(crate) fn of_the_kernel(trial: &Trial, port: u16) -> usize {
    let words = format!("ss -Htn state established sport = :{port}");
    trial.ask_from(Side::Server, &words).lines().filter(|line| !line.trim().is_empty()).count()
}

/// A connection of an echo that the stack has.
pub(crate) fn on_the_stack(trial: &Trial, port: u16) -> TcpStream {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok(mut stream) = connect(trial, server(port)) {
            answers(&mut stream, "x");
            if of_the_kernel(trial, port) == 0 {
                return stream;
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("connections stay on the kernel");
}

/// Waits until a listener is accelerated, as that broker says.
pub(crate) fn await_accelerated(broker: Pid, listener: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(said) = is_accelerated(broker, listener) {
        assert!(Instant::now() < deadline, "{listener}: {said}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Whether a listener is accelerated, as that broker says; if not, what it says.
pub(crate) fn is_accelerated(broker: Pid, listener: &str) -> Result<(), String> {
    let broker = broker.as_raw_nonzero().to_string();
    let mut status = Command::new(lab::sidestep_binary());
    let status = status.args(["status", "--pid", &broker]).output().unwrap();
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    let is_there =
        |line: &str| line.contains("LISTEN") && line.contains(listener) && line.ends_with(" accelerated");
    if said.lines().any(is_there) { Ok(()) } else { Err(said) }
}

/// The process that a line of a script tells behind a label.
pub(crate) fn number(line: &str, label: &str) -> Pid {
    Pid::from_raw(line.trim_start_matches(label).trim().parse().unwrap()).unwrap()
}

/// What bpftool says of an object; nothing if there is none.
fn bpftool(kind: &str, id: u64) -> Option<String> {
    let output = Command::new("bpftool").args(["-j", kind, "show", "id", &id.to_string()]).output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Everything below the place where BPF objects are pinned.
fn pinned() -> BTreeSet<String> {
    let output = Command::new("find").args(["/sys/fs/bpf", "-mindepth", "1"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Who is in a namespace or has a descriptor of it.
fn holders(namespace: &str) -> Vec<String> {
    let is_it =
        |path: &std::path::Path| fs::read_link(path).is_ok_and(|target| target.as_os_str() == namespace);
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let holds = |process: &std::path::PathBuf| {
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        is_it(&process.join("ns/net")) || descriptors.map(|entry| entry.path()).any(|path| is_it(&path))
    };
    let name = |process: std::path::PathBuf| {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        format!("{} ({})", process.display(), name.trim())
    };
    processes.filter(holds).map(name).collect()
}

fn numbers_after<'a>(text: &'a str, label: &'a str) -> impl Iterator<Item = u64> + 'a {
    text.split(label).skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

/// A connection to redis that has been answered once.
fn answered_connection(trial: &Trial) -> TcpStream {
    let mut stream = connect(trial, server(6379)).unwrap();
    assert_eq!(ping(&mut stream).unwrap(), "+PONG\r\n");
    stream
}

pub(crate) fn connect(trial: &Trial, server: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = trial.inside(|| TcpStream::connect_timeout(&server, PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ping(stream: &mut TcpStream) -> std::io::Result<String> {
    stream.write_all(b"PING\r\n")?;
    let mut octets = [0; 100];
    let len = stream.read(&mut octets)?;
    Ok(String::from_utf8_lossy(&octets[..len]).into_owned())
}

/// Checks that the kernel takes over in time, as `scene` measures it; in a laboratory, if there can be one.
fn assert_taken_over(scene: impl Fn() -> Option<Duration>) {
    let late: Vec<Duration> =
        (0..TAKE_OVERS).map_while(|_| scene().filter(|took| *took > TAKE_OVER_MAX)).collect();
    assert!(late.len() < TAKE_OVERS, "it is taken over after {late:?}");
}

/// Checks that whoever speaks on a connection learns that it is no more.
fn assert_ended(mut stream: TcpStream) {
    let deadline = Instant::now() + PATIENCE;
    // A process that is being killed may answer once more.
    while ping(&mut stream).is_ok_and(|answer| !answer.is_empty()) {
        assert!(Instant::now() < deadline, "somebody still answers");
    }
    let error = ping(&mut stream).err().map(|error| error.kind());
    let is_silence = matches!(error, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!is_silence, "nobody answers, and nobody says so");
}

/// Checks that whoever connects to redis is refused.
fn assert_refused(trial: &Trial) {
    let deadline = Instant::now() + PATIENCE;
    while connect(trial, server(6379)).is_ok() {
        assert!(Instant::now() < deadline, "somebody still accepts");
    }
    // And not only after a time-out.
    let error = connect(trial, server(6379)).err().map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::ConnectionRefused));
}

/// Everything that was started under it is gone.
fn assert_all_ended(trial: &Trial, running: &mut Running) {
    running.process.wait(TAKE_DOWN_MAX).unwrap_or_else(|error| panic!("{error}"));
    wait_until_alone(trial);
}

/// Waits until nobody runs in the server's namespace.
fn wait_until_alone(trial: &Trial) {
    let deadline = Instant::now() + TAKE_DOWN_MAX;
    while !trial.pids(Side::Server).is_empty() {
        assert!(Instant::now() < deadline, "still running: {}", trial.pids(Side::Server));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_kernel_answers_the_peers_of_a_program_that_was_killed() {
    assert_taken_over(kill_program);
}

/// How long it takes until the peers of a program that is killed know; `None` if there can be no laboratory.
fn kill_program() -> Option<Duration> {
    let trial = Trial::of("redis, killed")?;
    let mut redis = trial.start(&redis(""));
    let stream = answered_connection(&trial);
    let footprint = Footprint::of(&trial);
    redis.signal_program(Signal::KILL);
    let killed = Instant::now();
    assert_ended(stream);
    assert_refused(&trial);
    let took = killed.elapsed();
    assert_all_ended(&trial, &mut redis);
    footprint.assert_gone(&trial);
    Some(took)
}

#[test]
fn the_other_worker_serves_when_one_is_killed() {
    let Some(trial) = Trial::with_queues("nginx, a worker killed", 2) else { return };
    let nginx = trial.start(&Nginx::with_workers(2).program());
    let master = nginx.pid_in("pid").unwrap();
    let workers = fs::read_to_string(format!("/proc/{0}/task/{0}/children", master.as_raw_pid())).unwrap();
    let victim = workers.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?)).unwrap();
    for _ in 0..20 {
        assert_eq!(page(&trial).unwrap(), "Hello, world!\n");
    }
    kill_process(victim, Signal::KILL).unwrap();
    thread::sleep(TAKE_OVER_MAX);
    for _ in 0..50 {
        assert_eq!(page(&trial).unwrap(), "Hello, world!\n");
    }
    assert!(trial.end(nginx).success());
}

/// The body of the page `/` of a web server, on a new connection.
fn page(trial: &Trial) -> std::io::Result<String> {
    let mut stream = connect(trial, server(80))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

#[test]
fn a_program_whose_broker_was_killed_goes_on_on_the_kernel() {
    assert_taken_over(kill_broker);
}

/// How long it takes until the peers of a program know whose broker is killed.
fn kill_broker() -> Option<Duration> {
    let trial = Trial::of("redis, broker killed")?;
    if trial.network == Network::Kernel {
        return None; // There is no broker.
    }
    let mut redis = trial.start(&redis(""));
    let (stream, program) = (answered_connection(&trial), redis.program().unwrap());
    let footprint = Footprint::of(&trial);
    assert!(!footprint.programs.is_empty() && !footprint.maps.is_empty(), "{footprint:?}");
    redis.process.signal(Signal::KILL);
    redis.process.wait(TAKE_DOWN_MAX).unwrap();
    let killed = Instant::now();
    thread::sleep(Duration::from_millis(200));
    assert_ended(stream);
    let took = killed.elapsed();
    for _ in 0..20 {
        drop(answered_connection(&trial));
    }
    trial.assert_nothing_left("");
    let larger = trial.ask(&format!("redis-benchmark -h {} -c 20 -n 2000 -t set --csv", server(6379).ip()));
    assert!(larger.contains("SET"), "{larger}");
    kill_process(program, Signal::TERM).unwrap();
    wait_until_alone(&trial);
    footprint.assert_gone(&trial);
    Some(took)
}

/// Echoes, and listens at another port when it is told to.
pub(crate) const ECHO: &str = "
import selectors, socket
listeners = [socket.create_server(('', 7000), backlog=16)]
ready = selectors.DefaultSelector()
ready.register(listeners[0], selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        if key.fileobj in listeners:
            ready.register(key.fileobj.accept()[0], selectors.EVENT_READ)
            continue
        request = key.fileobj.recv(64)
        if request.startswith(b'listen'):
            listeners.append(socket.create_server(('', int(request.split()[1])), backlog=16))
            ready.register(listeners[-1], selectors.EVENT_READ)
        if request: key.fileobj.sendall(request)
        else: ready.unregister(key.fileobj), key.fileobj.close()
";

/// Two processes that echo what comes to one listener.
const FORKED: &str = "
import os, selectors, socket
listener = socket.create_server(('', 7000), backlog=64)
listener.setblocking(False)
os.fork()
ready = selectors.DefaultSelector()
ready.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        try:
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            request = key.fileobj.recv(64)
        except BlockingIOError:
            continue
        if request: key.fileobj.sendall(request)
        else: ready.unregister(key.fileobj), key.fileobj.close()
";

/// Has the echo answer.
pub(crate) fn answers(stream: &mut TcpStream, request: &str) {
    let mut answer = [0; 64];
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    let answer = &mut answer[..request.len()];
    let answered = stream.write_all(request.as_bytes()).and_then(|()| stream.read_exact(answer));
    assert!(answered.is_ok(), "{request}: {answered:?}");
}

/// Longer than a program waits for an answer of its broker.
const STOPPED: Duration = Duration::from_secs(10);
/// Nobody waits longer for an answer of the program then.
const ANSWER_MAX: Duration = Duration::from_secs(30);

#[test]
fn a_program_whose_broker_is_stopped_keeps_its_connections() {
    let Some(trial) = Trial::of("echo, broker stopped") else { return };
    if trial.network == Network::Kernel {
        return; // There is no broker.
    }
    let program = Program::new("echo", "python3 -c").argument(ECHO).ready(Ready::Port(7000));
    let running = trial.start(&program);
    let mut stream = connect(&trial, server(7000)).unwrap();
    trial.on_the_stack(|| (0..100).for_each(|_| answers(&mut stream, "x")));
    running.process.signal(Signal::STOP);
    let stopped = Instant::now();
    // The program wants something of its broker, and that listens without it.
    answers(&mut stream, "listen 7001");
    answers(&mut connect(&trial, server(7001)).unwrap(), "y");
    while stopped.elapsed() < STOPPED {
        answers(&mut stream, "x");
        answers(&mut connect(&trial, server(7000)).unwrap(), "z");
        thread::sleep(Duration::from_millis(50));
    }
    running.process.signal(Signal::CONT);
    trial.on_the_stack(|| (0..100).for_each(|_| answers(&mut stream, "x")));
    answers(&mut stream, "listen 7002");
    thread::sleep(Duration::from_millis(300)); // Until it waits at its socket, which is claimed then.
    let mut other = connect(&trial, server(7002)).unwrap();
    trial.on_the_stack(|| (0..100).for_each(|_| answers(&mut other, "y")));
    drop((stream, other));
    trial.end(running);
}

/// Peers that wait for an answer learn at once that there will be none, as on the kernel, though they say nothing themselves.
#[test]
fn the_peers_of_a_program_that_is_killed_are_told() {
    for (name, others_listen) in [("echo, killed", false), ("two echoes at one port, one killed", true)] {
        let Some(trial) = Trial::with_queues(name, 2) else { return };
        if others_listen && trial.network == Network::Kernel {
            continue; // One of the two may have all connections there.
        }
        let script = if others_listen { FORKED } else { ECHO };
        let program = Program::new("echo", "python3 -c").argument(script).ready(Ready::Port(7000));
        let mut running = trial.start(&program);
        let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&trial, server(7000)).unwrap()).collect();
        if trial.network != Network::Kernel {
            drop(on_the_stack(&trial, 7000));
        }
        streams.iter_mut().for_each(|stream| answers(stream, "x"));
        running.signal_program(Signal::KILL);
        let mut told = 0;
        for stream in &mut streams {
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            match stream.read(&mut [0; 9]) {
                Ok(0) => told += 1,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => told += 1,
                _ if others_listen => answers(stream, "y"), // It is the other's.
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(told > 0, "{name}");
        if others_listen {
            answers(&mut connect(&trial, server(7000)).unwrap(), "z");
            end_everybody(&trial);
        }
        assert_all_ended(&trial, &mut running);
    }
}

/// Also where the kernel still has an earlier connection of the same ends, which is over.
#[test]
fn peers_whose_ports_were_used_before_are_told_too() {
    let Some(trial) = Trial::with_queues("echo, killed behind a TIME-WAIT", 1) else { return };
    let ports: Vec<u16> = (0..10).map(|_| used_before(&trial)).collect();
    let program = Program::new("echo", "python3 -c").argument(ECHO).ready(Ready::Port(7000));
    let mut running = trial.start(&program);
    let again = |port| trial.inside(|| connect_from(port));
    let mut streams: Vec<TcpStream> = ports.into_iter().map(again).collect();
    streams.iter_mut().for_each(|stream| answers(stream, "x"));
    running.signal_program(Signal::KILL);
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let told = stream.read(&mut [0; 9]).map_err(|error| error.kind());
        assert!(matches!(told, Ok(0) | Err(ErrorKind::ConnectionReset)), "{told:?}");
    }
    assert_all_ended(&trial, &mut running);
}

/// A port from which the client has had a connection to the server's kernel, which has closed it first.
fn used_before(trial: &Trial) -> u16 {
    let listener = trial.lab.inside(Side::Server, || TcpListener::bind(server(7000))).unwrap();
    let mut stream = connect(trial, server(7000)).unwrap();
    drop(listener.accept().unwrap());
    assert_eq!(stream.read(&mut [0; 9]).unwrap(), 0);
    stream.local_addr().unwrap().port()
}

/// A connection to the server from this port.
fn connect_from(port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt::set_socket_reuseaddr};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from(([0, 0, 0, 0], port))).unwrap();
    connect(&socket, &server(7000)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn nothing_is_left_behind_by_any_end() {
    for (name, signal, of_program) in [
        ("nginx, ended", Signal::QUIT, true),
        ("nginx, asked to end", Signal::TERM, false),
        ("nginx, master killed", Signal::KILL, true),
    ] {
        let Some(trial) = Trial::of(name) else { return };
        let mut nginx = trial.start(&Nginx::with_workers(1).program());
        assert_eq!(page(&trial).unwrap(), "Hello, world!\n");
        let footprint = Footprint::of(&trial);
        let is_accelerated = !footprint.programs.is_empty();
        assert_eq!(is_accelerated, trial.network != Network::Kernel, "{footprint:?}");
        match of_program {
            true => nginx.signal_program(signal),
            false => nginx.process.signal(signal),
        }
        if signal == Signal::KILL {
            // Its workers go on without it, as they do on the kernel, until somebody ends them.
            assert_eq!(page(&trial).unwrap(), "Hello, world!\n");
            end_everybody(&trial);
        }
        assert_all_ended(&trial, &mut nginx);
        footprint.assert_gone(&trial);
    }
}

/// SIGTERM to whoever runs in the server's namespace.
fn end_everybody(trial: &Trial) {
    let pids = trial.pids(Side::Server);
    for pid in pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        let _ = kill_process(pid, Signal::TERM); // Ended this moment: all the better.
    }
}

#[test]
fn exit_status_and_signals_pass_through() {
    let Some(trial) = Trial::of("sh") else { return };
    let shell = |script: &str| Program::new("sh", "sh -c").argument(script);
    let mut seven = trial.start(&shell("exit 7"));
    assert_eq!(seven.process.wait(PATIENCE).unwrap().code(), Some(7));

    let mut signalled =
        trial.start(&shell("trap 'echo heard; exit 3' USR1; echo ready; while :; do sleep 0.02; done"));
    signalled.process.wait_for_line("ready", PATIENCE).unwrap();
    signalled.process.signal(Signal::USR1);
    assert_eq!(signalled.process.wait(PATIENCE).unwrap().code(), Some(3));
    assert!(signalled.process.output().contains("heard"));

    use std::os::unix::process::ExitStatusExt;
    let mut killed = trial.start(&shell("kill -KILL $$"));
    let status = killed.process.wait(PATIENCE).unwrap();
    assert!(status.signal() == Some(9) || status.code() == Some(128 + 9), "{status}");
    trial.assert_nothing_left("");
}

/// `sidestep run` of a shell that says who its parent is and then sleeps, by `starter`, which gets the whole as the last word.
fn sleeping_by(trial: &Trial, starter: &str, arguments: &[&str], before: &str) -> (Child, Pid) {
    let sidestep = lab::sidestep_binary().display();
    let run =
        format!("{sidestep} run --device {SERVER_INTERFACE} -- sh -c 'echo parent $PPID.; exec sleep 60'");
    let mut command = trial.lab.command(Side::Server, starter);
    let mut child =
        Child::spawn(starter, command.args(arguments).arg(format!("{before}exec {run}"))).unwrap();
    let told = child.wait_for_line("parent", PATIENCE).unwrap();
    let number = told.trim().trim_start_matches("parent ").trim_end_matches('.');
    let parent = Pid::from_raw(number.parse().unwrap()).unwrap();
    (child, parent)
}

#[test]
fn a_signal_that_was_ignored_at_the_start_is_ignored_by_the_program_too() {
    let Some(trial) = Trial::of("sh, without hang-ups") else { return };
    let (mut child, sidestep) = sleeping_by(&trial, "sh", &["-c"], "trap '' HUP; ");
    kill_process(sidestep, Signal::HUP).unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().is_none(), "nohup does not help: {}", child.output());
    kill_process(sidestep, Signal::TERM).unwrap();
    assert_eq!(child.wait(PATIENCE).unwrap().code(), Some(128 + 15));
}

/// Whether SIGPIPE is among the signals that are ignored: `SigIgn` in proc(5). The C library has uses of its own for some others.
fn ignores_broken_pipes(status: &str) -> bool {
    let mask = status.split_once("SigIgn:").unwrap_or_else(|| panic!("{status}")).1;
    u64::from_str_radix(mask.split_whitespace().next().unwrap(), 16).unwrap() & 1 << 12 != 0
}

#[test]
fn a_broken_pipe_is_what_it_was_at_the_start() {
    let Some(trial) = Trial::of("grep, with and without SIGPIPE") else { return };
    let run = format!("{} run --device {SERVER_INTERFACE}", lab::sidestep_binary().display());
    for (before, is_ignored) in [("", false), ("trap '' PIPE; ", true)] {
        for by in ["", &format!("{run} --"), &format!("{run} --profile kernel --")] {
            let mut shell = trial.lab.command(Side::Server, "sh");
            let script = format!("{before}exec {by} grep SigIgn /proc/self/status");
            let said = finish(shell.args(["-c", &script]));
            assert_eq!(ignores_broken_pipes(&said), is_ignored, "{script}: {said}");
            assert_eq!(said.contains("runs on the kernel"), by.contains("kernel"), "{said}");
        }
    }
    trial.assert_nothing_left("");
}

#[test]
fn what_a_process_sends_is_passed_on_also_in_the_foreground_of_a_terminal() {
    let Some(trial) = Trial::of("sh, at a terminal") else { return };
    let (mut child, sidestep) = sleeping_by(&trial, "script", &["-q", "-e", "/dev/null", "-c"], "");
    kill_process(sidestep, Signal::INT).unwrap();
    assert_eq!(child.wait(PATIENCE).unwrap().code(), Some(128 + 2), "{}", child.output());
}
