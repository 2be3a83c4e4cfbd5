//! Receiving on TCP: read(2), recv(2) and their flags.

use std::time::Instant;

use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, O_NONBLOCK, SHUT_RD, SO_RCVLOWAT,
    SO_RCVTIMEO, SOL_SOCKET,
};

use crate::scene::{SOON_MS, Scene};
use crate::show::message_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    "read":
    PAIRS [
        what_is_there, in_pieces, when_empty, of_no_octets, peek, peek_and_end, waitall_over_two, waitall_and_end,
        waitall_without_waiting, truncated, end_again_and_again, so_rcvtimeo, after_shutdown_of_reading,
        data_after_shutdown_of_reading, vectors, lowat, recvmsg_says_no_name,
    ],
    WAYS [
        waitall_and_peek, waitall_longer_than_the_buffer, recvfrom_leaves_no_name, at_an_offset, preadv2, seek,
        too_many_vectors, most_vectors, of_errors, of_urgent_data, to_nowhere, cloexec_flag, unknown_flags,
        blocks_until_data_come, after_close, peek_waits, timeout_in_the_middle_of_waitall, recvmmsg,
        recvmmsg_wait_for_one, recvmmsg_of_none, large, peek_beyond, zero_vectors, nonblock_waitall,
    ],
}

fn what_is_there(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"one")?;
    pair.tell(b"two")?;
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn in_pieces(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"abcdefgh")?;
    s.see("read", sys::read(pair.fd, 3));
    s.see("recv", sys::recv(pair.fd, 2, 0));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn when_empty(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("recv without waiting", sys::recv(pair.fd, 10, MSG_DONTWAIT));
    sys::fcntl(pair.fd, libc::F_SETFL, O_NONBLOCK.into())?;
    s.see("read", sys::read(pair.fd, 10));
    s.see("recv", sys::recv(pair.fd, 10, 0));
    s.see("recvmsg", sys::recvmsg(pair.fd, &[10], 0, 0).map(drop));
    s.see("readv", sys::readv(pair.fd, &[4, 4]));
    Ok(())
}

fn of_no_octets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("read", sys::read(pair.fd, 0));
    s.see("recv", sys::recv(pair.fd, 0, MSG_DONTWAIT));
    pair.tell(b"data")?;
    s.see("read of data", sys::read(pair.fd, 0));
    s.see("recv of data", sys::recv(pair.fd, 0, MSG_DONTWAIT));
    s.see("all are left", sys::read(pair.fd, 100));
    Ok(())
}

fn peek(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("nothing", sys::recv(pair.fd, 10, MSG_PEEK | MSG_DONTWAIT));
    pair.tell(b"look")?;
    s.see("two", sys::recv(pair.fd, 2, MSG_PEEK));
    s.see("all", sys::recv(pair.fd, 100, MSG_PEEK));
    pair.tell(b" again")?;
    s.see("more", sys::recv(pair.fd, 100, MSG_PEEK));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn peek_and_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"last")?;
    pair.peer_ends()?;
    s.see("peek", sys::recv(pair.fd, 100, MSG_PEEK));
    s.see("read", sys::read(pair.fd, 100));
    s.see("peek", sys::recv(pair.fd, 100, MSG_PEEK));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn peek_beyond(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"abc")?;
    sys::recv(pair.fd, 1, 0)?;
    s.see("peek", sys::recv(pair.fd, 100, MSG_PEEK));
    s.see("peek and truncate", sys::recv_into(pair.fd, &mut [0; 1], MSG_PEEK | MSG_TRUNC));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn waitall_over_two(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"half")?;
    let other = pair.other;
    pair.peer.later(150).send(other, b"whole")?;
    let start = Instant::now();
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    s.see_time("took", start, 50..2000);
    s.see("rest", sys::recv(pair.fd, 8, 0));
    Ok(())
}

fn waitall_and_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"half")?;
    let other = pair.other;
    pair.peer.later(150).shutdown(other, libc::SHUT_WR)?;
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    s.see("recv", sys::recv(pair.fd, 8, MSG_WAITALL));
    Ok(())
}

