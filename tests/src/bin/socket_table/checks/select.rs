//! select(2) and pselect(2).

use std::time::{Duration, Instant};

use libc::SIGALRM;

use crate::scene::Scene;
use crate::sys::{self, SelectBy, Sets};
use crate::table::{Done, checks};

checks! {
    alone "select":
    WAYS [
        readable, writable, all_three_sets, times_out, of_a_reset, end_is_readable, limit_below_the_descriptor,
        limit_beyond_the_sets,
        by_pselect, with_a_pipe, leaves_the_rest_of_the_time, except_for_urgent_data, pselect_with_a_mask,
    ],
    ONCE [of_a_closed_descriptor, of_nothing, negative_limit, of_a_listener, of_udp, is_interrupted],
}

const SOON: Option<Duration> = Some(Duration::from_secs(2));
const NOW: Option<Duration> = Some(Duration::ZERO);

fn see_sets(s: &mut Scene, what: &str, seen: sys::Result<(i32, Sets, Option<Duration>)>) {
    let counts = |(ready, sets, _): (i32, Sets, _)| {
        format!("{ready}: {} {} {}", sets.read.len(), sets.write.len(), sets.except.len())
    };
    s.see(what, seen.map(counts));
}

fn of(read: &[i32], write: &[i32], except: &[i32]) -> Sets {
    Sets { read: read.to_vec(), write: write.to_vec(), except: except.to_vec() }
}

fn readable(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sets = of(&[pair.fd], &[], &[]);
    see_sets(s, "empty", sys::select(SelectBy::Select, pair.fd + 1, &sets, NOW));
    pair.tell(b"data")?;
    see_sets(s, "with data", sys::select(SelectBy::Select, pair.fd + 1, &sets, SOON));
    Ok(())
}

/// As programs do that give getdtablesize(3).
fn limit_beyond_the_sets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sets = of(&[pair.fd], &[pair.fd], &[]);
    see_sets(s, "empty", sys::select(SelectBy::Select, 1 << 20, &sets, NOW));
    pair.tell(b"data")?;
    see_sets(s, "with data", sys::select(SelectBy::Select, 1 << 20, &of(&[pair.fd], &[], &[]), SOON));
    Ok(())
}

fn writable(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    see_sets(s, "open", sys::select(SelectBy::Select, pair.fd + 1, &of(&[], &[pair.fd], &[]), NOW));
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    see_sets(s, "shut", sys::select(SelectBy::Select, pair.fd + 1, &of(&[], &[pair.fd], &[]), NOW));
    Ok(())
}

fn all_three_sets(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let sets = of(&[pair.fd], &[pair.fd], &[pair.fd]);
    see_sets(s, "select", sys::select(SelectBy::Select, pair.fd + 1, &sets, SOON));
    Ok(())
}

fn times_out(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let start = Instant::now();
    let time = Some(Duration::from_millis(120));
    see_sets(s, "select", sys::select(SelectBy::Select, pair.fd + 1, &of(&[pair.fd], &[], &[]), time));
    s.see_time("took", start, 120..800);
    Ok(())
}

fn of_a_reset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    let sets = of(&[pair.fd], &[pair.fd], &[pair.fd]);
    see_sets(s, "select", sys::select(SelectBy::Select, pair.fd + 1, &sets, NOW));
    Ok(())
}

fn end_is_readable(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    let sets = of(&[pair.fd], &[], &[pair.fd]);
    see_sets(s, "select", sys::select(SelectBy::Select, pair.fd + 1, &sets, SOON));
    Ok(())
}

fn limit_below_the_descriptor(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let seen = sys::select(SelectBy::Select, pair.fd, &of(&[pair.fd], &[], &[]), NOW);
    s.see("result", seen.map(|(ready, ..)| ready));
    Ok(())
}

fn by_pselect(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let sets = of(&[pair.fd], &[], &[]);
    let time = Some(Duration::from_millis(50));
    see_sets(s, "empty", sys::select(SelectBy::Pselect(None), pair.fd + 1, &sets, time));
    pair.tell(b"data")?;
    see_sets(s, "with data", sys::select(SelectBy::Pselect(None), pair.fd + 1, &sets, SOON));
    Ok(())
}

