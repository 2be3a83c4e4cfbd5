//! Where stdout and stderr cannot be written: a terminal that was closed, a pipe without a reader, a full disk.

use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lab::{Directory, Zone, message, sidestep_binary};
use rustix::process::{Pid, Signal, kill_process};
use tests::{Dig, Transport, VERSION_NAME, VersionedZone};

/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that is gone with its owner, whatever its output is.
struct Silent(std::process::Child);

impl Silent {
    fn spawn(command: &mut Command) -> Silent {
        Silent(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its end; `None` if that does not come.
    fn code(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until(|| {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It has ended already: all the better.
        let _ = self.0.wait();
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn without_reader() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// `sidestep` with `arguments` where its result finds no room.
fn on_full_disk(arguments: &[&str]) -> Output {
    Command::new(sidestep_binary()).args(arguments).stdout(full()).output().unwrap()
}

fn serve(zone: &VersionedZone, address: SocketAddr, directory: &Directory) -> Command {
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "serve", "--cores", "0", "--listen", &address.to_string(), "--zone"]);
    command.arg(zone.file()).arg("--control").arg(directory.path().join("control.sock"));
    command
}

/// A server that `start` starts at an address, and has answered there.
fn serve_somewhere(start: impl Fn(SocketAddr) -> Silent) -> (Silent, SocketAddr) {
    let query = message::query(1, VERSION_NAME, message::A);
    // The server has no other way to say where it serves, and a port that is free may be somebody else's a moment later.
    for _ in 0..10 {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut server = start(address);
        let (mut answers, mut has_ended) = (false, false);
        wait_until(|| {
            answers = message::ask(address, &query, Duration::from_millis(100)).is_ok();
            has_ended = server.0.try_wait().unwrap().is_some();
            answers || has_ended
        });
        if answers && !has_ended {
            return (server, address);
        }
    }
    panic!("no server answers");
}

#[test]
fn a_lost_terminal_does_not_end_the_server() {
    for output in [without_reader, full] {
        let (zone, directory) = (VersionedZone::new(1, 0), Directory::new().unwrap());
        let start =
            |address| Silent::spawn(serve(&zone, address, &directory).stdout(output()).stderr(output()));
        let (mut server, address) = serve_somewhere(start);
        zone.set_text("nonsense"); // Of which it complains on stderr.
        server.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(200));
        zone.set(2, 0);
        server.signal(Signal::HUP);
        let served = || Dig::ask(address, Transport::Udp, &[VERSION_NAME, "A"]).section("ANSWER");
        wait_until(|| {
            server.0.try_wait().unwrap().is_some()
                || served().first().is_some_and(|it| it.ends_with("192.0.2.2"))
        });
        server.signal(Signal::TERM);
        assert_eq!(server.code(), Some(0));
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let zone = Zone::sample().file.display().to_string();
    let output = on_full_disk(&["dns", "check", "--zone", &zone]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("sidestep: writing to stdout: No space left on device"), "{message}");
}

#[test]
fn a_result_that_nobody_wants_to_read_is_none() {
    let zone = Zone::sample().file.display().to_string();
    let mut command = Command::new(sidestep_binary());
    let output = command.args(["dns", "check", "--zone", &zone]).stdout(without_reader()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_program_runs_although_it_cannot_be_said_how() {
    for stderr in [without_reader, full] {
        let mut command = Command::new(sidestep_binary());
        command.args(["run", "--profile", "kernel", "--", "true"]).stderr(stderr());
        assert_eq!(Silent::spawn(&mut command).code(), Some(0));
    }
}

/// Answers as the broker of a `sidestep run` that runs nothing yet.
fn be_a_broker(directory: &Directory) {
    let listener = UnixListener::bind(directory.path().join("run-1.sock")).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut asking, _)) = listener.accept() {
            let _ = asking.write_all(br#"{"programs":[],"interfaces":[]}"#); // Who goes has seen enough.
        }
    });
}

#[test]
fn top_ends_with_its_reader() {
    let directory = Directory::new().unwrap();
    be_a_broker(&directory);
    let mut top = Command::new(sidestep_binary());
    top.env("SIDESTEP_RUNTIME_DIR", directory.path()).arg("top").stdout(without_reader());
    assert_eq!(Silent::spawn(&mut top).code(), Some(0));
}
