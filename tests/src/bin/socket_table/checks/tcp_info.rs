//! `TCP_INFO`: state, options, counters.

use libc::{IPPROTO_TCP, TCP_INFO};

use crate::scene::Scene;
use crate::show::tcp_state_name;
use crate::sys::{self, Result};
use crate::table::{Done, checks};

checks! {
    "tcp_info":
    PAIRS [when_established, octets_acknowledged, octets_received, after_the_peer_ended, after_shutdown, segments],
    WAYS [
        options_of_the_connection, nothing_is_lost, round_trip_time, window, times_since, retransmission_timeout,
        after_a_reset, congestion_state, not_sent, delivered, backoff_and_probes, path_mtu, mss, busy_time,
        reordering_and_duplicates,
    ],
    ONCE [of_a_fresh_socket, while_connecting, of_udp],
}

/// `struct tcp_info` of include/uapi/linux/tcp.h.
struct Info(Vec<u8>);

impl Info {
    fn of(fd: i32) -> Result<Info> {
        sys::getsockopt(fd, IPPROTO_TCP, TCP_INFO, 256).map(Info)
    }

    fn octet(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn word(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).map_or(0, |word| u32::from_ne_bytes(word.try_into().expect("four octets")))
    }

    fn long(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).map_or(0, |long| u64::from_ne_bytes(long.try_into().expect("eight octets")))
    }
}

const CA_STATE: usize = 1;
const RETRANSMITS: usize = 2;
const PROBES: usize = 3;
const BACKOFF: usize = 4;
const OPTIONS: usize = 5;
const RTO: usize = 8;
const SND_MSS: usize = 16;
const RCV_MSS: usize = 20;
const UNACKED: usize = 24;
const SACKED: usize = 28;
const LOST: usize = 32;
const RETRANS: usize = 36;
const LAST_DATA_SENT: usize = 44;
const LAST_DATA_RECV: usize = 52;
const PMTU: usize = 60;
const RTT: usize = 68;
const SND_SSTHRESH: usize = 76;
const SND_CWND: usize = 80;
const ADVMSS: usize = 84;
const REORDERING: usize = 88;
const TOTAL_RETRANS: usize = 100;
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const SEGS_OUT: usize = 136;
const SEGS_IN: usize = 140;
const NOTSENT_BYTES: usize = 144;
const MIN_RTT: usize = 148;
const DATA_SEGS_IN: usize = 152;
const DATA_SEGS_OUT: usize = 156;
const BUSY_TIME: usize = 168;
const DELIVERED: usize = 192;
const BYTES_SENT: usize = 200;
const BYTES_RETRANS: usize = 208;
const DSACK_DUPS: usize = 216;
const REORD_SEEN: usize = 220;
const SND_WND: usize = 228;

