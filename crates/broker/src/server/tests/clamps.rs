//! Segment sizes by route, in a network namespace with routes of its own.

use std::net::IpAddr;

use lab::{Lab, SERVER_INTERFACE, Side};

use super::*;

/// Routes by the laboratory's wire, each with what follows the network.
fn add_routes(lab: &Lab, routes: impl IntoIterator<Item = String>) {
    let lines = routes.into_iter().map(|route| format!("route add {route} dev {SERVER_INTERFACE}\n"));
    let directory = lab::Directory::new().unwrap();
    let batch = directory.write("routes", &lines.collect::<String>()).unwrap();
    lab.ip(Side::Server, &format!("-batch {}", batch.display())).unwrap();
}

fn next_clamps(client: &mut Client) -> Vec<(IpAddr, u8, u16)> {
    loop {
        if let Event::News(News::SegmentsClamped { clamps }) = next_event(client) {
            return clamps;
        }
    }
}

#[test]
fn a_large_routing_table_with_a_limit_disconnects_nobody() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let lab = Lab::new().unwrap();
    lab.inside(Side::Server, || {
        let served = Served::new(1);
        let mut client = served.connect();
        add_routes(&lab, (0..2600).map(|n| format!("10.{}.{}.0/24", n >> 8, n & 255)));
        add_routes(&lab, ["0.0.0.0/0 advmss 1400".to_owned()]);
        assert_eq!(next_clamps(&mut client), [("0.0.0.0".parse().unwrap(), 0, 1400)]);
        client.attach().unwrap();
    });
}

#[test]
fn limits_from_before_the_broker_are_told_with_the_first_queue() {
    if !lab::require_root_and_xdp() {
        return;
    }
    let lab = Lab::new().unwrap();
    add_routes(&lab, ["203.0.113.0/24 advmss 1200".to_owned()]);
    lab.inside(Side::Server, || {
        let served = Served::new(1);
        let mut client = served.connect();
        client.attach().unwrap();
        client.report(ProgramReport::default()).unwrap(); // Its answer comes after what is told with the queue.
        client.settle().unwrap();
        let told = std::iter::from_fn(|| client.poll_event().unwrap());
        let clamps = told.filter_map(|event| match event {
            Event::News(News::SegmentsClamped { clamps }) => Some(clamps),
            _ => None,
        });
        assert_eq!(clamps.collect::<Vec<_>>(), [[("203.0.113.0".parse().unwrap(), 24, 1200)]]);
    });
}
