//! Whatever arrives and whatever the application does: no panic, no leak, memory within its bounds, datagrams whole.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use stack::udp::{UdpBind, UdpId, UdpOptions, UdpSend};
use stack::{Config, Stack};

use crate::packets::*;

#[derive(Clone, Debug)]
enum Step {
    /// Octets that nobody made with care.
    Noise(Vec<u8>),
    /// A datagram, or an ICMP error about one, of which one octet is changed.
    Corrupt {
        version: usize,
        is_icmp: bool,
        len: usize,
        at: prop::sample::Index,
        flip: u8,
    },
    /// A right datagram to a socket.
    Arrive {
        socket: usize,
        len: usize,
    },
    Receive {
        socket: usize,
        room: usize,
    },
    Send {
        socket: usize,
        len: usize,
        segment_len: u16,
    },
    Icmp {
        socket: usize,
        mtu: u32,
    },
    Transmit {
        packets: usize,
    },
    Reopen {
        socket: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![0usize..10, 0usize..1400, 1000usize..1400];
    let socket = || 0usize..4;
    prop_oneof![
        1 => vec(any::<u8>(), 0..100).prop_map(Step::Noise),
        2 => (0usize..2, any::<bool>(), len(), any::<prop::sample::Index>(), 1u8..)
            .prop_map(|(version, is_icmp, len, at, flip)| Step::Corrupt { version, is_icmp, len, at, flip }),
        6 => (socket(), len()).prop_map(|(socket, len)| Step::Arrive { socket, len }),
        3 => (socket(), len()).prop_map(|(socket, room)| Step::Receive { socket, room }),
        4 => (socket(), 0usize..70_000, 0u16..1500)
            .prop_map(|(socket, len, segment_len)| Step::Send { socket, len, segment_len }),
        1 => (socket(), any::<u32>()).prop_map(|(socket, mtu)| Step::Icmp { socket, mtu }),
        2 => (0usize..200).prop_map(|packets| Step::Transmit { packets }),
        1 => socket().prop_map(|socket| Step::Reopen { socket }),
    ]
}

/// Four sockets, two of each version, one of each connected; and what each has to receive.
struct Model {
    stack: Stack,
    ids: [UdpId; 4],
    expected: [VecDeque<Vec<u8>>; 4],
    number: u8,
}

const BUDGET: u32 = 20_000;

impl Model {
    fn new() -> Model {
        // 128 chunks, of which UDP has 64: less than what the budgets of four sockets allow.
        let config = Config { buffer_memory: 128 * 2048, ..Config::default() };
        let mut stack = Stack::new(config, [7; 32], NOW);
        let ids = [0, 1, 2, 3].map(|socket| open(&mut stack, socket));
        Model { stack, ids, expected: Default::default(), number: 0 }
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Noise(octets) => {
                let _ = self.stack.on_packet(&octets, &arrival(), NOW);
            }
            Step::Corrupt { version, is_icmp, len, at, flip } => {
                self.corrupt(version, is_icmp, len, at, flip)
            }
            Step::Arrive { socket, len } => self.arrive(socket, len),
            Step::Receive { socket, room } => return self.receive(socket, room),
            Step::Send { socket, len, segment_len } => {
                let send = UdpSend {
                    to: Some(ends(socket).client),
                    hop: Some(hop()),
                    segment_len: Some(segment_len),
                    ..UdpSend::default()
                };
                let _ = self.stack.udp_send_to(self.ids[socket], &send, &vec![0; len], NOW);
            }
            Step::Icmp { socket, mtu } => {
                let Ends { client, router, .. } = ends(socket);
                let packet = datagram(local(socket), client, &[0; 1300]);
                let _ = self.stack.on_packet(&too_big(router, &packet, mtu), &arrival(), NOW);
            }
            Step::Transmit { packets } => {
                for _ in 0..packets {
                    transmit(&mut self.stack);
                }
            }
            Step::Reopen { socket } => {
                self.stack.udp_close(self.ids[socket]);
                self.expected[socket].clear();
                self.ids[socket] = open(&mut self.stack, socket);
            }
        }
        Ok(())
    }

