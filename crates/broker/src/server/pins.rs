//! Directories in a BPF file system, by which XDP programs stay attached if the broker is killed.
//!
//! Programs that had queues then go on with them. The name of a directory tells the network namespace, the interface, what it is to programs,
//! and the broker's socket. The next broker of the interface sees by the latter that the other one is gone, and takes its place.

use std::fs::{DirBuilder, read_dir};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use device_xdp::{KEPT_LAYOUT, SteeringProgram};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use crate::peer::Peer;
use crate::registry::LinkNumber;

/// What statfs(2) tells of a BPF file system (linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// What keeps the XDP programs of a network namespace.
#[derive(Clone, Debug)]
pub(super) struct Pins {
    directory: PathBuf,
    namespace: u64,
}

/// An XDP program that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The kernel's number of its interface.
    pub(super) interface: u32,
    /// The broker's number of it.
    pub(super) link: LinkNumber,
    /// The name of the broker's socket.
    pub(super) broker: String,
}

impl Pins {
    /// Those in this directory, which is made; `None` if it is in no BPF file system.
    pub(super) fn in_directory(directory: &Path, namespace: u64) -> Option<Pins> {
        let made = DirBuilder::new().mode(0o700).create(directory);
        let is_own = made.is_ok() || is_ours_alone(directory);
        let is_bpf_fs = is_own && statfs(directory).is_ok_and(|it| it.f_type as u64 == BPF_FS_MAGIC);
        is_bpf_fs.then_some(Pins { directory: directory.to_owned(), namespace })
    }

    /// The programs that killed brokers have left, in the order of the brokers' names. What they left on interfaces that are gone, or in
    /// another layout, is removed.
    pub(super) fn left(&self) -> Vec<Kept> {
        let mut left = Vec::new();
        for (path, kept) in self.all().filter(|(_, kept)| is_free(&kept.broker)) {
            if path == self.path(&kept) && interface_name(kept.interface).is_some() {
                left.push(kept);
            } else {
                let _ = SteeringProgram::remove_kept(&path); // Attaching ours will tell.
            }
        }
        left.sort_by(|a, b| (&a.broker, a.link).cmp(&(&b.broker, b.link)));
        left
    }

    /// What one broker keeps, or has left.
    pub(super) fn of(&self, broker: &str) -> Vec<Kept> {
        let its_own = self.all().filter(|(path, kept)| kept.broker == broker && *path == self.path(kept));
        its_own.map(|(_, kept)| kept).collect()
    }

    /// The programs of brokers that are there.
    pub(super) fn served(&self) -> Vec<Kept> {
        let mut served: Vec<Kept> =
            self.all().map(|(_, kept)| kept).filter(|kept| !is_free(&kept.broker)).collect();
        served.sort_by(|a, b| (&a.broker, a.link).cmp(&(&b.broker, b.link)));
        served
    }

    /// Where a program is kept.
    pub(super) fn path(&self, kept: &Kept) -> PathBuf {
        let Kept { interface, link, broker } = kept;
        self.directory.join(format!("{}-{interface}-{link}-{KEPT_LAYOUT}-{broker}", self.namespace))
    }

    fn all(&self) -> impl Iterator<Item = (PathBuf, Kept)> + '_ {
        let entries = read_dir(&self.directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        directories.filter_map(|entry| Some((entry.path(), self.parse(entry.file_name().to_str()?)?)))
    }

    /// What a name says, if it is of this namespace.
    fn parse(&self, name: &str) -> Option<Kept> {
        let mut parts = name.splitn(5, '-');
        let namespace: u64 = parts.next()?.parse().ok()?;
        let (interface, link) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let broker = parts.nth(1)?.to_owned();
        (namespace == self.namespace).then_some(Kept { interface, link, broker })
    }
}

/// The name of an interface by its number.
pub(super) fn interface_name(index: u32) -> Option<String> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).ok()?;
    index_to_name(socket, index).ok()
}

/// Whether nobody else can put anything into a directory. A BPF file system is often open to all (`mount -t bpf`).
fn is_ours_alone(directory: &Path) -> bool {
    directory.symlink_metadata().is_ok_and(|it| {
        it.is_dir() && it.uid() == rustix::process::geteuid().as_raw() && it.mode() & 0o022 == 0
    })
}

/// Whether no broker has a socket of this name. Anybody may take a name that is free: it takes who may be a broker. It does not wait for who
/// accepts nobody.
fn is_free(broker: &str) -> bool {
    let bound = || -> Result<(), Errno> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(broker.as_bytes())?)
    };
    let owner = || -> Result<Peer, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(broker.as_bytes())?)?;
        Peer::of(&socket)
    };
    bound().is_ok() || owner().is_ok_and(|owner| !owner.is_root_or_oneself())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::turns::listen_anywhere;
    use super::*;

    #[test]
    fn what_is_no_bpf_file_system_keeps_nothing() {
        let directory = lab::Directory::new().unwrap();
        assert!(Pins::in_directory(&directory.path().join("sidestep"), 1).is_none());
        assert!(Pins::in_directory(Path::new("/no/such/directory"), 1).is_none());
    }

    #[test]
    fn a_directory_that_others_may_write_to_keeps_nothing() {
        let directory = lab::Directory::new().unwrap();
        let path = directory.path();
        let set = |mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o700);
        assert!(is_ours_alone(path));
        set(0o777);
        assert!(!is_ours_alone(path));
        set(0o700);
        let link = path.join("link");
        std::os::unix::fs::symlink(path, &link).unwrap();
        assert!(!is_ours_alone(&link));
    }

    #[test]
    fn a_broker_is_gone_when_its_name_is_free() {
        let (name, socket) = listen_anywhere().unwrap();
        assert!(!is_free(&name));
        drop(socket);
        assert!(is_free(&name));
    }

    #[test]
    fn a_name_tells_what_is_kept() {
        let pins = Pins { directory: PathBuf::from("/pins"), namespace: 7 };
        let kept = Kept { interface: 3, link: 1, broker: "sidestep-run-5-0a".to_owned() };
        let path = pins.path(&kept);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(pins.parse(name), Some(kept));
        assert_eq!(Pins { namespace: 8, ..pins.clone() }.parse(name), None, "it is of another namespace");
        for other in ["", "7-3", "7-3-x-1-a", "maps.debug"] {
            assert_eq!(pins.parse(other), None, "{other}");
        }
    }
}
