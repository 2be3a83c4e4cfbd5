//! `sidestep top`: in lines, and on a terminal that comes and goes.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Child, Zone, sidestep_binary};
use rustix::process::Signal;
use tests::{Serving, command};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs `sidestep top` on a terminal of 80 columns and 24 lines, until the screen has a name on it. Then the first argument says what
/// happens: keys are pressed, or the terminal goes. Prints `ended`, the exit status and whether the terminal was given back.
const ON_TERMINAL: &str = r"
import fcntl, os, pty, struct, sys, termios
what, wanted = sys.argv[1], sys.argv[2].encode()
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
    os.environ['TERM'] = 'xterm'
    os.execv(sys.argv[3], sys.argv[3:])
seen = b''
def read():
    global seen
    try:
        more = os.read(terminal, 65536)
    except OSError:
        more = b''
    seen += more
    return more
while wanted not in seen:
    if not read():
        sys.exit(f'it ended early: {seen}')
if what == 'goes':
    os.close(terminal)
else:
    os.write(terminal, what.encode())
    while read():
        pass
_, status = os.waitpid(child, 0)
is_restored = seen.rstrip().endswith(b'\x1b[?1049l')
print(f'ended {os.waitstatus_to_exitcode(status)} restored {is_restored}')
";

fn control(server: &Serving) -> String {
    server.directory.path().join("control.sock").display().to_string()
}

/// What becomes of `sidestep top` on a terminal.
fn on_terminal(server: &Serving, what: &str) -> String {
    let binary = sidestep_binary().display().to_string();
    let name = format!("dns/{}", server.process.pid());
    let mut command = Command::new("python3");
    command.args(["-c", ON_TERMINAL, what, &name, &binary, "top", "--control", &control(server)]);
    let mut terminal = Child::spawn("a terminal", &mut command).unwrap();
    terminal.wait(PATIENCE).unwrap();
    terminal.output()
}

