//! What is measured, on whose network, and what is wanted of it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bench::open_loop::OpenLoop;
use bench::processor::{busy_shares, busy_time};
use lab::programs::{Network, Nginx, Program, Running, redis, sockperf};
use lab::{Lab, LabError, SERVER_V4, Side, Wrk};

use crate::{Measurement, hooks, stateless};

/// A measurement by name.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) wanted: Wanted,
    pub(crate) contenders: &'static [Contender],
    pub(crate) measure: fn(&Lab, Serving, u32) -> Result<Measurement, LabError>,
}

/// How the kernel and a contender are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    HigherRatio,
    LowerRatio,
    LowerDifference,
}

/// The contenders compared with the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    pub(crate) serving: Serving,
    pub(crate) target: Option<f64>,
}

/// The server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serving {
    /// The program on the kernel's network.
    Kernel,
    /// The program by `sidestep run` with these options.
    Run(&'static [&'static str]),
    /// A responder without state in place of the program: the bound.
    Stateless(Duration),
}

impl Serving {
    pub(crate) fn start(self, lab: &Lab, program: &Program) -> Result<Running, LabError> {
        let network = match self {
            Serving::Kernel => Network::Kernel,
            Serving::Run(options) => Network::sidestep(options),
            Serving::Stateless(spin) => {
                return stateless::program(spin).start(lab, Side::Server, &Network::Kernel);
            }
        };
        program.start(lab, Side::Server, &network)
    }
}

impl fmt::Display for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Serving::Kernel => f.write_str("kernel"),
            Serving::Run([]) => f.write_str("sidestep run"),
            Serving::Run(options) => write!(f, "sidestep run {}", options.join(" ")),
            Serving::Stateless(_) => f.write_str("bound: answers without a stack"),
        }
    }
}

/// Looks for packets for 200 us before it sleeps: longer than a client on the same machine thinks.
const SPINNING: &[&str] = &["--spin-us", "200"];
/// Sleeps at once.
const INTERRUPTS: &[&str] = &["--spin-us", "0"];
/// The same for datagrams, which on a veth with one queue are the kernel's unless XDP runs in the driver.
const DATAGRAMS: &[&str] = &["--spin-us", "200", "--xdp-mode", "native"];
const DATAGRAMS_BY_INTERRUPTS: &[&str] = &["--spin-us", "0", "--xdp-mode", "native"];
/// One that does not spin shows by the time its core is idle how far the server is from being the bound.
const ASLEEP: Contender = Contender { serving: Serving::Run(INTERRUPTS), target: None };
/// The most that is possible with this client and this wire.
const BOUND: Contender = Contender { serving: Serving::Stateless(Duration::from_micros(50)), target: None };
const BOUND_ASLEEP: Contender = Contender { serving: Serving::Stateless(Duration::ZERO), target: None };

/// Pages of ordinary and of large sizes: at least the kernel's rate.
const PAGES: &[Contender] = &[Contender { serving: Serving::Run(&[]), target: Some(1.0) }];

/// A page of some size.
const fn page(
    name: &'static str,
    measure: fn(&Lab, Serving, u32) -> Result<Measurement, LabError>,
) -> Scenario {
    Scenario { name, unit: "requests/s", wanted: Wanted::HigherRatio, contenders: PAGES, measure }
}

/// Requests a second at which processor time is compared.
const FIXED_RATE: u32 = 40_000;

