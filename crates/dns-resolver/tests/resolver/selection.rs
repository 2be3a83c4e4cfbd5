//! Four servers at 5, 12, 60 and 180 ms, and five questions a second: the best is used, left when it dies, and used again.
//!
//! Chance is fixed by seeds; a failure names its seed.

use dns_resolver::Random;

use crate::world::{Got, Life, Seen, World, at};

const TIMES: [u64; 4] = [5, 12, 60, 180];
/// Milliseconds between questions.
const PACE: u64 = 200;
const SEEDS: std::ops::Range<u8> = 1..21;

fn world(seed: u8) -> World {
    World::new(&TIMES.map(Life::Answers), seed)
}

/// Asks for a new name every 200 ms, from `from` to `to`.
fn ask_all(world: &mut World, from: u64, to: u64) {
    for millis in (from..to).step_by(PACE as usize) {
        world.run_until(at(millis));
        world.ask(&format!("n{millis}.example."));
    }
    world.run_until(at(to));
}

fn client_queries(world: &World, from: u64, to: u64) -> Vec<Seen> {
    let within = world.seen.iter().filter(|seen| seen.at >= at(from) && seen.at < at(to));
    within.filter(|seen| !seen.is_probe).copied().collect()
}

/// Mean, 95th and 99th percentile in milliseconds, of questions asked in a time.
fn latency(world: &World, from: u64, to: u64) -> (f64, f64, f64) {
    let within = |got: &&Got| got.asked >= at(from) && got.asked < at(to);
    let mut times: Vec<f64> =
        world.got.iter().filter(within).map(|got| got.took.as_secs_f64() * 1000.0).collect();
    assert!(!times.is_empty() && world.got.iter().all(|got| got.rcode == 0 && got.ede.is_none()));
    times.sort_by(f64::total_cmp);
    let part = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    (times.iter().sum::<f64>() / times.len() as f64, part(0.95), part(0.99))
}

#[test]
fn clients_get_the_best_server() {
    for seed in SEEDS {
        let mut world = world(seed);
        ask_all(&mut world, 0, 60_000);
        let (mean, p95, _) = latency(&world, 1000, 60_000);
        assert!(mean < 6.0 && p95 < 6.0, "seed {seed}: mean {mean}, p95 {p95}");
        let others = client_queries(&world, 1000, 60_000).iter().filter(|seen| seen.server != 0).count();
        assert_eq!(others, 0, "seed {seed}");
    }
}

#[test]
fn a_dead_best_server_is_left_within_a_second() {
    for seed in SEEDS {
        let mut world = world(seed);
        ask_all(&mut world, 0, 20_000);
        world.servers[0] = Life::Silent;
        ask_all(&mut world, 20_000, 60_000);
        let to_the_dead = client_queries(&world, 20_000, 60_000);
        let to_the_dead: Vec<&Seen> = to_the_dead.iter().filter(|seen| seen.server == 0).collect();
        assert!(to_the_dead.iter().all(|seen| seen.at < at(21_000)), "seed {seed}: {to_the_dead:?}");
        let (mean, p95, p99) = latency(&world, 20_000, 60_000);
        assert!(mean < 15.0 && p95 < 15.0 && p99 < 80.0, "seed {seed}: {mean} {p95} {p99}");
    }
}

#[test]
fn a_returned_server_is_followed_within_five_seconds() {
    for seed in SEEDS {
        let mut world = world(seed);
        ask_all(&mut world, 0, 10_000);
        world.servers[0] = Life::Silent;
        ask_all(&mut world, 10_000, 610_000); // Ten minutes of outage.
        world.servers[0] = Life::Answers(5);
        ask_all(&mut world, 610_000, 640_000);
        let later = client_queries(&world, 615_000, 640_000);
        assert!(later.iter().all(|seen| seen.server == 0), "seed {seed}");
        assert!(latency(&world, 615_000, 640_000).0 < 6.0, "seed {seed}");
    }
}

#[test]
fn swapped_servers_are_followed_within_five_seconds() {
    for seed in SEEDS {
        let mut world = world(seed);
        ask_all(&mut world, 0, 20_000);
        (world.servers[0], world.servers[3]) = (Life::Answers(180), Life::Answers(5));
        ask_all(&mut world, 20_000, 60_000);
        let later = client_queries(&world, 25_000, 60_000);
        assert!(later.iter().all(|seen| seen.server == 3), "seed {seed}");
        assert!(latency(&world, 25_000, 60_000).0 < 6.0, "seed {seed}");
    }
}

