//! The client: queries at even intervals, whether or not the last one has been answered.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lab::{Lab, LabError, SERVER_V4, Side, generator_core, median, message, stay_on};

/// Length of a round.
pub(crate) const SECONDS: u32 = 2;
/// Windows of which each has its quantiles.
pub(crate) const WINDOWS_PER_SECOND: usize = 4;
/// Queries at the start that do not count: caches fill, neighbours are found.
const WARM_UP: u64 = 1000;
/// How long the last answers are waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// A paced load.
pub(crate) struct Probe {
    /// Queries a second.
    pub(crate) rate: u32,
    /// Names asked for in turn: `h0`, `h1` and so on.
    pub(crate) hosts: u32,
    /// Below this one.
    pub(crate) origin: String,
}

/// What came back, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoundTrips {
    /// In nanoseconds, as they came back.
    trips_ns: Vec<u64>,
    /// How many belong to a window.
    window: usize,
    /// Queries without an answer.
    pub(crate) lost: u64,
}

impl RoundTrips {
    /// All of them.
    pub(crate) fn all(&self) -> &[u64] {
        &self.trips_ns
    }

    /// The round trip that `per_mille` did not exceed, in each window by itself: whoever lends us the machine takes its cores away
    /// for milliseconds now and then, which then spoils that window and not the round.
    pub(crate) fn quantiles_of_windows(&self, per_mille: usize) -> impl Iterator<Item = u64> {
        let windows = self.trips_ns.chunks_exact(self.window.max(1));
        windows.map(move |window| quantile(window, per_mille))
    }
}

/// The value that `per_mille` of all did not exceed; of none, zero.
pub(crate) fn quantile(values: &[u64], per_mille: usize) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let windows =
            |per_mille| median(&self.quantiles_of_windows(per_mille).collect::<Vec<_>>()) as f64 / 1000.0;
        let all = quantile(&self.trips_ns, 990) as f64 / 1000.0;
        let lost = self.lost;
        write!(f, "p50 {:.1} us, p99 {:.1} us ({all:.1} of all), {lost} lost", windows(500), windows(990))
    }
}

impl Probe {
    /// Sends for a round from the client's namespace and core.
    pub(crate) fn run(&self, lab: &Lab) -> Result<RoundTrips, LabError> {
        lab.inside(Side::Client, || self.exchange())
            .map_err(|source| LabError::System { what: "the probe's socket".to_owned(), source })
    }

    fn exchange(&self) -> io::Result<RoundTrips> {
        stay_on(generator_core());
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(SocketAddr::new(SERVER_V4.parse().expect("an address"), 53))?;
        // Never sleeps: a wake-up of ours would be added to every figure.
        socket.set_nonblocking(true)?;
        let total = WARM_UP + u64::from(self.rate) * u64::from(SECONDS);
        let interval = Duration::from_secs(1) / self.rate;
        // By message id: far more than can be on their way.
        let mut sent_at: Vec<Option<(u64, Instant)>> = vec![None; 1 << 16];
        let window = self.rate as usize / WINDOWS_PER_SECOND;
        let mut trips = RoundTrips { trips_ns: Vec::with_capacity(total as usize), window, lost: 0 };
        let (mut sent, mut answered, mut octets) = (0, 0, [0; 2048]);
        let mut next = Instant::now();
        while sent < total || answered < total && next.elapsed() < PATIENCE {
            if sent < total && Instant::now() >= next {
                let query = self.query(sent);
                sent_at[sent as usize & 0xffff] = Some((sent, Instant::now()));
                socket.send(&query)?;
                sent += 1;
                next += interval;
            }
            if socket.recv(&mut octets).is_ok() {
                let now = Instant::now();
                let id = usize::from(u16::from_be_bytes([octets[0], octets[1]]));
                if let Some((number, sent_at)) = sent_at[id].take() {
                    answered += 1;
                    if number >= WARM_UP {
                        trips.trips_ns.push((now - sent_at).as_nanos() as u64);
                    }
                }
            }
        }
        trips.lost = total - answered;
        Ok(trips)
    }

    fn query(&self, number: u64) -> Vec<u8> {
        let host = number * 7 % u64::from(self.hosts);
        message::query(number as u16, &format!("h{host}.{}", self.origin), message::A)
    }
}

#[test]
fn a_stall_spoils_the_window_that_it_falls_into() {
    let trips_ns = (0..400).map(|number| if (100..120).contains(&number) { 4_000_000 } else { 30_000 });
    let trips = RoundTrips { trips_ns: trips_ns.collect(), window: 100, lost: 0 };
    assert_eq!(trips.quantiles_of_windows(990).collect::<Vec<_>>(), [30_000, 4_000_000, 30_000, 30_000]);
    assert_eq!(quantile(trips.all(), 990), 4_000_000);
}
