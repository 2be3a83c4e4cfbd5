//! Tools that observe clients, and reports of clients.

use super::*;

/// A broker whose clients tools can observe, the directory, and the control socket of a client of this process.
fn observed() -> (lab::Directory, Served, std::path::PathBuf) {
    let directory = lab::Directory::new().unwrap();
    let place = directory.path().join("run");
    let family = Family { head: std::process::id(), group: None };
    let served = Served::observed_in(Some(&place), 1, family, all());
    (directory, served, place.join(format!("{}.sock", std::process::id())))
}

/// A client that serves its queue.
fn serving(served: &Served) -> Client {
    let mut client = served.connect();
    client.attach().unwrap();
    client.ready(0, &[0]).unwrap();
    client.settle().unwrap();
    client
}

#[test]
fn who_looks_at_a_client_is_handed_to_it() {
    let (_directory, served, control) = observed();
    let mut idle = served.connect();
    idle.is_shared(crate::protocol::ClaimId(7)).unwrap_err();
    assert!(!control.exists(), "who has no queue has nothing to show");
    let mut client = serving(&served);
    for round in 0..3 {
        let mut tool = UnixStream::connect(&control).unwrap();
        tool.write_all(b"look").unwrap();
        let Event::Observer { pid, program, stream } = next_event(&mut client) else { panic!("{round}") };
        assert_eq!(pid, std::process::id());
        assert!(!program.is_empty());
        let mut said = [0; 4];
        UnixStream::from(stream).read_exact(&mut said).unwrap();
        assert_eq!(&said, b"look");
        assert_eq!(tool.read(&mut said).unwrap(), 0, "the broker keeps nothing of it");
    }
}

#[test]
fn a_control_socket_goes_with_its_client_and_with_the_broker() {
    let (_directory, served, control) = observed();
    let client = serving(&served);
    assert!(control.exists());
    drop(client);
    wait_until(|| !control.exists());
    let _client = serving(&served);
    assert!(control.exists());
    drop(served);
    assert!(!control.exists());
}

#[test]
fn who_does_not_read_its_messages_is_not_handed_tools_without_end() {
    let (_directory, served, control) = observed();
    let client = serving(&served);
    let tools: Vec<UnixStream> = (0..600).map(|_| UnixStream::connect(&control).unwrap()).collect();
    let last = tools.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut said = String::new();
    last.take(1 << 12).read_to_string(&mut said).unwrap();
    assert!(said.contains("does not read its messages"), "{said}");
    drop(tools);
    assert!(served.try_connect("other").is_ok());
    drop(client);
}

#[test]
fn what_a_client_says_of_itself_moves_no_cursor() {
    let mut report = ProgramReport { counters: vec![("\x1b[2J".to_owned(), 1)], ..ProgramReport::default() };
    report.clean(crate::server::names::printable);
    assert_eq!(report.counters[0].0, "?[2J");
}

#[test]
fn programs_report_when_somebody_looks() {
    let served = Served::new(1);
    let mut client = served.connect();
    client.attach().unwrap();
    client.ready(0, &[0]).unwrap();
    client.settle().unwrap();
    let mut look = || {
        let reporter = served.handle.as_ref().unwrap().reporter();
        let looking = std::thread::spawn(move || reporter.report().unwrap());
        assert!(matches!(next_event(&mut client), Event::News(News::ReportStatus)));
        client.report(ProgramReport { accelerated: 5, ..ProgramReport::default() }).unwrap();
        client.settle().unwrap();
        looking.join().unwrap()
    };
    // Tools do not wait for long, and this thread may be late.
    let mut looks = std::iter::repeat_with(&mut look).take(20);
    let report =
        looks.find(|report| report.programs[0].report.is_some()).expect("the program says it in time");
    assert_eq!(report.interfaces[0].lent, 1);
    let program = &report.programs[0];
    assert_eq!((program.waits, program.pid), (false, std::process::id()));
    assert!(program.program.starts_with("broker"), "its file is this test");
    assert_eq!(program.queues, [("lo".to_owned(), vec![0])]);
    assert_eq!(program.report.as_ref().map(|report| report.accelerated), Some(5));
    assert_eq!(program.report_age_ms, None, "it is said now");
    // The program does not answer this one.
    let later = served.handle.as_ref().unwrap().reporter().report().unwrap();
    let program = &later.programs[0];
    assert_eq!(program.report.as_ref().map(|report| report.accelerated), Some(5));
    assert!(program.report_age_ms.is_some_and(|age| age >= 200), "{program:?}");
}

#[test]
fn who_does_not_report_does_not_hold_up_who_looks() {
    let served = Served::new(1);
    let _silent = served.connect();
    let report = served.handle.as_ref().unwrap().reporter().report().unwrap();
    assert_eq!(report.programs[0].report, None);
}

#[test]
fn news_for_who_does_not_read_end_its_connection_not_the_broker() {
    let served = Served::new(1);
    let _silent = served.raw_known();
    let reporter = served.handle.as_ref().unwrap().reporter();
    let mut present = true;
    for _ in 0..10_000 {
        let (sender, receiver) = std::sync::mpsc::channel();
        reporter.look_at_once(sender);
        present = !receiver.recv().unwrap().programs.is_empty();
        if !present {
            break;
        }
    }
    assert!(!present, "it would have been told for ever");
    assert!(served.connect().attach().is_ok());
}
