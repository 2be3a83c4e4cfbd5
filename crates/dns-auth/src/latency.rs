//! How long answers take: a histogram that one core writes, and any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// The ends of its buckets in nanoseconds: one microsecond to a tenth of a second. What takes longer is in none of them.
const ENDS: [u64; 16] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// Times of answers.
#[derive(Debug)]
pub(crate) struct Latency {
    /// By the first end that is not below them; the last one has all that are above.
    counts: [AtomicU64; ENDS.len() + 1],
    sum: AtomicU64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl Latency {
    /// An answer took so many nanoseconds.
    pub(crate) fn note(&self, nanos: u64) {
        let bucket = ENDS.partition_point(|end| *end < nanos);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The three metrics of a histogram of Prometheus, `labels` before that of the bucket; nothing while there is no time.
    pub(crate) fn named(&self, name: &str, labels: &str) -> Vec<(String, u64)> {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let count: u64 = counts.iter().sum();
        if count == 0 {
            return Vec::new();
        }
        let ends = ENDS.iter().map(u64::to_string).chain(["+Inf".to_owned()]);
        let up_to = counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let buckets =
            ends.zip(up_to).map(|(end, count)| (format!("{name}_bucket{{{labels},le=\"{end}\"}}"), count));
        let sum = self.sum.load(Ordering::Relaxed);
        buckets
            .chain([(format!("{name}_sum{{{labels}}}"), sum), (format!("{name}_count{{{labels}}}"), count)])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_what_took_no_longer_than_its_end() {
        let latency = Latency::default();
        assert_eq!(latency.named("took", "by=\"udp\""), []);
        [0, 1_000, 1_001, 100_000_000, 100_000_001].into_iter().for_each(|nanos| latency.note(nanos));
        let named = latency.named("took", "by=\"udp\"");
        let value = |name: &str| named.iter().find(|(of, _)| of == name).unwrap().1;
        let bucket = |end| value(&format!("took_bucket{{by=\"udp\",le=\"{end}\"}}"));
        let ends = ["1000", "2000", "50000000", "100000000", "+Inf"];
        assert_eq!(ends.map(bucket), [2, 3, 3, 4, 5]);
        assert_eq!(value("took_sum{by=\"udp\"}"), 200_002_002);
        assert_eq!((value("took_count{by=\"udp\"}"), named.len()), (5, ENDS.len() + 3));
    }
}
