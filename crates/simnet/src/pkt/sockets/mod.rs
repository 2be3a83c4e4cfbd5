//! System calls of scripts over the stack: descriptors, blocking, readiness and errors as on Linux.

mod address;
mod arguments;
mod blocking;
mod connect;
mod control;
mod epoll;
mod error_queue;
mod file;
mod message;
mod open;
mod options;
mod poll;
mod read;
mod udp;
mod write;

pub(crate) use arguments::integer;
pub(crate) use blocking::{Progress, Reply, Running};
pub(crate) use file::{Epoll, File, Interest, SocketFile, SocketState, connection_mask, news_mask};

use super::trouble::Trouble;
use super::world::World;

/// What a call gives.
type Result<T> = std::result::Result<T, Trouble>;

/// Makes the call, or continues one that blocked.
pub(crate) fn attempt(world: &mut World, running: &mut Running<'_>) -> Result<Progress> {
    match running.call.name.as_str() {
        "socket" => open::socket(world, running),
        "bind" => open::bind(world, running),
        "listen" => open::listen(world, running),
        "accept" | "accept4" => open::accept(world, running),
        "connect" => connect::connect(world, running),
        "close" => open::close(world, running),
        "shutdown" => open::shutdown(world, running),
        "read" | "readv" | "recv" | "recvfrom" | "recvmsg" => read::read(world, running),
        "write" | "writev" | "send" | "sendto" | "sendmsg" => write::write(world, running),
        "open" => open::open(world, running),
        "sendfile" => write::write(world, running),
        "getsockopt" => options::get(world, running),
        "setsockopt" => options::set(world, running),
        "fcntl" => control::fcntl(world, running),
        "ioctl" => control::ioctl(world, running),
        "getsockname" | "getpeername" => control::name(world, running),
        "cap_set" => Ok(Progress::done(0)),
        "poll" => poll::poll(world, running),
        "epoll_create" | "epoll_create1" => epoll::create(world, running),
        "epoll_ctl" => epoll::control(world, running),
        "epoll_wait" => epoll::wait(world, running),
        other => Err(Trouble::unsupported(format!("system call {other}()"))),
    }
}
