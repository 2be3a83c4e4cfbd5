//! What the path is like, and how that changes.

use clock::Duration;

use super::link::{Faults, LinkSettings};
use super::random::Random;
use super::simulation::Change;

/// How much goes wrong on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing: no packet is lost, and all arrive in order.
    Calm,
    /// Packets are lost.
    Lossy,
    /// Everything that can go wrong on the Internet does, until some time.
    Rough,
}

/// When the bad weather is over at the latest. Within it no connection reaches its limits: six SYNs take a minute.
const BETTER_AFTER: Duration = Duration::from_secs(20);

/// A path without faults.
pub(super) fn link(random: &mut Random) -> LinkSettings {
    let rate = match random.below(4) {
        0 => 0,
        _ => random.magnitude(20_000, 20_000_000),
    };
    let queue = if random.one_in(2) { u64::MAX } else { random.magnitude(20_000, 1_000_000) };
    LinkSettings {
        rate,
        delay: Duration::from_micros(random.magnitude(10, 150_000)),
        queue,
        mark_from: random.one_in(4).then(|| random.magnitude(1500, 50_000)),
        ..LinkSettings::default()
    }
}

/// Adds what goes wrong, and its end.
pub(super) fn spoil(
    links: &mut [LinkSettings; 2],
    changes: &mut Vec<(Duration, Change)>,
    weather: Weather,
    random: &mut Random,
) {
    if weather == Weather::Calm {
        for link in links {
            link.queue = u64::MAX;
        }
        return;
    }
    for place in [0, 1] {
        let fine = links[place].clone();
        let mut mtu = u16::MAX;
        for at in 0..random.between(1, 3) {
            let worse = spoiled(&fine, &mut mtu, weather, random);
            match at {
                0 => links[place] = worse,
                _ => changes.push((within(random), Change::Link(place, Box::new(worse)))),
            }
        }
        // The weather clears, but a path that became narrow stays so.
        changes.push((BETTER_AFTER, Change::Link(place, Box::new(LinkSettings { mtu, ..fine }))));
        if weather == Weather::Rough && random.one_in(6) {
            let by = random.pick(&[1, 30, 600, 7200]);
            changes.push((within(random), Change::ClockJump(place, Duration::from_secs(by))));
        }
    }
    changes.sort_by_key(|(after, _)| *after);
}

fn within(random: &mut Random) -> Duration {
    Duration::from_micros(random.magnitude(1000, BETTER_AFTER.as_micros()))
}

fn spoiled(fine: &LinkSettings, mtu: &mut u16, weather: Weather, random: &mut Random) -> LinkSettings {
    let mut link = fine.clone();
    link.faults.loss = random.magnitude(1, 150_000) as u32;
    if weather == Weather::Lossy {
        return link;
    }
    let mut sometimes = |most: u64| if random.one_in(3) { random.magnitude(1, most) as u32 } else { 0 };
    link.faults = Faults {
        loss: sometimes(100_000),
        burst: sometimes(5000),
        burst_length: 30,
        duplication: sometimes(100_000),
        reordering: sometimes(300_000),
        reordering_delay: Duration::ZERO,
        corruption: sometimes(50_000),
        truncation: sometimes(20_000),
    };
    link.faults.reordering_delay = Duration::from_micros(random.magnitude(100, 500_000));
    link.down = random.one_in(12);
    if random.one_in(5) {
        *mtu = random.pick(&[1280, 1300, 1400, 1492]);
        link.black_hole = random.one_in(3);
    }
    link.mtu = *mtu;
    if random.one_in(4) {
        link.delay = Duration::from_micros(random.magnitude(10, 300_000));
    }
    link
}
