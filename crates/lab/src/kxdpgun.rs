//! kxdpgun: Knot DNS's load generator, and what it reports.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::peers::version::KXDPGUN;
use crate::{CLIENT_INTERFACE, Child, Lab, LabError, Questions, SERVER_V4, Side};

/// The kernel gives a queue free some time after the last run's end.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(300);

/// Queries sent at a time. With kxdpgun's own 10 the generator is full before the fastest servers are; beyond 32 its
/// bursts overrun queues.
const BATCH: &str = "32";

/// One run of the generator, from the client's namespace.
#[derive(Clone, Debug)]
pub struct Kxdpgun {
    /// Where queries go.
    pub target: String,
    /// The file with queries, `NAME TYPE` a line.
    pub queries: PathBuf,
    /// Over TCP, a connection for each query, in place of UDP.
    pub over_tcp: bool,
    /// Offered load, in queries a second.
    pub rate: u32,
    /// How long, in seconds.
    pub seconds: u32,
}

impl Kxdpgun {
    /// Two seconds of `rate` queries a second to the server's IPv4 address.
    pub fn new(queries: PathBuf, rate: u32) -> Kxdpgun {
        Kxdpgun { target: SERVER_V4.to_owned(), queries, over_tcp: false, rate, seconds: 2 }
    }

    /// The same with the queries of `questions`, in their transport.
    pub fn asking(questions: &Questions, rate: u32) -> Kxdpgun {
        let over_tcp = questions.workload.is_over_tcp();
        Kxdpgun { over_tcp, ..Kxdpgun::new(questions.file.clone(), rate) }
    }

    /// Runs it to its end.
    pub fn run(&self, lab: &Lab) -> Result<Report, LabError> {
        let mut text = String::new();
        for _ in 0..TRIES {
            let output = lab.command(Side::Client, &KXDPGUN.program()).args(self.arguments()).output();
            let output = output.map_err(LabError::system("kxdpgun"))?;
            text = (String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr))
                .into_owned();
            if !text.contains("resource is busy") {
                break;
            }
            thread::sleep(PAUSE);
        }
        Report::parse(&text)
    }

    /// Starts it; [`Kxdpgun::finish`] waits for its end.
    pub fn start(&self, lab: &Lab) -> Result<Child, LabError> {
        let arguments = self.arguments();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        lab.spawn_in(Side::Client, &KXDPGUN.program(), &words)
    }

    /// Waits for a run that [`Kxdpgun::start`] began.
    pub fn finish(&self, mut child: Child) -> Result<Report, LabError> {
        let timeout = Duration::from_secs(u64::from(self.seconds) + 60);
        child.wait_for_line("duration:", timeout)?;
        child.wait(timeout)?;
        Report::parse(&child.output())
    }

    /// The command line, for people.
    pub fn command_line(&self) -> String {
        format!("kxdpgun {}", self.arguments().join(" "))
    }

    fn arguments(&self) -> Vec<String> {
        let queries = self.queries.display().to_string();
        let (seconds, rate) = (self.seconds.to_string(), self.rate.to_string());
        // One thread, as there is one queue; it takes the first core by itself.
        let mut words = vec!["-t", &seconds, "-Q", &rate, "-i", &queries, "-I", CLIENT_INTERFACE];
        words.extend(["-b", BATCH]);
        words.extend(self.over_tcp.then_some("-T"));
        words.push(&self.target);
        words.into_iter().map(str::to_owned).collect()
    }
}

/// What kxdpgun says at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Queries sent.
    pub queries: u64,
    /// Replies received.
    pub replies: u64,
    /// Queries sent a second.
    pub query_rate: u64,
    /// Replies received a second.
    pub reply_rate: u64,
    /// Octets of an average DNS message that came back.
    pub reply_size: u64,
    /// Replies by response code.
    pub rcodes: Vec<(String, u64)>,
    /// The report itself.
    pub text: String,
}

impl Report {
    /// Reads the report from what kxdpgun wrote.
    pub fn parse(text: &str) -> Result<Report, LabError> {
        let missing = |field| LabError::Report { field, report: text.to_owned() };
        let after = |label: &'static str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
            line.map(numbers).filter(|numbers| !numbers.is_empty()).ok_or(missing(label))
        };
        // Over TCP it counts connections, one for each query.
        let queries = after("total queries:").or_else(|_| after("total SYNs:"))?;
        let replies = after("total replies:")?;
        let rate = |numbers: &[u64]| numbers.get(1).copied().unwrap_or(0);
        let rcodes = text.lines().filter_map(|line| {
            let (name, count) = line.trim().strip_prefix("responded ")?.split_once(':')?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        });
        Ok(Report {
            queries: queries[0],
            replies: replies[0],
            query_rate: rate(&queries),
            reply_rate: rate(&replies),
            // Not printed if nothing came back.
            reply_size: after("average DNS reply size:").map_or(0, |numbers| numbers[0]),
            rcodes: rcodes.collect(),
            text: text.trim().to_owned(),
        })
    }

    /// Replies with that response code.
    pub fn rcode(&self, name: &str) -> u64 {
        self.rcodes.iter().find(|(own, _)| own == name).map_or(0, |(_, count)| *count)
    }
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = "using interface veth-c, XDP threads 1, UDP, native mode\n\
                    thread#00: sent 529950, received 193248\n\
                    total queries:     529950 (264975 pps)\n\
                    total replies:     193248 (96624 pps) (36%)\n\
                    average DNS reply size: 86 B\n\
                    responded NOERROR:   193240\n\
                    responded REFUSED:   8\n\
                    duration: 2 s\n";
        let report = Report::parse(text).unwrap();
        assert_eq!((report.queries, report.query_rate), (529_950, 264_975));
        assert_eq!((report.replies, report.reply_rate), (193_248, 96_624));
        assert_eq!((report.reply_size, report.rcode("REFUSED"), report.rcode("SERVFAIL")), (86, 8, 0));
        assert!(Report::parse("total queries: 5\n").is_err());
    }

    #[test]
    fn a_report_of_tcp_is_read() {
        let text = "total SYNs:        4001 (2000 pps)\ntotal established: 4001 (2000 pps) (100%)\n\
                    total replies:     3998 (1999 pps) (99%)\ntotal closed:      3998 (1999 pps) (99%)\n\
                    average DNS reply size: 62 B\nresponded NOERROR:   3998\nduration: 2 s\n";
        let report = Report::parse(text).unwrap();
        assert_eq!((report.queries, report.query_rate, report.reply_rate), (4001, 2000, 1999));
    }
}