fn waitall_without_waiting(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("of nothing", sys::recv(pair.fd, 8, MSG_WAITALL | MSG_DONTWAIT));
    pair.tell(b"half")?;
    s.see("of half", sys::recv(pair.fd, 8, MSG_WAITALL | MSG_DONTWAIT));
    Ok(())
}

fn nonblock_waitall(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::fcntl(pair.fd, libc::F_SETFL, O_NONBLOCK.into())?;
    pair.tell(b"half")?;
    s.see("of half", sys::recv(pair.fd, 8, MSG_WAITALL));
    s.see("of nothing", sys::recv(pair.fd, 8, MSG_WAITALL));
    Ok(())
}

fn waitall_and_peek(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"half")?;
    let other = pair.other;
    pair.peer.later(150).send(other, b"more")?;
    s.see("peek", sys::recv(pair.fd, 8, MSG_WAITALL | MSG_PEEK));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn waitall_longer_than_the_buffer(s: &mut Scene) -> Done {
    const LEN: usize = 3_000_000;
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    s.see("recv", sys::recv(pair.fd, LEN, MSG_WAITALL));
    Ok(())
}

fn truncated(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"thrown away, kept")?;
    let mut buffer = *b"untouched...";
    // On TCP the octets are discarded, tcp(7).
    s.see("recv", sys::recv_into(pair.fd, &mut buffer, MSG_TRUNC));
    s.see("buffer", buffer.to_vec());
    s.see("rest", sys::recv(pair.fd, 100, 0));
    Ok(())
}

fn end_again_and_again(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    for flags in [0, MSG_DONTWAIT, MSG_WAITALL, MSG_PEEK] {
        s.see("recv", sys::recv(pair.fd, 10, flags));
    }
    s.see("readv", sys::readv(pair.fd, &[2, 2]).map(|octets| octets.concat()));
    Ok(())
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

fn after_shutdown_of_reading(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"before")?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_RD));
    s.see("read", sys::read(pair.fd, 100));
    s.see("read", sys::read(pair.fd, 100));
    s.see("write", sys::write(pair.fd, b"still"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn data_after_shutdown_of_reading(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("shutdown", sys::shutdown(pair.fd, SHUT_RD));
    s.see("peer sends", pair.tell(b"afterwards"));
    s.see("read", sys::read(pair.fd, 100));
    s.see("read", sys::read(pair.fd, 100));
    Ok(())
}

fn vectors(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"abcdefgh")?;
    s.see("readv", sys::readv(pair.fd, &[2, 0, 3]));
    s.see("recvmsg", sys::recvmsg(pair.fd, &[1, 100], 0, 0).map(|message| message.octets));
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

fn lowat(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("option", sys::setsockopt_int(pair.fd, SOL_SOCKET, SO_RCVLOWAT, 5));
    pair.tell(b"four")?;
    s.see_poll("with four", sys::poll_one(pair.fd, libc::POLLIN, 50));
    s.see("recv without waiting", sys::recv(pair.fd, 2, MSG_DONTWAIT));
    pair.tell(b"abc")?;
    s.see_poll("with five", sys::poll_one(pair.fd, libc::POLLIN, SOON_MS));
    s.see("recv", sys::recv(pair.fd, 100, 0));
    Ok(())
}

fn recvmsg_says_no_name(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("octets", message.octets);
    s.see("name", message.name.len);
    s.see("control", message.control.len());
    s.see("flags", message_names(message.flags));
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

fn blocks_until_data_come(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    let start = Instant::now();
    pair.peer.later(150).send(other, b"late")?;
    s.see("read", sys::read(pair.fd, 10));
    s.see_time("took", start, 100..2000);
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

fn peek_waits(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(100).send(other, b"late")?;
    s.see("peek", sys::recv(pair.fd, 10, MSG_PEEK));
    s.see("read", sys::read(pair.fd, 10));
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

fn large(s: &mut Scene) -> Done {
    const LEN: usize = 1_000_000;
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    let mut all = Vec::new();
    while all.len() < LEN {
        let piece = sys::read(pair.fd, 50_000)?;
        if piece.is_empty() {
            break;
        }
        all.extend(piece);
    }
    s.see("all", all);
    Ok(())
}
