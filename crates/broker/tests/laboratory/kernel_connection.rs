//! A connection of the kernel's as a value: what a stack would hand over.

use std::net::TcpStream;
use std::os::fd::AsRawFd;

use transit::{Established, SeqNum, State};

/// Options of tcp(7), and some that stand in linux/tcp.h only.
const SOL_TCP: i32 = 6;
const TCP_MAXSEG: i32 = 2;
const TCP_INFO: i32 = 11;
const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_WINDOW: i32 = 29;
const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;

/// Takes a connection from the kernel without a word to the peer. It must have neither timestamps nor data in its queues.
pub(crate) fn take(connection: TcpStream) -> Established {
    set(&connection, TCP_REPAIR, 1);
    let sequence = |queue| {
        set(&connection, TCP_REPAIR_QUEUE, queue);
        get::<1>(&connection, TCP_QUEUE_SEQ)[0]
    };
    let (snd_una, rcv_nxt) = (sequence(SEND_QUEUE), sequence(RECEIVE_QUEUE));
    let [snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup] = get::<5>(&connection, TCP_REPAIR_WINDOW);
    // Window scales are the fields of four bits behind six octets (`struct tcp_info`), options one octet before.
    let [_, info] = get::<2>(&connection, TCP_INFO);
    let [_, options, scales, _] = info.to_ne_bytes();
    Established {
        local: connection.local_addr().unwrap(),
        remote: connection.peer_addr().unwrap(),
        state: State::Established,
        snd_una: SeqNum(snd_una),
        snd_wnd,
        snd_wl1: SeqNum(snd_wl1),
        max_window,
        rcv_nxt: SeqNum(rcv_nxt),
        rcv_wnd,
        rcv_wup: SeqNum(rcv_wup),
        snd_wscale: scales & 0xf,
        rcv_wscale: scales >> 4,
        peer_mss: get::<1>(&connection, TCP_MAXSEG)[0] as u16,
        sack_permitted: options & 2 != 0,
        ecn: false,
        timestamps: None,
        unacked: Vec::new(),
        unsent: Vec::new(),
        received: Vec::new(),
        fin_sent: false,
        read_closed: false,
        orphaned: false,
    }
    // Dropped in repair mode, the socket goes silently.
}

fn set(connection: &TcpStream, option: i32, value: i32) {
    syscall::setsockopt(connection.as_raw_fd(), SOL_TCP, option, &value.to_ne_bytes()).unwrap();
}

fn get<const WORDS: usize>(connection: &TcpStream, option: i32) -> [u32; WORDS] {
    let mut words = [[0; 4]; WORDS];
    syscall::getsockopt(connection.as_raw_fd(), SOL_TCP, option, words.as_flattened_mut()).unwrap();
    words.map(u32::from_ne_bytes)
}
