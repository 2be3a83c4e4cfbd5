//! From datagram to datagram, nothing allocates.

use std::net::SocketAddr;

use allocator::Counting;
use clock::Instant;
use stack::udp::{UdpBind, UdpId, UdpOptions, UdpSend};
use stack::{Arrival, Config, Hop, Stack};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Instant = Instant::ZERO;

struct Hosts {
    client: Stack,
    server: Stack,
    at_client: UdpId,
    at_server: UdpId,
    room: Vec<u8>,
    payload: Vec<u8>,
}

impl Hosts {
    fn new(client: &str, server: &str) -> Hosts {
        let [client_end, server_end] = [client, server].map(|end| end.parse::<SocketAddr>().unwrap());
        let [mut client, mut server] = [1, 2].map(|secret| Stack::new(Config::default(), [secret; 32], NOW));
        let options = UdpOptions { receive_coalesced: true, receive_errors: true, ..UdpOptions::default() };
        let at_client = client.udp_bind(&UdpBind { options, ..UdpBind::new(client_end) }).unwrap();
        let at_server = server.udp_bind(&UdpBind { options, ..UdpBind::new(server_end) }).unwrap();
        client.udp_connect(at_client, client_end.ip(), server_end, Hop::default()).unwrap();
        Hosts { client, server, at_client, at_server, room: vec![0; 65_535], payload: vec![1; 30_000] }
    }

    /// A burst of questions, each answered; then a long one in segments, which comes in one piece.
    fn exchange(&mut self) {
        for len in [0, 1, 64, 512, 1400] {
            let question = &self.payload[..len];
            self.client.udp_send_to(self.at_client, &UdpSend::default(), question, NOW).unwrap();
        }
        let in_segments = UdpSend { segment_len: Some(1200), ..UdpSend::default() };
        self.client.udp_send_to(self.at_client, &in_segments, &self.payload, NOW).unwrap();
        carry(&mut self.client, &mut self.server, &mut self.room);
        while self.server.poll_event().is_some() {}
        while let Some((question, octets)) = self.server.udp_peek(self.at_server) {
            let len = octets.len();
            self.server.udp_discard(self.at_server);
            self.server
                .udp_send_to(self.at_server, &question.reply(), &self.payload[..len.min(1400)], NOW)
                .unwrap();
        }
        carry(&mut self.server, &mut self.client, &mut self.room);
        while self.client.udp_recv_from(self.at_client, &mut self.room).is_ok() {}
    }
}

fn carry(from: &mut Stack, to: &mut Stack, room: &mut [u8]) {
    while let Some(transmit) = from.poll_transmit(NOW, room) {
        to.on_packet(&room[..transmit.len], &Arrival::default(), NOW).unwrap();
    }
}

#[test]
fn questions_and_answers_allocate_nothing_once_the_pools_have_grown() {
    for (client, server) in [("192.0.2.2:4000", "192.0.2.1:53"), ("[2001:db8::2]:4000", "[2001:db8::1]:53")] {
        let mut hosts = Hosts::new(client, server);
        (0..10).for_each(|_| hosts.exchange());
        let before = Counting::count();
        (0..1000).for_each(|_| hosts.exchange());
        assert_eq!(Counting::count() - before, 0);
        assert!(hosts.client.counters().udp_in_datagrams > 5000);
    }
}
