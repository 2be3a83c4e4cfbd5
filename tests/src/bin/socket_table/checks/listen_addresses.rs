//! listen(2): which addresses are listened at, and who may share them.

use libc::{POLLIN, SO_REUSEADDR, SO_REUSEPORT, SOL_SOCKET};

use crate::scene::{SOON_MS, Scene, port_of};
use crate::sys;
use crate::table::{Done, Family, checks};

checks! {
    "listen":
    BOTH [reuseport_shares_a_port, two_without_reuseport, on_all_addresses_takes_connections],
    ONCE [
        a_second_with_reuseaddr, again_after_close_with_connections, v6_takes_v4, v6only_does_not_take_v4,
        v4_and_v6only_share_a_port, loopback_too, one_of_two_sockets_closed,
    ],
}

fn reuseport_shares_a_port(s: &mut Scene) -> Done {
    let share = |fd| sys::setsockopt_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    let (first, port) = s.listener_with(16, share)?;
    let second = s.tcp()?;
    share(second)?;
    s.see("bind", sys::bind(second, &s.local(port)));
    s.see("listen", sys::listen(second, 16));
    let mut peer = s.peer()?;
    let mut taken = 0;
    for _ in 0..16 {
        sys::poll(&[(first, POLLIN), (second, POLLIN)], 0)?;
        let other = peer.tcp()?;
        peer.connect_start(other, port)?;
        let (_, events) = sys::poll(&[(first, POLLIN), (second, POLLIN)], SOON_MS)?;
        let of = [first, second].into_iter().zip(&events).find(|(_, events)| **events != 0);
        taken += usize::from(of.is_some_and(|(listener, _)| sys::accept(listener).is_ok()));
        peer.connected(other)?;
    }
    s.see("of sixteen connections taken", taken);
    Ok(())
}

fn two_without_reuseport(s: &mut Scene) -> Done {
    let (_, port) = s.listener()?;
    let second = s.tcp()?;
    s.see("bind", sys::bind(second, &s.local(port)));
    s.see("bind to all", sys::bind(second, &s.any(port)));
    s.see("bind to loopback", sys::bind(second, &s.loopback(port)));
    Ok(())
}

fn on_all_addresses_takes_connections(s: &mut Scene) -> Done {
    let listener = s.tcp()?;
    sys::bind(listener, &s.any(0))?;
    sys::listen(listener, 4)?;
    s.settle(listener)?;
    let port = port_of(listener)?;
    let from_wire = s.accept_from_peer(listener, port)?;
    s.say_where(from_wire.fd);
    let client = s.tcp()?;
    s.see("connect by loopback", sys::connect(client, &s.loopback(port)));
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn a_second_with_reuseaddr(s: &mut Scene) -> Done {
    let reuse = |fd| sys::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    let (_, port) = s.listener_with(4, reuse)?;
    let second = s.tcp()?;
    reuse(second)?;
    s.see("bind", sys::bind(second, &s.local(port)));
    Ok(())
}

fn again_after_close_with_connections(s: &mut Scene) -> Done {
    let reuse = |fd| sys::setsockopt_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    let (listener, port) = s.listener_with(4, reuse)?;
    let pair = s.accept_from_peer(listener, port)?;
    s.say_where(pair.fd);
    sys::close(listener)?;
    let plain = s.tcp()?;
    s.see("bind without SO_REUSEADDR", sys::bind(plain, &s.local(port)));
    let second = s.tcp()?;
    reuse(second)?;
    s.see("bind with SO_REUSEADDR", sys::bind(second, &s.local(port)));
    s.see("listen", sys::listen(second, 4));
    s.settle(second)?;
    let mut next = s.accept_from_peer(second, port)?;
    next.tell(b"to the second")?;
    s.see("read", sys::read(next.fd, 100));
    Ok(())
}

fn dual(s: &mut Scene, only: bool) -> Done {
    s.variant.family = Family::V6;
    let listener = s.tcp()?;
    sys::setsockopt_int(listener, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only.into())?;
    sys::bind(listener, &s.any(0))?;
    sys::listen(listener, 4)?;
    s.settle(listener)?;
    let port = port_of(listener)?;
    let mut peer = s.peer_of(Family::V4)?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    s.see_poll("listener", sys::poll_one(listener, POLLIN, 300));
    s.see("peer", peer.connected(other));
    sys::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK.into())?;
    let accepted = sys::accept_name(listener, sys::FULL);
    s.see("accept", accepted.clone().map(|(_, name)| (name.len, s.whose(name.address()))));
    if let Ok((fd, _)) = accepted {
        s.say_where(fd);
        let own = sys::getsockname(fd, sys::FULL)?;
        s.see("getsockname", (own.len, s.whose(own.address())));
        s.see("domain", sys::getsockopt_int(fd, SOL_SOCKET, libc::SO_DOMAIN));
        s.see("write", sys::write(fd, b"by IPv4"));
        s.see("peer", peer.recv(other, 100));
    }
    Ok(())
}

fn v6_takes_v4(s: &mut Scene) -> Done {
    dual(s, false)
}

fn v6only_does_not_take_v4(s: &mut Scene) -> Done {
    dual(s, true)
}

fn v4_and_v6only_share_a_port(s: &mut Scene) -> Done {
    let first = s.tcp()?;
    sys::bind(first, &s.any(0))?;
    sys::listen(first, 4)?;
    s.settle(first)?;
    let port = port_of(first)?;
    s.variant.family = Family::V6;
    let second = s.tcp()?;
    s.see("bind without V6ONLY", sys::bind(second, &s.any(port)));
    sys::setsockopt_int(second, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    s.see("bind with V6ONLY", sys::bind(second, &s.any(port)));
    s.see("listen", sys::listen(second, 4));
    s.settle(second)?;
    let pair = s.accept_from_peer(second, port)?;
    s.say_where(pair.fd);
    s.variant.family = Family::V4;
    let pair = s.accept_from_peer(first, port)?;
    s.say_where(pair.fd);
    Ok(())
}

fn loopback_too(s: &mut Scene) -> Done {
    let listener = s.tcp()?;
    sys::bind(listener, &s.loopback(0))?;
    sys::listen(listener, 4)?;
    s.settle(listener)?;
    let client = s.tcp()?;
    s.see("connect", sys::connect(client, &s.loopback(port_of(listener)?)));
    let (fd, name) = sys::accept_name(listener, sys::FULL)?;
    s.see("from", s.whose(name.address()));
    s.see("write", sys::write(fd, b"at home"));
    s.see("read", sys::read(client, 100));
    Ok(())
}

fn one_of_two_sockets_closed(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let twin = sys::dup(listener)?;
    s.see("close", sys::close(listener));
    s.settle(twin)?;
    let pair = s.accept_from_peer(twin, port)?;
    s.say_where(pair.fd);
    s.see("close", sys::close(twin));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("peer", peer.connect(other, port));
    Ok(())
}
