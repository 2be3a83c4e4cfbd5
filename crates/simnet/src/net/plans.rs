//! What the two ends of a connection do with it.

use clock::Duration;

use super::application::{Plan, Step};
use super::random::Random;

/// Kinds of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Much data in one direction.
    Bulk,
    /// Much data in both directions at once.
    BulkBothWays,
    /// Questions and answers.
    RequestResponse,
    /// Many connections with little data.
    ManyShort,
    /// Reads and writes of all sizes, with pauses.
    Mixture,
    /// One end finishes long before the other.
    HalfClose,
    /// One end resets the connection somewhere.
    Reset,
    /// The receiver hardly keeps up.
    SlowReader,
    /// One end closes for good, and the other takes its time.
    Deserted,
}

const KINDS: [Kind; 9] = [
    Kind::Bulk,
    Kind::BulkBothWays,
    Kind::RequestResponse,
    Kind::ManyShort,
    Kind::Mixture,
    Kind::HalfClose,
    Kind::Reset,
    Kind::SlowReader,
    Kind::Deserted,
];

impl Kind {
    pub(super) fn any(random: &mut Random) -> Kind {
        random.pick(&KINDS)
    }

    /// How many connections of the kind make a scenario.
    pub(super) fn connections(self, random: &mut Random) -> u64 {
        match self {
            Kind::ManyShort => random.between(5, 25),
            _ if random.one_in(4) => random.between(2, 4),
            _ => 1,
        }
    }

    /// What client and server do.
    pub(super) fn plans(self, random: &mut Random) -> [Plan; 2] {
        let steps = self.steps(random);
        let mut plans = steps.map(|steps| Plan {
            write_max: random.magnitude(1, 1 << 15) as usize,
            read_max: random.magnitude(64, 1 << 16) as usize,
            ..Plan::new(steps)
        });
        for plan in &mut plans {
            // Single octets of much data would be all that a scenario does.
            plan.write_max = plan.write_max.max((plan.sends() / 300) as usize);
        }
        match self {
            Kind::SlowReader => {
                let reader = random.below(2) as usize;
                plans[reader].read_pause = random.span(Duration::from_millis(1), Duration::from_secs(2));
                plans[reader].read_after = random.span(Duration::ZERO, Duration::from_secs(20));
                plans[reader].read_max = random.magnitude(4096, 1 << 16) as usize;
            }
            Kind::Mixture => {
                plans[0].read_after = random.span(Duration::ZERO, Duration::from_secs(3));
            }
            _ => {}
        }
        if random.one_in(2) {
            plans.reverse();
        }
        plans
    }

    fn steps(self, random: &mut Random) -> [Vec<Step>; 2] {
        let finish = vec![Step::Finish];
        match self {
            Kind::Bulk => [send(random, 1 << 18), finish],
            Kind::BulkBothWays => [send(random, 1 << 17), send(random, 1 << 17)],
            Kind::RequestResponse => request_response(random),
            Kind::ManyShort => request_response_once(random),
            Kind::Mixture => [mixture(random), mixture(random)],
            Kind::HalfClose => half_close(random),
            Kind::Reset => reset(random),
            Kind::SlowReader => [send(random, 1 << 17), finish],
            Kind::Deserted => deserted(random),
        }
    }
}

fn send(random: &mut Random, most: u64) -> Vec<Step> {
    vec![Step::Send(random.magnitude(1, most)), Step::Finish]
}

fn request_response(random: &mut Random) -> [Vec<Step>; 2] {
    let rounds = random.between(1, 20);
    let (mut client, mut server) = (Vec::new(), Vec::new());
    let (mut requests, mut responses) = (0, 0);
    for _ in 0..rounds {
        let (request, response) = (random.magnitude(1, 3000), random.magnitude(1, 20_000));
        requests += request;
        responses += response;
        client.extend([Step::Send(request), Step::Await(responses)]);
        server.extend([Step::Await(requests), Step::Send(response)]);
    }
    client.push(Step::Finish);
    server.push(Step::Finish);
    [client, server]
}

/// One question, one answer, and the server closes, as HTTP without keep-alive does.
fn request_response_once(random: &mut Random) -> [Vec<Step>; 2] {
    let (request, response) = (random.magnitude(1, 1000), random.magnitude(1, 5000));
    let client = vec![Step::Send(request), Step::Await(response), Step::Finish];
    let server = vec![Step::Await(request), Step::Send(response), Step::Finish];
    [client, server]
}

fn mixture(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..random.between(1, 12) {
        steps.push(Step::Send(random.magnitude(1, 8000)));
        if random.one_in(2) {
            steps.push(Step::Pause(random.span(Duration::ZERO, Duration::from_millis(700))));
        }
    }
    steps.push(Step::Finish);
    steps
}

fn half_close(random: &mut Random) -> [Vec<Step>; 2] {
    let request = random.magnitude(1, 20_000);
    let pause = random.span(Duration::ZERO, Duration::from_secs(90));
    let mut late = vec![Step::Await(request), Step::Pause(pause)];
    late.extend(send(random, 1 << 16));
    [vec![Step::Send(request), Step::Finish], late]
}

fn deserted(random: &mut Random) -> [Vec<Step>; 2] {
    let (request, response) = (random.magnitude(1, 20_000), random.magnitude(1, 20_000));
    let pause = random.span(Duration::ZERO, Duration::from_secs(200));
    let server = vec![Step::Await(request), Step::Send(response), Step::Pause(pause), Step::Finish];
    [vec![Step::Send(request), Step::Await(response), Step::Close], server]
}

fn reset(random: &mut Random) -> [Vec<Step>; 2] {
    let octets = random.magnitude(1, 1 << 16);
    let victim = send(random, 1 << 17);
    let mut killer = vec![Step::Send(octets)];
    if random.one_in(2) {
        killer.push(Step::Pause(random.span(Duration::ZERO, Duration::from_millis(300))));
    }
    killer.push(Step::Abort);
    [killer, victim]
}
