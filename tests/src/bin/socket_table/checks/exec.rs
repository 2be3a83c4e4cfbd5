//! execve(2), posix_spawn(3), vfork(2), and descriptors that are sent to other processes.

use libc::{F_SETFD, FD_CLOEXEC, POLLIN};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, End, Errno, Result};
use crate::table::{Done, checks};

checks! {
    alone "exec":
    PAIRS [keeps_a_connection, closes_cloexec, spawn_gives_a_connection],
    WAYS [keeps_what_is_told_by_ioctl, keeps_unread_data, by_vfork, keeps_both_of_two, with_environment, keeps_unsent_data],
    BOTH [keeps_a_listener],
    ONCE [fails_and_goes_on, socket_activation],
}

fn words(list: &[&str]) -> Vec<String> {
    std::iter::once("socket_table").chain(list.iter().copied()).map(str::to_owned).collect()
}

pub(super) fn see_end(s: &mut Scene, pid: libc::pid_t) -> Done {
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

/// As Python makes descriptors inheritable.
fn keeps_what_is_told_by_ioctl(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::fcntl(pair.fd, F_SETFD, FD_CLOEXEC.into())?;
    s.see("ioctl", sys::ioctl(pair.fd, libc::FIONCLEX as _, 0).map(drop));
    let pid = exec_child(&["echo", &pair.fd.to_string()])?;
    let other = pair.other;
    pair.peer.send(other, b"back, please")?;
    s.see("peer", pair.hear(100));
    see_end(s, pid)
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

pub(super) fn echo(fd: i32) -> Result<()> {
    let octets = sys::read(fd, 100)?;
    sys::write(fd, &octets).map(drop)
}
