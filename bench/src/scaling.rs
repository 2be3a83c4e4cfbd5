//! How many answers a second some number of cores give, from what each stage of a query costs one core. docs/scaling.md explains it.
//!
//! All times are nanoseconds a query, all rates queries a second.

use std::ops::Range;

/// What a query costs the cores that it passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Taking the packet from the device and giving the answer to it.
    pub io: f64,
    /// Everything from the packet to the answer in it.
    pub answer: f64,
    /// For a dispatcher: choosing the worker, the rings both ways.
    pub hand_over: f64,
    /// For a worker: the rings both ways, and memory that was another core's.
    pub take: f64,
}

/// What a card lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Time of a packet in and out, while the card has all of its queues at hand.
    pub packet: f64,
    /// So many queues it has at hand.
    pub queues: u32,
    /// What each further queue adds to the time of every packet.
    pub further_queue: f64,
    /// Bits a second of the link, each way.
    pub link: f64,
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Each of so many cores has a queue, and answers what comes there.
    RunToCompletion(u32),
    /// Dispatchers have a queue each.
    Shared {
        /// Cores with a queue.
        dispatchers: u32,
        /// Cores without.
        workers: u32,
        /// Part of the queries that dispatchers answer themselves: 0 is a pipeline.
        own: f64,
    },
}

/// What bounds a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Cores that have queues.
    Queues,
    /// Workers.
    Workers,
    /// The card, for the number of its queues.
    Card,
    /// The link.
    Link,
}

/// Octets of an Ethernet frame on the wire that are not in the frame: preamble, check sequence, gap.
const FRAMING: f64 = 24.0;
/// Shorter frames are padded to so many octets (IEEE 802.3, 4.2.8).
const FRAME_OCTETS_MIN: f64 = 60.0;

impl Card {
    /// Packets a second that pass with so many queues.
    fn rate(&self, queues: u32) -> f64 {
        let further = f64::from(queues.saturating_sub(self.queues));
        1e9 / (self.packet + further * self.further_queue)
    }

    /// Packets a second that the link takes, of frames with so many octets.
    pub fn link_rate(&self, octets: f64) -> f64 {
        self.link / (8.0 * (octets.max(FRAME_OCTETS_MIN) + FRAMING))
    }
}

/// The rate of a machine with one card, and what bounds it. `octets` are those of the longer of query and answer, as an Ethernet frame.
pub fn rate(costs: &Costs, card: &Card, mode: Mode, octets: f64) -> (f64, Bound) {
    let Costs { io, answer, hand_over, take } = *costs;
    let of = |cores: u32, time: f64| f64::from(cores) * 1e9 / time;
    let (queues, by_queues, by_workers) = match mode {
        Mode::RunToCompletion(cores) => (cores, of(cores, io + answer), f64::INFINITY),
        Mode::Shared { dispatchers, workers, own } => {
            let others = 1.0 - own;
            let dispatching = of(dispatchers, io + own * answer + others * hand_over);
            (dispatchers, dispatching, of(workers, others * (answer + take)))
        }
    };
    let bounds = [
        (by_queues, Bound::Queues),
        (by_workers, Bound::Workers),
        (card.rate(queues), Bound::Card),
        (card.link_rate(octets), Bound::Link),
    ];
    bounds.into_iter().fold(
        (f64::INFINITY, Bound::Queues),
        |least, bound| {
            if bound.0 < least.0 { bound } else { least }
        },
    )
}

/// All ways to use so many cores in which dispatchers answer one of these hundredths themselves.
pub fn shared(cores: u32, own: Range<u32>) -> impl Iterator<Item = Mode> {
    (1..cores).flat_map(move |dispatchers| {
        let workers = cores - dispatchers;
        let share = |percent| f64::from(percent) / 100.0;
        own.clone().map(move |percent| Mode::Shared { dispatchers, workers, own: share(percent) })
    })
}

/// The best way to use so many cores, and its rate: all splits and shares are tried.
pub fn best(costs: &Costs, card: &Card, cores: u32, octets: f64) -> (Mode, f64, Bound) {
    let modes = std::iter::once(Mode::RunToCompletion(cores)).chain(shared(cores, 0..100));
    best_of(costs, card, modes, octets).expect("there is at least one way")
}

