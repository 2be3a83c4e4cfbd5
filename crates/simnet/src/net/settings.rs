//! How hosts are set up: everything that an administrator or an application may choose.

use clock::Duration;
use stack::config::{EcnMode, PathMtuProbing, SynCookies};
use stack::congestion::Algorithm;
use stack::{Config, TcpOptions};

use super::our_host::OurSettings;
use super::random::Random;
use super::smoltcp_host::SmoltcpSettings;

/// Settings of a host of ours.
pub(super) fn ours(random: &mut Random, mtu: u16) -> OurSettings {
    let options = (0..random.between(1, 3)).map(|_| options(random)).collect();
    OurSettings { config: config(random), options, mtu, secret: random.bits(), tso: random.one_in(2) }
}

fn config(random: &mut Random) -> Config {
    Config {
        connections_max: 64,
        half_open_max: 64,
        time_wait_max: 64,
        buffer_memory: if random.one_in(4) { random.magnitude(1 << 17, 1 << 19) as usize } else { 16 << 20 },
        trace_records: 16,
        ecn: random.pick(&[EcnMode::Off, EcnMode::Passive, EcnMode::Active]),
        syn_cookies: if random.one_in(8) { SynCookies::Always } else { SynCookies::UnderPressure },
        timestamps: !random.one_in(4),
        sack: !random.one_in(4),
        window_scaling: !random.one_in(4),
        path_mtu_probing: random.pick(&[
            PathMtuProbing::OnBlackHole,
            PathMtuProbing::OnBlackHole,
            PathMtuProbing::Always,
        ]),
        delayed_ack_max: Duration::from_millis(random.pick(&[1, 40, 40, 200])),
        ack_hold_max: Duration::from_millis(random.pick(&[0, 1])),
        ..Config::default()
    }
}

fn options(random: &mut Random) -> TcpOptions {
    let buffer = |random: &mut Random| random.one_in(3).then(|| random.magnitude(2048, 1 << 20) as u32);
    TcpOptions {
        no_delay: random.one_in(2),
        cork: random.one_in(10),
        keepalive: random.one_in(5),
        keepalive_idle: Duration::from_secs(random.between(1, 60)),
        keepalive_interval: Duration::from_secs(random.between(10, 75)),
        congestion: random.pick(&[Algorithm::NewReno, Algorithm::Cubic, Algorithm::Bbr]),
        // SYN cookies know no smaller one.
        mss_max: random.one_in(8).then(|| random.magnitude(216, 1460) as u16),
        not_sent_low_water: if random.one_in(5) { 16 << 10 } else { u32::MAX },
        receive_buffer: buffer(random),
        send_buffer: buffer(random),
        window_clamp: random.one_in(10).then(|| random.magnitude(2048, 1 << 18) as u32),
        pacing_rate_max: random.one_in(10).then(|| random.magnitude(50_000, 10_000_000)),
        fast_open_queue: if random.one_in(2) { 16 } else { 0 },
        fast_open_connect: random.one_in(2),
        ..TcpOptions::default()
    }
}

/// Settings of a host with smoltcp.
pub(super) fn smoltcp(random: &mut Random, mtu: u16) -> SmoltcpSettings {
    SmoltcpSettings {
        mtu,
        receive_buffer: random.magnitude(2048, 1 << 17) as usize,
        send_buffer: random.magnitude(2048, 1 << 17) as usize,
        ack_delay: random.one_in(2).then(|| Duration::from_millis(10)),
        nagle: random.one_in(2),
        gives_up_after: None,
        seed: random.bits(),
    }
}