pub(crate) const SCENARIOS: [Scenario; 13] = [
    Scenario {
        name: "nginx_keepalive_64conn",
        unit: "requests/s",
        wanted: Wanted::HigherRatio,
        contenders: &[Contender { serving: Serving::Run(&[]), target: Some(1.4) }, ASLEEP, BOUND],
        measure: |lab, serving, seconds| nginx(lab, serving, seconds, &ASKS_64, |report| report.rate),
    },
    Scenario {
        name: "nginx_keepalive_64conn, wrk by sidestep run",
        unit: "requests/s",
        wanted: Wanted::HigherRatio,
        contenders: &[Contender { serving: Serving::Run(&[]), target: Some(1.4) }],
        measure: |lab, serving, seconds| {
            let asks = Asks { by_sidestep: true, ..ASKS_64 };
            nginx(lab, serving, seconds, &asks, |report| report.rate)
        },
    },
    Scenario {
        name: "nginx_close_64conn",
        unit: "requests/s",
        wanted: Wanted::HigherRatio,
        contenders: &[Contender { serving: Serving::Run(&[]), target: Some(2.5) }, ASLEEP, BOUND],
        measure: |lab, serving, seconds| {
            nginx(lab, serving, seconds, &Asks { close: true, ..ASKS_64 }, |report| report.rate)
        },
    },
    Scenario {
        name: "nginx_keepalive_1conn",
        unit: "us, p50",
        wanted: Wanted::LowerRatio,
        contenders: &[
            Contender { serving: Serving::Run(SPINNING), target: Some(0.7) },
            Contender { serving: Serving::Run(INTERRUPTS), target: Some(1.0) },
        ],
        measure: |lab, serving, seconds| {
            nginx(lab, serving, seconds, &Asks { connections: 1, ..ASKS_64 }, |report| report.median_us)
        },
    },
    page("nginx_page_1kB_64conn", |lab, serving, seconds| {
        nginx(lab, serving, seconds, &Asks { path: "1k", ..ASKS_64 }, |report| report.rate)
    }),
    page("nginx_page_10kB_64conn", |lab, serving, seconds| {
        nginx(lab, serving, seconds, &Asks { path: "10k", ..ASKS_64 }, |report| report.rate)
    }),
    page("nginx_page_100kB_64conn", |lab, serving, seconds| {
        nginx(lab, serving, seconds, &Asks { path: "100k", ..ASKS_64 }, |report| report.rate)
    }),
    page("nginx_page_1000kB_64conn", |lab, serving, seconds| {
        nginx(lab, serving, seconds, &Asks { path: "1000k", ..ASKS_64 }, |report| report.rate)
    }),
    Scenario {
        name: "nginx_cpu_at_40000_rps",
        unit: "us of the machine's cores per request",
        wanted: Wanted::LowerRatio,
        contenders: &[Contender { serving: Serving::Run(INTERRUPTS), target: Some(0.7) }, BOUND_ASLEEP],
        measure: nginx_cpu,
    },
    Scenario {
        name: "redis_get_50conn",
        unit: "requests/s",
        wanted: Wanted::HigherRatio,
        contenders: &[Contender { serving: Serving::Run(&[]), target: Some(1.5) }, ASLEEP, BOUND],
        measure: |lab, serving, seconds| redis_get(lab, serving, seconds, false),
    },
    Scenario {
        name: "redis_get_50conn, redis-benchmark by sidestep run",
        unit: "requests/s",
        wanted: Wanted::HigherRatio,
        contenders: &[Contender { serving: Serving::Run(&[]), target: Some(1.5) }],
        measure: |lab, serving, seconds| redis_get(lab, serving, seconds, true),
    },
    Scenario {
        name: "sockperf_udp_ping_pong_64b",
        unit: "us round trip, p50",
        wanted: Wanted::LowerRatio,
        contenders: &[
            Contender { serving: Serving::Run(DATAGRAMS), target: Some(0.5) },
            Contender { serving: Serving::Run(DATAGRAMS_BY_INTERRUPTS), target: None },
        ],
        measure: sockperf_udp,
    },
    Scenario {
        name: "hooked_call_on_kernel_fd",
        unit: "ns a call",
        wanted: Wanted::LowerDifference,
        contenders: &[Contender { serving: Serving::Run(&[]), target: Some(10.0) }],
        measure: hooks::measure,
    },
];

/// A worker may be a moment on its way to its queue.
const SETTLING: Duration = Duration::from_millis(500);

/// How wrk asks.
#[derive(Clone, Copy)]
struct Asks {
    /// What for, below the root.
    path: &'static str,
    connections: u32,
    close: bool,
    /// On our stack as well.
    by_sidestep: bool,
}

const ASKS_64: Asks = Asks { path: "", connections: 64, close: false, by_sidestep: false };

