//! What this machine has, and how it is set up.

use std::io;

/// Octets of memory, by proc_meminfo(5); where it does not tell, few.
pub(super) fn memory_len() -> usize {
    const FEW: usize = 1 << 30;
    memory_in(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(FEW)
}

fn memory_in(text: &str) -> Option<usize> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(value.split_whitespace().next()?.parse::<usize>().ok()? << 10)
}

/// Ranges of ports, first and last.
pub(super) type PortRanges = Vec<(u16, u16)>;

/// The range of which the kernel takes ports for sockets whose programs name none, and what is reserved of it: of the network namespace of this thread
/// (ip(7)). `None` where it does not tell.
pub(super) fn local_ports() -> Option<((u16, u16), PortRanges)> {
    let read = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok();
    local_ports_in(&read("ip_local_port_range")?, &read("ip_local_reserved_ports")?)
}

fn local_ports_in(range: &str, reserved: &str) -> Option<((u16, u16), PortRanges)> {
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    let range = (first.parse().ok()?, last.trim().parse().ok()?);
    let reserved = reserved.trim().split(',').filter(|it| !it.is_empty()).map(|it| {
        let (first, last) = it.split_once('-').unwrap_or((it, it));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    Some((range, reserved.collect::<Option<_>>()?))
}

/// Unpredictable numbers.
pub(super) fn random_numbers() -> io::Result<[u64; 2]> {
    use std::io::Read;
    let mut octets = [[0; 8]; 2];
    std::fs::File::open("/dev/urandom")?.read_exact(octets.as_flattened_mut())?;
    Ok(octets.map(u64::from_ne_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ports_are_a_range_without_those_that_are_reserved() {
        let range = "32768\t60999\n";
        assert_eq!(local_ports_in(range, "\n"), Some(((32_768, 60_999), vec![])));
        let reserved = vec![(8080, 8080), (40_000, 40_009)];
        assert_eq!(local_ports_in(range, "8080,40000-40009\n"), Some(((32_768, 60_999), reserved)));
        assert_eq!(local_ports_in(range, "8080-x"), None);
        assert_eq!(local_ports_in("", ""), None);
        assert!(local_ports().is_some());
    }

    #[test]
    fn memory_is_told_in_kibibytes() {
        assert_eq!(memory_in("MemTotal:       24689528 kB\nMemFree: 1 kB\n"), Some(24_689_528 << 10));
        assert_eq!(memory_in("MemFree: 1 kB\n"), None);
        assert!(memory_len() >= 1 << 20);
    }
}
