//! Options that are more than a number: times, names, structures.

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SO_LINGER, SO_RCVTIMEO, SO_SNDTIMEO, SOL_SOCKET};

use crate::scene::Scene;
use crate::sys::{self, Errno};
use crate::table::{Done, checks};

checks! {
    "option_values":
    WAYS [
        linger, receive_timeout, send_timeout, bad_timeouts, at_unknown_levels, on_a_closed_descriptor,
        negative_length, ip_options, original_destination, error_is_consumed, packet_options,
        buffers_are_doubled, buffer_forced,
    ],
    BOTH [linger_is_inherited, timeouts_are_inherited, path_mtu],
    ONCE [on_a_pipe, on_a_unix_socket, v6_options_of_v4_sockets],
}

fn linger_of(on: i32, seconds: i32) -> Vec<u8> {
    [on, seconds].map(i32::to_ne_bytes).concat()
}

pub(super) fn words(octets: Vec<u8>) -> Vec<i32> {
    octets.chunks_exact(4).map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn linger(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let get = || sys::getsockopt(pair.fd, SOL_SOCKET, SO_LINGER, 8).map(words);
    s.see("at first", get());
    s.see("set", sys::setsockopt(pair.fd, SOL_SOCKET, SO_LINGER, &linger_of(1, 7)));
    s.see("now", get());
    s.see("set too short", sys::setsockopt(pair.fd, SOL_SOCKET, SO_LINGER, &[1, 0, 0, 0]));
    s.see("set negative", sys::setsockopt(pair.fd, SOL_SOCKET, SO_LINGER, &linger_of(1, -1)).map(drop));
    s.see("off", sys::setsockopt(pair.fd, SOL_SOCKET, SO_LINGER, &linger_of(0, 3)));
    s.see("now", get().map(|values| values[0]));
    Ok(())
}

fn timeout(s: &mut Scene, option: i32) -> Done {
    let pair = s.pair()?;
    let get = || sys::getsockopt(pair.fd, SOL_SOCKET, option, 16).map(words);
    s.see("at first", get());
    s.see("set", sys::set_timeout(pair.fd, option, 2500));
    s.see("now", get());
    s.see("set none", sys::set_timeout(pair.fd, option, 0));
    s.see("now", get());
    s.see("cut", sys::getsockopt(pair.fd, SOL_SOCKET, option, 5).map(|value| value.len()));
    Ok(())
}

fn receive_timeout(s: &mut Scene) -> Done {
    timeout(s, SO_RCVTIMEO)
}

fn send_timeout(s: &mut Scene) -> Done {
    timeout(s, SO_SNDTIMEO)
}

fn bad_timeouts(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let set = |seconds: i64, micros: i64| {
        sys::setsockopt(pair.fd, SOL_SOCKET, SO_RCVTIMEO, &[seconds, micros].map(i64::to_ne_bytes).concat())
    };
    s.see("too many microseconds", set(0, 1_000_000));
    s.see("negative microseconds", set(0, -1));
    s.see("too short", sys::setsockopt(pair.fd, SOL_SOCKET, SO_RCVTIMEO, &[0; 8]));
    s.see("negative seconds", set(-1, 0));
    s.see("now", sys::getsockopt(pair.fd, SOL_SOCKET, SO_RCVTIMEO, 16).map(words));
    Ok(())
}

fn at_unknown_levels(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    for level in [-1, 99, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::SOL_NETLINK] {
        s.see("get", sys::getsockopt_int(pair.fd, level, 1));
        s.see("set", sys::setsockopt_int(pair.fd, level, 1, 1));
    }
    Ok(())
}

fn on_a_closed_descriptor(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::close(pair.fd)?;
    s.see("get", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_TYPE));
    s.see("set", sys::setsockopt_int(pair.fd, SOL_SOCKET, libc::SO_KEEPALIVE, 1));
    Ok(())
}

fn negative_length(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    for (level, option) in
        [(SOL_SOCKET, libc::SO_TYPE), (IPPROTO_TCP, libc::TCP_NODELAY), (IPPROTO_IP, libc::IP_TTL)]
    {
        s.see("get", sys::getsockopt_negative(pair.fd, level, option));
        s.see("set", sys::setsockopt_negative(pair.fd, level, option));
    }
    Ok(())
}

fn ip_options(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("get", sys::getsockopt(pair.fd, IPPROTO_IP, libc::IP_OPTIONS, 40).map(|options| options.len()));
    s.see("set none", sys::setsockopt(pair.fd, IPPROTO_IP, libc::IP_OPTIONS, &[]));
    s.see("set bad ones", sys::setsockopt(pair.fd, IPPROTO_IP, libc::IP_OPTIONS, &[7, 200, 4, 0]));
    Ok(())
}

