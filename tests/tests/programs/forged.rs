//! Datagrams whose source is forged: what a program sends to the one whose address it is goes where the routes lead.

use lab::programs::{Program, Ready};
use lab::{CLIENT_V4, SERVER_V4, Side};

use crate::mtu::{WIDE_ADDRESSES, WIDE_INTERFACES, lay_wide_wire};
use crate::trial::{Trial, finish, number_after};

const PORT: u16 = 7000;

/// Answers, and for each `read` sends something to the subscriber, who is known by the configuration.
const SERVER: &str = "
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('0.0.0.0', 7000))
while True:
    octets, peer = server.recvfrom(2000)
    if octets == b'hello': server.sendto(b'hello', peer)
    if octets == b'read': server.sendto(b'a reading', (sys.argv[1], 7001))
";

/// Forges datagrams of the subscriber's over the other wire, and looks by which interface its readings come.
const CLIENT: &str = "
import socket, struct, sys
own, server, wide_server, wide_interface = sys.argv[1:]
subscriber = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
subscriber.setsockopt(socket.IPPROTO_IP, 8, 1) # IP_PKTINFO
subscriber.settimeout(2)
subscriber.bind((own, 7001))
reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
reader.settimeout(5)
for _ in range(100):
    reader.sendto(b'hello', (server, 7000))
    assert reader.recv(100) == b'hello'
payload = b'forged'
forged = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0, socket.inet_aton(own), socket.inet_aton(wide_server))
forged += struct.pack('!HHHH', 7001, 7000, 8 + len(payload), 0) + payload
forger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
forger.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, wide_interface.encode())
astray = lost = 0
for _ in range(20):
    forger.sendto(forged, (wide_server, 0))
    reader.sendto(b'read', (server, 7000))
    try: _, control, _, _ = subscriber.recvmsg(2000, 100)
    except TimeoutError:
        lost += 1
        break
    astray += struct.unpack('i', control[0][2][:4])[0] == socket.if_nametoindex(wide_interface)
print('lost:', lost)
print('astray:', astray)
";

#[test]
fn who_forges_a_source_does_not_get_what_is_for_it() {
    // In generic mode UDP on a veth is the kernel's.
    let options = ["--device", WIDE_INTERFACES[0], "--xdp-mode", "native"];
    let use_both = |trial: Trial| trial.with_options(&options);
    let Some(trial) = Trial::of("echo").map(use_both) else { return };
    lay_wide_wire(&trial);
    // With it the kernel, and we, do not even take such a datagram.
    let unchecked = ["all", WIDE_INTERFACES[0]].map(|name| format!("net.ipv4.conf.{name}.rp_filter=0"));
    for setting in &unchecked {
        trial.lab.run_in(Side::Server, "sysctl", &["-qw", setting]).unwrap();
    }
    let server = Program::new("echo", "python3 -c").argument(SERVER).argument(CLIENT_V4);
    let running = trial.start(&server.ready(Ready::Answer(PORT, b"hello".to_vec())));
    let said = trial.on_the_stack(|| {
        let mut client = trial.lab.command(Side::Client, "python3");
        let arguments = ["-c", CLIENT, CLIENT_V4, SERVER_V4, WIDE_ADDRESSES[0], WIDE_INTERFACES[1]];
        finish(client.args(arguments))
    });
    assert_eq!((number_after(&said, "lost:"), number_after(&said, "astray:")), (0.0, 0.0), "{said}");
    trial.end(running);
}
