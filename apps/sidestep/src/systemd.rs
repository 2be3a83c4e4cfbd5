//! What systemd tells a service, and what a service tells systemd.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Whether stderr is connected to the journal, and nobody has redirected it since (`JOURNAL_STREAM` in systemd.exec(5)).
pub(crate) fn stderr_is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Says that the service has started, if it is one that is waited for (`Type=notify`; sd_notify(3)).
pub(crate) fn notify_ready() {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&name, b"READY=1") {
        log::warn!("systemd does not hear that the service is ready: {name}: {error}");
    }
}

/// A name that starts with @ is in the abstract namespace: unix(7).
fn send(name: &str, message: &[u8]) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_goes_to_names_of_both_kinds() {
        let name = format!("@sidestep-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.trim_start_matches('@')).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(&name, b"READY=1").unwrap();
        let mut octets = [0; 16];
        assert_eq!(socket.recv(&mut octets).unwrap(), b"READY=1".len());

        let path = std::env::temp_dir().join(&name);
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap(), b"READY=1").unwrap();
        assert_eq!(socket.recv(&mut octets).unwrap(), b"READY=1".len());
        std::fs::remove_file(path).unwrap();
    }
}
