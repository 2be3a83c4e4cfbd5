//! Receiving on TCP: what is refused, and what is unusual.

use std::time::Instant;

use libc::{MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_WAITALL, SO_RCVTIMEO};

use crate::scene::Scene;
use crate::show::message_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    "read":
    PAIRS [so_rcvtimeo],
    WAYS [
        recvfrom_leaves_no_name, at_an_offset, preadv2, seek, too_many_vectors, most_vectors, of_errors,
        of_urgent_data, to_nowhere, cloexec_flag, unknown_flags, after_close,
        timeout_in_the_middle_of_waitall, recvmmsg, recvmmsg_wait_for_one, recvmmsg_of_none, zero_vectors,
    ],
}

fn so_rcvtimeo(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::set_timeout(pair.fd, SO_RCVTIMEO, 150)?;
    let start = Instant::now();
    s.see("recv", sys::recv(pair.fd, 10, 0));
    s.see_time("took", start, 150..1000);
    pair.tell(b"now")?;
    s.see("recv", sys::recv(pair.fd, 10, 0));
    Ok(())
}

fn timeout_in_the_middle_of_waitall(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::set_timeout(pair.fd, SO_RCVTIMEO, 150)?;
    pair.tell(b"half")?;
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    Ok(())
}

fn zero_vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("readv of none", sys::readv(pair.fd, &[]));
    s.see("readv of an empty one", sys::readv(pair.fd, &[0]));
    s.see("recvmsg of none", sys::recvmsg(pair.fd, &[], 0, MSG_DONTWAIT).map(|message| message.len));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn too_many_vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("readv", sys::readv(pair.fd, &[1; 1025]).map(drop));
    s.see("recvmsg", sys::recvmsg(pair.fd, &[1; 1025], 0, 0).map(drop));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn most_vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(&crate::show::pattern(1500))?;
    s.see("readv", sys::readv(pair.fd, &[1; 1024]).map(|octets| octets.concat()));
    s.see("recvmsg", sys::recvmsg(pair.fd, &[1; 1024], 0, 0).map(|message| message.len));
    Ok(())
}

fn recvfrom_leaves_no_name(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("recvfrom", sys::recvfrom(pair.fd, 100, 0, 28).map(|(octets, name)| (octets, name.len)));
    Ok(())
}

fn at_an_offset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("pread", sys::pread(pair.fd, 10, 0));
    s.see("pwrite", sys::pwrite(pair.fd, b"data", 0));
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn preadv2(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("without waiting", sys::preadv2(pair.fd, &[10], -1, libc::RWF_NOWAIT));
    pair.tell(b"data")?;
    s.see("at 0", sys::preadv2(pair.fd, &[10], 0, 0));
    s.see("at -1", sys::preadv2(pair.fd, &[10], -1, 0));
    s.see("write at -1", sys::pwritev2(pair.fd, &[b"answer"], -1, 0));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn seek(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("lseek", sys::lseek(pair.fd, 0));
    s.see("ftruncate", sys::ftruncate(pair.fd, 0));
    s.see("fsync", sys::fsync(pair.fd));
    s.see("isatty", sys::isatty(pair.fd));
    Ok(())
}

fn of_errors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("recv", sys::recv(pair.fd, 10, MSG_ERRQUEUE));
    s.see("recvmsg", sys::recvmsg(pair.fd, &[10], 100, MSG_ERRQUEUE).map(drop));
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn of_urgent_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("recv", sys::recv(pair.fd, 1, MSG_OOB));
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn to_nowhere(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("recv", sys::recv_to_nowhere(pair.fd, 10));
    s.see("still there", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    Ok(())
}

fn cloexec_flag(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let message = sys::recvmsg(pair.fd, &[10], 100, libc::MSG_CMSG_CLOEXEC)?;
    s.see("octets", message.octets);
    s.see("flags", message_names(message.flags));
    Ok(())
}

fn unknown_flags(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    s.see("recv", sys::recv(pair.fd, 2, 0x0800_0000));
    s.see("recv", sys::recv(pair.fd, 2, libc::MSG_NOSIGNAL | libc::MSG_CONFIRM));
    Ok(())
}

fn after_close(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::close(pair.fd)?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("recv", sys::recv(pair.fd, 10, 0));
    s.see("recvmsg", sys::recvmsg(pair.fd, &[10], 0, 0).map(drop));
    s.see("close", sys::close(pair.fd));
    Ok(())
}

fn recvmmsg(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"abcdefgh")?;
    let octets =
        |messages: Vec<sys::Message>| messages.into_iter().map(|message| message.octets).collect::<Vec<_>>();
    s.see("recvmmsg", sys::recvmmsg(pair.fd, 4, 3, MSG_DONTWAIT, None).map(octets));
    Ok(())
}

fn recvmmsg_wait_for_one(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(100).send(other, b"abcd")?;
    let octets =
        |messages: Vec<sys::Message>| messages.into_iter().map(|message| message.octets).collect::<Vec<_>>();
    s.see("recvmmsg", sys::recvmmsg(pair.fd, 4, 4, libc::MSG_WAITFORONE, None).map(octets));
    Ok(())
}

fn recvmmsg_of_none(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("empty", sys::recvmmsg(pair.fd, 4, 4, MSG_DONTWAIT, None).map(|messages| messages.len()));
    s.see("none wanted", sys::recvmmsg(pair.fd, 0, 4, MSG_DONTWAIT, None).map(|messages| messages.len()));
    Ok(())
}
