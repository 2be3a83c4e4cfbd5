//! [`Wrk`]: the generator of HTTP requests, and its report.

use crate::programs::Network;
use crate::{Lab, LabError, Side};

/// One run of wrk in the client's namespace, on one thread.
#[derive(Clone, Debug)]
pub struct Wrk {
    /// Where to ask.
    pub url: String,
    /// Connections, each with one request under way.
    pub connections: u32,
    /// Length of the run.
    pub seconds: u32,
    /// A new connection for each request.
    pub close: bool,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WrkReport {
    /// Responses a second.
    pub rate: f64,
    /// The middle of all latencies, in microseconds.
    pub median_us: f64,
    /// Requests that failed: no connection, no response in time, or another status than 2xx and 3xx.
    pub errors: u64,
}

impl Wrk {
    /// Runs to the end, on the kernel's network.
    pub fn run(&self, lab: &Lab) -> Result<WrkReport, LabError> {
        self.run_on(lab, &Network::Kernel)
    }

    /// The same on `network`.
    pub fn run_on(&self, lab: &Lab, network: &Network) -> Result<WrkReport, LabError> {
        let (connections, seconds) = (self.connections.to_string(), self.seconds.to_string());
        let mut words =
            vec!["wrk", "-t1", "-c", &connections, "-d", &seconds, "--latency", "--timeout", "30"];
        if self.close {
            words.extend(["-H", "Connection: close"]);
        }
        words.push(&self.url);
        Ok(parse(&network.run(lab, Side::Client, &words)?))
    }
}

/// Reads wrk's output; a missing value counts as zero.
fn parse(text: &str) -> WrkReport {
    let after = |label: &str| {
        let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(label));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    let socket_errors = after("Socket errors:");
    let numbers =
        socket_errors.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok());
    WrkReport {
        rate: after("Requests/sec:").parse().unwrap_or(0.0),
        median_us: microseconds(&after("50%")),
        errors: numbers.sum::<u64>() + after("Non-2xx or 3xx responses:").parse::<u64>().unwrap_or(0),
    }
}

/// `70.00us`, `1.20ms`, `1.00s`.
fn microseconds(text: &str) -> f64 {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let value = units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    });
    value.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = "Running 1s test @ http://10.53.0.1/\n  1 threads and 64 connections\n  Latency Distribution\n     \
                    50%  441.00us\n     75%    1.06ms\n  Socket errors: connect 1, read 2, write 0, timeout 3\n  \
                    Non-2xx or 3xx responses: 4\nRequests/sec: 131027.53\nTransfer/sec:     20.62MB\n";
        assert_eq!(parse(text), WrkReport { rate: 131_027.53, median_us: 441.0, errors: 10 });
    }

    #[test]
    fn units_are_turned_into_microseconds() {
        assert_eq!(["70.00us", "1.20ms", "1.00s", ""].map(microseconds), [70.0, 1200.0, 1e6, 0.0]);
    }
}
