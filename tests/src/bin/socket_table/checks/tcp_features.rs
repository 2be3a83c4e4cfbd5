//! What options of TCP do: deferred accept, fast open, time limits, keepalive, urgent data, marks on packets.

use std::time::{Duration, Instant};

use libc::{
    IPPROTO_TCP, POLLIN, POLLOUT, SO_KEEPALIVE, SOL_SOCKET, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL,
    TCP_USER_TIMEOUT,
};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Control, Outgoing};
use crate::table::{Done, checks};

checks! {
    "tcp_features":
    PAIRS [
        user_timeout_ends_it, keepalive_ends_it, keepalive_leaves_a_living_one, notsent_lowat_and_poll,
        inq_control,
    ],
    WAYS [
        quickack_back_and_forth, small_receive_buffer, window_closes_and_opens,
        timestamps_of_received_data, timestamps_of_sent_data, nodelay_after_data, nagle, keepalive_option_after_connect,
        mtu_probing_option, tos_of_connections, large_then_small, pktinfo_on_tcp,
    ],
}

fn user_timeout_ends_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 500)?;
    let other = pair.other;
    pair.peer.deafen(other)?;
    let start = Instant::now();
    s.see("write", sys::write(pair.fd, b"never heard"));
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 4000));
    s.see_time("took", start, 400..3000);
    s.see("read", sys::read(pair.fd, 10));
    s.see("write", sys::send(pair.fd, b"x", libc::MSG_NOSIGNAL));
    Ok(())
}

fn set_keepalive(fd: i32) -> sys::Result<()> {
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1)?;
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1)?;
    sys::setsockopt_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 1)?;
    sys::setsockopt_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1)
}

fn keepalive_ends_it(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.deafen(other)?;
    set_keepalive(pair.fd)?;
    let start = Instant::now();
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 4000));
    s.see_time("took", start, 1500..3900);
    s.see("read", sys::read(pair.fd, 10));
    Ok(())
}

fn keepalive_leaves_a_living_one(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    set_keepalive(pair.fd)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 2600));
    s.see("write", sys::write(pair.fd, b"alive"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn keepalive_option_after_connect(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", set_keepalive(pair.fd));
    s.see("off", sys::setsockopt_int(pair.fd, SOL_SOCKET, SO_KEEPALIVE, 0));
    let other = pair.other;
    pair.peer.deafen(other)?;
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 2500));
    Ok(())
}

fn notsent_lowat_and_poll(s: &mut Scene) -> Done {
    const TCP_NOTSENT_LOWAT: i32 = 25;
    let mut pair = s.pair()?;
    s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 1000));
    s.see_poll("empty", sys::poll_one(pair.fd, POLLOUT, 0));
    let sent = pair.fill()?;
    s.see_poll("full", sys::poll_one(pair.fd, POLLOUT, 0));
    let other = pair.other;
    s.see("peer got all", pair.peer.recv_pattern(other, sent)? == (sent, true));
    s.see_poll("empty", sys::poll_one(pair.fd, POLLOUT, SOON_MS));
    Ok(())
}

fn inq_control(s: &mut Scene) -> Done {
    const TCP_INQ: i32 = 36;
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, IPPROTO_TCP, TCP_INQ, 1)?;
    pair.tell(b"0123456789")?;
    let message = sys::recvmsg(pair.fd, &[4], 100, 0)?;
    s.see("octets", message.octets.clone());
    s.see("left", message.control(IPPROTO_TCP, TCP_INQ).and_then(Control::as_int));
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("left", message.control(IPPROTO_TCP, TCP_INQ).and_then(Control::as_int));
    Ok(())
}

fn quickack_back_and_forth(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for value in [0, 1] {
        s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, libc::TCP_QUICKACK, value));
        pair.tell(b"data")?;
        s.see("read", sys::read(pair.fd, 10));
    }
    Ok(())
}

fn small_receive_buffer(s: &mut Scene) -> Done {
    const LEN: usize = 100_000;
    let mut pair = s.pair_with(|fd| sys::setsockopt_int(fd, SOL_SOCKET, libc::SO_RCVBUF, 4000))?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    s.see("all", sys::recv(pair.fd, LEN, libc::MSG_WAITALL));
    Ok(())
}

fn window_closes_and_opens(s: &mut Scene) -> Done {
    const LEN: usize = 8_000_000;
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, LEN)?;
    // Nothing is read for so long that the peer has to stop.
    std::thread::sleep(Duration::from_millis(400));
    s.see("all", sys::recv(pair.fd, LEN, libc::MSG_WAITALL));
    Ok(())
}

