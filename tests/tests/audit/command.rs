//! The command on loopback, against the liar behind sockets: output, exit status, history, webhook, metrics, and wrong words.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dns_audit::authority::{Log, Nonce, Spec, Via, Zone};
use dns_audit::checks::Verdict;
use dns_audit::plan::Question;
use dns_audit::report::{Report, ResolverReport};
use dns_audit::transcript::Reply;
use dns_sign::KeySet;
use dns_wire::{NameBuf, Rtype};
use lab::{Child, Directory, sidestep_binary};
use tests::mmdb::{Value, mmdb};
use tests::{Fault, Liar, Upstream, command};

const PATIENCE: Duration = Duration::from_secs(120);

/// The liar at an address of loopback, over UDP and TCP. Its threads end with the process.
struct Served {
    address: SocketAddr,
    liar: Arc<Mutex<(Liar, Upstream)>>,
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

impl Served {
    fn start() -> Served {
        Served::start_that(|_| false)
    }

    /// One that does not get the datagrams that `loses` names.
    fn start_that(loses: impl FnMut(&[u8]) -> bool + Send + 'static) -> Served {
        let origin = NameBuf::from_text(b"probe.example.", None).unwrap();
        let servers = vec![IpAddr::from([192, 0, 2, 1])];
        let upstream = Upstream {
            zone: Zone::new(origin, servers, KeySet::default()),
            log: Log::new(1000),
            is_dead: false,
            ahead_ms: 0,
        };
        let liar = Arc::new(Mutex::new((Liar::new(None, 1), upstream)));
        let (udp, tcp) = lab::quiet_sockets();
        let address = udp.local_addr().unwrap();
        let (own, other) = (Arc::clone(&liar), Arc::clone(&liar));
        thread::spawn(move || serve_udp(&udp, &own, loses));
        thread::spawn(move || tcp.incoming().flatten().for_each(|stream| serve_tcp(stream, &other)));
        Served { address, liar }
    }

    fn suffer(&self, fault: Option<Fault>) {
        self.liar.lock().unwrap().0 = Liar::new(fault, 1);
    }

    fn words<'w>(&self, command: &'w str, more: &[&'w str]) -> Vec<String> {
        let words = [
            "dns",
            "audit",
            command,
            "--zone",
            "probe.example",
            "--plain",
            "--samples",
            "4",
            "--rate",
            "100",
        ];
        words.iter().chain(more).map(|word| (*word).to_owned()).chain([self.address.to_string()]).collect()
    }