fn pselect_with_a_mask(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGALRM, 0)?;
    sys::mask_signals(libc::SIG_BLOCK, &[SIGALRM])?;
    sys::alarms(Duration::from_millis(50))?;
    let open = sys::signal_set(&[]);
    let sets = of(&[pair.fd], &[], &[]);
    see_sets(s, "open", sys::select(SelectBy::Pselect(Some(&open)), pair.fd + 1, &sets, SOON));
    s.see("signals", sys::signals(SIGALRM));
    Ok(())
}

fn with_a_pipe(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    let limit = pair.fd.max(writer).max(reader) + 1;
    let sets = of(&[pair.fd, reader], &[writer], &[]);
    see_sets(s, "at first", sys::select(SelectBy::Select, limit, &sets, NOW));
    sys::write(writer, b"x")?;
    pair.tell(b"data")?;
    sys::poll_one(pair.fd, libc::POLLIN, 2000)?;
    see_sets(s, "all", sys::select(SelectBy::Select, limit, &sets, SOON));
    Ok(())
}

fn leaves_the_rest_of_the_time(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(100).send(other, b"late")?;
    let seen = sys::select(SelectBy::Select, pair.fd + 1, &of(&[pair.fd], &[], &[]), SOON)?;
    let left = seen.2.unwrap_or_default();
    s.see("less than at first", left < Duration::from_millis(1950));
    s.see("but something", left > Duration::from_millis(200));
    Ok(())
}

fn except_for_urgent_data(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.send_urgent(other, b"!")?;
    pair.peer.wait_acked(other)?;
    let sets = of(&[pair.fd], &[], &[pair.fd]);
    see_sets(s, "select", sys::select(SelectBy::Select, pair.fd + 1, &sets, SOON));
    Ok(())
}

fn of_a_closed_descriptor(s: &mut Scene) -> Done {
    let closed = sys::dup(0)?;
    sys::close(closed)?;
    see_sets(s, "select", sys::select(SelectBy::Select, closed + 1, &of(&[closed], &[], &[]), NOW));
    Ok(())
}

fn of_nothing(s: &mut Scene) -> Done {
    let start = Instant::now();
    let time = Some(Duration::from_millis(100));
    see_sets(s, "select", sys::select(SelectBy::Select, 0, &Sets::default(), time));
    s.see_time("took", start, 100..800);
    Ok(())
}

fn negative_limit(s: &mut Scene) -> Done {
    see_sets(s, "select", sys::select(SelectBy::Select, -1, &Sets::default(), NOW));
    Ok(())
}

fn of_a_listener(s: &mut Scene) -> Done {
    let (listener, port) = s.listener()?;
    let mut peer = s.peer()?;
    let other = peer.tcp()?;
    peer.connect_start(other, port)?;
    let sets = of(&[listener], &[listener], &[listener]);
    see_sets(s, "select", sys::select(SelectBy::Select, listener + 1, &sets, SOON));
    s.see("accept", sys::accept(listener).map(drop));
    Ok(())
}

fn of_udp(s: &mut Scene) -> Done {
    let (fd, port) = s.udp_bound()?;
    let sets = of(&[fd], &[fd], &[]);
    see_sets(s, "empty", sys::select(SelectBy::Select, fd + 1, &sets, SOON));
    let mut peer = s.peer()?;
    let (other, _) = peer.udp()?;
    peer.sendto(other, port, b"datagram")?;
    see_sets(s, "readable", sys::select(SelectBy::Select, fd + 1, &of(&[fd], &[], &[]), SOON));
    Ok(())
}

fn is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGALRM, libc::SA_RESTART)?;
    sys::alarms(Duration::from_millis(60))?;
    see_sets(s, "select", sys::select(SelectBy::Select, pair.fd + 1, &of(&[pair.fd], &[], &[]), SOON));
    Ok(())
}