fn timestamps_of_received_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_TIMESTAMP, 1)?;
    // The kernel begins to take the time of packets somewhat later.
    std::thread::sleep(Duration::from_millis(100));
    pair.tell(b"data")?;
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("octets", message.octets.clone());
    s.see(
        "SCM_TIMESTAMP",
        message.control(SOL_SOCKET, libc::SCM_TIMESTAMP).map(|control| control.data.len()),
    );
    Ok(())
}

fn timestamps_of_sent_data(s: &mut Scene) -> Done {
    // Of sending and of acknowledgement, by software, numbered, without the octets.
    const FLAGS: i32 = 1 << 1 | 1 << 9 | 1 << 4 | 1 << 7 | 1 << 11;
    let mut pair = s.pair()?;
    s.see("option", sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_TIMESTAMPING, FLAGS));
    for octets in [b"0123456789".as_slice(), b"abc"] {
        s.see("write", sys::write(pair.fd, octets));
        s.see("peer", pair.hear(10));
        let mut told = Vec::new();
        for _ in 0..200 {
            let message = sys::recvmsg(pair.fd, &[100], 200, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT);
            told.extend(message.map(|message| time_of_sending(&message)));
            if told.len() == 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        s.see("told", told);
    }
    s.see_poll("events", sys::poll_one(pair.fd, POLLIN, 0));
    Ok(())
}

/// What the error queue says: whether there is a time, origin and errno, what happened, and to which octet.
fn time_of_sending(message: &sys::Message) -> String {
    let [time, error] = &message.control[..] else { return "another".to_owned() };
    let word = |at: usize| {
        let octets = error.data.get(at..at + 4).map(|octets| octets.try_into().expect("four octets"));
        octets.map_or(0, u32::from_ne_bytes)
    };
    let has_time = time.kind == libc::SCM_TIMESTAMPING && time.data[..8] != [0; 8];
    let (errno, origin) = (word(0), error.data.get(4).copied().unwrap_or_default());
    format!("{has_time} {errno} {origin} {} {} {}", word(8), word(12), message.octets.len())
}

fn nodelay_after_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("write", sys::write(pair.fd, b"one"));
    s.see("set", sys::setsockopt_int(pair.fd, IPPROTO_TCP, libc::TCP_NODELAY, 1));
    s.see("write", sys::write(pair.fd, b"two"));
    let other = pair.other;
    let mut all = Vec::new();
    while all.len() < 6 {
        all.extend(pair.peer.recv(other, 100)?);
    }
    s.see("peer", all);
    Ok(())
}

fn nagle(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    for _ in 0..3 {
        sys::write(pair.fd, b"a")?;
        sys::write(pair.fd, b"b")?;
        let mut all = Vec::new();
        while all.len() < 2 {
            all.extend(pair.peer.recv(other, 100)?);
        }
        s.see("peer", all);
    }
    Ok(())
}

fn mtu_probing_option(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let value = libc::IP_PMTUDISC_DONT;
    s.see("set", sys::setsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value));
    let fd = pair.fd;
    s.see("write", sys::write(fd, &crate::show::pattern(5000)));
    let other = pair.other;
    s.see("peer", pair.peer.recv_pattern(other, 5000));
    Ok(())
}

fn tos_of_connections(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("set", sys::setsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_TOS, 0x28));
    s.see("write", sys::write(pair.fd, b"marked"));
    s.see("peer", pair.hear(100));
    s.see("TOS", sys::getsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_TOS));
    s.see("priority", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_PRIORITY));
    Ok(())
}

fn large_then_small(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    let octets = crate::show::pattern(50_005);
    s.see("large", sys::write(pair.fd, &octets[..50_000]));
    s.see("small", sys::write(pair.fd, &octets[50_000..]));
    s.see("peer", pair.peer.recv_pattern(other, 50_005));
    Ok(())
}

fn pktinfo_on_tcp(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::setsockopt_int(pair.fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    pair.tell(b"data")?;
    let message = sys::recvmsg(pair.fd, &[100], 100, 0)?;
    s.see("control", message.control.len());
    let message = Outgoing { buffers: vec![b"data"], ..Outgoing::default() };
    s.see("sendmsg", sys::sendmsg(pair.fd, &message, 0));
    Ok(())
}
