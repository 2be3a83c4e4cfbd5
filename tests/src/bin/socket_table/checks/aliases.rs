//! The other names of the same functions, and writing inside of the C library.

use std::time::Duration;

use libc::{F_GETFL, POLLIN};

use crate::scene::{SOON_MS, Scene};
use crate::show::file_names;
use crate::sys::{self, PollBy, ReceiveBy};
use crate::table::{Done, checks};

checks! {
    "aliases":
    WAYS [
        reading, writing, polling, recvfrom_chk, fcntl, dup2, close, dprintf, stream_for_writing, stream_for_reading,
        standard_library_of_rust,
    ],
    ONCE [connect, resolver_names],
}

fn reading(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for by in [ReceiveBy::ReadChk, ReceiveBy::RecvChk, ReceiveBy::Underscored] {
        pair.tell(b"data")?;
        s.see(&format!("{by:?}"), sys::receive_by(by, pair.fd, 10));
    }
    Ok(())
}

fn recvfrom_chk(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("recvfrom_chk", sys::recvfrom_chk(pair.fd, 10).map(|(octets, name)| (octets, name.len)));
    Ok(())
}

fn writing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("__write", sys::underscored_write(pair.fd, b"data"));
    s.see("peer", pair.hear(10));
    s.see("__send", sys::underscored_send(pair.fd, b"more"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn polling(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for by in [PollBy::Chk, PollBy::PpollChk, PollBy::Underscored] {
        let time = Duration::from_millis(30);
        s.see_poll(&format!("{by:?}, empty"), sys::poll_by(by, pair.fd, POLLIN, time));
    }
    pair.tell(b"data")?;
    for by in [PollBy::Chk, PollBy::PpollChk, PollBy::Underscored] {
        let time = Duration::from_millis(SOON_MS as u64);
        s.see_poll(&format!("{by:?}, with data"), sys::poll_by(by, pair.fd, POLLIN, time));
    }
    Ok(())
}

fn fcntl(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("__fcntl", sys::underscored_fcntl(pair.fd, libc::F_SETFL, libc::O_NONBLOCK.into()));
    s.see("fcntl64", sys::fcntl_64(pair.fd, F_GETFL, 0).map(file_names));
    let twin = sys::fcntl_64(pair.fd, libc::F_DUPFD, 0)?;
    s.see("read", sys::read(twin, 10));
    Ok(())
}

fn dup2(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, _] = sys::pipe(0)?;
    s.see("__dup2", sys::underscored_dup2(pair.fd, reader) == Ok(reader));
    sys::close(pair.fd)?;
    s.see("write", sys::write(reader, b"data"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn close(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("__close", sys::underscored_close(pair.fd));
    s.see("peer", pair.hear(10));
    s.see("write", sys::write(pair.fd, b"x"));
    Ok(())
}

fn connect(s: &mut Scene) -> Done {
    let mut peer = s.peer()?;
    let (listener, port) = peer.tcp_listener(4)?;
    let fd = s.tcp()?;
    s.see("__connect", sys::underscored_connect(fd, &s.remote(port)));
    let (other, _) = peer.accept(listener)?;
    s.see("write", sys::write(fd, b"data"));
    s.see("peer", peer.recv(other, 10));
    Ok(())
}

fn dprintf(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("dprintf", sys::dprintf(pair.fd, c"formatted"));
    s.see("peer", pair.hear(100));
    s.see("write", sys::write(pair.fd, b"plain"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn stream_for_writing(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("fdopen and fputs", sys::write_by_stream(pair.fd, c"by a stream"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn stream_for_reading(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"a line\n")?;
    s.see("fdopen and fgets", sys::read_line_by_stream(pair.fd));
    Ok(())
}

fn standard_library_of_rust(s: &mut Scene) -> Done {
    use std::io::{Read, Write};
    let mut pair = s.pair()?;
    let mut stream = sys::own(pair.fd);
    s.see("write", stream.write_all(b"by a file").is_ok());
    s.see("peer", pair.hear(100));
    pair.tell(b"data")?;
    let mut octets = [0; 4];
    s.see("read", stream.read_exact(&mut octets).is_ok());
    s.see("octets", octets.to_vec());
    drop(stream);
    s.see("peer", pair.hear(100));
    Ok(())
}

fn resolver_names(s: &mut Scene) -> Done {
    use std::net::ToSocketAddrs;
    // The C library opens sockets of its own for this.
    let found =
        "localhost:80".to_socket_addrs().map(|mut found| found.all(|address| address.ip().is_loopback()));
    s.see("localhost is loopback", found.unwrap_or(false));
    Ok(())
}
