//! Programs that restrict their own system calls: seccomp(2).

/// Whether a process has, since it is ours: what it has from before, it can live with.
pub(super) fn is_confined(pid: u32) -> bool {
    confinement_of(pid) > confinement_of(std::process::id())
}

fn confinement_of(pid: u32) -> u32 {
    confinement_in(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// The number of filters in proc_pid_status(5), the strict mode being more than any; where the kernel does not tell, zero.
fn confinement_in(status: &str) -> u32 {
    let value = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if value("Seccomp:") == Some("1") {
        return u32::MAX;
    }
    value("Seccomp_filters:").and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted() {
        assert_eq!(confinement_in("Seccomp:\t2\nSeccomp_filters:\t3\nX:\t1\n"), 3);
        assert_eq!(confinement_in("Seccomp:\t1\nSeccomp_filters:\t0\n"), u32::MAX);
        assert_eq!(confinement_in("Seccomp:\t0\n"), 0);
    }
}
