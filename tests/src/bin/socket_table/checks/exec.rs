//! execve(2), posix_spawn(3), vfork(2), and descriptors that are sent to other processes.

use libc::{
    AF_UNIX, F_SETFD, FD_CLOEXEC, MSG_DONTWAIT, POLLIN, SCM_RIGHTS, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET,
};

use crate::scene::{Pair, SOON_MS, Scene};
use crate::sys::{self, Control, End, Errno, Outgoing, Result};
use crate::table::{Done, checks};

checks! {
    "exec":
    PAIRS [keeps_a_connection, closes_cloexec, sent_to_another_process, spawn_gives_a_connection],
    WAYS [
        keeps_unread_data, by_vfork, keeps_both_of_two, with_environment, sent_and_closed, sent_to_itself,
        sent_with_unread_data, sent_twice, sent_by_sendmmsg_and_plain, keeps_unsent_data,
    ],
    BOTH [keeps_a_listener, listener_sent_to_another_process, datagrams_sent_to_another_process],
    ONCE [fails_and_goes_on, pipe_is_sent, socket_activation, sent_over_a_socket_of_the_wire],
}

fn words(list: &[&str]) -> Vec<String> {
    std::iter::once("socket_table").chain(list.iter().copied()).map(str::to_owned).collect()
}

fn see_end(s: &mut Scene, pid: libc::pid_t) -> Done {
    let end = match sys::wait_for(pid)? {
        End::Exited(0) => "well".to_owned(),
        End::Exited(errno) => Errno(errno).to_string(),
        End::Signalled(signal) => format!("signal {signal}"),
    };
    s.see("child ended", end);
    Ok(())
}

/// A child that becomes this program anew and does what `list` says.
fn exec_child(list: &[&str]) -> Result<libc::pid_t> {
    sys::fork_to(|| sys::exec_self(&words(&[&["--after-exec"], list].concat())).0)
}

