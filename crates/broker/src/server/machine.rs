//! What this machine has.

/// Octets of memory, by proc_meminfo(5); where it does not tell, few.
pub(super) fn memory_len() -> usize {
    const FEW: usize = 1 << 30;
    memory_in(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(FEW)
}

fn memory_in(text: &str) -> Option<usize> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(value.split_whitespace().next()?.parse::<usize>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_kibibytes() {
        assert_eq!(memory_in("MemTotal:       24689528 kB\nMemFree: 1 kB\n"), Some(24_689_528 << 10));
        assert_eq!(memory_in("MemFree: 1 kB\n"), None);
        assert!(memory_len() >= 1 << 20);
    }
}