    /// A change of one octet is always found: by a checksum, unless it hits what none covers, which does not matter.
    fn corrupt(&mut self, version: usize, is_icmp: bool, len: usize, at: prop::sample::Index, flip: u8) {
        let Ends { server, stranger, router, .. } = versions()[version];
        let mut packet = datagram(stranger, server, &vec![0; len]);
        if is_icmp {
            packet = too_big(router, &datagram(server, stranger, &vec![0; len]), 1300);
        }
        let at = at.index(packet.len());
        packet[at] ^= flip;
        let before = self.stack.counters().udp_in_datagrams;
        let _ = self.stack.on_packet(&packet, &arrival(), NOW);
        if self.stack.counters().udp_in_datagrams > before {
            // The traffic class, the hop limit or the flow label of IPv6: nobody's payload is another.
            assert!(version == 1 && !is_icmp && (at < 4 || at == 7), "octet {at} of {packet:?}");
            self.expected[2].push_back(vec![0; len]);
        }
    }

    fn arrive(&mut self, socket: usize, len: usize) {
        self.number = self.number.wrapping_add(1);
        let payload = vec![self.number; len];
        let before = self.stack.counters().udp_in_datagrams;
        arrive(&mut self.stack, &datagram(ends(socket).client, local(socket), &payload));
        if self.stack.counters().udp_in_datagrams > before {
            self.expected[socket].push_back(payload);
        }
    }

    fn receive(&mut self, socket: usize, room: usize) -> Result<(), TestCaseError> {
        self.stack.udp_take_error(self.ids[socket]);
        let mut octets = vec![0; room];
        let received = self.stack.udp_recv_from(self.ids[socket], &mut octets).ok();
        let expected = self.expected[socket].pop_front();
        prop_assert_eq!(received.map(|received| received.full_len), expected.as_ref().map(Vec::len));
        if let (Some(received), Some(expected)) = (received, expected) {
            prop_assert_eq!(&octets[..received.len], &expected[..room.min(expected.len())]);
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), TestCaseError> {
        let (in_use, max) = self.stack.buffer_memory();
        prop_assert!(in_use <= max / 2);
        for id in self.ids {
            let waiting = self.stack.udp_queued(id).map_or(0, |(_, outgoing)| outgoing as u32);
            prop_assert!(waiting <= BUDGET || waiting < 70_000, "one datagram may exceed it");
        }
        Ok(())
    }

    /// Closes everything and lets what is queued leave: nothing is left.
    fn finish(mut self) -> Result<(), TestCaseError> {
        self.ids.iter().for_each(|id| self.stack.udp_close(*id));
        while transmit(&mut self.stack).is_some() {}
        prop_assert_eq!(self.stack.buffer_memory().0, 0);
        Ok(())
    }
}

fn ends(socket: usize) -> Ends {
    versions()[socket / 2]
}

/// Even sockets are not connected, odd ones are.
fn local(socket: usize) -> std::net::SocketAddr {
    if socket.is_multiple_of(2) { ends(socket).server } else { ends(socket).other_server }
}

fn open(stack: &mut Stack, socket: usize) -> UdpId {
    let options = UdpOptions {
        receive_buffer: BUDGET,
        send_buffer: BUDGET,
        receive_errors: true,
        ..UdpOptions::default()
    };
    let id = stack.udp_bind(&UdpBind { options, ..UdpBind::new(local(socket)) }).unwrap();
    if socket % 2 == 1 {
        stack.udp_connect(id, local(socket).ip(), ends(socket).client, hop()).unwrap();
    }
    id
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn memory_stays_in_bounds_and_datagrams_stay_whole_whatever_happens(steps in vec(step(), 1..300)) {
        let mut model = Model::new();
        for step in steps {
            model.apply(step)?;
            while model.stack.poll_event().is_some() {}
            model.check_bounds()?;
        }
        model.finish()?;
    }

    #[test]
    fn octets_that_nobody_made_with_care_are_refused(octets in vec(any::<u8>(), 0..200)) {
        let mut stack = stack();
        let [v4, v6] = versions();
        let ids = [bind(&mut stack, v4.any), bind(&mut stack, v6.any)];
        let _ = stack.on_packet(&octets, &arrival(), NOW);
        for id in ids {
            prop_assert_eq!(recv(&mut stack, id), None);
        }
    }
}
