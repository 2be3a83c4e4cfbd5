//! poll(2) and ppoll(2): time, signals, many descriptors.

use std::time::{Duration, Instant};

use libc::{POLLIN, POLLOUT, SIGALRM};

use super::poll::see_all;
use crate::scene::{SOON_MS, Scene};
use crate::sys;
use crate::table::{Done, checks};

checks! {
    alone "poll":
    PAIRS [times_out],
    WAYS [
        with_other_kinds, of_a_closed_one_among_others, wakes_by_the_kernel_s_own, without_end,
        ppoll_times_out, ppoll_with_a_mask, ppoll_is_interrupted, is_interrupted_in_spite_of_restart,
        rounding_up,
    ],
    ONCE [of_nothing, too_many, of_a_closed_descriptor, nothing_for_a_time, of_standard_ones, in_a_thread],
}

fn times_out(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let start = Instant::now();
    see_all(s, "readable", sys::poll(&[(pair.fd, POLLIN)], 120));
    s.see_time("took", start, 120..800);
    Ok(())
}

fn rounding_up(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let start = Instant::now();
    for _ in 0..20 {
        sys::poll_one(pair.fd, POLLIN, 1)?;
    }
    s.see_time("twenty times a millisecond", start, 20..1000);
    Ok(())
}

fn with_other_kinds(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    let counter = sys::eventfd(0, 0)?;
    let all = [(reader, POLLIN), (pair.fd, POLLIN), (counter, POLLIN), (writer, POLLOUT)];
    see_all(s, "at first", sys::poll(&all, 0));
    pair.tell(b"data")?;
    see_all(s, "with data", sys::poll(&all, SOON_MS));
    sys::write(writer, b"x")?;
    sys::write(counter, &1_u64.to_ne_bytes())?;
    see_all(s, "all", sys::poll(&all, 0));
    sys::read(pair.fd, 100)?;
    see_all(s, "but the connection", sys::poll(&all, 0));
    Ok(())
}

fn wakes_by_the_kernel_s_own(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let [reader, writer] = sys::pipe(0)?;
    let child = sys::fork_to(|| {
        std::thread::sleep(Duration::from_millis(100));
        i32::from(sys::write(writer, b"x").is_err())
    })?;
    let start = Instant::now();
    see_all(s, "both", sys::poll(&[(pair.fd, POLLIN), (reader, POLLIN)], SOON_MS));
    s.see_time("took", start, 50..1500);
    sys::wait_for(child)?;
    Ok(())
}

fn of_a_closed_one_among_others(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let twin = sys::dup(pair.fd)?;
    sys::close(twin)?;
    let start = Instant::now();
    see_all(s, "both", sys::poll(&[(pair.fd, POLLIN), (twin, POLLIN)], SOON_MS));
    s.see_time("took", start, 0..500);
    Ok(())
}

fn without_end(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let other = pair.other;
    pair.peer.later(100).send(other, b"late")?;
    s.see_poll("readable", sys::poll_one(pair.fd, POLLIN, -1));
    s.see_poll("any negative time", sys::poll_one(pair.fd, POLLIN, -5));
    Ok(())
}

fn ppoll_times_out(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let start = Instant::now();
    see_all(s, "readable", sys::ppoll(&[(pair.fd, POLLIN)], Some(Duration::from_millis(100)), None));
    s.see_time("took", start, 100..800);
    let start = Instant::now();
    see_all(s, "at once", sys::ppoll(&[(pair.fd, POLLIN)], Some(Duration::ZERO), None));
    s.see_time("took", start, 0..100);
    Ok(())
}

fn ppoll_with_a_mask(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGALRM, 0)?;
    sys::alarms(Duration::from_millis(30))?;
    let mask = sys::signal_set(&[SIGALRM]);
    let wanted = [(pair.fd, POLLIN)];
    see_all(s, "blocked", sys::ppoll(&wanted, Some(Duration::from_millis(150)), Some(&mask)));
    s.see("still open afterwards", sys::is_blocked(SIGALRM));
    Ok(())
}

fn ppoll_is_interrupted(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGALRM, 0)?;
    sys::mask_signals(libc::SIG_BLOCK, &[SIGALRM])?;
    sys::alarms(Duration::from_millis(50))?;
    let mask = sys::signal_set(&[]);
    // The signal is let in while it waits, and only then.
    see_all(s, "open", sys::ppoll(&[(pair.fd, POLLIN)], Some(Duration::from_secs(2)), Some(&mask)));
    s.see("signals", sys::signals(SIGALRM));
    s.see("blocked again", sys::is_blocked(SIGALRM));
    Ok(())
}

fn is_interrupted_in_spite_of_restart(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    sys::handle(SIGALRM, libc::SA_RESTART)?;
    sys::alarms(Duration::from_millis(60))?;
    see_all(s, "poll", sys::poll(&[(pair.fd, POLLIN)], SOON_MS));
    Ok(())
}

fn of_nothing(s: &mut Scene) -> Done {
    see_all(s, "at once", sys::poll(&[], 0));
    Ok(())
}

fn nothing_for_a_time(s: &mut Scene) -> Done {
    let start = Instant::now();
    see_all(s, "poll", sys::poll(&[], 100));
    s.see_time("took", start, 100..800);
    Ok(())
}

fn too_many(s: &mut Scene) -> Done {
    let many = vec![(-1, POLLIN); 3000];
    let before = sys::set_descriptors_max(256)?;
    see_all(s, "more than descriptors", sys::poll(&many, 0).map(|(ready, _)| (ready, Vec::new())));
    sys::set_descriptors_max(before)?;
    Ok(())
}

fn of_a_closed_descriptor(s: &mut Scene) -> Done {
    see_all(s, "poll", sys::poll(&[(999, POLLIN)], 1000));
    see_all(s, "nothing wanted", sys::poll(&[(999, 0)], 1000));
    Ok(())
}

fn of_standard_ones(s: &mut Scene) -> Done {
    let file = sys::file(b"text")?;
    see_all(s, "a file", sys::poll(&[(file, POLLIN | POLLOUT)], 0));
    let [reader, writer] = sys::pipe(0)?;
    sys::close(writer)?;
    see_all(s, "a pipe's end", sys::poll(&[(reader, POLLIN)], 0));
    Ok(())
}

fn in_a_thread(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let fd = pair.fd;
    let waiting = std::thread::spawn(move || sys::poll_one(fd, POLLIN, SOON_MS));
    std::thread::sleep(Duration::from_millis(50));
    pair.tell(b"data")?;
    let seen = waiting.join().unwrap_or(Err(sys::Errno(libc::EIO)));
    s.see_poll("other thread", seen);
    Ok(())
}