fn keeps_a_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let pid = exec_child(&["echo", &pair.fd.to_string()])?;
    let other = pair.other;
    pair.peer.send(other, b"back, please")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)?;
    s.see("write", sys::write(pair.fd, b"parent"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn with_environment(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let list = words(&["--after-exec", "echo", &pair.fd.to_string()]);
    let pid = sys::fork_to(|| sys::execve_self(&list).0)?;
    sys::close(pair.fd)?;
    let other = pair.other;
    pair.peer.send(other, b"back, please")?;
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn closes_cloexec(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::fcntl(pair.fd, F_SETFD, FD_CLOEXEC.into())?;
    let pid = exec_child(&["is-open", &pair.fd.to_string()])?;
    see_end(s, pid)?;
    s.see("write", sys::write(pair.fd, b"parent"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn keeps_unread_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"waiting")?;
    let pid = exec_child(&["echo", &pair.fd.to_string()])?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn keeps_unsent_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sent = pair.fill()?;
    let pid = exec_child(&["echo", &pair.fd.to_string()])?;
    sys::close(pair.fd)?;
    let other = pair.other;
    s.see("peer got all", pair.peer.recv_pattern(other, sent)? == (sent, true));
    pair.peer.send(other, b"back, please")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn keeps_both_of_two(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    sys::fcntl(pair.fd, F_SETFD, FD_CLOEXEC.into())?;
    let pid = exec_child(&["echo", &twin.to_string()])?;
    pair.tell(b"back, please")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn by_vfork(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let pid = sys::vfork_exec_self(&words(&["--after-exec", "echo", &pair.fd.to_string()]))?;
    pair.tell(b"back, please")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn spawn_gives_a_connection(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let pid = sys::spawn_self(&words(&["--after-exec", "echo", "0"]), pair.fd, 0)?;
    let other = pair.other;
    pair.peer.send(other, b"back, please")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)?;
    s.see("write", sys::write(pair.fd, b"parent"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn keeps_a_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let pid = exec_child(&["accept", &listener.to_string()])?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn socket_activation(s: &mut Scene) -> Done {
    // The one who listens never accepts; who is started for it does.
    let listener = s.tcp()?;
    sys::bind(listener, &s.local(0))?;
    sys::listen(listener, 4)?;
    let port = crate::scene::port_of(listener)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    s.see_poll("listener", sys::poll_one(listener, POLLIN, SOON_MS));
    let pid = sys::spawn_self(&words(&["--after-exec", "accept", "3"]), listener, 3)?;
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn fails_and_goes_on(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("exec", sys::exec_nothing());
    s.see("write", sys::write(pair.fd, b"still here"));
    s.see("peer", pair.hear(100));
    Ok(())
}

/// Sends a descriptor over a Unix socket.
fn give(over: i32, fd: i32) -> Result<usize> {
    let control = sys::control_octets(&[Control::int(SOL_SOCKET, SCM_RIGHTS, fd)]);
    let message = Outgoing { buffers: vec![b"x"], control, ..Outgoing::default() };
    sys::sendmsg(over, &message, 0)
}

/// Receives one.
fn take(over: i32) -> Result<i32> {
    let message = sys::recvmsg(over, &[1], 64, 0)?;
    let control = message.control(SOL_SOCKET, SCM_RIGHTS).and_then(Control::as_int);
    control.ok_or(Errno(libc::ENOMSG))
}

/// A child that has a Unix socket's other end; 0 if it went well, else its errno.
fn receiver(action: impl FnOnce(i32) -> Result<()>) -> Result<(libc::pid_t, i32)> {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let pid = sys::fork_to(|| action(there).map_or_else(|errno| errno.0, |()| 0))?;
    sys::close(there)?;
    Ok((pid, here))
}

fn echo(fd: i32) -> Result<()> {
    let octets = sys::read(fd, 100)?;
    sys::write(fd, &octets).map(drop)
}

fn sent_to_another_process(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| echo(take(there)?))?;
    let mut pair = s.pair()?;
    s.see("sendmsg", give(over, pair.fd));
    let other = pair.other;
    pair.peer.send(other, b"to the other process")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)?;
    s.see("write", sys::write(pair.fd, b"still here"));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn sent_and_closed(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| {
        let fd = take(there)?;
        sys::read(there, 1)?;
        echo(fd)
    })?;
    let mut pair = s.pair()?;
    give(over, pair.fd)?;
    s.see("close", sys::close(pair.fd));
    sys::write(over, b"y")?;
    let other = pair.other;
    pair.peer.send(other, b"to the other process")?;
    s.see("peer", pair.hear(100));
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn sent_with_unread_data(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| echo(take(there)?))?;
    let mut pair = s.pair()?;
    pair.tell(b"unread")?;
    give(over, pair.fd)?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
}

fn sent_twice(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let mut pair = s.pair()?;
    give(here, pair.fd)?;
    give(here, pair.fd)?;
    let (one, two) = (take(there)?, take(there)?);
    for fd in [one, two, pair.fd] {
        s.see("write", sys::write(fd, b"x"));
        s.see("peer", pair.hear(10));
    }
    Ok(())
}

fn sent_to_itself(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_DGRAM, 0)?;
    let mut pair = s.pair()?;
    give(here, pair.fd)?;
    let fd = take(there)?;
    sys::close(pair.fd)?;
    s.see("write", sys::write(fd, b"by its new number"));
    s.see("peer", pair.hear(100));
    s.see("getpeername", sys::getpeername(fd, sys::FULL).map(|name| s.whose(name.address())));
    s.see("close", sys::close(fd));
    s.see("peer", pair.hear(100));
    Ok(())
}

fn sent_by_sendmmsg_and_plain(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let mut pair = s.pair()?;
    let control = sys::control_octets(&[Control::int(SOL_SOCKET, SCM_RIGHTS, pair.fd)]);
    let message = Outgoing { buffers: vec![b"x"], control, ..Outgoing::default() };
    s.see("sendmmsg", sys::sendmmsg(here, &[message], 0));
    let fd = take(there)?;
    s.see("write", sys::write(fd, b"x"));
    s.see("peer", pair.hear(10));
    Ok(())
}

fn pipe_is_sent(s: &mut Scene) -> Done {
    let [here, there] = sys::socketpair(AF_UNIX, SOCK_STREAM, 0)?;
    let [reader, writer] = sys::pipe(0)?;
    give(here, reader)?;
    let fd = take(there)?;
    sys::write(writer, b"data")?;
    s.see("read", sys::read(fd, 10));
    Ok(())
}

fn listener_sent_to_another_process(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| {
        let listener = take(there)?;
        s.settle(listener)?;
        sys::write(there, b"x")?;
        let fd = sys::accept(listener)?;
        sys::write(fd, b"from the other process").map(drop)
    })?;
    let (listener, port) = s.listener()?;
    give(over, listener)?;
    sys::close(listener)?;
    sys::read(over, 1)?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    s.see("connect", peer.connect(other, port));
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn datagrams_sent_to_another_process(s: &mut Scene) -> Done {
    let (pid, over) = receiver(|there| {
        let fd = take(there)?;
        sys::poll_one(fd, POLLIN, SOON_MS)?;
        let (octets, name) = sys::recvfrom(fd, 100, MSG_DONTWAIT, sys::FULL)?;
        sys::sendto(fd, &octets, 0, &name.octets).map(drop)
    })?;
    let (fd, port) = s.udp_bound()?;
    give(over, fd)?;
    sys::close(fd)?;
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    s.see("peer", peer.recv(other, 100));
    see_end(s, pid)
}

fn sent_over_a_socket_of_the_wire(s: &mut Scene) -> Done {
    let pair: Pair = s.pair()?;
    // Only Unix sockets carry descriptors.
    s.see("sendmsg", give(pair.fd, 1));
    Ok(())
}
