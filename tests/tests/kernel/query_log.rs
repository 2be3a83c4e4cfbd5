//! The query log of `sidestep dns serve`: lines of JSON, and dnstap for programs that none of us wrote.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Child, Directory, Zone};
use rustix::process::Signal;
use socket2::{Domain, SockAddr, Socket, Type};
use tests::{Dig, Serving, Transport};

const PATIENCE: Duration = Duration::from_secs(60);

/// Serves the sample zone with this log.
fn start(log: &str) -> Serving {
    let directory = Directory::new().unwrap();
    let zone = Zone::sample().file.display().to_string();
    let text = format!("{log}\n[[zone]]\nfile = \"{zone}\"\n");
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn stop(server: &mut Serving) {
    server.process.signal(Signal::TERM);
    assert!(server.process.wait(PATIENCE).unwrap().success(), "{}", server.process.output());
}

/// What BIND's tool reads in a file of dnstap: a line for each answer.
fn read_dnstap(path: &Path) -> Vec<String> {
    let output = Command::new("dnstap-read").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn each_answer_has_a_line_and_a_rotated_file_gets_no_more() {
    let mut server = start("query-log = \"queries.json\"");
    let (file, old) = (server.directory.path().join("queries.json"), server.directory.path().join("old"));
    Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A"]);
    Dig::ask(server.v6, Transport::Tcp, &["nobody.example.com", "MX"]);
    until("two lines", || lines(&file).len() == 2);
    let [first, second] = lines(&file).try_into().unwrap();
    let server_said = format!("\"server\":\"{}\"", server.v4);
    for said in [
        r#""client":"127.0.0.1:"#,
        &server_said,
        r#""via":"udp""#,
        r#""name":"mail.example.com.""#,
        r#""type":"A""#,
        r#""rcode":"NOERROR""#,
        r#""flags":["qr","aa","rd"]"#,
        r#""answers":1"#,
    ] {
        assert!(first.contains(said), "{said}: {first}");
    }
    for said in [r#""client":"[::1]:"#, r#""via":"tcp""#, r#""rcode":"NXDOMAIN""#] {
        assert!(second.contains(said), "{said}: {second}");
    }

    std::fs::rename(&file, &old).unwrap();
    server.process.signal(Signal::HUP);
    until("a new file", || file.exists());
    Dig::ask(server.v4, Transport::Udp, &["example.com", "SOA"]);
    stop(&mut server);
    assert_eq!((lines(&old).len(), lines(&file).len()), (2, 1), "{}", server.process.output());
}

#[test]
fn a_sample_is_one_answer_of_so_many_and_none_of_them_is_lost() {
    let mut server = start("[query-log]\nfile = \"queries.json\"\nsample = 10");
    for _ in 0..100 {
        Dig::ask(server.v4, Transport::Udp, &["example.com", "SOA"]);
    }
    assert_eq!(server.counter("query_log_lost"), 0);
    let file = server.directory.path().join("queries.json");
    stop(&mut server);
    // Each engine counts for itself.
    let count = lines(&file).len();
    assert!((10..=20).contains(&count), "{count} lines");
}

#[test]
fn a_file_of_dnstap_is_read_by_bind_and_one_of_an_earlier_run_is_kept() {
    let mut server = start("[query-log]\nfile = \"queries.tap\"\nformat = \"dnstap\"");
    let directory = server.directory.path().to_owned();
    Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A"]);
    Dig::ask(server.v6, Transport::Tcp, &["nobody.example.com", "MX"]);
    stop(&mut server);
    let read = read_dnstap(&directory.join("queries.tap"));
    let [first, second] = &read[..] else { panic!("{read:?}") };
    let to = format!("-> {}:{} UDP", server.v4.ip(), server.v4.port());
    for said in [" AR 127.0.0.1:", &to, "mail.example.com/IN/A"] {
        assert!(first.contains(said) || first.replace("<-", "->").contains(said), "{said}: {first}");
    }
    assert!(second.contains("TCP") && second.contains("nobody.example.com/IN/MX"), "{second}");

    let config = directory.join("dns.toml").display().to_string();
    let mut again = Serving::start_in(server.directory, &["--config", &config], &[]);
    stop(&mut again);
    let kept = std::fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.path());
    let kept: Vec<_> = kept.filter(|path| path.display().to_string().contains("queries.tap.")).collect();
    assert_eq!(kept.iter().map(|path| read_dnstap(path)).collect::<Vec<_>>(), [read]);
}

#[test]
fn a_program_at_a_socket_gets_dnstap_when_it_comes_and_after_it_came_back() {
    let mut server = start("[query-log]\nsocket = \"tap.sock\"");
    let directory = server.directory.path().to_owned();
    let capture = |file: &str| {
        let (socket, file) = (directory.join("tap.sock"), directory.join(file));
        let _ = std::fs::remove_file(&socket); // That of a program that was killed.
        let mut command = Command::new("fstrm_capture");
        command.args(["--type", "protobuf:dnstap.Dnstap", "--unix"]).arg(&socket).arg("--write").arg(&file);
        let program = Child::spawn("fstrm_capture", &mut command).unwrap();
        until("a socket", || socket.exists());
        program
    };
    let ask = || Dig::ask(server.v4, Transport::Udp, &["example.com", "SOA"]);
    ask();
    until("a lost answer", || server.counter("query_log_lost") == 1);

    for (file, before) in [("first", 0), ("second", 1)] {
        let mut program = capture(file);
        // Until the server tries again, answers are lost.
        until("a connection", || {
            ask();
            server.process.output().matches("the query log goes to").count() > before
        });
        let lost = server.counter("query_log_lost");
        (0..20).for_each(|_| drop(ask()));
        assert_eq!(server.counter("query_log_lost"), lost);
        program.signal(Signal::TERM);
        program.wait(PATIENCE).unwrap();
        let read = read_dnstap(&directory.join(file));
        assert!(read.len() >= 20 && read.iter().all(|line| line.contains("example.com/IN/SOA")), "{read:?}");
    }
    stop(&mut server);
}

/// It takes connections and says nothing, or does not even take them.
#[test]
fn a_program_that_takes_nothing_holds_nobody_up() {
    for backlog in [128, 0] {
        let directory = Directory::new().unwrap();
        let socket = directory.path().join("tap.sock");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&socket).unwrap()).unwrap();
        listener.listen(backlog).unwrap();
        let waiting: Vec<_> = (0..2).filter_map(|_| connect_without_waiting(&socket)).collect();
        let mut server = start(&format!("[query-log]\nsocket = \"{}\"", socket.display()));
        for transport in [Transport::Udp, Transport::Tcp].repeat(10) {
            let dig = Dig::ask(server.v4, transport, &["example.com", "SOA", "+time=5"]);
            assert_eq!(dig.status(), "NOERROR", "{transport:?}");
        }
        stop(&mut server);
        drop((listener, waiting));
    }
}

