//! Whatever a file contains, the player ends and tells why; it never panics.

use proptest::prelude::*;
use simnet::pkt::parser::{Definitions, parse};
use simnet::pkt::play;

const SCRIPTS: &[&str] = &[
    include_str!("../../../specs/tcp/data_both_ways.pkt"),
    include_str!("../../../specs/tcp/epoll_tells_edges_once.pkt"),
    include_str!("../../../specs/tcp/blocking_read_waits_for_data.pkt"),
    include_str!("../../../specs/tcp/loss_of_one_segment_is_repaired_by_sack.pkt"),
    include_str!("../../../specs/tcp/several_connections_by_their_ports.pkt"),
];

/// Pieces that the language is made of, to be put where they do not belong.
const PIECES: &[&str] = &[
    "+0",
    "0",
    "*",
    "+0~+.1",
    "...",
    "...0.1",
    "<",
    ">",
    "S",
    ".",
    "P.",
    "F.",
    "R",
    "S.",
    "1:1(0)",
    "1:1001(1000)",
    "4294967295:1(2)",
    "ack 1",
    "win 65535",
    "urg 1",
    "<mss 1000>",
    "<...>",
    "<sack 1:2>",
    "<TS val 1 ecr 2>",
    "<FO aabb>",
    "[ect0]",
    "(tos 0x1)",
    "40000 > 8080",
    "udp (10)",
    "icmp unreachable frag_needed mtu 1400 [1:1(0)]",
    "icmp unreachable [1:65536(65535)]",
    "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3",
    "close(3) = 0",
    "close(4) = 0",
    "read(4, ..., 1000000) = 0",
    "write(4, ..., 100000) = 100000",
    "shutdown(4, SHUT_RDWR) = 0",
    "connect(3, ..., ...) = 0",
    "connect(4, AF_UNSPEC, ...) = 0",
    "listen(3, -1) = 0",
    "accept(3, ..., ...) = 5",
    "setsockopt(4, SOL_TCP, TCP_MAXSEG, [100], 4) = 0",
    "setsockopt(4, SOL_SOCKET, SO_RCVBUF, [1], 4) = 0",
    "poll([{fd=4, events=POLLIN}], 1, 100) = 0",
    "%{ assert tcpi_rto > 0 }%",
    "`sysctl -q a=1`",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "=",
    "|",
    "\"",
    "`",
    "%{",
    "}%",
    "/*",
    "//",
    "\n",
    "--mtu=100\n",
    "+1000000",
];

fn mutated() -> impl Strategy<Value = String> {
    let edits =
        prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, any::<prop::sample::Index>()), 1..8);
    (0..SCRIPTS.len(), edits).prop_map(|(script, edits)| {
        let mut lines: Vec<String> = SCRIPTS[script].lines().map(str::to_owned).collect();
        for (at, kind, piece) in edits {
            let at = at.index(lines.len());
            let piece = PIECES[piece.index(PIECES.len())];
            match kind {
                0 => lines.insert(at, format!("+0 {piece}")),
                1 => lines[at] = replace_word(&lines[at], piece),
                _ => {
                    let line = lines.remove(at);
                    let to = (at + 3).min(lines.len());
                    lines.insert(to, line);
                }
            }
        }
        lines.join("\n")
    })
}

/// The middle word of a line replaced.
fn replace_word(line: &str, piece: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    let middle = words.len() / 2;
    words[middle] = piece;
    words.join(" ")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_scripts_are_played_to_some_end(text in mutated()) {
        play(&text, &[], &Definitions::default());
    }

    #[test]
    fn any_text_is_read_to_some_end(text in "\\PC{0,200}") {
        let _ = parse(&text, &Definitions::default());
    }

    #[test]
    fn any_pieces_in_any_order_are_read_to_some_end(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30)
    ) {
        play(&pieces.join(" "), &[], &Definitions::default());
    }
}
