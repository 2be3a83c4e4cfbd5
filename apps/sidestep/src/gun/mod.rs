//! `sidestep gun`: a load generator that says when it was itself the bottleneck.
//!
//! | file | what it does |
//! | --- | --- |
//! | `options.rs` | the command line |
//! | `target.rs` | where a load may go |
//! | `kernel.rs`, `interface.rs` | over UDP, the device and the ways to the server: kernel sockets, or an interface by AF_XDP |
//! | `next_hop.rs` | whom packets by an interface go to at first, which may change |
//! | `load.rs` | one load over UDP: the loop around `gun::Gun` |
//! | `sockets.rs` | connections of kernel sockets, with TLS, and epoll |
//! | `streams.rs` | one load over connections: the loop around `gun::Streams` |
//! | `http.rs` | a URL and what is asked of it |
//! | `core.rs` | how long the generator waited for its core |
//! | `connect.rs` | connections that are held: the loop around `gun::Holding` |
//! | `stop.rs` | Ctrl-C |
//! | `report.rs`, `text.rs`, `html.rs` | what came of it, as JSON, for the terminal, and as a page |

mod connect;
mod core;
mod dropped;
mod html;
mod http;
mod interface;
mod kernel;
mod load;
mod next_hop;
mod options;
mod report;
mod sockets;
mod stop;
mod streams;
mod target;
mod text;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use clock::Duration;
use gun::knee::Knee;
use gun::loss::{far_load, steady_loss};
use gun::streams::{Quic, Speech};
use gun::{Questions, Summary};
use rustls::pki_types::ServerName;

use crate::output;
use http::HttpVersion;
use load::{Asking, Fire, Load};
use options::{Compare, Connect, Dns, Http, Origin, Reports, Search, Transport, Udp};
use report::{Found, Report};
use sockets::{Kind, Target, Tls};
use stop::Stop;
use streams::StreamRange;

/// How near the two sides of a knee have to be.
const PRECISION: f64 = 1.05;
/// The last second of a load has so many seconds at least.
const SPAN_MIN: f64 = 0.001;
/// Octets of a report at most: a week of seconds.
const REPORT_MAX: usize = 1 << 28;
/// Requests a second that a search begins with, if nobody says.
const FIRST_RATE: u32 = 1000;
/// Questions of a step of the search, if they take no more than [`LONG_STEP`]. Of a server that answers 3 % by errors, 100 questions have
/// 2 errors or less in two of five cases, 1000 in one of thirty.
const STEP_QUESTIONS: u64 = 1000;
const LONG_STEP: Duration = Duration::from_secs(10);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Ask a DNS server at a fixed rate, or find the largest rate that it carries: over UDP, TCP, TLS, HTTPS or QUIC.
    ///
    /// Questions are sent when they are due, whatever the server does, and the time of an answer counts from then: a server that stalls
    /// cannot hide the questions that it kept from being asked. Each answer is matched to its question. The report says whether the
    /// generator was the bottleneck itself. Ctrl-C ends the load and prints what was measured.
    #[command(verbatim_doc_comment)]
    Dns(Box<Dns>),
    /// Send datagrams to a server that answers each of them, over UDP.
    ///
    /// Each begins with two octets of its own, which its answer has to begin with as well: as with an echo server, or with memcached. All else is
    /// as for `gun dns`.
    #[command(verbatim_doc_comment)]
    Udp(Box<Udp>),
    /// Send requests to a server of HTTP/1.1, HTTP/2 or HTTP/3, at a fixed rate or as fast as it answers.
    ///
    /// With --rate the time of an answer counts from when its request was due, whether there was a free connection then or not. Without it
    /// each connection sends its next request when it has an answer. The report says whether the generator was the bottleneck itself.
    /// Ctrl-C ends the load and prints what was measured.
    #[command(verbatim_doc_comment)]
    Http(Box<Http>),
    /// Open connections and hold them.
    ///
    /// The report says how long it took to open them, and how many were refused, reset, or ended by the server. Ctrl-C ends it and prints what
    /// was measured.
    #[command(verbatim_doc_comment)]
    Connect(Connect),
    /// Show two reports (`--json`) side by side.
    Compare(Compare),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Dns(options) => dns(options),
        Command::Udp(options) => udp(options),
        Command::Http(options) => http(options),
        Command::Connect(options) => connect(options),
        Command::Compare(options) => compare(options),
    }
}

