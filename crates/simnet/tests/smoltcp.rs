//! Our stack with the `smoltcp` crate as peer, in both roles: what both understand of the RFCs was written independently.

mod common;

use common::{each_seed, one};
use simnet::net::{Peers, Weather};

#[test]
fn we_connect_to_smoltcp_on_a_calm_network() {
    each_seed("smoltcp", 0..1000, Peers::SmoltcpServer, Weather::Calm);
}

#[test]
fn smoltcp_connects_to_us_on_a_calm_network() {
    each_seed("smoltcp", 1000..2000, Peers::SmoltcpClient, Weather::Calm);
}

#[test]
fn we_connect_to_smoltcp_whatever_the_network_does() {
    each_seed("smoltcp", 2000..3000, Peers::SmoltcpServer, Weather::Rough);
}

#[test]
fn smoltcp_connects_to_us_whatever_the_network_does() {
    each_seed("smoltcp", 3000..4000, Peers::SmoltcpClient, Weather::Rough);
}

#[test]
fn one_seed() {
    one(Peers::SmoltcpServer);
}