/// Sends and waits until the peer has it and has said so.
fn send_and_wait(pair: &mut crate::pair::Pair, octets: &[u8]) -> Result<()> {
    sys::write(pair.fd, octets)?;
    let other = pair.other;
    pair.peer.recv_pattern(other, octets.len())?;
    for _ in 0..200 {
        if sys::ioctl(pair.fd, libc::TIOCOUTQ, 0)?.1 == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

/// How many segments of a connection were sent again.
pub(super) fn sent_again(fd: i32) -> Result<u32> {
    Ok(Info::of(fd)?.word(TOTAL_RETRANS))
}

fn state(s: &mut Scene, fd: i32) -> Done {
    s.see("state", tcp_state_name(Info::of(fd)?.octet(0)));
    Ok(())
}

fn when_established(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let info = Info::of(pair.fd)?;
    s.see("length", info.0.len() >= 104);
    s.see("state", tcp_state_name(info.octet(0)));
    s.see("retransmits", info.octet(RETRANSMITS));
    s.see("unacked", info.word(UNACKED));
    Ok(())
}

fn octets_acknowledged(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let before = Info::of(pair.fd)?.long(BYTES_ACKED);
    send_and_wait(&mut pair, b"0123456789")?;
    // The kernel counts the SYN of a connection that it opened.
    s.see("acknowledged", Info::of(pair.fd)?.long(BYTES_ACKED) - before);
    s.see("sent", Info::of(pair.fd)?.long(BYTES_SENT));
    Ok(())
}

fn octets_received(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let before = Info::of(pair.fd)?.long(BYTES_RECEIVED);
    pair.tell(b"0123456789")?;
    s.see("received", Info::of(pair.fd)?.long(BYTES_RECEIVED) - before);
    sys::read(pair.fd, 100)?;
    s.see("when read", Info::of(pair.fd)?.long(BYTES_RECEIVED) - before);
    Ok(())
}

fn after_the_peer_ended(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_ends()?;
    state(s, pair.fd)
}

fn after_shutdown(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    sys::shutdown(pair.fd, libc::SHUT_WR)?;
    s.see("peer", pair.hear(10));
    let _ = sys::recv(pair.fd, 1, libc::MSG_DONTWAIT); // For whoever only looks at packets when called.
    for _ in 0..200 {
        if Info::of(pair.fd)?.octet(0) == 5 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    state(s, pair.fd)
}

fn segments(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let before = Info::of(pair.fd)?;
    send_and_wait(&mut pair, b"0123456789")?;
    pair.tell(b"answer")?;
    let after = Info::of(pair.fd)?;
    s.see("data segments out", after.word(DATA_SEGS_OUT) - before.word(DATA_SEGS_OUT));
    s.see("data segments in", after.word(DATA_SEGS_IN) - before.word(DATA_SEGS_IN));
    s.see("more segments out", after.word(SEGS_OUT) > before.word(SEGS_OUT));
    s.see("more segments in", after.word(SEGS_IN) > before.word(SEGS_IN));
    Ok(())
}

fn options_of_the_connection(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let options = Info::of(pair.fd)?.octet(OPTIONS);
    for (name, bit) in [("timestamps", 1), ("SACK", 2), ("window scale", 4), ("ECN", 8)] {
        s.see(name, options & bit != 0);
    }
    Ok(())
}

fn nothing_is_lost(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    send_and_wait(&mut pair, &crate::show::pattern(5000))?;
    let info = Info::of(pair.fd)?;
    for (name, at) in [
        ("lost", LOST),
        ("retrans", RETRANS),
        ("sacked", SACKED),
        ("total_retrans", TOTAL_RETRANS),
        ("unacked", UNACKED),
    ] {
        s.see(name, info.word(at));
    }
    s.see("bytes_retrans", info.long(BYTES_RETRANS));
    Ok(())
}

fn round_trip_time(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    send_and_wait(&mut pair, b"0123456789")?;
    let info = Info::of(pair.fd)?;
    s.see("more than nothing", info.word(RTT) > 0);
    s.see("below a second", info.word(RTT) < 1_000_000);
    s.see("least is not more", info.word(MIN_RTT) <= 1_000_000);
    Ok(())
}

fn window(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let info = Info::of(pair.fd)?;
    s.see("cwnd", info.word(SND_CWND));
    s.see("no ssthresh yet", info.word(SND_SSTHRESH) >= 0x7FFF_FFFF);
    s.see("peer's window", info.word(SND_WND) > 10_000);
    Ok(())
}

fn times_since(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    send_and_wait(&mut pair, b"0123456789")?;
    pair.tell(b"answer")?;
    std::thread::sleep(std::time::Duration::from_millis(150));
    let info = Info::of(pair.fd)?;
    s.see("data sent some time ago", (100..3000).contains(&info.word(LAST_DATA_SENT)));
    s.see("data received some time ago", (100..3000).contains(&info.word(LAST_DATA_RECV)));
    Ok(())
}

fn retransmission_timeout(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    send_and_wait(&mut pair, b"0123456789")?;
    s.see("200 to 400 ms", (200_000..400_000).contains(&Info::of(pair.fd)?.word(RTO)));
    Ok(())
}

fn after_a_reset(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.peer_resets()?;
    state(s, pair.fd)
}

fn congestion_state(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("open", Info::of(pair.fd)?.octet(CA_STATE));
    Ok(())
}

fn not_sent(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("nothing", Info::of(pair.fd)?.word(NOTSENT_BYTES));
    sys::send(pair.fd, b"held", libc::MSG_MORE)?;
    s.see("held", Info::of(pair.fd)?.word(NOTSENT_BYTES));
    Ok(())
}

fn delivered(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    let before = Info::of(pair.fd)?.word(DELIVERED);
    send_and_wait(&mut pair, b"0123456789")?;
    s.see("one more segment", Info::of(pair.fd)?.word(DELIVERED) - before);
    Ok(())
}

fn backoff_and_probes(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let info = Info::of(pair.fd)?;
    s.see("probes", info.octet(PROBES));
    s.see("backoff", info.octet(BACKOFF));
    Ok(())
}

fn path_mtu(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    s.see("pmtu", Info::of(pair.fd)?.word(PMTU));
    Ok(())
}

fn mss(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    pair.tell(b"data")?;
    let info = Info::of(pair.fd)?;
    s.see("sending", info.word(SND_MSS));
    s.see("advertised", info.word(ADVMSS));
    s.see("receiving", (536..=1460).contains(&info.word(RCV_MSS)));
    Ok(())
}

fn busy_time(s: &mut Scene) -> Done {
    let mut pair = s.pair()?;
    send_and_wait(&mut pair, b"0123456789")?;
    s.see("below a second", Info::of(pair.fd)?.long(BUSY_TIME) < 1_000_000);
    Ok(())
}

fn reordering_and_duplicates(s: &mut Scene) -> Done {
    let pair = s.pair()?;
    let info = Info::of(pair.fd)?;
    s.see("reordering", info.word(REORDERING));
    s.see("dsack_dups", info.word(DSACK_DUPS));
    s.see("reord_seen", info.word(REORD_SEEN));
    Ok(())
}

fn of_a_fresh_socket(s: &mut Scene) -> Done {
    let fd = s.tcp()?;
    state(s, fd)
}

fn while_connecting(s: &mut Scene) -> Done {
    let (_peer, port) = s.silent_port()?;
    let fd = s.tcp()?;
    sys::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK.into())?;
    s.see("connect", sys::connect(fd, &s.remote(port)));
    state(s, fd)
}

fn of_udp(s: &mut Scene) -> Done {
    s.see("TCP_INFO", sys::getsockopt(s.udp()?, IPPROTO_TCP, TCP_INFO, 8).map(drop));
    Ok(())
}
