//! epoll_create(2) and epoll_ctl(2): what they refuse.

use libc::{
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT,
    EPOLLRDHUP,
};

use crate::scene::{SOON_MS, Scene};
use crate::sys::{self, Errno};
use crate::table::{Done, checks};

checks! {
    alone "epoll.control":
    WAYS [exclusive],
    ONCE [
        create, create_sized, of_no_epoll, itself, of_a_file, of_closed_descriptors, of_unknown_operations,
        loops, too_deep, del_without_event, null_event,
    ],
}

fn exclusive(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    s.see("with one-shot", sys::epoll_add(epfd, pair.fd, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
    s.see("with RDHUP", sys::epoll_add(epfd, pair.fd, EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE, 1));
    s.see("alone", sys::epoll_add(epfd, pair.fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    s.see("change", sys::epoll_mod(epfd, pair.fd, EPOLLIN, 1));
    s.see("change to it", sys::epoll_mod(epfd, pair.fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
    pair.tell(b"data")?;
    s.see_epoll("wait", sys::epoll_wait(epfd, 8, SOON_MS));
    let inner = sys::epoll_create(0)?;
    s.see("of an epoll", sys::epoll_add(epfd, inner, EPOLLIN | EPOLLEXCLUSIVE, 1));
    Ok(())
}

fn create(s: &mut Scene) -> Done {
    let plain = sys::epoll_create(0)?;
    s.see("flags", sys::fcntl(plain, libc::F_GETFD, 0));
    let closing = sys::epoll_create(EPOLL_CLOEXEC)?;
    s.see("flags", sys::fcntl(closing, libc::F_GETFD, 0));
    s.see("unknown flags", sys::epoll_create(1));
    Ok(())
}

fn create_sized(s: &mut Scene) -> Done {
    s.see("10", sys::epoll_create_sized(10).map(drop));
    s.see("0", sys::epoll_create_sized(0));
    s.see("-1", sys::epoll_create_sized(-1));
    Ok(())
}

fn of_no_epoll(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [reader, _] = sys::pipe(0)?;
    s.see("a pipe", sys::epoll_add(reader, pair.fd, EPOLLIN, 1));
    s.see("a connection", sys::epoll_add(pair.fd, reader, EPOLLIN, 1));
    s.see("wait of a pipe", sys::epoll_wait(reader, 8, 0).map(drop));
    s.see("wait of a connection", sys::epoll_wait(pair.fd, 8, 0).map(drop));
    Ok(())
}

fn itself(s: &mut Scene) -> Done {
    let epfd = sys::epoll_create(0)?;
    s.see("add", sys::epoll_add(epfd, epfd, EPOLLIN, 1));
    Ok(())
}

fn of_a_file(s: &mut Scene) -> Done {
    let epfd = sys::epoll_create(0)?;
    s.see("add", sys::epoll_add(epfd, sys::file(b"text")?, EPOLLIN, 1));
    Ok(())
}

fn of_closed_descriptors(s: &mut Scene) -> Done {
    let epfd = sys::epoll_create(0)?;
    let pair = s.pair()?;
    s.see("what", sys::epoll_add(epfd, 999, EPOLLIN, 1));
    s.see("where", sys::epoll_add(999, pair.fd, EPOLLIN, 1));
    s.see("wait", sys::epoll_wait(999, 8, 0).map(drop));
    sys::close(epfd)?;
    s.see("closed before", sys::epoll_add(epfd, pair.fd, EPOLLIN, 1));
    Ok(())
}

fn of_unknown_operations(s: &mut Scene) -> Done {
    let epfd = sys::epoll_create(0)?;
    let pair = s.pair()?;
    s.see("0", sys::epoll_ctl(epfd, 0, pair.fd, EPOLLIN as u32, 1));
    s.see("4", sys::epoll_ctl(epfd, 4, pair.fd, EPOLLIN as u32, 1));
    for op in [EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL] {
        s.see("known", sys::epoll_ctl(epfd, op, pair.fd, EPOLLIN as u32, 1));
    }
    Ok(())
}

fn loops(s: &mut Scene) -> Done {
    let (one, two) = (sys::epoll_create(0)?, sys::epoll_create(0)?);
    s.see("two in one", sys::epoll_add(one, two, EPOLLIN, 1));
    s.see("one in two", sys::epoll_add(two, one, EPOLLIN, 1));
    Ok(())
}

fn too_deep(s: &mut Scene) -> Done {
    let chain: Result<Vec<i32>, Errno> = (0..7).map(|_| sys::epoll_create(0)).collect();
    for pair in chain?.windows(2) {
        s.see("next", sys::epoll_add(pair[1], pair[0], EPOLLIN, 1));
    }
    Ok(())
}

fn del_without_event(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    s.see("with an event", sys::epoll_ctl(epfd, EPOLL_CTL_DEL, pair.fd, 0, 0));
    sys::epoll_add(epfd, pair.fd, EPOLLIN, 1)?;
    s.see("without", sys::epoll_del(epfd, pair.fd));
    Ok(())
}

fn null_event(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let epfd = sys::epoll_create(0)?;
    s.see("add", sys::epoll_ctl_without_event(epfd, EPOLL_CTL_ADD, pair.fd));
    s.see("change", sys::epoll_ctl_without_event(epfd, EPOLL_CTL_MOD, pair.fd));
    Ok(())
}
