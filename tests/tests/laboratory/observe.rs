//! Looking at flows that go around the kernel.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{CLIENT_V4, Child, Directory, SERVER_INTERFACE, SERVER_V4, Side, sidestep_binary};
use rustix::process::Signal;

use crate::PATIENCE;
use crate::stack::Serving;

/// `sidestep` looking at the server, to its end.
fn look(serving: &Serving, arguments: &[&str]) -> String {
    let pid = serving.process.pid().to_string();
    let mut command = Command::new(sidestep_binary());
    let output = command.args(arguments).args(["--pid", &pid]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

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

/// tcpdump at the server's interface, writing to `file`, once it captures.
fn tcpdump(serving: &Serving, file: &Path) -> Child {
    let file = file.display().to_string();
    let arguments =
        ["-i", SERVER_INTERFACE, "-n", "-U", "--immediate-mode", "-w", &file, "tcp port 80 or icmp"];
    let mut tcpdump = serving.lab.spawn_in(Side::Server, "tcpdump", &arguments).unwrap();
    tcpdump.wait_for_line("listening on", PATIENCE).unwrap();
    tcpdump
}

/// `sidestep capture` of the server, writing to `file`, once it captures.
fn capture(serving: &Serving, file: &Path) -> Child {
    let pid = serving.process.pid().to_string();
    let mut command = Command::new(sidestep_binary());
    command.args(["capture", "--pid", &pid, "-w"]).arg(file).args(["tcp", "port", "80"]);
    let mut capture = Child::spawn("capture", &mut command).unwrap();
    capture.wait_for_line("capturing at http_hello/", PATIENCE).unwrap();
    capture
}

/// Ends a program that writes a capture; what tcpdump reads in it.
fn finish(mut program: Child, file: &Path) -> String {
    program.signal(Signal::INT);
    program.wait(PATIENCE).unwrap();
    read(file)
}

fn read(file: &Path) -> String {
    let output = Command::new("tcpdump").args(["-n", "-r"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_flow_that_tcpdump_cannot_see_is_captured_and_listed() {
    let Some(serving) = Serving::start("http_hello", "0.0.0.0:80") else { return };
    let directory = Directory::new().unwrap();
    let (ours, theirs) = (directory.path().join("ours.pcapng"), directory.path().join("theirs.pcap"));
    let (capture, tcpdump) = (capture(&serving, &ours), tcpdump(&serving, &theirs));
    let mut stream = serving.connect(SERVER_V4);
    ask_for_page(&mut stream);
    serving.lab.run_in(Side::Client, "ping", &["-c1", "-w30", SERVER_V4]).unwrap();

    let sockets = look(&serving, &["sockets"]);
    let port = stream.local_addr().unwrap().port();
    let line = sockets.lines().find(|line| line.contains(&format!("{CLIENT_V4}:{port}")));
    assert!(line.is_some_and(|line| line.starts_with("tcp   ESTAB")), "{sockets}");
    assert!(sockets.contains("LISTEN") && sockets.contains("cubic wscale:"), "{sockets}");
    let trace = look(&serving, &["trace"]);
    assert!(trace.contains("received [S]") || trace.contains("received [P.]"), "{trace}");
    let counters = look(&serving, &["counters"]);
    assert!(counters.lines().any(|line| line.starts_with("TcpPassiveOpens ")), "{counters}");

    let seen = finish(capture, &ours);
    for wanted in ["Flags [S]", "Flags [S.]", "GET / HTTP/1.1", "HTTP/1.1 200 OK"] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    // It writes each packet at once, but may not have had a core for the last ones.
    let deadline = Instant::now() + PATIENCE;
    while !read(&theirs).contains("ICMP echo reply") {
        assert!(Instant::now() < deadline, "{}", read(&theirs));
        std::thread::sleep(Duration::from_millis(50));
    }
    let by_the_kernel = finish(tcpdump, &theirs);
    assert!(!by_the_kernel.contains(".80"), "{by_the_kernel}");
}
