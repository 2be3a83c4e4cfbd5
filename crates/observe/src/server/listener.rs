//! The socket at which tools find a program.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::directory::make;

/// A listening control socket. Its name in the file system is removed when it is dropped.
#[derive(Debug)]
pub struct ControlListener {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlListener {
    /// The control socket of a process, in the directory where tools look. The directory is created if it is missing.
    pub fn of_process(directory: &Path, process: u32) -> io::Result<ControlListener> {
        make(directory)?;
        ControlListener::at(&directory.join(format!("{process}.sock")))
    }

    /// A control socket at `path`. A socket that a dead program left is replaced; one of a living program is an error. The socket appears
    /// at `path` only when it already listens and has its final permissions.
    pub fn at(path: &Path) -> io::Result<ControlListener> {
        if is_answered(path) {
            return Err(io::Error::other("another program is using it"));
        }
        let new = path.with_extension(format!("{}~", std::process::id()));
        if let Err(error) = std::fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let listener = UnixListener::bind(&new)?;
        std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        std::fs::rename(&new, path)?;
        Ok(ControlListener { listener, path: path.to_owned() })
    }

    /// The next client, if there is one; does not wait.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for ControlListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // Gone already is fine too.
    }
}

/// Whether a process listens there. Does not wait if its queue is full.
fn is_answered(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else { return false };
    let Ok(name) = SocketAddrUnix::new(path) else { return false };
    matches!(connect(&socket, &name), Ok(()) | Err(Errno::AGAIN))
}