/// The best of these ways, and its rate; `None` if there is none.
pub fn best_of(
    costs: &Costs,
    card: &Card,
    modes: impl Iterator<Item = Mode>,
    octets: f64,
) -> Option<(Mode, f64, Bound)> {
    let mut found: Option<(Mode, f64, Bound)> = None;
    for mode in modes {
        let (rate, bound) = rate(costs, card, mode, octets);
        // What is simpler stands first, and stays unless the other is better by more than a rounding.
        if found.is_none_or(|(_, most, _)| rate > most * 1.001) {
            found = Some((mode, rate, bound));
        }
    }
    found
}

/// What a rate needs: cards, and with each of them so many cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Cards.
    pub cards: u32,
    /// Cores of each.
    pub cores: u32,
    /// What they do.
    pub mode: Mode,
}

/// With more cores than this beside one card, a second card is tried instead.
const CORES_MAX: u32 = 64;
/// Cards that are tried.
const CARDS_MAX: u32 = 64;

/// The fewest cards for `wanted` queries a second, and for these the fewest cores; `None` if no machine or fleet that is tried is enough.
pub fn needs(costs: &Costs, card: &Card, octets: f64, wanted: f64) -> Option<Needs> {
    let of_cards = |cards: u32| {
        let of_each = wanted / f64::from(cards);
        let enough = |cores: &u32| best(costs, card, *cores, octets).1 >= of_each;
        (1..=CORES_MAX).find(enough).map(|cores| (cards, cores))
    };
    let can_be = |cards: &u32| card.link_rate(octets) * f64::from(*cards) >= wanted;
    let (cards, cores) = (1..=CARDS_MAX).filter(can_be).find_map(of_cards)?;
    Some(Needs { cards, cores, mode: best(costs, card, cores, octets).0 })
}

/// Costs, a card and the octets of a frame that a user gives as `name=value`; those of [`RECORD`] where nothing is given.
///
/// # Errors
/// The word that is not known, or has no positive number.
pub fn given<'w>(words: impl Iterator<Item = &'w str>) -> Result<(Costs, Card, f64), String> {
    let ((mut costs, mut card), mut octets) = (RECORD, FRAME_OCTETS);
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word} is no NAME=VALUE"))?;
        let may_be_zero = MAY_BE_ZERO.contains(&name);
        let is_fit = |number: &f64| number.is_finite() && (*number > 0.0 || may_be_zero && *number == 0.0);
        let number = value.parse::<f64>().ok().filter(is_fit);
        let number = number.ok_or_else(|| format!("{value} is no positive number"))?;
        match name {
            "device" => costs.io = number,
            "answer" => costs.answer = number,
            "hand-over" => costs.hand_over = number,
            "take" => costs.take = number,
            "card" => card.packet = number,
            "queues" => card.queues = number as u32,
            "further-queue" => card.further_queue = number,
            "link" => card.link = number * 1e9,
            "octets" => octets = number,
            _ => return Err(format!("{name} is none of {NAMES}")),
        }
    }
    Ok((costs, card, octets))
}

/// Some cards are not slowed by further queues.
const MAY_BE_ZERO: [&str; 3] = ["hand-over", "take", "further-queue"];
/// What [`given`] knows.
const NAMES: &str = "device, answer, hand-over, take (ns a query), card, further-queue (ns a packet), queues, link (Gb/s), octets (of a frame)";

/// Octets of a query and its answer, whichever is longer, as an Ethernet frame.
pub const FRAME_OCTETS: f64 = 95.0;

/// The record that others have published: a machine with 48 cores and one card of 100 Gb/s on 16 lanes. Three numbers are chosen to fit
/// it: what a query costs one core, what handing it over adds, and what queues beyond 32 cost the card.
pub const RECORD: (Costs, Card) = (
    Costs { io: 121.0, answer: 300.0, hand_over: 30.0, take: 40.0 },
    Card { packet: 9.5, queues: 32, further_queue: 1.1, link: 100e9 },
);

#[cfg(test)]
mod tests {
    use super::*;

    /// A query of 79 octets as an Ethernet frame, and a short answer.
    const OCTETS: f64 = FRAME_OCTETS;

    fn millions(mode: Mode) -> f64 {
        rate(&RECORD.0, &RECORD.1, mode, OCTETS).0 / 1e6
    }