    fn run(&self, command: &str, more: &[&str]) -> Output {
        Command::new(sidestep_binary()).args(self.words(command, more)).output().unwrap()
    }
}

fn ask(liar: &Mutex<(Liar, Upstream)>, message: &[u8], via: Via) -> Option<Vec<u8>> {
    let (liar, upstream) = &mut *liar.lock().unwrap();
    liar.ask(message, via, upstream, now_ms()).map(|(answer, _)| answer)
}

fn serve_udp(socket: &UdpSocket, liar: &Mutex<(Liar, Upstream)>, mut loses: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok((len, client)) = socket.recv_from(&mut buffer) {
        if !loses(&buffer[..len])
            && let Some(answer) = ask(liar, &buffer[..len], Via::Udp)
        {
            let _ = socket.send_to(&answer, client); // The client may have gone.
        }
    }
}

/// One question a connection.
fn serve_tcp(mut stream: TcpStream, liar: &Mutex<(Liar, Upstream)>) {
    let mut head = [0; 2];
    if stream.read_exact(&mut head).is_err() {
        return;
    }
    let mut message = vec![0; usize::from(u16::from_be_bytes(head))];
    if stream.read_exact(&mut message).is_ok()
        && let Some(answer) = ask(liar, &message, Via::Tcp)
    {
        let _ = stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat());
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn a_good_resolver_ends_with_0_and_a_liar_with_2_in_text_json_and_html() {
    let served = Served::start();
    let good = served.run("probe", &["--only", "integrity"]);
    assert_eq!(good.status.code(), Some(0), "{}{}", text(&good.stdout), text(&good.stderr));
    assert!(
        text(&good.stdout).contains("at most 100 questions a second to one resolver"),
        "{}",
        text(&good.stdout)
    );
    served.suffer(Some(Fault::RewritesMissing));
    let directory = Directory::new().unwrap();
    let page = directory.path().join("report.html").display().to_string();
    let bad = served.run("probe", &["--only", "integrity", "--json", "--html", &page]);
    assert_eq!(bad.status.code(), Some(2), "{}{}", text(&bad.stdout), text(&bad.stderr));
    let report: Report = serde_json::from_slice(&bad.stdout).unwrap();
    let finding =
        report.resolvers[0].findings.iter().find(|finding| finding.check == "integrity.missing").unwrap();
    assert_eq!(finding.verdict, Verdict::Bad);
    assert!(std::fs::read_to_string(&page).unwrap().contains("203.0.113.9"));
}

#[test]
fn a_watch_tells_what_has_changed_and_keeps_it() {
    let (served, directory) = (Served::start(), Directory::new().unwrap());
    let history = directory.path().join("history.db").display().to_string();
    let webhook = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/changed", webhook.local_addr().unwrap());
    let posted = thread::spawn(move || receive_post(&webhook));
    let words = ["--only", "integrity", "--history", &history, "--rounds", "1", "--webhook", &url];
    let first = served.run("watch", &words);
    assert_eq!(
        (first.status.code(), text(&first.stdout)),
        (Some(0), String::new()),
        "{}",
        text(&first.stderr)
    );
    served.suffer(Some(Fault::RewritesMissing));
    let second = served.run("watch", &words);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
    assert!(text(&second.stdout).contains("integrity.missing: good -> BAD"), "{}", text(&second.stdout));
    let post = posted.join().unwrap();
    assert!(
        post.starts_with("POST /changed HTTP/1.1") && post.contains("\"check\":\"integrity.missing\""),
        "{post}"
    );
    let again = served.run("watch", &words[..6]);
    assert_eq!(
        (again.status.code(), text(&again.stdout)),
        (Some(0), String::new()),
        "{}",
        text(&again.stderr)
    );
}

/// One request, which is answered well.
fn receive_post(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    while !request.ends_with(']') {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            len => request += &text(&buffer[..len]),
        }
    }
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    request
}

/// The whole page of metrics.
fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

fn metrics_address(process: &mut Child) -> String {
    let ready = process.wait_for_line("ready: metrics at http://", PATIENCE).unwrap();
    ready.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

/// The directory of the history goes away while the watch runs: each round is looked at all the same, and nothing is told twice.
#[test]
fn a_watch_goes_on_without_its_history_and_says_so_in_its_log_its_metrics_and_its_exit_status() {
    let (served, directory) = (Served::start(), Directory::new().unwrap());
    served.suffer(Some(Fault::RewritesMissing));
    let folder = directory.path().join("histories");
    std::fs::create_dir(&folder).unwrap();
    let history = folder.join("history.db").display().to_string();
    let words = ["--only", "integrity", "--history", &history, "--metrics", "127.0.0.1:0", "--every", "1"];
    let words = served.words("watch", &words);
    let mut process = Child::spawn("sidestep", Command::new(sidestep_binary()).args(words)).unwrap();
    let address = metrics_address(&mut process);
    process.wait_for_line("round 1: 1 changes", PATIENCE).unwrap();
    let page = metrics(&address);
    assert!(
        page.contains("sidestep_audit_history_written 1") && page.contains("history_errors_total 0"),
        "{page}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
    process.wait_for_line("the file was deleted or replaced, and no new one can be made", PATIENCE).unwrap();
    process.wait_for_line("round 4: 0 changes", PATIENCE).unwrap();
    let page = metrics(&address);
    assert!(page.contains("sidestep_audit_history_written 0"), "{page}");
    std::fs::create_dir(&folder).unwrap();
    process.wait_for_line("rounds are written again", PATIENCE).unwrap();
    process.signal(rustix::process::Signal::TERM);
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(1));
    let said = process.output();
    assert_eq!(said.matches("integrity.missing: new -> BAD").count(), 1, "{said}");
    assert_eq!(said.matches("no new one can be made").count(), 1, "it is told once, not each round: {said}");
}

/// A history has resolvers that are not in the list any more.
#[test]
fn a_resolver_that_is_taken_off_the_list_leaves_the_metrics() {
    let (gone, served, directory) = (Served::start(), Served::start(), Directory::new().unwrap());
    let history = directory.path().join("history.db").display().to_string();
    let words = ["--only", "latency", "--history", &history];
    let output = gone.run("watch", &[&words[..], &["--rounds", "1", &served.address.to_string()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let words = served.words("watch", &[&words[..], &["--metrics", "127.0.0.1:0"]].concat());
    let mut process = Child::spawn("sidestep", Command::new(sidestep_binary()).args(words)).unwrap();
    let page = metrics(&metrics_address(&mut process));
    // Before its first round has ended: what the history says.
    assert!(page.contains(&format!("resolver=\"{}\"", served.address)), "{page}");
    assert!(!page.contains(&gone.address.to_string()), "{page}");
}

/// The resolver fails for all names of the audit zone. That is bad if the authority was there, and says nothing of the resolver if nobody knows.
#[test]
fn a_watch_blames_a_resolver_that_resolves_nothing_only_where_the_authority_is_there() {
    let words = ["dns", "audit", "authority", "--zone", "probe.example", "--listen", "127.0.0.1:0"];
    let mut authority = Child::spawn("sidestep", Command::new(sidestep_binary()).args(words)).unwrap();
    let ready = authority.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let address = ready.rsplit(' ').next().unwrap().to_owned();
    let (served, directory) = (Served::start(), Directory::new().unwrap());
    served.suffer(Some(Fault::FailsAll));
    for (more, status, told) in [
        (&[][..], 0, ""),
        (
            &["--authority", &address],
            2,
            "service: new -> BAD: it resolves no name of the audit zone: SERVFAIL",
        ),
    ] {
        let history = directory.path().join(format!("history-{status}")).display().to_string();
        let words = ["--only", "latency", "--history", &history, "--rounds", "1"];
        let output = served.run("watch", &[&words[..], more].concat());
        let (said, log) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{said}{log}");
        assert_eq!((said.contains(told), said.lines().count()), (true, usize::from(status > 0)), "{said}");
        assert!(log.contains("1 of 1 resolvers could not be tested"), "{log}");
    }
}

#[test]
fn a_watch_has_metrics_of_each_resolver() {
    let (served, directory) = (Served::start(), Directory::new().unwrap());
    let history = directory.path().join("history.db").display().to_string();
    let words =
        served.words("watch", &["--only", "latency", "--history", &history, "--metrics", "127.0.0.1:0"]);
    let mut process = Child::spawn("sidestep", Command::new(sidestep_binary()).args(words)).unwrap();
    let address = metrics_address(&mut process);
    let sample = format!("sidestep_audit_score{{resolver=\"{}\"}} ", served.address);
    let has_points = |page: &str| {
        let points = page.lines().find_map(|line| line.strip_prefix(&sample)?.parse::<u32>().ok());
        points.is_some_and(|points| points <= 100)
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = metrics(&address);
        if has_points(&page) {
            break;
        }
        assert!(Instant::now() < deadline, "{page}\n{}", process.output());
        thread::sleep(Duration::from_millis(200));
    }
}

/// One resolver is done, and the other one answers nothing, which takes longer.
#[test]
fn results_are_written_as_they_come_and_a_signal_prints_what_there_is() {
    let (served, silent) = (Served::start(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let directory = Directory::new().unwrap();
    let lines = directory.path().join("lines").display().to_string();
    let silent = silent.local_addr().unwrap().to_string();
    let words = served.words("probe", &["--only", "ttl,stale", "--json", "--lines", &lines, &silent]);
    let stdout = directory.path().join("stdout");
    let mut command = Command::new(sidestep_binary());
    command.args(words).stdout(std::fs::File::create(&stdout).unwrap());
    let mut process = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    let first = loop {
        if let Some(line) = read(lines.as_ref()).lines().next() {
            break serde_json::from_str::<ResolverReport>(line).unwrap();
        }
        assert!(Instant::now() < deadline && process.try_wait().unwrap().is_none(), "no line came");
        thread::sleep(Duration::from_millis(50));
    };
    assert!(read(&stdout).is_empty(), "the report came before the signal");
    rustix::process::kill_process(rustix::process::Pid::from_child(&process), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
    let report: Report = serde_json::from_str(&read(&stdout)).unwrap();
    assert!(report.resolvers.contains(&first), "{first:?} is not in {report:?}");
    // Of the other one there is what its first probe has found, which the signal may have come before.
    assert!((1..=2).contains(&report.resolvers.len()), "{report:?}");
}

#[test]
fn a_resolver_that_is_given_twice_is_asked_once_and_questions_for_the_clock_count() {
    let served = Served::start();
    let (own, named) = (served.address.to_string(), format!("{}#x", served.address));
    let output = served.run("probe", &["--only", "latency", "--json", &own, &named]);
    let said = text(&output.stderr);
    assert_eq!(said.matches("is asked once").count(), 2, "{said}");
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    // The clock is read four times by way of the resolver, and latency asks 1 + 4 + 4 names.
    assert_eq!((report.resolvers.len(), report.resolvers[0].questions >= 13), (1, true), "{report:?}");
}

#[test]
fn a_list_of_names_says_where_their_addresses_lie() {
    let (served, directory) = (Served::start(), Directory::new().unwrap());
    let verdict = |list: &str| {
        let list = directory.write("names", list).unwrap().display().to_string();
        let output = served.run("probe", &["--only", "integrity", "--json", "--name-list", &list]);
        let report: Report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        let findings = report.resolvers.into_iter().flat_map(|resolver| resolver.findings);
        findings.into_iter().find(|finding| finding.check == "integrity.names").unwrap()
    };
    let good = verdict("# names\nwww.example 203.0.113.7 198.51.100.0/24 2001:db8::/32\n");
    assert_eq!(good.verdict, Verdict::Good, "{good:?}");
    let none = verdict("elsewhere.example 203.0.113.7\n"); // It is refused.
    assert_eq!(none.verdict, Verdict::Unknown, "{none:?}");
    let bad = verdict("www.example 203.0.113.7\n");
    assert_eq!(bad.verdict, Verdict::Bad, "{bad:?}");
    assert!(bad.evidence.iter().any(|line| line.contains("198.51.100.80")), "{bad:?}");
}

/// Each question arrives when it is sent for the second time.
#[test]
fn a_lost_datagram_is_sent_again_with_another_id_and_is_no_finding() {
    let ids = Arc::new(Mutex::new(BTreeMap::<Vec<u8>, Vec<[u8; 2]>>::new()));
    let seen = Arc::clone(&ids);
    let served = Served::start_that(move |message| {
        let mut seen = seen.lock().unwrap();
        let ids = seen.entry(message[12..].to_vec()).or_default();
        ids.push([message[0], message[1]]);
        ids.len() == 1
    });
    let output = served.run("probe", &["--only", "ttl", "--json"]);
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let findings = &report.resolvers[0].findings;
    assert!(findings.iter().all(|finding| finding.verdict != Verdict::Bad), "{findings:#?}");
    assert!(findings.iter().any(|finding| finding.verdict == Verdict::Good), "{findings:#?}");
    let lines = findings.iter().flat_map(|finding| &finding.evidence);
    assert!(lines.filter(|line| line.contains(", asked 2 times)")).count() >= 4, "{findings:#?}");
    let ids = ids.lock().unwrap();
    let differing = ids.values().filter(|ids| ids.len() > 1 && ids[0] != ids[1]).count();
    assert!(differing >= 6, "{ids:?}");
}

/// The liar keeps data with TTL 0. That is bad, unless the authority, a process of its own here, ends while the liar is asked.
#[test]
fn an_authority_that_ends_during_the_audit_leaves_its_verdicts_unknown() {
    for ends in [false, true] {
        let words = ["dns", "audit", "authority", "--zone", "probe.example", "--listen", "127.0.0.1:0"];
        let mut authority = Child::spawn("sidestep", Command::new(sidestep_binary()).args(words)).unwrap();
        let ready = authority.wait_for_line("ready: audit zone", PATIENCE).unwrap();
        let address = ready.rsplit(' ').next().unwrap().to_owned();
        let (tell, told) = std::sync::mpsc::channel();
        let served = Served::start_that(move |_| {
            let _ = tell.send(()); // Only the first time is waited for.
            false
        });
        served.suffer(Some(Fault::KeepsZero));
        let words = served.words("probe", &["--only", "ttl", "--json", "--authority", &address]);
        let asked = thread::spawn(move || Command::new(sidestep_binary()).args(words).output().unwrap());
        told.recv_timeout(PATIENCE).unwrap();
        if ends {
            drop(authority);
        }
        let output = asked.join().unwrap();
        let report: Report = serde_json::from_slice(&output.stdout).unwrap();
        let zero = report.resolvers[0].findings.iter().find(|finding| finding.check == "ttl.zero").unwrap();
        let expected = if ends { Verdict::Unknown } else { Verdict::Bad };
        assert_eq!(zero.verdict, expected, "{zero:?}");
        assert_eq!(zero.summary.contains("the authority itself did not answer"), ends, "{zero:?}");
    }
}

/// Silent resolvers hold their sockets for seconds. Whoever runs out of descriptors waits, and blames nobody.
#[test]
fn few_descriptors_are_no_fault_of_a_resolver() {
    let served = Served::start();
    let silent: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let silent: Vec<String> = silent.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect();
    let more: Vec<&str> = ["--only", "latency", "--json", "--total-rate", "1000"]
        .into_iter()
        .chain(silent.iter().map(|text| &**text))
        .collect();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(sidestep_binary());
    let output = command.args(served.words("probe", &more)).output().unwrap();
    assert!(!text(&output.stderr).contains("Too many open files"), "{}", text(&output.stderr));
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let good = report.resolvers.iter().find(|own| own.resolver == served.address.to_string()).unwrap();
    let verdicts: Vec<Verdict> = good.findings.iter().map(|finding| finding.verdict).collect();
    assert_eq!((verdicts, report.resolvers.len()), (vec![Verdict::Good; 3], 4), "{report:?}");
}

/// Strangers are held back by the address, and what is beyond is dropped or cut.
#[test]
fn the_authority_answers_a_stranger_so_often_and_not_more() {
    let words = ["dns", "audit", "authority", "--zone", "probe.test", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(sidestep_binary());
    command.args(words).args(["--rate-per-address", "20", "--rate-per-prefix", "0"]);
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let line = process.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(line.rsplit(' ').next().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let name = NameBuf::from_text(b"probe.test.", None).unwrap();
    for id in 0..400 {
        socket.send(&Question::new(name.clone(), Rtype::SOA).message(id)).unwrap();
    }
    let (mut whole, mut cut, mut buffer) = (0, 0, [0; 4096]);
    while let Ok(len) = socket.recv(&mut buffer) {
        let is_cut = Reply::read(&buffer[..len]).unwrap().is_truncated();
        *if is_cut { &mut cut } else { &mut whole } += 1;
    }
    assert!((20..80).contains(&whole) && cut > 100 && whole + cut < 250, "{whole} whole, {cut} cut");
}

/// One that waits has its answers late, and all of them.
#[test]
fn the_authority_lets_a_client_over_tcp_wait_for_its_turn() {
    let words = ["dns", "audit", "authority", "--zone", "probe.test", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(sidestep_binary());
    command.args(words).args(["--rate-per-address", "5"]);
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let line = process.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let mut stream = TcpStream::connect(line.rsplit(' ').next().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = NameBuf::from_text(b"probe.test.", None).unwrap();
    let started = Instant::now();
    for id in 0..15 {
        let message = Question::new(name.clone(), Rtype::SOA).message(id);
        stream.write_all(&[&(message.len() as u16).to_be_bytes()[..], &message].concat()).unwrap();
    }
    for _ in 0..15 {
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut answer).unwrap();
        assert!(!Reply::read(&answer).unwrap().answers.is_empty());
    }
    // Five at once, and five a second.
    assert!(started.elapsed() > Duration::from_millis(1500), "15 answers in {:?}", started.elapsed());
}

#[test]
fn the_authority_says_how_its_servers_differ() {
    let says = |listen: [&str; 2]| {
        let mut command = Command::new(sidestep_binary());
        command.args(["dns", "audit", "authority", "--zone", "probe.test"]);
        command.args(["--listen", listen[0], "--server", listen[1]]);
        let mut process = Child::spawn("sidestep", &mut command).unwrap();
        let line = process.wait_for_line("ready: audit zone", PATIENCE).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = NameBuf::from_text(b"servers.probe.test.", None).unwrap();
        socket
            .send_to(&Question::new(name, Rtype::TXT).message(1), line.rsplit(' ').next().unwrap())
            .unwrap();
        let mut buffer = [0; 4096];
        let len = socket.recv(&mut buffer).unwrap();
        let texts = Reply::read(&buffer[..len]).unwrap().answers;
        texts.iter().map(|record| text(&record.rdata[1..])).collect::<Vec<_>>()
    };
    assert_eq!(
        says(["127.0.0.1:0", "127.0.0.1:0,delay=20,loss=5,outage=1-2.5"]),
        ["1,delay=0,loss=0", "2,delay=20,loss=5,outage=1.0-2.5"]
    );
    assert_eq!(says(["127.0.0.1:0"; 2]), ["1,delay=65,loss=25", "2,delay=5,loss=25,outage=6.0-11.0"]);
}

/// Of a list of thousands many are silent: one probe is enough to see it.
#[test]
fn a_resolver_that_answers_nothing_is_asked_by_one_probe() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let words =
        ["dns", "audit", "probe", "--zone", "probe.example", "--plain", "--samples", "4", "--rate", "200"];
    let output = command(&[&words[..], &["--only", "ttl,latency", "--json", &address]].concat());
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let score = &report.resolvers[0].score;
    assert_eq!((score.points, score.seen), (None, 0), "{report:?}");
    let checks: Vec<&str> = report.resolvers[0].findings.iter().map(|finding| &*finding.check).collect();
    assert!(checks.contains(&"ttl.zero") && checks.contains(&"latency.hot"), "{checks:?}");
    silent.set_nonblocking(true).unwrap();
    let (mut runs, mut buffer) = (std::collections::BTreeSet::new(), [0; 4096]);
    while let Ok(len) = silent.recv(&mut buffer) {
        let label = &buffer[13..len];
        runs.insert(label[..13].to_vec()); // The nonce.
    }
    assert_eq!(runs.len(), 2, "that of the clock and that of the first probe");
}

#[test]
fn servers_at_one_address_are_told_apart_by_their_ports() {
    let words = ["dns", "audit", "authority", "--zone", "probe.test"];
    let mut command = Command::new(sidestep_binary());
    command.args(words).args(["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    let line = process.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for (address, wanted) in line.rsplit(' ').zip(["server=1", "server=0"]) {
        let label = Spec::new(Nonce(1), 0, now_ms(), 0).to_string();
        let name = NameBuf::from_text(format!("{label}.probe.test.").as_bytes(), None).unwrap();
        socket.send_to(&Question::new(name, Rtype::TXT).message(1), address).unwrap();
        let mut buffer = [0; 4096];
        let len = socket.recv(&mut buffer).unwrap();
        let said = Reply::read(&buffer[..len]).unwrap().text().unwrap();
        assert!(said.contains(wanted), "{said}");
    }
}

/// Two servers of the authority are asked as if they were resolvers: both are asked by this host.
#[test]
fn resolvers_that_ask_from_one_address_are_named() {
    let words = ["dns", "audit", "authority", "--zone", "probe.example", "--listen", "127.0.0.1:0"];
    let mut command = Command::new(sidestep_binary());
    command.args(words).args(["--listen", "127.0.0.1:0"]);
    let mut authority = Child::spawn("sidestep", &mut command).unwrap();
    let ready = authority.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let servers: Vec<&str> = ready.rsplit(' ').take(2).map(|word| word.trim_end_matches(',')).collect();
    for (total_rate, lines) in [("100", 0), ("200", 1)] {
        let words = [
            "dns",
            "audit",
            "probe",
            "--zone",
            "probe.example",
            "--plain",
            "--only",
            "latency",
            "--samples",
            "4",
        ];
        let mut command = Command::new(sidestep_binary());
        command.args(words).args(["--rate", "100", "--total-rate", total_rate, "--authority", servers[0]]);
        let said = text(&command.args(&servers).output().unwrap().stderr);
        assert_eq!(said.matches("both ask the authority from 127.0.0.1").count(), lines, "{said}");
    }
}

#[test]
fn a_probe_that_is_named_twice_runs_once() {
    let output = Served::start().run("probe", &["--only", "latency,latency", "--json"]);
    let report: Report = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report.resolvers[0].findings.iter().map(|finding| &finding.check);
    assert_eq!(checks.filter(|check| *check == "latency.hot").count(), 1, "{report:?}");
}

/// The authority is asked as if it were a resolver: who asks it is this host.
#[test]
fn databases_of_several_shapes_say_who_asks() {
    let words = ["dns", "audit", "authority", "--zone", "probe.example", "--listen", "127.0.0.1:0"];
    let mut authority = Child::spawn("sidestep", Command::new(sidestep_binary()).args(words)).unwrap();
    let ready = authority.wait_for_line("ready: audit zone", PATIENCE).unwrap();
    let (address, directory) = (ready.rsplit(' ').next().unwrap().to_owned(), Directory::new().unwrap());
    let place = |code| Value::Map(vec![("iso_code", Value::Text(code))]);
    let path = |name: &str, data: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, data).unwrap();
        path.display().to_string()
    };
    let file = |name: &str, fields: Vec<(&'static str, Value)>| {
        path(name, &mmdb(&[("127.0.0.0", 8, Value::Map(fields))]))
    };
    let country = file("country", vec![("country", place("DE"))]);
    let systems = file(
        "systems",
        vec![
            ("autonomous_system_number", Value::Number(64496)),
            ("autonomous_system_organization", Value::Text("Example")),
        ],
    );
    let city = Value::Map(vec![("names", Value::Map(vec![("en", Value::Text("Vienna"))]))]);
    let city = file("city", vec![("city", city), ("country", place("AT"))]);
    let flat = file("flat", vec![("asn", Value::Text("AS64497")), ("country", Value::Text("US"))]);
    let run = |databases: &[&str]| {
        let words = [
            "dns",
            "audit",
            "probe",
            "--zone",
            "probe.example",
            "--plain",
            "--samples",
            "4",
            "--rate",
            "100",
        ];
        let databases = databases.iter().flat_map(|path| ["--mmdb", path]);
        let more = ["--only", "who", "--json", "--authority", &address, &address];
        Command::new(sidestep_binary()).args(words).args(databases).args(more).output().unwrap()
    };
    for (databases, wanted) in [
        (&[&*country][..], "127.0.0.1 DE: "),
        (&[&systems], "127.0.0.1 AS64496 Example: "),
        (&[&city], "127.0.0.1 AT: "),
        (&[&flat], "127.0.0.1 AS64497 US: "),
        (&[&systems, &country], "127.0.0.1 AS64496 Example DE: "),
    ] {
        let output = run(databases);
        let report: Report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        let findings = &report.resolvers[0].findings;
        let egress = findings.iter().find(|finding| finding.check == "who.egress").unwrap();
        assert!(egress.evidence.iter().any(|line| line.starts_with(wanted)), "{wanted}: {egress:?}");
    }
    let whole = std::fs::read(&country).unwrap();
    let useless = file("useless", vec![("isp", Value::Text("Example"))]);
    let mut bent = whole.clone();
    bent[..4].fill(0xff); // The first branch of the tree leads out of the file.
    for (database, wanted) in [
        (path("empty", b""), "database "),
        (path("text", b"country,DE\n"), "database "),
        (path("cut", &whole[..whole.len() / 2]), "database "),
        (path("bent", &bent), "database "),
        (useless, "it has neither autonomous systems nor countries; its type is Test"),
    ] {
        let output = run(&[&database]);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains(wanted) && said.contains(&database),
            "{database}: {said}"
        );
    }
}

#[test]
fn wrong_words_are_errors_that_say_what_to_do() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = listener.local_addr().unwrap().to_string();
    for (words, wanted) in [
        (&["probe", "--zone", "probe.example"][..], "no resolver is given"),
        (&["probe", "--zone", "probe.example", "300.1.2.3"], "resolver: \"300.1.2.3\" is not an address"),
        (&["probe", "--zone", "probe.example", "--only", "age", "127.0.0.1"], "only: age is not a probe"),
        (
            &["probe", "--zone", "probe.example", "--rate", "500", "--total-rate", "10", "127.0.0.1"],
            "total-rate: 10 is less",
        ),
        (
            &["probe", "--zone", "probe.example", "--name-list", "/nonexistent", "127.0.0.1"],
            "reading /nonexistent",
        ),
        (
            &["probe", "--zone", "probe.example", "--mmdb", "/nonexistent", "127.0.0.1"],
            "database /nonexistent",
        ),
        (
            &["probe", "--zone", "probe.example", "--authority", "127.0.0.1:1", "127.0.0.1"],
            "127.0.0.1:1 gives no answer",
        ),
        (
            &["probe", "--zone", "probe.example", "--html", "/nonexistent/h", "127.0.0.1"],
            "html /nonexistent/h",
        ),
        (
            &["probe", "--zone", "probe.example", "--tls-ca", "/nonexistent", "127.0.0.1"],
            "tls-ca: /nonexistent: no certificates",
        ),
        (
            &["probe", "--zone", "probe.example", "--source", "192.0.2.1", "127.0.0.1"],
            "source: cannot ask from 192.0.2.1",
        ),
        (
            &["watch", "--zone", "p.example", "--history", ":memory:", "--metrics", &used, "127.0.0.1"],
            "metrics at 127.0.0.1:",
        ),
        (&["authority", "--zone", "p.example", "--listen", "0.0.0.0:0"], "by --address"),
        (
            &["authority", "--zone", "p.example", "--listen", "127.0.0.1:0,delay=9999"],
            "listen: 127.0.0.1:0,delay=9999: delay: \"9999\" is not a number of milliseconds up to 5000",
        ),
        (
            &["authority", "--zone", "p.example", "--server", "127.0.0.1:0,fast"],
            "\"fast\" is not delay=MS, loss=PERCENT or outage=SECONDS-SECONDS",
        ),
        (
            &["authority", "--zone", "p.example", "--listen", "127.0.0.1:0", "--log-file", "/nonexistent/l"],
            "log file /nonexistent/l",
        ),
        (&["probe", "--zone", "p.example", "127.0.0.1:0"], "nobody listens at port 0"),
        (
            &["probe", "--zone", "p.example", "224.0.0.1"],
            "resolver: 224.0.0.1 is not the address of one host",
        ),
        (
            &["probe", "--zone", "p.example", "--authority", "0.0.0.0", "127.0.0.1"],
            "authority: 0.0.0.0 is not",
        ),
        (
            &[
                "authority",
                "--zone",
                "p.example",
                "--listen",
                "127.0.0.1:0",
                "--address",
                "192.0.2.1",
                "--address",
                "192.0.2.2",
            ],
            "address: there are 2 for 1 servers",
        ),
        (&["probe", "--zone", ".", "127.0.0.1"], "zone: the root cannot be an audit zone"),
        (&["probe", "--zone", "p.example", "127.0.0.1#"], "the name of the certificate is missing"),
        (
            &["probe", "--zone", "p.example", "--country", "Germany", "127.0.0.1"],
            "country: \"Germany\" is not two letters",
        ),
        (
            &["watch", "--zone", "p.example", "--history", "/nonexistent/h", "127.0.0.1"],
            "history /nonexistent/h",
        ),
        (
            &["watch", "--zone", "p.example", "--history", "h", "--webhook", "ftp://x", "127.0.0.1"],
            "expected a URL such as",
        ),
        (&["probe", "--zone", "p.example", "--rate", "0", "127.0.0.1"], "--rate"),
    ] {
        let output = command(&[&["dns", "audit"], words].concat());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(wanted), "{words:?}: {said}");
    }
}
