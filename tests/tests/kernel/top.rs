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