fn nginx(
    lab: &Lab,
    serving: Serving,
    seconds: u32,
    asks: &Asks,
    value: impl Fn(&lab::WrkReport) -> f64,
) -> Result<Measurement, LabError> {
    let pages = "for kilo in 1 10 100 1000; do head -c ${kilo}000 www/large > www/${kilo}k; done";
    let _nginx = serving.start(lab, &Nginx::with_workers(1).program().prepare(pages))?;
    std::thread::sleep(SETTLING);
    let Asks { path, connections, close, by_sidestep } = *asks;
    let wrk = Wrk { url: format!("http://{SERVER_V4}/{path}"), connections, seconds, close };
    let (report, busy) = busy_shares(|| wrk.run_on(lab, &network_of_client(by_sidestep)));
    let report = report?;
    Ok(Measurement { value: value(&report), errors: report.errors, busy })
}

fn nginx_cpu(lab: &Lab, serving: Serving, seconds: u32) -> Result<Measurement, LabError> {
    let _nginx = serving.start(lab, &Nginx::with_workers(1).program())?;
    std::thread::sleep(SETTLING);
    let load = OpenLoop {
        server: SocketAddr::new(SERVER_V4.parse().expect("an address"), 80),
        connections: 64,
        rate: FIXED_RATE,
        duration: Duration::from_secs(u64::from(seconds)),
    };
    let began = std::time::Instant::now();
    let ask = || {
        lab.inside(Side::Client, || {
            lab::stay_on(lab::generator_core());
            load.run()
        })
    };
    let ((report, busy), used) = busy_time(|| busy_shares(ask));
    let report =
        report.map_err(|source| LabError::System { what: "requests at a fixed rate".to_owned(), source })?;
    eprintln!(
        "  {:.0} requests/s, p50 {} us, p99 {} us",
        report.answered as f64 / began.elapsed().as_secs_f64(),
        report.percentile_us(0.5),
        report.percentile_us(0.99)
    );
    let value = used.as_secs_f64() * 1e6 / report.answered.max(1) as f64;
    Ok(Measurement { value, errors: report.failed, busy })
}

/// Where the client is: on our stack as well, or on the kernel.
fn network_of_client(by_sidestep: bool) -> Network {
    if by_sidestep { Network::sidestep_of_client(SPINNING) } else { Network::Kernel }
}

fn redis_get(lab: &Lab, serving: Serving, seconds: u32, by_sidestep: bool) -> Result<Measurement, LabError> {
    let _redis = serving.start(lab, &redis(""))?;
    std::thread::sleep(SETTLING);
    let count = (seconds * if by_sidestep { 180_000 } else { 90_000 }).to_string(); // About the kernel's rate.
    let words = ["redis-benchmark", "-h", SERVER_V4, "-c", "50", "-n", &count, "-t", "get", "--csv"];
    let (text, busy) = busy_shares(|| network_of_client(by_sidestep).run(lab, Side::Client, &words));
    let text = text?;
    let mut rates = text.lines().filter_map(|line| line.split("\",\"").nth(1)?.parse::<f64>().ok());
    let errors = u64::from(text.to_lowercase().contains("error"));
    Ok(Measurement { value: rates.next_back().unwrap_or(0.0), errors, busy })
}

fn sockperf_udp(lab: &Lab, serving: Serving, seconds: u32) -> Result<Measurement, LabError> {
    let _sockperf = serving.start(lab, &sockperf(false))?;
    std::thread::sleep(SETTLING);
    let seconds = seconds.to_string();
    let arguments = ["ping-pong", "-i", SERVER_V4, "-p", "11111", "-m", "64", "-t", &seconds];
    let (text, busy) = busy_shares(|| lab.run_in(Side::Client, "sockperf", &arguments));
    let text = text?;
    let after = |label: &str| {
        let rest = text.split_once(label).map_or("", |(_, rest)| rest);
        rest.split_whitespace().next().and_then(|word| word.trim_end_matches(';').parse::<f64>().ok())
    };
    let counts = ["# dropped messages =", "# duplicated messages =", "# out-of-order messages ="];
    let errors = counts.iter().map(|label| after(label).unwrap_or(1.0)).sum::<f64>() as u64;
    // It gives latency as half a round trip.
    Ok(Measurement { value: 2.0 * after("percentile 50.000 =").unwrap_or(f64::NAN), errors, busy })
}
