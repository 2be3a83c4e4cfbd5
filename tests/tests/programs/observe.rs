//! Looking into programs: `sidestep sockets`, `counters`, `trace` and `capture` see what the kernel's tools cannot.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::programs::{Network, Nginx, Program, Ready, Running};
use lab::{CLIENT_V4, Child, sidestep_binary};
use rustix::process::{Pid, Signal, kill_process};
use tests::Exchange;

use crate::trial::{Carrier, LOAD, PATIENCE, Trial, finish, server};

/// A tool may take this long to look into a program that sleeps: less than any of its own timeouts.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A program with a place of its own for control sockets.
struct Observed {
    trial: Trial,
    running: Running,
}

impl Observed {
    /// `None` if there is no laboratory, or no Sidestep in it.
    fn start(queues: u32, program: Program) -> Option<Observed> {
        let trial = Trial::with_queues(program.name(), queues)?;
        if trial.network == Network::Kernel {
            return None; // There is nothing to look into.
        }
        let running = trial.start(&program.variable("SIDESTEP_RUNTIME_DIR", "{dir}/run"));
        Some(Observed { trial, running })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(sidestep_binary());
        command.env("SIDESTEP_RUNTIME_DIR", self.running.path("run")).args(arguments);
        command
    }

    /// What a tool says, which has to end well.
    fn look(&self, arguments: &[&str]) -> String {
        finish(&mut self.command(arguments))
    }

    /// The same, at once; on a machine that is busy it may take a look or two more.
    fn look_at_once(&self, arguments: &[&str]) -> String {
        let mut took = Vec::new();
        for _ in 0..3 {
            let began = Instant::now();
            let said = self.look(arguments);
            took.push(began.elapsed());
            if began.elapsed() < AT_ONCE {
                return said;
            }
        }
        panic!("{arguments:?} took {took:?}")
    }

    /// Processes that can be looked into, when there are so many.
    fn processes(&self, wanted: usize) -> Vec<u32> {
        let mut found = Vec::new();
        wait_until(&format!("{wanted} control sockets"), || {
            let entries = std::fs::read_dir(self.running.path("run")).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            found = names.filter_map(|name| name.strip_suffix(".sock")?.parse().ok()).collect();
            found.len() == wanted
        });
        found
    }

    /// The one that can be.
    fn process(&self) -> u32 {
        self.processes(1)[0]
    }

    /// The control socket of a process.
    fn control(&self, process: u32) -> PathBuf {
        self.running.path(&format!("run/{process}.sock"))
    }

    fn connect(&self) -> TcpStream {
        self.trial.inside(|| TcpStream::connect_timeout(&server(80), PATIENCE).unwrap())
    }

    /// A capture to a file of the program's directory, once it captures.
    fn capture(&self, arguments: &[&str]) -> (Child, PathBuf) {
        let file = self.running.path("seen.pcapng");
        let mut command = self.command(&["capture", "-w"]);
        command.arg(&file).args(arguments);
        let mut capture = Child::spawn("capture", &mut command).unwrap();
        capture.wait_for_line("capturing at ", Duration::from_secs(10)).unwrap();
        (capture, file)
    }

    fn end(self) {
        self.trial.end(self.running);
    }
}

fn wait_until(what: &str, mut happens: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happens() {
        assert!(Instant::now() < deadline, "{what}: not seen");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Asks nginx for its page on a connection that stays.
fn ask_for_page(stream: &mut TcpStream) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, world!\n") {
        let mut part = [0; 512];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&part[..count]);
    }
}

/// Ends a capture; what tcpdump reads in its file.
fn read_by_tcpdump((mut capture, file): (Child, PathBuf)) -> String {
    capture.signal(Signal::INT);
    capture.wait(PATIENCE).unwrap();
    finish(Command::new("tcpdump").args(["-n", "-A", "-r"]).arg(file))
}

