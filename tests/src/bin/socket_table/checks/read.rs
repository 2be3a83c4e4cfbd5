//! Receiving on TCP: read(2), recv(2) and their flags.

use std::thread;
use std::time::Instant;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, O_NONBLOCK, SHUT_RD, SO_RCVLOWAT, SOL_SOCKET};

use super::threads::{A_LITTLE, joined};
use crate::scene::{SOON_MS, Scene};
use crate::show::message_names;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    "read":
    PAIRS [
        what_is_there, in_pieces, when_empty, of_no_octets, peek, peek_and_end, waitall_over_two,
        waitall_and_end, waitall_without_waiting, truncated, truncated_without_a_buffer, end_again_and_again,
        after_shutdown_of_reading, data_after_shutdown_of_reading, vectors, lowat, recvmsg_says_no_name,
    ],
    WAYS [
        waitall_and_peek, waitall_longer_than_the_buffer, blocks_until_data_come, peek_waits, large,
        peek_beyond, nonblock_waitall, waitall_while_it_moves, waitall_and_peek_while_it_moves,
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

/// The connection becomes the kernel's while a thread waits for the rest.
fn read_while_it_moves(s: &mut Scene, flags: i32) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    pair.tell(b"half")?;
    let reader = thread::spawn(move || sys::recv(fd, 8, flags));
    thread::sleep(A_LITTLE);
    sys::inode(fd)?;
    pair.tell(b"more")?;
    s.see("recv", joined(reader));
    pair.tell(b"next")?;
    s.see("read", sys::recv(fd, 4, MSG_WAITALL));
    Ok(())
}

fn waitall_while_it_moves(s: &mut Scene) -> Done {
    read_while_it_moves(s, MSG_WAITALL)
}

fn waitall_and_peek_while_it_moves(s: &mut Scene) -> Done {
    read_while_it_moves(s, MSG_WAITALL | MSG_PEEK)
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

fn truncated_without_a_buffer(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"thrown away, kept")?;
    s.see("without the flag", sys::recv_nowhere(pair.fd, 5, 0));
    s.see("with the flag", sys::recv_nowhere(pair.fd, 12, MSG_TRUNC));
    s.see("rest", sys::recv(pair.fd, 100, 0));
    s.see("of nothing", sys::recv_nowhere(pair.fd, i32::MAX as usize, MSG_TRUNC | MSG_DONTWAIT));
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

fn blocks_until_data_come(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    let start = Instant::now();
    pair.peer.later(150).send(other, b"late")?;
    s.see("read", sys::read(pair.fd, 10));
    s.see_time("took", start, 100..2000);
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
