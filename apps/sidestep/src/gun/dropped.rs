//! Datagrams of sockets that the system dropped before they left this host: where the interface's queue (qdisc) is full, no error tells who sent them.

/// Counters of all sockets in the network namespace, which count a send that finds its socket's buffer full, too, and is tried again (Linux, Documentation/networking/snmp_counter.rst): of UDP over IPv4, and over IPv6.
const V4: &str = "/proc/thread-self/net/snmp";
const V6: &str = "/proc/thread-self/net/snmp6";

/// What was dropped so, from some time on.
pub(crate) struct Dropped {
    before: Option<u64>,
}

impl Dropped {
    pub(crate) fn watch() -> Dropped {
        Dropped { before: dropped() }
    }

    /// How many since; zero where nothing can be read.
    pub(crate) fn since(&self) -> u64 {
        self.before.zip(dropped()).map_or(0, |(before, now)| now.saturating_sub(before))
    }
}

fn dropped() -> Option<u64> {
    let text = |file: &str| std::fs::read_to_string(file).ok();
    let both = [text(V4).and_then(|text| of_v4(&text)), text(V6).and_then(|text| of_v6(&text))];
    both.into_iter().flatten().reduce(|one, other| one + other)
}

/// Two lines begin with `Udp:`: the names, and as many numbers.
fn of_v4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:")).map(str::split_whitespace);
    let (names, numbers) = (lines.next()?, lines.next()?);
    names.zip(numbers).find(|(name, _)| *name == "SndbufErrors")?.1.parse().ok()
}

fn of_v6(text: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    pairs.find(|(name, _)| *name == "Udp6SndbufErrors")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_found_by_their_names() {
        let v4 = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams SndbufErrors Other\nUdp: 5 17 6\nUdpLite: SndbufErrors\nUdpLite: 9\n";
        assert_eq!((of_v4(v4), of_v4("Udp: InDatagrams\nUdp: 5\n")), (Some(17), None));
        let v6 = "Udp6InErrors                    \t3\nUdp6SndbufErrors                \t12\n";
        assert_eq!((of_v6(v6), of_v6("")), (Some(12), None));
        assert!(dropped().is_some());
    }
}
