//! Which user `dns serve` runs as, and what it keeps of root's privileges.
//!
//! A server that root started becomes another user before it reads zones and before it starts threads: what it may not do later,
//! such as reading a zone again, it may not do at the start either. Privileges belong to threads, and threads inherit them.

use std::ffi::CString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use nix::unistd::{Gid, Group, Uid, User, initgroups, setresgid, setresuid};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
};
use thiserror::Error;

use super::config::{Config, DeviceChoice, Link};

/// The user that root's server becomes where this host has it and the configuration names none. The Debian package makes it.
const DEFAULT_USER: &str = "sidestep";
/// Ports below this one need CAP_NET_BIND_SERVICE.
const FIRST_FREE_PORT: u16 = 1024;

/// An ordinary user started the server, and it is to become another one.
#[derive(Debug, Error)]
#[error("user: only root can become {user}")]
pub(super) struct OnlyRoot {
    /// The other one.
    pub(super) user: String,
}

/// Becomes the user that `config` names, with no more privileges than the server needs from now on, and logs which.
pub(super) fn give_up(config: &Config) -> anyhow::Result<()> {
    give_up_as(config.user.as_deref(), needed(&config.device))
}

/// The same for a server that needs `needed` from now on.
pub(super) fn give_up_as(named: Option<&str>, needed: CapabilitySet) -> anyhow::Result<()> {
    if !Uid::effective().is_root() {
        return match named {
            Some(name) if name != own_name() => Err(OnlyRoot { user: name.to_owned() }.into()),
            _ => Ok(()),
        };
    }
    let Some(user) = User::from_name(named.unwrap_or(DEFAULT_USER)).context("user")? else {
        let Some(name) = named else {
            log::warn!("runs as root: there is no user {DEFAULT_USER}; --user names another one");
            return Ok(());
        };
        bail!("user: there is no user {name}");
    };
    if user.uid.is_root() {
        log::info!("runs as root, with all its privileges");
        return Ok(());
    }
    become_user(&user, needed).with_context(|| format!("becoming user {}", user.name))
}

/// What an interface needs when it comes back, when its MTU grows, or when it gets an address. Kernel sockets are bound already.
fn needed(device: &DeviceChoice) -> CapabilitySet {
    let DeviceChoice::Interface(link, listens) = device else { return CapabilitySet::empty() };
    needed_by(link, listens.iter().map(|listen| listen.port))
}

/// The same for an interface and the ports that are served there.
pub(super) fn needed_by(link: &Link, mut ports: impl Iterator<Item = u16>) -> CapabilitySet {
    // Without CAP_PERFMON the kernel's verifier does not let the steering program compare pointers to packets.
    let bpf = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let interface = match link {
        Link::Xdp(_) => CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | bpf,
        Link::Dpdk(..) => CapabilitySet::empty(), // Open by now, and not opened again.
    };
    if ports.any(|port| port < FIRST_FREE_PORT) {
        interface | CapabilitySet::NET_BIND_SERVICE
    } else {
        interface
    }
}

fn become_user(user: &User, needed: CapabilitySet) -> anyhow::Result<()> {
    // A container's root may lack some of them: what needs one fails then, and says so.
    let kept = needed & capabilities(None)?.permitted;
    // Packet memory is locked, and only root lifts the limit. Where that is not allowed, it may be high enough.
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    observe::make_directory_of(user.uid.as_raw(), user.gid.as_raw())
        .inspect_err(|error| log::warn!("tools will not find this server: {error}"))
        .ok();
    for capability in (CapabilitySet::all() - kept).iter() {
        // Fails for numbers that this kernel does not know. Without CAP_SETPCAP the rest stays, and no_new_privs makes it useless.
        let _ = remove_capability_from_bounding_set(capability);
    }
    set_keep_capabilities(true)?;
    initgroups(&CString::new(user.name.as_str())?, user.gid).context("setting its groups")?;
    setresgid(user.gid, user.gid, user.gid).context("setting its group")?;
    setresuid(user.uid, user.uid, user.uid).context("setting its user id")?;
    clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).context("keeping capabilities")?;
    set_no_new_privs(true)?;
    log::info!("runs as user {} with {}", user.name, describe(kept));
    Ok(())
}

fn describe(kept: CapabilitySet) -> String {
    let names: Vec<String> = kept.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    if names.is_empty() { "no privileges".to_owned() } else { format!("{} only", names.join(", ")) }
}

/// Says whose permissions a file was opened with, if they are not enough.
pub(super) fn explain_denial(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("user {} is not allowed to read it", own_name()))
        }
        _ => error,
    }
}

/// The same of a file that is to be written.
pub(super) fn explain_write_denial(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), format!("user {} is not allowed to write it", own_name()))
        }
        _ => error,
    }
}

/// Why the user that the server runs as cannot read a file that it has read before as root, if so, and what to do. Files are made so by `umask 077`.
pub(super) fn denial(path: &Path) -> Option<String> {
    let is_denied = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS) == Err(Errno::ACCESS);
    if !is_denied(path, Access::READ_OK) {
        return None;
    }
    let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    let closed = above.filter(|above| is_denied(above, Access::EXEC_OK)).last();
    let (what, denied, mode) = match closed {
        Some(above) => (format!("enter {}", above.display()), above, "750"),
        None => ("read it".to_owned(), path, "640"),
    };
    let (path, denied, user, group) = (path.display(), denied.display(), own_name(), own_group());
    Some(format!(
        "{path}: user {user} is not allowed to {what}, so that a reload (SIGHUP) cannot read it again: chgrp {group} {denied}; chmod {mode} \
         {denied}"
    ))
}

/// Whether everybody on this host may read a file.
pub(super) fn is_readable_by_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

pub(super) fn own_name() -> String {
    let user = Uid::effective();
    let found = User::from_uid(user).ok().flatten();
    found.map_or_else(|| user.to_string(), |user| user.name)
}

fn own_group() -> String {
    let group = Gid::effective();
    let found = Group::from_gid(group).ok().flatten();
    found.map_or_else(|| group.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use steering::ListenAddress;

    use super::*;

    fn interface(port: u16) -> DeviceChoice {
        DeviceChoice::Interface(Link::Xdp("eth0".to_owned()), vec![ListenAddress { address: None, port }])
    }

    #[test]
    fn only_an_interface_needs_capabilities_later() {
        assert_eq!(
            describe(needed(&DeviceChoice::Kernel(vec!["192.0.2.1:53".parse().unwrap()]))),
            "no privileges"
        );
        assert_eq!(
            describe(needed(&interface(5300))),
            "CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_BPF only"
        );
        let low = describe(needed(&interface(53)));
        assert_eq!(low, "CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_BPF only");
    }

    #[test]
    fn a_denial_names_the_user_and_other_errors_stay() {
        let denied = explain_denial(io::ErrorKind::PermissionDenied.into()).to_string();
        assert_eq!(denied, format!("user {} is not allowed to read it", own_name()));
        assert_eq!(explain_denial(io::ErrorKind::NotFound.into()).kind(), io::ErrorKind::NotFound);
    }
}