#[test]
fn without_a_terminal_each_program_engine_and_reason_has_a_line() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while server.counter("dns_dropped_short_message") == 0 {
        assert!(Instant::now() < deadline, "no message was too short");
        client.send_to(b"short", server.v4).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let once = || command(&["top", "--control", &control(&server), "--once"]);
    let mut output = once();
    // A server that gets no time for two seconds does not answer.
    while !output.status.success() {
        assert!(Instant::now() < deadline, "{output:?}");
        output = once();
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let who = format!("dns/{}", server.process.pid());
    let line = |begin: String| {
        text.lines().find(|line| line.starts_with(&begin)).unwrap_or_else(|| panic!("{text}"))
    };
    assert!(line(format!("program {who} native: in ")).contains(", CPU "), "{text}");
    assert!(line(format!("engine {who} 0: busy ")).contains("%, asleep "), "{text}");
    assert!(line(format!("drop {who} dns_dropped_short_message: ")).ends_with(" so far"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn lines_go_on_after_a_server_was_silent() {
    let server = Serving::start(&Zone::sample().file, &[]);
    let deadline = Instant::now() + PATIENCE;
    let mut top = loop {
        let mut command = Command::new(sidestep_binary());
        command.args(["top", "--control", &control(&server), "--count", "1000"]);
        let mut top = Child::spawn("top", &mut command).unwrap();
        // The first look is an error if the server gets no time for two seconds.
        if top.wait_for_line("program dns/", PATIENCE).is_ok() {
            break top;
        }
        assert!(Instant::now() < deadline, "{}", top.output());
    };
    server.process.signal(Signal::STOP);
    top.wait_for_line("does not answer", PATIENCE).unwrap();
    server.process.signal(Signal::CONT);
    top.wait_for_line("program dns/", PATIENCE).unwrap();
    top.end();
}

#[test]
fn a_key_ends_it_and_the_terminal_is_as_it_was() {
    let server = Serving::start(&Zone::sample().file, &[]);
    assert_eq!(on_terminal(&server, "s\r\x1b[Bq").trim(), "ended 0 restored True");
}

#[test]
fn it_ends_with_its_terminal() {
    let server = Serving::start(&Zone::sample().file, &[]);
    assert_eq!(on_terminal(&server, "goes").trim(), "ended 0 restored False");
}

#[test]
fn without_programs_there_is_an_error_and_no_waiting() {
    let directory = lab::Directory::new().unwrap();
    let mut command = Command::new(sidestep_binary());
    command.env("SIDESTEP_RUNTIME_DIR", directory.path()).args(["top", "--once"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "sidestep: no Sidestep program is running here\n");
}

/// Listens as another user, in a directory of that user, at the sockets of a `sidestep run` and of a program that are process 1; does to whoever asks what its
/// second argument says.
const OTHER_USER: &str = r#"
import json, os, socket, sys, threading
directory, what = sys.argv[1], sys.argv[2]
os.setgid(65534); os.setuid(65534)
def answer(client):
    try:
        while what == 'flood':
            client.sendall(b' ' * (1 << 20))
        if what == 'silence':
            client.recv(1 << 20)
            threading.Event().wait()
        fields = {'waits': False, 'is_confined': False, 'queues': [], 'profile': None, 'claims': [], 'report': None}
        program = lambda pid: {'pid': pid, 'program': f'\x1b[2Jof {pid}', **fields}
        report = {'interfaces': [], 'programs': [program(1), program(os.getpid())]}
        client.sendall(json.dumps(report).encode())
    except OSError:
        pass
    client.close()
listener = socket.socket(socket.AF_UNIX)
listener.bind(f'{directory}/run-1.sock')
listener.listen(8)
print('ready', flush=True)
while True:
    client, _ = listener.accept()
    threading.Thread(target=answer, args=(client,), daemon=True).start()
"#;

/// What `sidestep` says, and complains, beside a socket of another user's that does this; and the process id of that. `None`: only root can become
/// another user.
fn beside_another_user(what: &str, words: &[&str]) -> Option<(String, String, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let directory = lab::Directory::new().unwrap();
    let own = directory.path().join("65534");
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    // Others have to find the way into it.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), all).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", OTHER_USER]).arg(&own).arg(what);
    let mut other = Child::spawn("another user's", &mut command).unwrap();
    other.wait_for_line("ready", PATIENCE).unwrap();
    let mut command = Command::new(sidestep_binary());
    command.env("SIDESTEP_RUNTIME_DIR", directory.path()).args(words);
    let output = command.output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let pid = other.pid();
    other.end();
    Some((out, err, pid))
}

#[test]
fn another_user_is_believed_of_its_own_processes_and_moves_no_cursor() {
    let Some((said, complaint, pid)) = beside_another_user("forge", &["status"]) else { return };
    assert!(said.contains(&format!("?[2Jof {pid} {pid}: ")), "{said:?}");
    assert!(!said.contains("of 1 1:") && !said.contains('\x1b'), "{said:?}");
    let expected = format!("`sidestep run` {pid} of user 65534 tells of 1 processes of others");
    assert!(complaint.contains(&expected), "{complaint}");
}

#[test]
fn another_user_who_sends_without_end_is_not_listened_to() {
    let Some((_, complaint, _)) = beside_another_user("flood", &["status"]) else { return };
    assert!(complaint.contains("sent an unexpected answer"), "{complaint}");
}

#[test]
fn a_process_that_is_none_is_said_to_be_none_although_somebody_is_silent() {
    let words = ["top", "--once", "--pid", "2"];
    let Some((_, complaint, _)) = beside_another_user("silence", &words) else { return };
    let expected = "no Sidestep program 2 and no `sidestep run` 2 is running here, as far as those say who answer: `sidestep run` 1 does not answer";
    assert!(complaint.contains(expected), "{complaint}");
}
