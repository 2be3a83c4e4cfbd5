//! How many records a second the reader takes: `cargo run --release -p dns-zone --example read_speed [MILLIONS]`.
//!
//! Makes zones in memory, reads each five times on one core, prints the median.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::time::Instant;

use dns_zone::text::{Files, Limits, TextFile, read_zone};

/// One text, handed over without a copy.
struct OneFile(Option<Vec<u8>>);

impl Files for OneFile {
    fn open(&mut self, _: &Path) -> io::Result<TextFile> {
        self.0.take().map(TextFile::from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn main() {
    let millions: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2);
    let count = millions * 1_000_000;
    measure("absolute A", count, |text, index| {
        let _ = writeln!(text, "host{index}.example.com. 3600 IN A 192.0.2.{}", index % 256);
    });
    measure("relative A", count, |text, index| {
        let _ = writeln!(text, "host{index} IN A 192.0.2.{}", index % 256);
    });
    measure("relative AAAA", count, |text, index| {
        let _ = writeln!(text, "host{index} IN AAAA 2001:db8::{:x}:{:x}", index >> 16, index & 0xffff);
    });
    measure("delegations", count, |text, index| {
        let _ = writeln!(text, "zone{index} IN NS ns{}.example.net.", index % 4);
    });
    measure("signed (DS, NSEC)", count, |text, index| {
        let _ = writeln!(
            text,
            "zone{index} DS {} 13 2 {}",
            index % 65536,
            "2BB183AF5F22588179A53B0A98631FAD".repeat(2)
        );
        let _ = writeln!(text, " NSEC zone{}.example.com. NS DS RRSIG NSEC", index + 1);
    });
}

fn measure(what: &str, count: usize, line: impl Fn(&mut String, usize)) {
    let mut text = String::from("$TTL 3600\n@ IN SOA ns1 hostmaster 1 3600 900 604800 300\n");
    for index in 0..count {
        line(&mut text, index);
    }
    let mut rates: Vec<f64> = (0..5).map(|_| rate(text.clone().into_bytes())).collect();
    rates.sort_by(f64::total_cmp);
    println!("{what:<18} {:6.2} million records/s", rates[2] / 1e6);
}

/// Records a second over one reading.
fn rate(text: Vec<u8>) -> f64 {
    let mut octet_count = 0;
    let start = Instant::now();
    let summary = read_zone(
        &mut OneFile(Some(text)),
        Path::new("example.com.zone"),
        None,
        &Limits::default(),
        |record| {
            octet_count += record.owner.len() + record.rdata.len();
            Ok::<(), Infallible>(())
        },
    );
    let elapsed = start.elapsed();
    let summary = summary.expect("the zone that was just made is right");
    assert!(octet_count > 0);
    summary.record_count as f64 / elapsed.as_secs_f64()
}