fn dns(options: &Dns) -> anyhow::Result<ExitCode> {
    let server = options.server();
    target::check(server.ip(), options.reports.yes_i_own_it)?;
    let seed = options.seed();
    let questions = options.questions(seed)?;
    let mut report = Report::begin("gun dns", server, options.subject());
    (report.questions, report.ports) = (questions.len(), options.origin.ports.into());
    report.seed = Some(seed);
    let stop = Stop::by_signals()?;
    let mut fire: Box<dyn Fire> = if options.transport == Transport::Udp {
        Box::new(over_udp(
            (options.server(), options.payload()),
            &options.origin,
            questions,
            &mut report,
            stop,
        )?)
    } else {
        Box::new(over_connections(options, questions, &mut report, stop)?)
    };
    let plan = Plan { rate: Some(options.rate), search: &options.search, patience: options.timeout };
    measure(&mut *fire, &plan, &mut report, &options.reports)
}

fn udp(options: &Udp) -> anyhow::Result<ExitCode> {
    target::check(options.server.ip(), options.reports.yes_i_own_it)?;
    let datagrams = options.datagrams()?;
    let mut report = Report::begin("gun udp", options.server, options.subject());
    report.ports = options.origin.ports.into();
    let stop = Stop::by_signals()?;
    let mut asking = over_udp((options.server, 0), &options.origin, datagrams, &mut report, stop)?;
    let plan = Plan { rate: Some(options.rate), search: &options.search, patience: options.timeout };
    measure(&mut asking, &plan, &mut report, &options.reports)
}

/// Answers have as many octets as a device takes, or `payload` of kernel sockets if that is more.
fn over_udp<M>(
    (server, payload): (SocketAddr, u16),
    origin: &Origin,
    messages: M,
    report: &mut Report,
    stop: Stop,
) -> anyhow::Result<Asking<M>> {
    let mut range = match &origin.device {
        Some(device) => interface::open(device, server, origin, payload)?,
        None => kernel::open(server, origin.ports, origin.source, payload)?,
    };
    // Many clients ask at random, and none of them sixteen times in a row.
    if origin.source.is_some() {
        range = range.taking_turns();
    }
    range.stop = stop;
    report.device.clone_from(&range.description);
    Ok(Asking { range, messages })
}

fn over_connections(
    options: &Dns,
    questions: Questions,
    report: &mut Report,
    stop: Stop,
) -> anyhow::Result<StreamRange> {
    let Origin { device, source, .. } = &options.origin;
    ensure!(device.is_none(), "--device is for UDP: the other transports are on kernel sockets");
    ensure!(source.is_none(), "--source is for UDP");
    let server = options.server();
    let name = options.certificates.tls_host.clone().unwrap_or(ServerName::IpAddress(server.ip().into()));
    let tls = |protocol, required| -> anyhow::Result<Kind> {
        Ok(Kind::Tls(Tls { config: options.certificates.config(protocol)?, name: name.clone(), required }))
    };
    let (kind, speech, transport) = match options.transport {
        Transport::Https => {
            let request = http::doh_request(server, &options.path)?;
            (tls(b"h2", Some(b"h2"))?, Speech::Doh(request, questions), "https")
        }
        Transport::Quic => {
            let quic = Quic::for_dns(server, &name, options.certificates.config(b"doq")?, Instant::now())?;
            (Kind::Datagrams, Speech::Doq(quic, questions), "quic")
        }
        Transport::Tls => (tls(b"dot", None)?, Speech::Dns(questions), "tls"),
        Transport::Tcp | Transport::Udp => (Kind::Tcp, Speech::Dns(questions), "tcp"),
    };
    connect::raise_limit(options.origin.ports.into())?;
    report.transport = Some(transport.to_owned());
    report.pipeline = Some(options.pipeline.into());
    report.device = format!("DNS over {}, kernel sockets", transport.to_uppercase());
    Ok(StreamRange {
        target: Target { address: server, kind },
        speech,
        connections: options.origin.ports.into(),
        pipeline: options.pipeline.into(),
        is_kept: true,
        timeout: options.timeout,
        asked: 0,
        stop,
    })
}

