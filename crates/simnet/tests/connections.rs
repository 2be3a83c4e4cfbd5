//! Connections of our stack with itself, over networks made of seeds. A seed that fails is printed with the command that plays
//! it again; SIMNET_TRACE=1 adds every packet.

mod common;

use common::{each_seed, one};
use simnet::net::{Peers, Weather};

#[test]
fn on_a_calm_network_all_data_arrives_and_every_connection_ends() {
    each_seed("connections", 0..1000, Peers::Ours, Weather::Calm);
}

#[test]
fn lost_packets_are_sent_again_until_all_data_has_arrived() {
    each_seed("connections", 1000..4000, Peers::Ours, Weather::Lossy);
}

#[test]
fn whatever_the_network_does_all_data_arrives_once_it_is_better() {
    each_seed("connections", 4000..10_000, Peers::Ours, Weather::Rough);
}

#[test]
fn connections_that_move_from_stack_to_stack_lose_nothing() {
    each_seed("connections", 10_000..11_000, Peers::OursMoving, Weather::Calm);
    each_seed("connections", 11_000..13_000, Peers::OursMoving, Weather::Lossy);
    each_seed("connections", 13_000..16_000, Peers::OursMoving, Weather::Rough);
}

#[test]
fn one_seed() {
    one(Peers::Ours);
}