fn original_destination(s: &mut Scene) -> Done {
    const SO_ORIGINAL_DST: i32 = 80;
    let pair = s.pair()?;
    s.see("SO_ORIGINAL_DST", sys::getsockopt(pair.fd, IPPROTO_IP, SO_ORIGINAL_DST, 16).map(drop));
    Ok(())
}

fn error_is_consumed(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    s.see(
        "get",
        sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_ERROR).map(|errno| Errno(errno).to_string()),
    );
    s.see("get", sys::getsockopt_int(pair.fd, SOL_SOCKET, libc::SO_ERROR));
    Ok(())
}

fn packet_options(s: &mut Scene) -> Done {
    const IP_PKTOPTIONS: i32 = 9;
    let pair = s.pair()?;
    s.see("get", sys::getsockopt(pair.fd, IPPROTO_IP, IP_PKTOPTIONS, 100).map(|options| options.len()));
    Ok(())
}

fn buffers_are_doubled(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        sys::setsockopt_int(pair.fd, SOL_SOCKET, option, 50_000)?;
        s.see("now", sys::getsockopt_int(pair.fd, SOL_SOCKET, option));
    }
    let other = pair.other;
    pair.peer.later(1).send_pattern(other, 200_000)?;
    s.see("read", sys::recv(pair.fd, 200_000, libc::MSG_WAITALL));
    Ok(())
}

fn buffer_forced(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    for (force, option) in [(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)]
    {
        s.see("set", sys::setsockopt_int(pair.fd, SOL_SOCKET, force, 40_000_000));
        s.see("now", sys::getsockopt_int(pair.fd, SOL_SOCKET, option));
    }
    Ok(())
}

fn linger_is_inherited(s: &mut Scene) -> Done {
    let set = |fd| sys::setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger_of(1, 0));
    let (listener, port) = s.listener_with(4, set)?;
    let mut pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    s.see("accepted", sys::getsockopt(pair.fd, SOL_SOCKET, SO_LINGER, 8).map(words));
    sys::close(pair.fd)?;
    s.see("peer", pair.hear(10));
    Ok(())
}

fn timeouts_are_inherited(s: &mut Scene) -> Done {
    let set =
        |fd| sys::set_timeout(fd, SO_RCVTIMEO, 3000).and_then(|()| sys::set_timeout(fd, SO_SNDTIMEO, 4000));
    let (listener, port) = s.listener_with(4, set)?;
    let pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    s.see("receiving", sys::getsockopt(pair.fd, SOL_SOCKET, SO_RCVTIMEO, 16).map(words));
    s.see("sending", sys::getsockopt(pair.fd, SOL_SOCKET, SO_SNDTIMEO, 16).map(words));
    Ok(())
}

fn path_mtu(s: &mut Scene) -> Done {
    let option = if s.is_v6() { libc::IPV6_MTU } else { libc::IP_MTU };
    let (listener, port) = s.listener()?;
    let pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    s.see("connection", sys::getsockopt_int(pair.fd, s.ip_level(), option));
    s.see("listener", sys::getsockopt_int(listener, s.ip_level(), option));
    let mut peer = s.peer()?;
    let (_, port) = peer.udp()?;
    let fd = s.udp()?;
    s.see("udp", sys::getsockopt_int(fd, s.ip_level(), option));
    sys::connect(fd, &s.remote(port))?;
    s.see("connected udp", sys::getsockopt_int(fd, s.ip_level(), option));
    Ok(())
}

fn on_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    s.see("get", sys::getsockopt_int(reader, SOL_SOCKET, libc::SO_TYPE));
    s.see("set", sys::setsockopt_int(reader, SOL_SOCKET, libc::SO_KEEPALIVE, 1));
    Ok(())
}

fn on_a_unix_socket(s: &mut Scene) -> Done {
    let [one, _two] = sys::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    s.see("type", sys::getsockopt_int(one, SOL_SOCKET, libc::SO_TYPE));
    s.see("keepalive", sys::setsockopt_int(one, SOL_SOCKET, libc::SO_KEEPALIVE, 1));
    s.see("nodelay", sys::setsockopt_int(one, IPPROTO_TCP, libc::TCP_NODELAY, 1));
    let own = std::process::id() as i32;
    let credentials = sys::getsockopt(one, SOL_SOCKET, libc::SO_PEERCRED, 12).map(words)?;
    s.see("peer is this process", credentials.first() == Some(&own));
    Ok(())
}

fn v6_options_of_v4_sockets(s: &mut Scene) -> Done {
    for fd in [s.tcp()?, s.udp()?] {
        s.see("get", sys::getsockopt_int(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY));
        s.see("set", sys::setsockopt_int(fd, IPPROTO_IPV6, libc::IPV6_V6ONLY, 1));
    }
    Ok(())
}