#[test]
fn measuring_is_bounded_and_never_a_clients_matter() {
    for seed in SEEDS {
        let mut world = world(seed);
        ask_all(&mut world, 0, 20_000);
        world.servers[0] = Life::Silent;
        ask_all(&mut world, 20_000, 120_000);
        let probes = world.seen.iter().filter(|seen| seen.is_probe).count();
        assert!(probes < 220, "seed {seed}: {probes} probes in two minutes");
    }
}

#[test]
fn random_loss_costs_little() {
    for seed in SEEDS {
        let mut world = world(seed);
        world.loss = 20;
        ask_all(&mut world, 0, 120_000);
        let (mean, _, p99) = latency(&world, 1000, 120_000);
        assert!(mean < 9.0 && p99 < 80.0, "seed {seed}: mean {mean}, p99 {p99}");
    }
}

/// Servers die, return and change their times at random twice a second, but one answers for ten seconds on end, then another one. Data
/// changes; TTLs are short.
#[test]
fn a_reachable_authoritys_clients_never_see_expired_data() {
    for seed in SEEDS {
        let mut world = world(seed);
        world.ttl = 2;
        let mut random = Random::new([seed; 16]);
        let mut changed = vec![(at(0), 1u8)];
        let mut alive = 0;
        for round in 0..600u64 {
            let start = round * 500;
            world.run_until(at(start));
            if round % 20 == 0 {
                alive = random.below(4) as usize;
            }
            for server in 0..4 {
                if server == alive && round % 20 > 0 {
                    continue;
                }
                let time = [5, 12, 60, 180, 300][random.below(5) as usize];
                let lives = server == alive || random.below(3) > 0;
                world.servers[server] = if lives { Life::Answers(time) } else { Life::Silent };
            }
            if random.below(10) == 0 {
                world.version = world.version % 250 + 1;
                changed.push((at(start), world.version));
            }
            world.ask(&format!("n{}.example.", random.below(20)));
        }
        world.run_until(at(320_000));
        for got in &world.got {
            assert_eq!((got.rcode, got.ede), (0, None), "seed {seed}: {got:?}");
            // Fresh: of a version that the zone had no longer than a TTL, and an answer's way, before the question.
            let oldest = at((got.asked.as_nanos() / 1_000_000).saturating_sub(2300));
            let current =
                changed.iter().rev().find(|(since, _)| *since <= oldest).map_or(1, |version| version.1);
            let newer = changed.iter().filter(|(since, _)| *since > oldest).map(|version| version.1);
            let allowed: Vec<u8> = newer.chain([current]).collect();
            assert!(allowed.contains(&got.version.expect("an address")), "seed {seed}: {got:?}");
        }
        assert_eq!(world.got.len(), 600, "seed {seed}: every question is answered");
    }
}

#[test]
fn in_an_outage_expired_data_is_served_and_fresh_data_within_a_second_of_its_end() {
    for seed in SEEDS {
        let mut world = world(seed);
        world.ttl = 2;
        let ask = |world: &mut World, from: u64, to: u64| {
            for millis in (from..to).step_by(PACE as usize) {
                world.run_until(at(millis));
                world.ask("www.example.");
            }
            world.run_until(at(to));
        };
        ask(&mut world, 0, 10_000);
        world.servers = vec![Life::Silent; 4];
        let before = world.seen.len();
        ask(&mut world, 10_000, 610_000);
        let queries = world.seen[before..].iter().filter(|seen| !seen.is_probe).count();
        let expected = world.got.iter().filter(|got| got.asked > at(13_000) && got.ede != Some(3)).count();
        assert_eq!(expected, 0, "seed {seed}: answers that are not marked as stale");
        assert!(world.got.iter().all(|got| got.rcode == 0 && got.took <= clock::Duration::from_millis(700)));
        // A new try every half minute at most, after the first ones, with eight queries at most each.
        assert!(queries <= 8 * 26, "seed {seed}: {queries} queries in ten minutes");
        world.servers = TIMES.map(Life::Answers).to_vec();
        world.version = 2;
        ask(&mut world, 610_000, 620_000);
        let late = world.got.iter().find(|got| got.asked >= at(611_000) && got.version != Some(2));
        assert!(late.is_none(), "seed {seed}: {late:?}");
    }
}
