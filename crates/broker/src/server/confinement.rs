//! Programs that restrict their own system calls: seccomp(2).

/// The filters that a process can live with, as it had them when it became ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filters(u32);

impl Filters {
    /// Those of a process that connects. A child of a program may have set some before it does, so that no more than those of `head` count, the
    /// `sidestep run` which it started the program with.
    pub(super) fn at_start(pid: u32, head: u32) -> Filters {
        Filters::known(confinement_of(pid), confinement_of(head))
    }

    /// Those of a process that comes back to a broker which did not start it: it has left the broker that did, if it had set more.
    pub(super) fn at_return(pid: u32) -> Filters {
        Filters(confinement_of(pid))
    }

    fn known(process: u32, head: u32) -> Filters {
        Filters(process.min(head))
    }

    /// Whether the process has set more since then.
    pub(super) fn are_more_now(self, pid: u32) -> bool {
        confinement_of(pid) > self.0
    }
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

    #[test]
    fn a_process_that_did_not_start_with_the_brokers_filter_must_not_have_one_later() {
        assert_eq!(Filters::known(0, 1), Filters(0));
        assert_eq!(Filters::known(1, 1), Filters(1));
    }

    #[test]
    fn one_that_comes_back_has_set_none_since() {
        let pid = std::process::id();
        assert!(!Filters::at_return(pid).are_more_now(pid));
        assert_eq!(Filters::at_return(pid).0, confinement_of(pid));
    }

    #[test]
    fn filters_that_a_child_has_set_before_it_connects_count() {
        assert_eq!(Filters::known(2, 1), Filters(1));
    }
}
