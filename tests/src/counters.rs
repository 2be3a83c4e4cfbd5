//! What the kernels of both sides count of packets: who carries a program's traffic shows there, without asking Sidestep.

use lab::{Lab, Side};

/// Packets, both versions of IP, as they are or would be on a wire: pieces that travel together count each.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// Segments and datagrams that the client's kernel sent.
    sent_by_client: u64,
    /// Packets that the server's kernel took in.
    taken_by_server: u64,
}

/// Segments and datagrams sent, in /proc/net/snmp; TCP counts both versions of IP there.
const SENT: [(&str, &str); 2] = [("Tcp", "OutSegs"), ("Udp", "OutDatagrams")];
/// Packets received by their ECN marks, in /proc/net/netstat: the only counts that see through GRO.
const TAKEN: [(&str, &str); 4] =
    [("IpExt", "InNoECTPkts"), ("IpExt", "InECT0Pkts"), ("IpExt", "InECT1Pkts"), ("IpExt", "InCEPkts")];

impl Counters {
    /// As they are now.
    pub fn of(lab: &Lab) -> Counters {
        let sent = read(lab, Side::Client, "snmp");
        let taken = read(lab, Side::Server, "netstat");
        let [sent6, taken6] = [Side::Client, Side::Server].map(|side| read(lab, side, "snmp6"));
        let names6 = ["Ip6InNoECTPkts", "Ip6InECT0Pkts", "Ip6InECT1Pkts", "Ip6InCEPkts"];
        Counters {
            sent_by_client: SENT.iter().map(|(protocol, name)| counter(&sent, protocol, name)).sum::<u64>()
                + counter6(&sent6, "Udp6OutDatagrams"),
            taken_by_server: TAKEN
                .iter()
                .map(|(protocol, name)| counter(&taken, protocol, name))
                .sum::<u64>()
                + names6.iter().map(|name| counter6(&taken6, name)).sum::<u64>(),
        }
    }

    /// The part of the packets sent since `before` that the server's kernel has taken: what is missing there was the stack's. Packets
    /// on the server's loopback interface count too.
    pub fn kernel_share_since(&self, before: &Counters) -> f64 {
        let sent = self.sent_by_client - before.sent_by_client;
        let taken = self.taken_by_server - before.taken_by_server;
        (taken as f64 / sent.max(1) as f64).min(1.0)
    }
}

fn read(lab: &Lab, side: Side, file: &str) -> String {
    let path = format!("/proc/thread-self/net/{file}");
    lab.inside(side, || std::fs::read_to_string(path).expect("the kernel counts"))
}

/// A counter of /proc/net/snmp or netstat: a line of names, then one of values, for each protocol.
fn counter(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(own, _)| *own == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// A counter of /proc/net/snmp6: a name and a value on each line.
fn counter6(text: &str, name: &str) -> u64 {
    let mut pairs = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    pairs.find(|(own, _)| *own == name).and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn counters_are_found_by_protocol_and_name() {
    let text = "Tcp: RtoMin InSegs OutSegs\nTcp: 200 17 18\nUdp: InDatagrams NoPorts\nUdp: 5 6\n";
    assert_eq!(["InSegs", "OutSegs"].map(|name| counter(text, "Tcp", name)), [17, 18]);
    assert_eq!(counter(text, "Udp", "NoPorts"), 6);
    assert_eq!(counter6("Udp6InDatagrams                 \t9\n", "Udp6InDatagrams"), 9);
}