    #[test]
    fn the_published_record_is_met_within_eight_percent() {
        let near = |found: f64, published: f64| {
            assert!((found / published - 1.0).abs() < 0.08, "{found:.1} M for {published} M");
        };
        near(millions(Mode::RunToCompletion(32)), 76.0);
        near(millions(Mode::RunToCompletion(48)), 37.0);
        for (dispatchers, published) in [(16, 95.0), (24, 100.0)] {
            let workers = 48 - dispatchers;
            let shares = (0..100).map(|percent| f64::from(percent) / 100.0);
            let rates = shares.map(|own| millions(Mode::Shared { dispatchers, workers, own }));
            near(rates.fold(0.0, f64::max), published);
        }
    }

    #[test]
    fn few_cores_run_to_completion_and_many_share() {
        let (costs, card) = RECORD;
        let (mode, of_eight, bound) = best(&costs, &card, 8, OCTETS);
        assert_eq!((mode, bound), (Mode::RunToCompletion(8), Bound::Queues));
        let (mode, of_many, _) = best(&costs, &card, 48, OCTETS);
        assert!(matches!(mode, Mode::Shared { .. }), "{mode:?}");
        assert!(of_many > 4.0 * of_eight);
    }

    /// The table of docs/scaling.md.
    #[test]
    fn a_rate_needs_cores_and_beyond_a_link_further_cards() {
        let (costs, card) = RECORD;
        let wanted = [10e6, 50e6, 100e6, 200e6, 400e6];
        let found = wanted.map(|wanted| {
            let Needs { cards, cores, .. } = needs(&costs, &card, OCTETS, wanted).unwrap();
            (cards, cores)
        });
        assert_eq!(found, [(1, 5), (1, 22), (1, 45), (2, 45), (4, 45)]);
        assert_eq!(needs(&costs, &card, OCTETS, 1e12), None);
    }

    #[test]
    fn costs_of_ones_own_take_the_place_of_those_of_the_record() {
        let (costs, card, octets) = given(["device=60", "link=25", "octets=120"].into_iter()).unwrap();
        assert_eq!((costs.io, costs.answer, card.link, octets), (60.0, RECORD.0.answer, 25e9, 120.0));
        for wrong in ["device", "device=", "device=-1", "device=x", "devices=1", "link=inf"] {
            assert!(given([wrong].into_iter()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_card_may_have_queues_for_nothing() {
        let card = given(["further-queue=0"].into_iter()).unwrap().1;
        assert_eq!(card.rate(1000), card.rate(1));
        assert!(given(["answer=0"].into_iter()).is_err());
    }

    #[test]
    fn short_frames_are_padded_on_the_wire() {
        let card = Card { link: 25e9, ..RECORD.1 };
        assert_eq!(card.link_rate(1.0), card.link_rate(60.0));
        assert!((card.link_rate(1.0) / 37.2e6 - 1.0).abs() < 0.01, "{}", card.link_rate(1.0));
    }

    #[test]
    fn the_best_way_is_the_best_of_the_three() {
        let (costs, card) = RECORD;
        for cores in [2, 8, 48] {
            let alone = rate(&costs, &card, Mode::RunToCompletion(cores), OCTETS).0;
            let of = |own| best_of(&costs, &card, shared(cores, own), OCTETS).unwrap().1;
            let most = [alone, of(0..1), of(1..100)].into_iter().fold(0.0, f64::max);
            assert!((best(&costs, &card, cores, OCTETS).1 / most - 1.0).abs() < 0.002, "{cores}");
        }
        assert_eq!(shared(1, 0..100).count(), 0);
    }

    #[test]
    fn what_is_slowest_bounds() {
        let (costs, card) = RECORD;
        let bound = |mode, octets| rate(&costs, &card, mode, octets).1;
        let shared = |dispatchers, workers| Mode::Shared { dispatchers, workers, own: 0.0 };
        assert_eq!(bound(shared(1, 40), OCTETS), Bound::Queues);
        assert_eq!(bound(shared(20, 1), OCTETS), Bound::Workers);
        assert_eq!(bound(shared(400, 4000), OCTETS), Bound::Card);
        assert_eq!(bound(shared(30, 4000), 1500.0), Bound::Link);
    }
}
