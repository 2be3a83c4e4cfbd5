//! What processes may do: whether one may do what this one may, as it gets nothing from us then that it could not have anyway; and who it is for good.

use std::fs::{read_link, read_to_string};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::registry::Identity;
use crate::shares::User;

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
    field_in(status, "CapEff:").and_then(|value| u64::from_str_radix(value, 16).ok()).unwrap_or_default()
}

/// Tells who a process is, by its number and its user when it connected.
pub(super) type Identify = fn((u32, User), Option<BorrowedFd<'_>>) -> Option<Identity>;

/// See [`identity_of`].
pub(super) fn identify((pid, _): (u32, User), process: Option<BorrowedFd<'_>>) -> Option<Identity> {
    identity_of(pid, process)
}

/// Who a process is for all that it will do; `None` if it may become somebody else: as root, by a capability, or as its real, effective and
/// saved user or group are several. A daemon that root has started, and that gives up its privileges later, must not keep memory that others of root's
/// processes have. The kernel's test for ptrace(2) is similar.
fn identity_of(pid: u32, process: Option<BorrowedFd<'_>>) -> Option<Identity> {
    let status = read_to_string(format!("/proc/{pid}/status")).ok()?;
    // If it has ended, its number may have been another one's.
    let mut ended = [PollFd::from_borrowed_fd(process?, PollFlags::IN)];
    let is_alive = poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0);
    identity_in(&status).filter(|_| is_alive)
}

fn identity_in(status: &str) -> Option<Identity> {
    let (user, group) =
        (only_number_in(field_in(status, "Uid:")?)?, only_number_in(field_in(status, "Gid:")?)?);
    let has_none =
        |capabilities| u64::from_str_radix(field_in(status, capabilities)?, 16).ok().filter(|it| *it == 0);
    has_none("CapPrm:")?;
    (user != 0).then_some(Identity { user, group })
}

fn field_in<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The number that all of these are: real, effective, saved, and that for files.
fn only_number_in(numbers: &str) -> Option<u32> {
    let mut numbers = numbers.split_whitespace();
    let first = numbers.next()?;
    numbers.all(|number| number == first).then(|| first.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    use super::*;

    #[test]
    fn capabilities_are_read() {
        assert_eq!(capabilities_in("CapPrm:\t0000000000000001\nCapEff:\t000001ffffffffff\n"), (1 << 41) - 1);
        assert_eq!(capabilities_in("CapEff:\tx\n") | capabilities_in(""), 0);
    }

    fn status(users: &str, groups: &str, permitted: &str) -> String {
        format!(
            "Name:\tx\nUid:\t{users}\nGid:\t{groups}\nCapInh:\t0\nCapPrm:\t{permitted}\nCapEff:\t0000000000000000\n"
        )
    }

    #[test]
    fn who_can_become_somebody_else_has_no_identity() {
        let (thousand, none) = ("1000\t1000\t1000\t1000", "0000000000000000");
        let ordinary = identity_in(&status(thousand, "100\t100\t100\t100", none));
        assert_eq!(ordinary, Some(Identity { user: 1000, group: 100 }));
        for (users, groups, permitted) in [
            ("0\t0\t0\t0", thousand, none),
            ("1000\t1000\t0\t1000", thousand, none),
            ("1000\t1000\t1000\t1001", thousand, none),
            (thousand, "1000\t1000\t0\t1000", none),
            (thousand, thousand, "0000000000000080"),
            (thousand, thousand, "?"),
            ("", thousand, none),
        ] {
            assert_eq!(identity_in(&status(users, groups, permitted)), None, "{users} {groups} {permitted}");
        }
        assert_eq!(identity_in(""), None);
    }

    #[test]
    fn who_is_not_there_has_no_identity() {
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let (pid, own) = (std::process::id(), open(getpid()));
        let status = read_to_string("/proc/self/status").unwrap();
        assert_eq!(identity_of(pid, Some(own.as_fd())), identity_in(&status));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = open(Pid::from_child(&child));
        child.wait().unwrap();
        assert_eq!(identity_of(pid, Some(ended.as_fd())), None, "its number is another one's");
        assert_eq!(identity_of(pid, None), None);
    }

    #[test]
    fn only_who_has_the_capabilities_is_as_privileged() {
        let own = std::process::id();
        assert_eq!(is_as_privileged(own, 0), rustix::process::geteuid().is_root());
        assert!(!is_as_privileged(own, 4242), "its user is another one");
        assert!(!is_as_privileged(0, 0) && !is_as_privileged(u32::MAX, 0), "it is not there");
    }
}