fn http(options: &Http) -> anyhow::Result<ExitCode> {
    let url = http::Url::parse(&options.url)?;
    let addresses = url.addresses()?;
    for address in &addresses {
        target::check(address.ip(), options.reports.yes_i_own_it)?;
    }
    let request = http::Request::new(options)?;
    let mut report = Report::begin("gun http", addresses[0], request.subject(&url));
    report.ports = options.connections.into();
    let version = HttpVersion::of(options);
    report.transport = Some(format!("http/{}", version.number()));
    report.pipeline = Some(options.pipeline.into());
    let certificates = &options.certificates;
    let target = url.target(addresses[0], certificates, version)?;
    let over = if matches!(target.kind, Kind::Tls(_)) { "TLS, " } else { "" };
    report.device = format!("HTTP/{}, {over}kernel sockets", version.number());
    connect::raise_limit(options.connections.into())?;
    let mut range = StreamRange {
        speech: request.speech(&url, version, addresses[0], certificates)?,
        target,
        connections: options.connections.into(),
        pipeline: options.pipeline.into(),
        is_kept: !options.close,
        timeout: options.timeout,
        asked: 0,
        stop: Stop::by_signals()?,
    };
    let plan = Plan { rate: options.rate, search: &options.search, patience: options.timeout };
    measure(&mut range, &plan, &mut report, &options.reports)
}

fn connect(options: &Connect) -> anyhow::Result<ExitCode> {
    target::check(options.server.ip(), options.reports.yes_i_own_it)?;
    let mut report = Report::begin("gun connect", options.server, "opened and held".to_owned());
    report.ports = options.connections;
    report.transport = Some("tcp".to_owned());
    report.device = "kernel sockets".to_owned();
    let stop = Stop::by_signals()?;
    options.reports.check()?;
    text::begin(&report);
    connect::hold(options, &mut report, &stop)?;
    finish(&report, &options.reports)
}

/// What is to be measured.
struct Plan<'o> {
    /// Requests a second; `None`: as many as the server answers.
    rate: Option<u32>,
    search: &'o Search,
    patience: Duration,
}

fn measure(
    fire: &mut dyn Fire,
    plan: &Plan<'_>,
    report: &mut Report,
    reports: &Reports,
) -> anyhow::Result<ExitCode> {
    reports.check()?;
    text::begin(report);
    if plan.search.find_knee {
        report.knee = Some(find_knee(fire, plan, report)?);
    } else {
        let rate = plan.rate.unwrap_or(0);
        report.loads.push(fire.fire(&plan.load(rate, plan.search.duration), text::Live::new(rate))?);
    }
    finish(report, reports)
}

impl Plan<'_> {
    fn load(&self, rate: u32, length: Duration) -> Load {
        Load { rate, length, patience: self.patience, within: self.search.within() }
    }

    /// How long to offer a load in a search. What becomes of few questions is luck, so a small load takes longer; but a server that answered
    /// none of the `last` load's is soon known.
    fn step(&self, rate: u32, last: Option<&Summary>) -> Duration {
        let is_silent = last.is_some_and(|load| load.counts.answered == 0);
        let questions = if is_silent { 0 } else { STEP_QUESTIONS };
        let length = Duration::from_nanos(questions * 1_000_000_000 / u64::from(rate.max(1)));
        length.min(LONG_STEP).max(self.search.step)
    }

    fn try_load(&self, fire: &mut dyn Fire, rate: u32, report: &Report) -> anyhow::Result<Summary> {
        fire.fire(&self.load(rate, self.step(rate, report.loads.last())), text::Live::silent())
    }
}

fn find_knee(fire: &mut dyn Fire, plan: &Plan<'_>, report: &mut Report) -> anyhow::Result<Found> {
    let mut knee = Knee::search(plan.rate.unwrap_or(FIRST_RATE), PRECISION);
    while let Some(rate) = knee.next_load() {
        if fire.is_stopped() {
            knee.stop();
            break;
        }
        let summary = plan.try_load(fire, rate, report)?;
        // A load that was cut short says nothing.
        if !fire.is_stopped() {
            knee.on_verdict(summary.verdict());
            text::step(&summary, report.words());
        }
        report.loads.push(summary);
        if knee.next_load().is_some()
            && let Some(loss) = steady_loss(&report.loads)
        {
            knee.on_steady_loss(loss.limit);
        }
    }
    doubt(&mut knee, fire, plan, report)?;
    Ok(Found::of(&knee, report))
}

