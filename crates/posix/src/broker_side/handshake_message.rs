//! Converts handshakes between the stack's form and the broker's messages.

use broker::protocol::Handshake as Begun;
use clock::Duration;
use stack::segment::Timestamps;
use stack::seq::SeqNum;
use stack::{Handshake, Hop, LinkHeader, LinkId};
use wire::{MacAddress, VlanTag};

/// The handshake for the broker.
pub(crate) fn begun_of(handshake: &Handshake) -> Begun {
    let header = handshake.hop.header;
    Begun {
        local: handshake.local,
        remote: handshake.remote,
        link: handshake.hop.link.0,
        source: header.source.0,
        destination: header.destination.0,
        tags: header.tags.map(|tag| tag.map(|tag| (tag.tpid, tag.control))),
        irs: handshake.irs.0,
        iss: handshake.iss.0,
        peer_mss: handshake.peer_mss,
        window_scales: handshake.window_scales,
        sack_permitted: handshake.sack_permitted,
        ecn: handshake.ecn,
        timestamps: handshake.timestamps.map(|it| (it.value, it.echo)),
        window: handshake.window,
        syn_acks: handshake.syn_acks,
        timeouts: handshake.timeouts,
        age_us: handshake.age.as_nanos() / 1000,
        saved_syn: handshake.saved_syn.as_ref().map(|syn| syn.to_vec()),
    }
}

/// The handshake from the broker.
pub(crate) fn handshake_of(begun: Begun) -> Handshake {
    let header = LinkHeader {
        destination: MacAddress(begun.destination),
        source: MacAddress(begun.source),
        tags: begun.tags.map(|tag| tag.map(|(tpid, control)| VlanTag { tpid, control })),
    };
    Handshake {
        local: begun.local,
        remote: begun.remote,
        hop: Hop { link: LinkId(begun.link), header },
        irs: SeqNum(begun.irs),
        iss: SeqNum(begun.iss),
        peer_mss: begun.peer_mss,
        window_scales: begun.window_scales,
        sack_permitted: begun.sack_permitted,
        ecn: begun.ecn,
        timestamps: begun.timestamps.map(|(value, echo)| Timestamps { value, echo }),
        window: begun.window,
        syn_acks: begun.syn_acks,
        timeouts: begun.timeouts,
        age: Duration::from_micros(begun.age_us),
        saved_syn: begun.saved_syn.map(Vec::into_boxed_slice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_arrives_as_it_left() {
        let tag = VlanTag { tpid: 0x88a8, control: 0x6007 };
        let (source, destination) = (MacAddress([1; 6]), MacAddress([2; 6]));
        let header = LinkHeader { destination, source, tags: [Some(tag), None] };
        let handshake = Handshake {
            local: "[2001:db8::1]:80".parse().unwrap(),
            remote: "[2001:db8::2]:4000".parse().unwrap(),
            hop: Hop { link: LinkId(3), header },
            irs: SeqNum(4),
            iss: SeqNum(5),
            peer_mss: 1440,
            window_scales: Some((6, 7)),
            sack_permitted: true,
            ecn: false,
            timestamps: Some(Timestamps { value: 8, echo: 9 }),
            window: 65_535,
            syn_acks: 2,
            timeouts: 1,
            age: Duration::from_micros(10),
            saved_syn: Some(Box::new([0x60, 0])),
        };
        assert_eq!(handshake_of(begun_of(&handshake)), handshake);
    }
}
