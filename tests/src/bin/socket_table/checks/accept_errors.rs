//! accept(2) and accept4(2) where they cannot, or not at once.

use libc::{O_CLOEXEC, POLLIN, SHUT_RDWR, SOCK_NONBLOCK, SOL_SOCKET};

use crate::scene::Scene;
use crate::sys::{self};
use crate::table::{Done, checks};

checks! {
    alone "accept":
    BOTH [without_connection_is_eagain],
    ONCE [
        with_unknown_flags_is_einval, on_an_unbound_socket, on_a_bound_socket, on_a_connected_socket,
        on_udp, on_a_closed_descriptor, on_a_pipe, waits_for_so_rcvtimeo, at_the_limit_of_descriptors,
        after_shutdown_of_the_listener, with_an_odd_address_length,
    ],
}

fn without_connection_is_eagain(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    sys::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK.into())?;
    s.see("accept", sys::accept(listener));
    s.see("accept4", sys::accept4(listener, SOCK_NONBLOCK));
    Ok(())
}

fn with_unknown_flags_is_einval(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("without connection", sys::accept4(listener, 1));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    s.see("unknown", sys::accept4(listener, 1));
    s.see("O_APPEND", sys::accept4(listener, libc::O_APPEND));
    s.see("O_CLOEXEC", sys::accept4(listener, O_CLOEXEC).map(drop));
    Ok(())
}

fn on_an_unbound_socket(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    s.see("accept", sys::accept(fd));
    Ok(())
}

fn on_a_bound_socket(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    sys::bind(fd, &s.local(0))?;
    s.see("accept", sys::accept(fd));
    Ok(())
}

fn on_a_connected_socket(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("accept", sys::accept(pair.fd));
    Ok(())
}

fn on_udp(s: &mut Scene) -> Done {
    let (fd, _) = s.udp_bound()?;
    s.see("accept", sys::accept(fd));
    Ok(())
}

fn on_a_closed_descriptor(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    sys::close(listener)?;
    s.see("accept", sys::accept(listener));
    s.see("accept of -1", sys::accept(-1));
    Ok(())
}

fn on_a_pipe(s: &mut Scene) -> Done {
    let [reader, _] = sys::pipe(0)?;
    s.see("accept", sys::accept(reader));
    Ok(())
}

fn waits_for_so_rcvtimeo(s: &mut Scene) -> Done {
    let (listener, _) = s.listener()?;
    sys::set_timeout(listener, libc::SO_RCVTIMEO, 150)?;
    let start = std::time::Instant::now();
    s.see("accept", sys::accept(listener));
    s.see_time("took", start, 150..1000);
    Ok(())
}

fn at_the_limit_of_descriptors(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    for _ in 0..2 {
        let other = peer.tcp()?;
        peer.connect(other, port)?;
    }
    let lowest = sys::dup(0)?;
    sys::close(lowest)?;
    let before = sys::set_descriptors_max(lowest as u64)?;
    s.see("without a number", sys::accept(listener));
    s.see_poll("listener", sys::poll_one(listener, POLLIN, 0));
    sys::set_descriptors_max(before)?;
    s.see("with one", sys::accept(listener).map(drop));
    s.see("and the next", sys::accept(listener).map(drop));
    Ok(())
}

fn after_shutdown_of_the_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    s.see("shutdown", sys::shutdown(listener, SHUT_RDWR));
    s.see("accept", sys::accept(listener));
    s.see_poll("events", sys::poll_one(listener, POLLIN, 0));
    s.see("accepts connections", sys::getsockopt_int(listener, SOL_SOCKET, libc::SO_ACCEPTCONN));
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("peer connects", peer.connect(other, port));
    s.see("listen again", sys::listen(listener, 4));
    s.settle(listener)?;
    let again = peer.tcp()?;
    let port = crate::scene::port_of(listener)?;
    s.see("peer connects", peer.connect(again, port));
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn with_an_odd_address_length(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect(other, port)?;
    let negative = u32::MAX as usize;
    s.see("negative length", sys::accept_name(listener, negative).map(drop));
    sys::fcntl(listener, libc::F_SETFL, libc::O_NONBLOCK.into())?;
    s.see("afterwards", sys::accept(listener).map(drop));
    Ok(())
}
