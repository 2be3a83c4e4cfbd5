//! Whether a process may do what this one may: then it gets nothing from us that it could not have anyway.

use std::fs::{read_link, read_to_string};

use super::shares::User;

/// Capabilities to receive all packets of an interface and to configure it: CAP_NET_ADMIN, CAP_NET_RAW (linux/capability.h).
const NEEDED: u64 = 1 << 12 | 1 << 13;

/// Whether this process of this user has the capabilities, in our user namespace: in another one they would be worth nothing here.
pub(super) fn is_as_privileged(pid: u32, user: User) -> bool {
    let is_users = user == 0 || user == rustix::process::geteuid().as_raw();
    let namespace = |process: &str| read_link(format!("/proc/{process}/ns/user")).ok();
    let process = pid.to_string();
    let status = read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let own = namespace("self");
    is_users && own.is_some() && namespace(&process) == own && capabilities_in(&status) & NEEDED == NEEDED
}

/// Those in effect, of proc_pid_status(5).
fn capabilities_in(status: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read() {
        assert_eq!(capabilities_in("CapPrm:\t0000000000000001\nCapEff:\t000001ffffffffff\n"), (1 << 41) - 1);
        assert_eq!(capabilities_in("CapEff:\tx\n") | capabilities_in(""), 0);
    }

    #[test]
    fn only_who_has_the_capabilities_is_as_privileged() {
        let own = std::process::id();
        assert_eq!(is_as_privileged(own, 0), rustix::process::geteuid().is_root());
        assert!(!is_as_privileged(own, 4242), "its user is another one");
        assert!(!is_as_privileged(0, 0) && !is_as_privileged(u32::MAX, 0), "it is not there");
    }
}
