//! ioctl(2) of sockets.

use libc::{F_GETFD, FIONBIO, FIONREAD, TIOCOUTQ};

use super::flags::{SIOCATMARK, see_flags};
use crate::scene::Scene;
use crate::sys;
use crate::table::{Done, checks};

checks! {
    "flags":
    PAIRS [nonblock_by_ioctl, fionread, siocoutq, fionread_and_the_end],
    WAYS [
        unknown_ioctls, terminal, siocatmark, siocoutqnsd, fioclex, timestamps, interface_questions,
        fionread_after_reset, own_name_of_an_interface,
    ],
}

const SIOCGSTAMP: libc::c_ulong = 0x8906;

const SIOCGIFNAME: libc::c_ulong = 0x8910;

const SIOCOUTQNSD: libc::c_ulong = 0x894B;

const FIOCLEX: libc::c_ulong = 0x5451;

const FIONCLEX: libc::c_ulong = 0x5450;

fn nonblock_by_ioctl(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("set", sys::ioctl(pair.fd, FIONBIO, 1).map(|(result, _)| result));
    see_flags(s, "afterwards", pair.fd);
    s.see("read", sys::read(pair.fd, 1));
    s.see("clear", sys::ioctl(pair.fd, FIONBIO, 0).map(|(result, _)| result));
    see_flags(s, "in the end", pair.fd);
    Ok(())
}

fn fionread(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("empty", sys::ioctl(pair.fd, FIONREAD, 7));
    pair.tell(b"abcdef")?;
    s.see("six", sys::ioctl(pair.fd, FIONREAD, 7));
    sys::read(pair.fd, 2)?;
    s.see("four", sys::ioctl(pair.fd, FIONREAD, 7));
    pair.tell(b"xyz")?;
    s.see("seven", sys::ioctl(pair.fd, FIONREAD, 7));
    Ok(())
}

fn fionread_and_the_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"abc")?;
    pair.peer_ends()?;
    s.see("three", sys::ioctl(pair.fd, FIONREAD, 7));
    sys::read(pair.fd, 10)?;
    s.see("none", sys::ioctl(pair.fd, FIONREAD, 7));
    Ok(())
}

fn fionread_after_reset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    s.see("FIONREAD", sys::ioctl(pair.fd, FIONREAD, 7));
    s.see("SIOCOUTQ", sys::ioctl(pair.fd, TIOCOUTQ, 7));
    Ok(())
}

fn siocoutq(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("empty", sys::ioctl(pair.fd, TIOCOUTQ, 7));
    sys::write(pair.fd, b"data")?;
    s.see("peer", pair.hear(10));
    for _ in 0..100 {
        if sys::ioctl(pair.fd, TIOCOUTQ, 7) == Ok((0, 0)) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    s.see("acknowledged", sys::ioctl(pair.fd, TIOCOUTQ, 7));
    Ok(())
}

fn siocoutqnsd(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("empty", sys::ioctl(pair.fd, SIOCOUTQNSD, 7));
    sys::send(pair.fd, b"held", libc::MSG_MORE)?;
    s.see("held", sys::ioctl(pair.fd, SIOCOUTQNSD, 7));
    s.see("all", sys::ioctl(pair.fd, TIOCOUTQ, 7));
    Ok(())
}

fn fioclex(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("set", sys::ioctl(pair.fd, FIOCLEX, 0).map(|(result, _)| result));
    s.see("afterwards", sys::fcntl(pair.fd, F_GETFD, 0));
    s.see("clear", sys::ioctl(pair.fd, FIONCLEX, 0).map(|(result, _)| result));
    s.see("in the end", sys::fcntl(pair.fd, F_GETFD, 0));
    Ok(())
}

fn unknown_ioctls(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("0x1234", sys::ioctl(pair.fd, 0x1234, 0));
    s.see("FIGETBSZ", sys::ioctl(pair.fd, 2, 0));
    Ok(())
}

fn terminal(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("TCGETS", sys::ioctl(pair.fd, libc::TCGETS, 0).map(drop));
    s.see("TIOCGWINSZ", sys::ioctl(pair.fd, libc::TIOCGWINSZ, 0).map(drop));
    s.see("isatty", sys::isatty(pair.fd));
    Ok(())
}

fn siocatmark(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    s.see("empty", sys::ioctl(pair.fd, SIOCATMARK, 7));
    pair.tell(b"data")?;
    s.see("with data", sys::ioctl(pair.fd, SIOCATMARK, 7));
    Ok(())
}

fn timestamps(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("SIOCGSTAMP", sys::ioctl(pair.fd, SIOCGSTAMP, 0).map(drop));
    Ok(())
}

fn interface_questions(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    // Any socket may be asked for the names of interfaces; there is none with a number so high.
    s.see("SIOCGIFNAME", sys::ioctl(pair.fd, SIOCGIFNAME, 0x7FFF_FFFF).map(drop));
    Ok(())
}

fn own_name_of_an_interface(s: &mut Scene) -> Done {
    const SIOCGIFCONF: libc::c_ulong = 0x8912;
    let pair = s.pair()?;
    // With no room it says how much it wants.
    s.see("SIOCGIFCONF", sys::ioctl(pair.fd, SIOCGIFCONF, 0).map(|(result, _)| result));
    Ok(())
}
