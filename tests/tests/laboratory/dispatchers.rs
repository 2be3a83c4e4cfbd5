//! One queue, and engines on two cores: one receives and sends for both.

use std::net::SocketAddr;

use lab::{SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side, Zone};
use tests::{Dig, Transport};

use crate::{Setting, assert_is_mail};

/// With one dispatcher, and more options; `None` also where there is one core only.
fn with_one_dispatcher(zone: &Zone, arguments: &[&str]) -> Option<Setting> {
    // The worker shares its core with the generator, which never sleeps.
    let cores = format!("{},{}", lab::server_core(), lab::generator_core());
    let shared = ["--cores", &cores, "--dispatchers", "1"];
    (lab::generator_core() != lab::server_core())
        .then(|| Setting::with(zone, &[&shared[..], arguments].concat()))
        .flatten()
}

/// Frames that the devices of each engine brought.
fn brought(setting: &Setting) -> [u64; 2] {
    let counters = tests::stats(setting.server.directory.path());
    let of = |engine: &str| {
        let is_its = |name: &str| name.starts_with(engine) && name.ends_with("_rx_frames");
        counters.iter().filter(|(name, _)| is_its(name)).map(|(_, value)| value).sum()
    };
    [of("engine_0"), of("engine_1")]
}

fn big_by_tcp(setting: &Setting, server: &str) -> usize {
    let server = SocketAddr::new(server.parse().unwrap(), 53);
    let command = setting.lab.command(Side::Client, "dig");
    Dig::ask_by(command, server, Transport::Tcp, &["big.example.com", "TXT"]).section("ANSWER").len()
}

#[test]
fn a_worker_without_a_queue_answers_udp_and_tcp() {
    let Some(setting) = with_one_dispatcher(&Zone::sample(), &[]) else { return };
    for server in [SERVER_V4, SERVER_V6] {
        assert_is_mail(setting.ask(server));
        assert_eq!(big_by_tcp(&setting, server), 8);
    }
    assert!(setting.count("_TcpPassiveOpens") >= 2, "both were on our stack");
}

#[test]
fn the_dispatcher_and_its_worker_answer_their_shares() {
    const ASKED: u64 = 80;
    let Some(setting) = with_one_dispatcher(&Zone::sample(), &["--dispatcher-share", "40"]) else { return };
    // Each from another port.
    (0..ASKED).for_each(|_| assert_is_mail(setting.ask(SERVER_V4)));
    let [of_dispatcher, of_worker] = brought(&setting);
    // 48 of 80 are expected: chance keeps it off that by 22 once in a million runs.
    assert!(
        (26..=70).contains(&of_worker),
        "{of_worker} by the worker, {of_dispatcher} frames at the dispatcher's engine"
    );
}

#[test]
fn workers_follow_the_interface() {
    let Some(setting) = with_one_dispatcher(&Zone::sample(), &[]) else { return };
    assert_is_mail(setting.ask(SERVER_V4));
    // Larger frames: all devices are opened again.
    for (side, interface) in [(Side::Client, lab::CLIENT_INTERFACE), (Side::Server, SERVER_INTERFACE)] {
        setting.lab.run_in(side, "ip", &["link", "set", interface, "mtu", "3000"]).unwrap();
    }
    assert_is_mail(setting.ask_patiently(SERVER_V4));
    assert_eq!(big_by_tcp(&setting, SERVER_V4), 8);
    let held: u64 = setting.count("_frames_held");
    assert_eq!(held, 0, "frames that nobody gave back");
}
