//! Names in a BPF file system, by which XDP programs stay attached if the broker is killed.
//!
//! Programs that had queues then go on with them. The name of a pin tells the network namespace, the interface and the broker's socket. The
//! next broker of the interface sees by the latter that the other one is gone, and detaches its program.

use std::fs::{DirBuilder, read_dir};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use device_xdp::{SteeringProgram, XdpError};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use crate::peer::Peer;

/// What statfs(2) tells of a BPF file system (linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// The pins of one broker.
#[derive(Clone, Debug)]
pub(super) struct Pins {
    directory: PathBuf,
    namespace: u64,
    /// The name of its socket.
    broker: String,
}

impl Pins {
    /// Pins in this directory, which is made; `None` if it is in no BPF file system.
    pub(super) fn in_directory(directory: &Path, namespace: u64, broker: &str) -> Option<Pins> {
        let made = DirBuilder::new().mode(0o700).create(directory);
        let is_own = made.is_ok() || is_ours_alone(directory);
        let is_bpf_fs = is_own && statfs(directory).is_ok_and(|it| it.f_type as u64 == BPF_FS_MAGIC);
        let (directory, broker) = (directory.to_owned(), broker.to_owned());
        is_bpf_fs.then_some(Pins { directory, namespace, broker })
    }

    /// Has a program stay attached if this process is killed.
    pub(super) fn keep(&self, program: &mut SteeringProgram) -> Result<(), XdpError> {
        let name = self.prefix(program.interface_index()) + &self.broker;
        program.pin(&self.directory.join(name))
    }

    /// Detaches the programs that other brokers left on an interface when they were killed.
    pub(super) fn detach_those_of_the_dead(&self, interface: u32) {
        let prefix = self.prefix(interface);
        for entry in read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if entry.file_type().is_ok_and(|it| !it.is_symlink())
                && name.strip_prefix(&prefix).is_some_and(is_free)
            {
                let _ = SteeringProgram::detach_pinned(&entry.path()); // Attaching ours will tell.
            }
        }
    }

    fn prefix(&self, interface: u32) -> String {
        format!("{}-{interface}-", self.namespace)
    }
}

/// Whether nobody else can put anything into a directory. A BPF file system is often open to all (`mount -t bpf`).
fn is_ours_alone(directory: &Path) -> bool {
    directory.symlink_metadata().is_ok_and(|it| {
        it.is_dir() && it.uid() == rustix::process::geteuid().as_raw() && it.mode() & 0o022 == 0
    })
}

/// Whether no broker has a socket of this name. Anybody may take a name that is free: it takes who may be a broker.
fn is_free(broker: &str) -> bool {
    let bound = || -> Result<(), Errno> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(broker.as_bytes())?)
    };
    let owner = || -> Result<Peer, Errno> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
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
        assert!(Pins::in_directory(&directory.path().join("sidestep"), 1, "broker").is_none());
        assert!(Pins::in_directory(Path::new("/no/such/directory"), 1, "broker").is_none());
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
}