/// The effective user of a process: proc_pid_status(5).
fn user_of(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    users.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_worker_without_privileges_is_looked_into() {
    let Some(nginx) = Observed::start(1, Nginx::with_workers(1).program()) else { return };
    let worker = nginx.process();
    assert_ne!(user_of(worker), 0, "the worker has given up its privileges");
    let capture = nginx.capture(&["tcp", "port", "80"]);
    let mut stream = nginx.connect();
    ask_for_page(&mut stream);

    let process = format!("nginx/{worker} engine 0");
    let sockets = nginx.look(&["sockets"]);
    let peer = format!("{CLIENT_V4}:{}", stream.local_addr().unwrap().port());
    let connection = sockets.lines().find(|line| line.contains(&peer)).unwrap_or("nothing");
    assert!(connection.starts_with("tcp   ESTAB") && connection.contains(&process), "{sockets}");
    let listener = sockets.lines().find(|line| line.contains("LISTEN")).unwrap_or("nothing");
    assert!(listener.contains(":80 ") && listener.contains(&process), "{sockets}");
    assert!(sockets.contains(&format!("# {process}: ")), "{sockets}");
    let counters = nginx.look(&["counters"]);
    assert!(counters.lines().any(|line| line.starts_with("TcpPassiveOpens ")), "{counters}");
    assert!(counters.lines().any(|line| line.starts_with("device_rx_frames ")), "{counters}");
    let trace = nginx.look(&["trace", "src", "port", "80"]);
    assert!(trace.contains("received [P.]") && trace.contains("sent [P.]"), "{trace}");

    let seen = read_by_tcpdump(capture);
    for wanted in ["Flags [S]", "Flags [S.]", "GET / HTTP/1.1", "HTTP/1.1 200 OK", "Hello, world!"] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    nginx.end();
}

/// Serves at port 80 when it has done `before`, and does `what` after the first connection.
fn python_after(before: &str, name: &str, what: &str) -> Program {
    const MODULES: &str = "import os, select, signal, socket, time\n";
    const SERVER: &str = "
listener = socket.create_server(('0.0.0.0', 80), backlog=64)
epoll = select.epoll()
epoll.register(listener, select.EPOLLIN)
print('waits', flush=True)
epoll.poll()
connection, _ = listener.accept()
print('accepted', flush=True)
";
    let script = [MODULES, before, SERVER, what].concat();
    Program::new(name, "python3 -uc").argument(&script).ready(Ready::Line("waits"))
}

/// Starts a program of that kind, and connects to it.
fn connect_to_python(program: Program) -> Option<(Observed, TcpStream)> {
    let mut python = Observed::start(1, program)?;
    python.process();
    let stream = python.connect();
    python.running.process.wait_for_line("accepted", PATIENCE).unwrap();
    Some((python, stream))
}

/// The same for one that does nothing before.
fn start_python(name: &str, what: &str) -> Option<(Observed, TcpStream)> {
    connect_to_python(python_after("", name, what))
}

#[test]
fn a_program_that_sleeps_need_not_wake_to_be_looked_into() {
    let sleeps = [
        ("python, asleep in epoll_wait", "epoll.poll()"),
        ("python, asleep in recv", "connection.recv(1)"),
        ("python, asleep in a call of the kernel's", "time.sleep(600)"),
        ("python, waiting for a signal", "signal.pause()"),
        ("python, at work", "while True: pass"),
    ];
    for (name, what) in sleeps {
        let Some((python, stream)) = start_python(name, what) else { return };
        thread::sleep(Duration::from_millis(300)); // It sleeps well.
        let sockets = python.look_at_once(&["sockets"]);
        assert!(
            sockets.contains(&format!("{CLIENT_V4}:{}", stream.local_addr().unwrap().port())),
            "{sockets}"
        );
        for tool in ["counters", "trace"] {
            assert!(!python.look_at_once(&[tool]).is_empty(), "{name}: {tool}");
        }
        python.running.signal_program(Signal::KILL);
        drop(python);
    }
}

/// The threads of a process, and its descriptors.
fn belongings(process: u32) -> [usize; 2] {
    ["task", "fd"].map(|kind| std::fs::read_dir(format!("/proc/{process}/{kind}")).unwrap().count())
}

#[test]
fn nothing_is_left_in_a_program_that_nobody_looks_at_any_more() {
    let Some(nginx) = Observed::start(1, Nginx::with_workers(1).program()) else { return };
    let worker = nginx.process();
    let mut stream = nginx.connect();
    ask_for_page(&mut stream);
    let before = belongings(worker);
    for _ in 0..3 {
        nginx.look(&["sockets"]);
    }
    wait_until("the end of threads and descriptors", || belongings(worker) == before);
    let (mut capture, _) = nginx.capture(&[]);
    wait_until("a thread and a descriptor", || belongings(worker) == before.map(|count| count + 1));
    capture.kill(); // Without a word.
    wait_until("the end of the capture", || belongings(worker) == before);
    ask_for_page(&mut stream);
    nginx.end();
}

#[test]
fn control_sockets_go_with_their_process_and_with_the_broker() {
    let Some(mut nginx) = Observed::start(2, Nginx::with_workers(2).program()) else { return };
    let workers = nginx.processes(2);
    let mut names: Vec<String> = workers.iter().map(|pid| format!("# nginx/{pid} engine 0")).collect();
    let sockets = nginx.look(&["sockets"]);
    names.retain(|name| !sockets.contains(name));
    assert!(names.is_empty(), "{names:?} of {sockets}");
    kill_process(Pid::from_raw(workers[0] as i32).unwrap(), Signal::KILL).unwrap();
    wait_until("the new worker's", || {
        let now = nginx.processes(2);
        now.contains(&workers[1]) && !now.contains(&workers[0])
    });
    nginx.running.stop(PATIENCE).unwrap();
    assert_eq!(std::fs::read_dir(nginx.running.path("run")).unwrap().count(), 0);
    let nothing = nginx.command(&["sockets"]).output().unwrap();
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no Sidestep process is running here"));
}

/// Changes its user: the C library has each thread do that, by a signal, and waits for all.
const CHANGE: &str = "
connection.recv(1)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
print('changed', flush=True)
signal.pause()
";

#[test]
fn a_program_that_is_looked_at_may_change_its_user() {
    let Some((mut python, mut stream)) = start_python("python, another user", CHANGE) else { return };
    let capture = python.capture(&[]);
    stream.write_all(b"x").unwrap();
    python.running.process.wait_for_line("changed", PATIENCE).unwrap();
    assert!(read_by_tcpdump(capture).contains("Flags [P.]"));
    python.running.signal_program(Signal::KILL);
}

#[test]
fn a_program_with_threads_may_change_its_user_while_it_serves() {
    let thread = "import threading\nthreading.Thread(target=signal.pause).start()\n";
    let program = python_after(thread, "python with threads, another user", CHANGE);
    let Some((mut python, mut stream)) = connect_to_python(program) else { return };
    stream.write_all(b"x").unwrap();
    python.running.process.wait_for_line("changed", PATIENCE).unwrap();
    python.running.signal_program(Signal::KILL);
}

/// A program that does what it is told by its first connection, in Python, and says when that is done.
struct Obedient {
    python: Observed,
    stream: TcpStream,
}

impl Obedient {
    fn start(name: &str) -> Option<Obedient> {
        const OBEY: &str = "
while True:
    exec(connection.recv(4096).decode())
    connection.sendall(b'done')
";
        let (python, stream) = start_python(name, OBEY)?;
        Some(Obedient { python, stream })
    }

    fn tell(&mut self, script: &str) {
        self.stream.write_all(script.as_bytes()).unwrap();
    }

    fn tell_and_wait(&mut self, script: &str) {
        self.tell(script);
        let mut done = [0; 4];
        self.stream.read_exact(&mut done).unwrap();
        assert_eq!(&done, b"done");
    }
}

#[test]
fn a_program_that_closes_all_descriptors_does_not_close_those_of_tools() {
    let Some(mut python) = Obedient::start("python, closerange") else { return };
    let capture = python.python.capture(&[]);
    python.tell_and_wait("os.closerange(connection.fileno() + 1, 1 << 16)");
    python.tell_and_wait(
        "for fd in range(connection.fileno() + 1, 1 << 12):\n  try: os.close(fd)\n  except OSError: pass",
    );
    python.tell_and_wait("'after all that'");
    let seen = read_by_tcpdump(capture);
    assert!(seen.contains("after all that"), "{seen}");
}

/// The end of a capture that nobody asked to end; what tcpdump reads in its file.
fn ends((mut capture, file): (Child, PathBuf)) -> (String, String) {
    capture.wait(PATIENCE).unwrap();
    (capture.output(), finish(Command::new("tcpdump").args(["-n", "-A", "-r"]).arg(file)))
}

/// What a capture says that ends because its program ended like this, which has a child that lives on.
fn capture_to_the_end(name: &str, end: &str) -> Option<(String, String)> {
    let mut python = Obedient::start(name)?;
    let capture = python.python.capture(&[]);
    python.tell_and_wait("if os.fork() == 0: signal.pause()");
    python.tell(end);
    let ended = ends(capture);
    let family = python.python.trial.pids(lab::Side::Server);
    assert!(family.split_whitespace().count() >= 2, "the child lives: {family}");
    python.python.running.process.kill();
    Some(ended)
}

#[test]
fn a_capture_ends_with_its_program_and_not_with_its_child() {
    let Some((said, seen)) = capture_to_the_end("python, exit", "os._exit(0)") else { return };
    assert!(!said.contains("without a report") && said.contains("0 dropped"), "{said}");
    assert!(seen.contains("os._exit(0)"), "the last packets are there: {seen}");
    let killed = capture_to_the_end("python, killed", "os.kill(os.getpid(), signal.SIGKILL)");
    let (said, _) = killed.unwrap_or_default();
    assert!(said.contains("ended without a report"), "{said}");
}

#[test]
fn a_capture_ends_with_the_program_that_executes_another() {
    let Some(mut python) = Obedient::start("python, exec") else { return };
    let capture = python.python.capture(&[]);
    python.tell_and_wait("pass");
    python.tell("os.execv('/bin/sleep', ['sleep', '600'])");
    let (said, seen) = ends(capture);
    assert!(!said.contains("without a report") && seen.contains("os.execv"), "{said}{seen}");
    wait_until("the end of the control socket", || python.python.processes(0).is_empty());
}

/// What tools say first: to see packets.
fn request_for_packets() -> Vec<u8> {
    let request = br#"{"capture":{"filter":"","snaplen":262144}}"#;
    [&(request.len() as u32).to_le_bytes(), b"J".as_slice(), request].concat()
}

#[test]
fn a_tool_that_does_not_read_holds_up_nobody() {
    let Some(nginx) = Observed::start(1, Nginx::with_workers(1).program()) else { return };
    let worker = nginx.process();
    let mut tool = UnixStream::connect(nginx.control(worker)).unwrap();
    tool.write_all(&request_for_packets()).unwrap();
    let exchange = Exchange::hello(server(80), 16, true);
    nginx.trial.load("16 clients, before a tool that does not read", Carrier::Stack, || {
        nginx.trial.inside(|| exchange.run(LOAD)).into()
    });
    assert!(nginx.look_at_once(&["sockets"]).contains("LISTEN"));
    drop(tool);
    nginx.end();
}

#[test]
fn tools_are_attended_to_up_to_a_number() {
    let Some(nginx) = Observed::start(1, Nginx::with_workers(1).program()) else { return };
    let worker = nginx.process();
    let tools: Vec<UnixStream> = (0..16)
        .map(|_| {
            let mut tool = UnixStream::connect(nginx.control(worker)).unwrap();
            tool.write_all(&request_for_packets()).unwrap();
            tool.read_exact(&mut [0; 5]).unwrap();
            tool
        })
        .collect();
    let refused = nginx.command(&["sockets"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("16 others are looking already"), "{said}");
    drop(tools);
    wait_until("room", || nginx.command(&["sockets"]).output().unwrap().status.success());
    nginx.end();
}

#[test]
fn a_program_that_chooses_its_system_calls_is_left_alone() {
    let Some(mut python) = Obedient::start("python, seccomp") else { return };
    let broker = python.python.running.process.pid().to_string();
    let status = |python: &Obedient| python.python.look(&["status", "--pid", &broker]);
    assert!(status(&python).contains("1 connections on the stack"), "{}", status(&python));
    let _waiting = python.python.connect(); // Nobody has accepted it yet.
    // prctl(2): PR_SET_NO_NEW_PRIVS, then PR_SET_SECCOMP with a filter that lets everything pass.
    python.tell_and_wait(
        "import ctypes, struct
libc = ctypes.CDLL(None)
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack('HxxxxxxP', 1, ctypes.addressof(allow)), 0, 0) == 0",
    );
    let refused = python.python.command(&["sockets"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("seccomp filter"), "{said}");
    let told = status(&python);
    assert!(told.contains("on the kernel: it has forbidden itself system calls (seccomp)"), "{told}");
    assert!(told.contains("0 of 1 queues lent"), "{told}");
    // Its connection goes on, and others come, all on the kernel.
    python.tell_and_wait("pass");
    let _next = python.python.connect();
    python.tell_and_wait("assert listener.accept()[0].send(b'1') and listener.accept()[0].send(b'2')");
}