/// Offers one more load after a search whose loads are too near to each other to show that a smaller one loses less.
fn doubt(knee: &mut Knee, fire: &mut dyn Fire, plan: &Plan<'_>, report: &mut Report) -> anyhow::Result<()> {
    let Some(rate) = far_load(knee, &report.loads) else { return Ok(()) };
    let summary = plan.try_load(fire, rate, report)?;
    if !fire.is_stopped() {
        text::step(&summary, report.words());
        report.loads.push(summary);
    }
    if let Some(loss) = steady_loss(&report.loads) {
        knee.on_steady_loss(loss.limit);
    }
    Ok(())
}

/// Writes the reports.
fn finish(report: &Report, reports: &Reports) -> anyhow::Result<ExitCode> {
    let is_taken = reports.files().any(|path| path == Path::new("-"));
    let said = if is_taken { Ok(()) } else { output::to_stdout(|out| text::end(report, out)).map(drop) };
    // The terminal may be gone, which the reports outlive.
    said.and(save(report, reports))?;
    let answered = report.loads.iter().any(|load| load.counts.answered > 0);
    if !answered {
        let why =
            report.loads.last().and_then(streams::reason).map_or(String::new(), |why| format!(": {why}"));
        output::complain!("sidestep gun: {} answered nothing{why}", report.server);
    }
    let wrong = report.wrong_answers();
    for line in &wrong {
        output::complain!("sidestep gun: {}: {line}", report.server);
    }
    Ok(if answered && wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes what can be written: one report that has no room does not cost the other.
fn save(report: &Report, reports: &Reports) -> anyhow::Result<()> {
    let json = |path: &PathBuf| write_file(path, &serde_json::to_string_pretty(report)?);
    let html = |path: &PathBuf| write_file(path, &html::page(&[report]));
    let written = reports.json.as_ref().map_or(Ok(()), json);
    written.and(reports.html.as_ref().map_or(Ok(()), html))
}

fn compare(options: &Compare) -> anyhow::Result<ExitCode> {
    let html = options.html.as_deref();
    let is_same = |one: &Path, other: &Path| {
        one == other || one.canonicalize().ok().is_some_and(|one| other.canonicalize().ok() == Some(one))
    };
    let is_report = |path: &&Path| [&options.first, &options.second].into_iter().any(|it| is_same(it, path));
    if let Some(path) = html.filter(is_report) {
        bail!("--html {}: it is one of the reports: name another file", path.display());
    }
    let (first, second) = (read_report(&options.first)?, read_report(&options.second)?);
    if html != Some(Path::new("-")) {
        output::to_stdout(|out| text::compare(&first, &second, out))?;
    }
    if let Some(path) = html {
        write_file(path, &self::html::page(&[&first, &second]))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A report that may come from somebody else: its texts are fit for a terminal, and its seconds for rates.
fn read_report(path: &Path) -> anyhow::Result<Report> {
    let name = || path.display().to_string();
    let none = || format!("{}: this is no report of `gun`", name());
    let text = options::read_at_most(path, REPORT_MAX).with_context(name)?;
    let report: Report = observe::protocol::printable(&text).with_context(none)?;
    let mut spans = report.loads.iter().flat_map(|load| &load.seconds).map(|second| second.span_s);
    if let Some(span) = spans.find(|span| *span < SPAN_MIN) {
        bail!("{}: a `span_s` of {span} is no length of time", none());
    }
    Ok(report)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        output::to_stdout(|out| Ok(writeln!(out, "{text}")?))?;
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gun::summary::Counts;
    use gun::{Summary, Tally};

    use super::*;

    /// A server that answers everything; the user has had enough in the second load.
    struct Patience {
        loads: u32,
    }

    impl Fire for Patience {
        fn is_stopped(&self) -> bool {
            self.loads > 1
        }

        fn fire(&mut self, load: &Load, _: text::Live) -> anyhow::Result<Summary> {
            self.loads += 1;
            let mut summary = Tally::new(clock::Instant::ZERO).summary(load.rate, load.length, 0);
            let answers = u64::from(load.rate);
            (summary.length_s, summary.sent_per_s) = (1.0, None);
            (summary.counts.sent, summary.counts.in_time) = (answers, answers);
            Ok(summary)
        }
    }

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        search: Search,
    }

    #[test]
    fn a_load_of_a_search_that_is_cut_short_is_not_judged() {
        let search = Words::parse_from(["gun", "--find-knee"]).search;
        let plan = Plan { rate: Some(300), search: &search, patience: Duration::ZERO };
        let mut report = Report::default();
        let found = find_knee(&mut Patience { loads: 0 }, &plan, &mut report).unwrap();
        assert_eq!((found.carried, &found.limit[..], report.loads.len()), (Some(300), "stopped", 2));
    }

    /// A server that gives good answers to so many of a load's questions, and to all others bad ones, which are counted as such.
    struct Bad(fn(u64) -> u64, fn(&mut Counts, u64));

    impl Fire for Bad {
        fn is_stopped(&self) -> bool {
            false
        }

        fn fire(&mut self, load: &Load, _: text::Live) -> anyhow::Result<Summary> {
            let mut summary = Tally::new(clock::Instant::ZERO).summary(load.rate, load.length, 0);
            let sent = u64::from(load.rate) * load.length.as_nanos() / 1_000_000_000;
            let good = self.0(load.rate.into()) * sent / u64::from(load.rate);
            (summary.length_s, summary.sent_per_s, summary.bottleneck) =
                (load.length.as_secs_f64(), None, None);
            (summary.counts.sent, summary.counts.answered, summary.counts.in_time) = (sent, sent, good);
            self.1(&mut summary.counts, sent - good);
            Ok(summary)
        }
    }

    fn knee_of(server: Bad) -> Report {
        knee_from(1000, server)
    }

    fn knee_from(first: u32, mut server: Bad) -> Report {
        let search = Words::parse_from(["gun", "--find-knee"]).search;
        let plan = Plan { rate: Some(first), search: &search, patience: Duration::ZERO };
        let mut report = Report { kind: "gun dns".to_owned(), ..Report::default() };
        report.knee = Some(find_knee(&mut server, &plan, &mut report).unwrap());
        report
    }

    /// The limit, and what is said of it.
    fn found_of(server: Bad) -> (String, String) {
        let report = knee_of(server);
        let found = report.knee.as_ref().unwrap();
        assert_eq!(found.carried, None);
        (found.limit.clone(), found.text(report.words()))
    }

    #[test]
    fn truncated_answers_of_a_rate_limit_are_the_limit() {
        let report = knee_of(Bad(|sent| sent.min(3000), |counts, bad| counts.truncated = bad));
        let found = report.knee.as_ref().unwrap();
        assert!(found.carried.is_some_and(|rate| (2800..=3100).contains(&rate)), "{found:?}");
        assert_eq!(&found.limit[..], "truncated");
        let why = "beyond, too many answers are truncated (TC): what limits it may be a limit of rates";
        assert_eq!(found.why.as_deref(), Some(why));
    }

    #[test]
    fn answers_that_are_truncated_at_any_rate_are_said_to_be_so() {
        let check = |whole, share, least| {
            let (limit, text) = found_of(Bad(whole, |counts, bad| counts.truncated = bad));
            let expected = format!(
                "none; about {share} % of the answers are truncated (TC), of 1000 a second as of {least}: they are too long for UDP or --payload, "
            );
            assert!(limit == "truncated" && text.starts_with(&expected), "{limit}: {text}");
        };
        check(|_| 0, 100, 1);
        check(|sent| (sent * 7).div_ceil(10), 30, 125);
    }

    #[test]
    fn errors_at_any_rate_are_no_knee() {
        let check = |good, share, least| {
            let (limit, text) = found_of(Bad(good, |counts, bad| counts.errors = bad));
            let expected = format!(
                "none; about {share} % of the answers are errors, of 1000 a second as of {least}: the server has them however little it is asked"
            );
            assert_eq!((&limit[..], text), ("errors", expected));
        };
        check(|_| 0, 100, 1);
        check(|sent| (sent * 97).div_ceil(100), 3, 125);
    }

    /// A server that answers 3 % by errors, and 1 % of what the search asks first.
    #[test]
    fn a_first_load_that_was_carried_by_luck_is_no_knee() {
        let good = |rate| if rate == 100 { 99 } else { rate * 97 / 100 };
        let report = knee_from(100, Bad(good, |counts, bad| counts.errors = bad));
        let found = report.knee.as_ref().unwrap();
        assert_eq!((found.carried, &found.limit[..]), (None, "errors"));
        assert_eq!(report.loads.last().map(|load| load.offered), Some(50), "a quarter of the largest");
    }

    #[test]
    fn a_small_load_takes_longer_unless_the_server_is_silent() {
        let lengths = |report: &Report| -> Vec<(u32, f64)> {
            report.loads.iter().map(|load| (load.offered, load.length_s)).collect()
        };
        let report = knee_from(200, Bad(|rate| rate.min(150), |counts, bad| counts.errors = bad));
        assert_eq!(lengths(&report)[..3], [(200, 5.0), (200, 5.0), (100, 10.0)]);
        let silent = knee_from(200, Bad(|_| 0, |counts, _| counts.answered = 0));
        assert_eq!(lengths(&silent)[..3], [(200, 5.0), (200, 2.0), (100, 2.0)]);
    }

    #[test]
    fn answers_that_are_always_too_late_name_the_option() {
        let check = |good, share, least| {
            let (_, text) = found_of(Bad(good, |_, _| {}));
            let expected = format!(
                "about {share} % of the answers come later than --within allows, of 1000 a second as of {least}: the path or the server takes so long however little it is asked"
            );
            assert!(text.ends_with(&expected), "{text}");
        };
        check(|_| 0, 100, 1);
        check(|sent| (sent * 7).div_ceil(10), 30, 125);
    }

    #[test]
    fn a_report_that_has_no_room_does_not_cost_the_other() {
        let page = std::env::temp_dir().join(format!("sidestep-gun-page-{}", std::process::id()));
        let json = Some("/dev/full".into());
        let reports = Reports { json, html: Some(page.clone()), yes_i_own_it: false };
        assert!(save(&Report::default(), &reports).is_err());
        assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
        std::fs::remove_file(page).unwrap();
    }

    #[test]
    fn a_report_has_an_end() {
        let error = read_report(Path::new("/dev/zero")).unwrap_err();
        assert!(format!("{error:#}").starts_with("/dev/zero: there are more than"), "{error:#}");
    }

    #[test]
    fn reports_of_others_are_read_with_care() {
        let path = std::env::temp_dir().join(format!("sidestep-gun-report-{}", std::process::id()));
        let read = |bottleneck: &str, span_s: f64| {
            let mut tally = Tally::new(clock::Instant::ZERO);
            tally.end_seconds(clock::Instant::from_nanos(1_000_000_000));
            let mut load = tally.summary(1, Duration::from_secs(1), 0);
            load.bottleneck = Some(bottleneck.to_owned());
            load.seconds.iter_mut().for_each(|second| second.span_s = span_s);
            assert_eq!(load.seconds.len(), 1);
            let report = Report { kind: "gun dns".to_owned(), loads: vec![load], ..Report::default() };
            std::fs::write(&path, serde_json::to_string_pretty(&report).unwrap()).unwrap();
            read_report(&path).map_err(|error| error.to_string())
        };
        let report = read("\u{1b}]0;hello\u{7}", SPAN_MIN).unwrap();
        assert_eq!(report.loads[0].bottleneck.as_deref(), Some("?]0;hello?"));
        for span_s in [0.0, -1.0, 1e-300] {
            let error = read("", span_s).unwrap_err();
            assert!(error.contains("this is no report of `gun`: a `span_s` of"), "{error}");
        }
        std::fs::remove_file(path).unwrap();
    }

    /// A path that loses three of ten questions, whatever the load.
    struct Lossy;

    impl Fire for Lossy {
        fn is_stopped(&self) -> bool {
            false
        }

        fn fire(&mut self, load: &Load, _: text::Live) -> anyhow::Result<Summary> {
            let mut summary = Tally::new(clock::Instant::ZERO).summary(load.rate, load.length, 0);
            let sent = u64::from(load.rate);
            (summary.length_s, summary.counts.sent) = (1.0, sent);
            summary.counts.answered = (sent * 7).div_ceil(10); // Of one question, one is answered.
            summary.counts.in_time = summary.counts.answered;
            summary.bottleneck = None;
            Ok(summary)
        }
    }

    #[test]
    fn on_a_lossy_path_no_knee_is_found_by_luck() {
        let search = Words::parse_from(["gun", "--find-knee"]).search;
        let plan = Plan { rate: Some(1000), search: &search, patience: Duration::ZERO };
        let mut report = Report { kind: "gun dns".to_owned(), ..Report::default() };
        let found = find_knee(&mut Lossy, &plan, &mut report).unwrap();
        assert_eq!((found.carried, &found.limit[..]), (None, "loss"));
        let expected = "none; about 30 % of the questions have no answer in time, of 1000 a second as of 125: the path loses them, or the server does however little it is asked";
        assert_eq!(found.text(report.words()), expected);
        report.knee = Some(found);
        assert_eq!(report.telling().map(|load| load.offered), Some(1000), "the load that tells most");
    }
}
