//! Counters in Prometheus' text format, version 0.0.4.
//!
//! Names are those of `sidestep counters`, behind `sidestep_`, `sidestep_engine_`, `sidestep_stack_` and `sidestep_device_`. What is a
//! gauge among them is not told apart, so all are untyped, but for histograms.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use observe::report::{Count, CountersReport, labels_of, push_escaped};

/// Samples by metric: the lines of one stand together.
#[derive(Default)]
pub(crate) struct Exposition(BTreeMap<String, Vec<(Labels, u64)>>);

/// Names and values.
type Labels = Vec<(&'static str, String)>;

impl Exposition {
    /// Without programs yet, but for the number of those that gave no answer.
    pub(super) fn new(silent: usize) -> Exposition {
        let silent = vec![(Labels::new(), silent as u64)];
        Exposition(BTreeMap::from([("sidestep_programs_without_answer".to_owned(), silent)]))
    }

    /// Adds all counters of a program, and that it is there.
    pub(super) fn add(&mut self, program: &str, pid: u32, report: &CountersReport) {
        let labels = vec![("program", program.to_owned()), ("pid", pid.to_string())];
        self.add_all("", &[("up".to_owned(), 1)], &labels);
        self.add_all("", &report.own, &labels);
        for (number, engine) in report.engines.iter().enumerate() {
            let labels = [&labels[..], &[("engine", number.to_string())]].concat();
            self.add_all("engine_", &engine.engine, &labels);
            self.add_all("stack_", &engine.stack, &labels);
            for device in &engine.devices {
                let of_device =
                    [("device", device.device.to_string()), ("description", device.description.clone())];
                self.add_all("device_", &device.counters, &[&labels[..], &of_device].concat());
            }
        }
    }

    /// The programs that say that they are not ready yet, or no longer, and how many gave no answer.
    pub(super) fn not_ready(&self) -> (Vec<String>, u64) {
        let samples = |name: &str| self.0.get(name).into_iter().flatten();
        let unready = samples("sidestep_ready").filter(|(_, is_ready)| *is_ready == 0);
        let names = unready.map(|(labels, _)| {
            let values: Vec<&str> = labels.iter().map(|(_, value)| value.as_str()).collect();
            values.join(" ")
        });
        (names.collect(), samples("sidestep_programs_without_answer").map(|(_, count)| count).sum())
    }

    /// Adds one sample.
    pub(crate) fn add_sample(&mut self, name: &str, labels: &[(&'static str, String)], value: u64) {
        self.0.entry(name.to_owned()).or_default().push((labels.to_vec(), value));
    }

    /// The histogram that a metric belongs to.
    fn histogram_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.into_iter().find_map(|part| name.strip_suffix(part))?;
        let buckets = self.0.get(&format!("{histogram}_bucket"))?;
        buckets.iter().all(|(labels, _)| bucket_of(labels).is_some()).then_some(histogram)
    }

    fn add_all(&mut self, prefix: &str, counts: &[Count], labels: &Labels) {
        for (name, value) in counts {
            let (name, own) = labels_of(name);
            let name =
                format!("sidestep_{prefix}{name}").replace(|octet: char| !octet.is_ascii_alphanumeric(), "_");
            let labels = [&labels[..], &known(own)].concat();
            self.0.entry(name).or_default().push((labels, *value));
        }
    }
}

/// The labels that counts about one thing have. No other name gets into the text.
fn known(labels: Vec<(&str, String)>) -> Labels {
    const KNOWN: [&str; 6] = ["pool", "address", "zone", "state", "transport", "le"];
    let known = |(label, value)| Some((KNOWN.into_iter().find(|known| *known == label)?, value));
    labels.into_iter().filter_map(known).collect()
}

impl fmt::Display for Exposition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, samples) in &self.0 {
            match self.histogram_of(name) {
                None => writeln!(out, "# TYPE {name} untyped")?,
                // Its sum and count follow its buckets.
                Some(histogram) if name.ends_with("_bucket") => {
                    writeln!(out, "# TYPE {histogram} histogram")?
                }
                Some(_) => {}
            }
            let mut samples: Vec<_> = samples.iter().collect();
            samples.sort_by_key(|(labels, _)| bucket_of(labels));
            for (labels, value) in samples {
                out.write_str(name)?;
                let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
                out.write_str(open)?;
                for (number, (label, text)) in labels.iter().enumerate() {
                    let comma = if number == 0 { "" } else { "," };
                    write!(out, "{comma}{label}=\"")?;
                    text.chars().try_for_each(|char| push_escaped(out, char))?;
                    out.write_char('"')?;
                }
                writeln!(out, "{close} {value}")?;
            }
        }
        Ok(())
    }
}

/// Where a sample stands among the buckets of its histogram: they have an order. Others stay where they are.
fn bucket_of(labels: &Labels) -> Option<(Vec<&str>, u64)> {
    let ((_, end), others) = labels.split_last().filter(|((label, _), _)| *label == "le")?;
    let others = others.iter().map(|(_, value)| value.as_str()).collect();
    Some((others, end.parse().unwrap_or(u64::MAX))) // The last one is `+Inf`.
}

