//! How congestion control behaves, as a table that is compared with specs/congestion/goodput.txt: a change of behaviour is a
//! change of that file. `UPDATE_SNAPSHOTS=1 cargo test -p simnet --test congestion` rewrites it.

use std::fmt::Write;
use std::path::PathBuf;

use clock::Duration;
use simnet::net::{Bottleneck, fairness, shares};
use stack::congestion::Algorithm;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr];
/// In a million.
const LOSSES: [u32; 4] = [0, 1000, 10_000, 30_000];
const BUFFERS: [(u32, &str); 3] = [(25, "0.25"), (100, "1"), (400, "4")];
/// Octets a second: 20 Mb/s.
const RATE: u64 = 2_500_000;
/// A queue for less than this would be none.
const BUFFER_MIN: u64 = 4 * 1500;

#[test]
fn goodput_and_fairness_are_those_of_the_committed_table() {
    let (fairness, goodput) = std::thread::scope(|scope| {
        let goodput = scope.spawn(goodput_table);
        (fairness_table(), goodput.join().unwrap())
    });
    compare(&format!("{goodput}\n{fairness}"));
}

fn goodput_table() -> String {
    let mut table = String::from(HEADING);
    for algorithm in ALGORITHMS {
        for rtt_ms in [1, 20, 100] {
            for buffer in BUFFERS {
                writeln!(table, "{}", goodput_row(algorithm, rtt_ms, buffer)).unwrap();
            }
        }
    }
    table
}

fn fairness_table() -> String {
    let mut table = String::from(FAIRNESS_HEADING);
    for (first, second) in pairs() {
        for buffer in BUFFERS {
            writeln!(table, "{}", fairness_row(first, second, buffer)).unwrap();
        }
    }
    table
}

const HEADING: &str = "\
Goodput of one flow through a bottleneck of 20 Mb/s, in percent of the payload that it can carry, from the second second on
until the tenth. The buffer is in bandwidth-delay products, and four packets at least; loss is by chance, on top of what
the full buffer drops.

algorithm   rtt  buffer      0  0.1 %    1 %    3 %
";

const FAIRNESS_HEADING: &str = "\
Two flows through the same bottleneck, 20 ms, from the tenth second on until the fortieth: percent of each, and Jain's index.

first   second  buffer  first  second  index
";

fn bottleneck(rtt_ms: u64, buffer_percent: u32, loss: u32) -> Bottleneck {
    let rtt = Duration::from_millis(rtt_ms);
    let path = Bottleneck { rate: RATE, rtt, buffer: 0, loss };
    let buffer = path.bandwidth_delay_product() * u64::from(buffer_percent) / 100;
    Bottleneck { buffer: buffer.max(BUFFER_MIN), ..path }
}

fn goodput_row(algorithm: Algorithm, rtt_ms: u64, buffer: (u32, &str)) -> String {
    let mut row = format!("{:<9} {rtt_ms:>3} ms {:>7}", algorithm.name(), buffer.1);
    for loss in LOSSES {
        let path = bottleneck(rtt_ms, buffer.0, loss);
        let shares = shares(&path, &[algorithm], Duration::from_secs(2), Duration::from_secs(10)).unwrap();
        write!(row, " {:>6.0}", shares[0] * 100.0).unwrap();
    }
    row
}

fn pairs() -> Vec<(Algorithm, Algorithm)> {
    let pairs = |at: usize| ALGORITHMS[at..].iter().map(move |second| (ALGORITHMS[at], *second));
    (0..ALGORITHMS.len()).flat_map(pairs).collect()
}

fn fairness_row(first: Algorithm, second: Algorithm, buffer: (u32, &str)) -> String {
    let path = bottleneck(20, buffer.0, 0);
    let flows = [first, second];
    let shares = shares(&path, &flows, Duration::from_secs(10), Duration::from_secs(40)).unwrap();
    let (a, b, index) = (shares[0] * 100.0, shares[1] * 100.0, fairness(&shares));
    format!("{:<7} {:<7} {:>6} {a:>6.0} {b:>7.0} {index:>6.2}", first.name(), second.name(), buffer.1)
}

fn compare(table: &str) {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "specs", "congestion", "goodput.txt"].iter().collect();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        return std::fs::write(path, table).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = |(new, old): &(&str, &str)| new != old;
    for (new, old) in table.lines().zip(committed.lines()).filter(differs) {
        println!("was  {old}\nis   {new}");
    }
    assert!(
        table == committed,
        "congestion control behaves differently; if that is right: UPDATE_SNAPSHOTS=1 cargo test -p simnet --test congestion"
    );
}