fn connect_without_waiting(path: &Path) -> Option<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
    socket.connect(&SockAddr::unix(path).unwrap()).ok().map(|()| socket)
}

#[test]
fn a_disk_that_was_full_leaves_a_file_that_can_be_read() {
    // A limit of the size of files stands for the disk; the signal that comes with it is ignored (setrlimit(2)).
    let directory = Directory::new().unwrap();
    let zone = Zone::sample().file.display().to_string();
    let text =
        format!("[query-log]\nfile = \"queries.tap\"\nformat = \"dnstap\"\n[[zone]]\nfile = \"{zone}\"\n");
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    let by = ["env", "--ignore-signal=XFSZ", "prlimit", "--fsize=5000:unlimited"];
    let mut server = Serving::start_by(&by, directory, &["--config", &config], &[]);
    let ask = || Dig::ask(server.v4, Transport::Udp, &["example.com", "SOA"]);
    until("the end of the file", || {
        ask();
        server.counter("query_log_lost") > 0
    });
    let pid = server.process.pid().to_string();
    assert!(Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status().unwrap().success());
    until("the log to go on", || {
        ask();
        server.process.output().contains("the query log goes on")
    });
    (0..5).for_each(|_| drop(ask()));
    let file = server.directory.path().join("queries.tap");
    stop(&mut server);
    let read = read_dnstap(&file);
    assert!(read.len() > 30 && read.iter().all(|line| line.contains("example.com/IN/SOA")), "{read:?}");
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_at_the_start() {
    let directory = Directory::new().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let zone = Zone::sample().file.display().to_string();
    for (log, said) in [
        ("query-log = \"/nowhere/queries.json\"", "query-log: /nowhere/queries.json: No such file"),
        ("query-log = \"pipe\"", "No such device or address"),
        ("[query-log]\nformat = \"json\"", "query-log: \"\" is not either a file or a socket"),
    ] {
        let text = format!("{log}\n[[zone]]\nfile = \"{zone}\"\n");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        let output = tests::command(&["dns", "serve", "--config", &config]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(said), "{said}: {error}");
    }
}