#[cfg(test)]
mod tests {
    use observe::report::{DeviceCounters, EngineCounters, with_labels};

    use super::*;

    #[test]
    fn counts_of_addresses_have_labels() {
        let own = vec![("pool_up{pool=\"web\",address=\"2001:db8::1\"}".to_owned(), 1)];
        let mut exposition = Exposition::new(0);
        exposition.add("dns", 10, &CountersReport { own, engines: Vec::new() });
        let text = exposition.to_string();
        let line = "sidestep_pool_up{program=\"dns\",pid=\"10\",pool=\"web\",address=\"2001:db8::1\"} 1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn names_of_zones_stay_whole_whatever_is_in_them() {
        let own = [r#"a\"b."#, r#"a\"c."#, r"a\032d."]
            .map(|zone| (with_labels("zone_serial", &[("zone", &zone)]), 1));
        let mut exposition = Exposition::new(0);
        exposition.add("dns", 10, &CountersReport { own: own.into(), engines: Vec::new() });
        let text = exposition.to_string();
        for zone in [r#"a\\\"b."#, r#"a\\\"c."#, r"a\\032d."] {
            let line = format!("sidestep_zone_serial{{program=\"dns\",pid=\"10\",zone=\"{zone}\"}} 1\n");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[test]
    fn a_histogram_has_its_buckets_in_their_order_and_its_sum_and_count_behind() {
        let bucket = |transport, end| format!("took_bucket{{transport=\"{transport}\",le=\"{end}\"}}");
        let mut own = Vec::new();
        for transport in ["udp", "tcp"] {
            own.extend(["+Inf", "1000", "20000", "5000"].map(|end| (bucket(transport, end), 1)));
            own.extend(["sum", "count"].map(|part| (format!("took_{part}{{transport=\"{transport}\"}}"), 1)));
        }
        let mut exposition = Exposition::new(0);
        exposition.add("dns", 10, &CountersReport { own, engines: Vec::new() });
        let text = exposition.to_string();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("_took")).collect();
        let of = |part: &str, transport: &str, end: &str| {
            format!("sidestep_took_{part}{{program=\"dns\",pid=\"10\",transport=\"{transport}\"{end}}} 1")
        };
        let mut expected = vec!["# TYPE sidestep_took histogram".to_owned()];
        for transport in ["tcp", "udp"] {
            let ends = ["1000", "5000", "20000", "+Inf"].map(|end| format!(",le=\"{end}\""));
            expected.extend(ends.map(|end| of("bucket", transport, &end)));
        }
        for part in ["count", "sum"] {
            expected.extend(["udp", "tcp"].map(|transport| of(part, transport, "")));
        }
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_samples_of_a_metric_stand_together_and_labels_are_escaped() {
        let count = |name: &str, value| (name.to_owned(), value);
        let device = DeviceCounters {
            device: 2,
            description: "a \"b\" \\".to_owned(),
            counters: vec![count("rx.frames", 7)],
        };
        let engine = EngineCounters {
            engine: vec![count("sleeps", 3)],
            stack: vec![count("TcpInSegs", 5)],
            devices: vec![device],
            ..EngineCounters::default()
        };
        let report = CountersReport { own: vec![count("dns_queries", 1)], engines: vec![engine] };
        let mut exposition = Exposition::new(1);
        exposition.add("dns", 10, &report);
        exposition.add(
            "dns",
            11,
            &CountersReport { own: vec![count("dns_queries", 2)], engines: Vec::new() },
        );
        assert_eq!(
            exposition.to_string(),
            "# TYPE sidestep_device_rx_frames untyped\n\
             sidestep_device_rx_frames{program=\"dns\",pid=\"10\",engine=\"0\",device=\"2\",description=\"a \\\"b\\\" \\\\\"} 7\n\
             # TYPE sidestep_dns_queries untyped\n\
             sidestep_dns_queries{program=\"dns\",pid=\"10\"} 1\n\
             sidestep_dns_queries{program=\"dns\",pid=\"11\"} 2\n\
             # TYPE sidestep_engine_sleeps untyped\n\
             sidestep_engine_sleeps{program=\"dns\",pid=\"10\",engine=\"0\"} 3\n\
             # TYPE sidestep_programs_without_answer untyped\n\
             sidestep_programs_without_answer 1\n\
             # TYPE sidestep_stack_TcpInSegs untyped\n\
             sidestep_stack_TcpInSegs{program=\"dns\",pid=\"10\",engine=\"0\"} 5\n\
             # TYPE sidestep_up untyped\n\
             sidestep_up{program=\"dns\",pid=\"10\"} 1\n\
             sidestep_up{program=\"dns\",pid=\"11\"} 1\n"
        );
    }
}
