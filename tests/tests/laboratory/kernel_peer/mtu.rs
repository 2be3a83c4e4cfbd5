//! Interfaces that take packets of other sizes.

use lab::{CLIENT_INTERFACE, Lab, LabError, SERVER_INTERFACE, Side};

use super::{Peer, VERSIONS, assert_sink_takes, assert_source_gives};

const LEN: u64 = 2 << 20;
/// The largest IP packet that the largest frame of AF_XDP holds behind its headroom and an Ethernet header with tags.
const FRAME_MAX: u16 = 3818;
/// The largest MTU with which a veth takes a steering program into its driver: a page less headroom and the like.
const NATIVE_MAX: u16 = 3498;

fn set_mtu(lab: &Lab, mtu: u16) -> Result<(), LabError> {
    for (side, interface) in [(Side::Server, SERVER_INTERFACE), (Side::Client, CLIENT_INTERFACE)] {
        lab.ip(side, &format!("link set {interface} mtu {mtu}"))?;
    }
    Ok(())
}

fn lab_with_mtu(mtu: u16) -> Result<Lab, LabError> {
    let lab = Lab::new()?;
    set_mtu(&lab, mtu)?;
    if mtu > NATIVE_MAX {
        // Nobody else cuts what the kernel wants cut by the device, and the steering program leaves it to the kernel.
        lab.run_in(Side::Client, "ethtool", &["-K", CLIENT_INTERFACE, "tso", "off", "gso", "off"])?;
    }
    Ok(lab)
}

fn run_streams(peer: &Peer) {
    for version in VERSIONS {
        for mut stream in peer.in_both_roles(version, "sink") {
            assert_sink_takes(&mut stream, LEN);
        }
        for mut stream in peer.in_both_roles(version, &format!("source {LEN}")) {
            assert_source_gives(&mut stream, LEN);
        }
    }
}

#[test]
fn streams_pass_whatever_the_mtu() {
    for mtu in [1280, 1500, 3000, NATIVE_MAX, 9000] {
        let Some(peer) = Peer::start_in(|| lab_with_mtu(mtu)) else { return };
        // What is too long for anybody times out each time; on a machine that does other work too, something may now and then.
        let is_whole = (0..3).any(|_| {
            let before = peer.counts()["TcpExtTCPTimeouts"];
            run_streams(&peer);
            peer.counts()["TcpExtTCPTimeouts"] == before
        });
        assert!(is_whole, "something is too long for somebody at MTU {mtu}");
        let counts = peer.counts();
        // Segments fit the device's frames, whatever the interface could take.
        assert!(counts["mtu"] == u64::from(mtu.min(FRAME_MAX)), "{counts:?}");
        peer.assert_nothing_leaked();
    }
}
