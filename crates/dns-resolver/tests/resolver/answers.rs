//! Answers that are known as a whole: the same that the cache would give, and only as long as it would.

use dns_resolver::{Resolver, Scope};
use dns_wire::Rtype;

use crate::rpl::message::{Message, name};
use crate::world::{Life, World, at, zones};

/// The answer to `query` that is known.
fn recall(world: &mut World, query: &[u8]) -> Option<Vec<u8>> {
    world.resolver.recall(query, world.now).map(|known| known.to_octets(query))
}

/// A world that has been asked twice for www.example: first its server was, then the cache.
fn world() -> World {
    let mut world = World::new(&[Life::Answers(5)], 7);
    world.ask("www.example.");
    world.run_until(at(1000));
    assert!(recall_as(&mut world, "www.example.").is_none(), "nobody has been answered by the cache");
    world.ask("www.example.");
    world
}

/// What is known for somebody who asks in this spelling, with another ID.
fn recall_as(world: &mut World, qname: &str) -> Option<Message> {
    let query = query(qname);
    let octets = recall(world, &query.to_octets())?;
    let message = Message::from_octets(&octets);
    assert_eq!((message.id, &octets[12..29]), (query.id, &query.to_octets()[12..29]));
    Some(message)
}

fn query(qname: &str) -> Message {
    Message {
        id: 0x4142,
        flags: vec!["RD".to_owned()],
        question: Some((name(qname), Rtype::A)),
        has_edns: true,
        ..Message::default()
    }
}

#[test]
fn an_answer_is_known_with_the_id_and_spelling_of_who_asks_and_the_time_that_is_left() {
    let mut world = world();
    world.run_until(at(3500));
    let message = recall_as(&mut world, "wWw.eXample.").expect("it is known");
    // It was stored 5 ms after the start, and 60 s are its time.
    assert_eq!((message.sections[0].len(), message.sections[0][0].ttl), (1, 56));
}

#[test]
fn another_question_is_not_known() {
    let mut world = world();
    let octets = query("www.example.").to_octets();
    for at in 2..octets.len() {
        let mut other = octets.clone();
        other[at] ^= 1;
        assert!(recall(&mut world, &other).is_none(), "octet {at}");
        assert!(recall(&mut world, &octets[..at]).is_none(), "{at} octets");
    }
    assert!(recall(&mut world, &[&octets[..], &[0]].concat()).is_none());
    assert!(recall(&mut world, &octets).is_some());
}

#[test]
fn what_is_flushed_or_reconfigured_is_not_known() {
    let mut flushed = world();
    flushed.resolver.flush(&name("www.example."), Scope::Name);
    assert!(recall_as(&mut flushed, "www.example.").is_none());
    let mut other = world();
    other.resolver.reconfigure(dns_resolver::Options::default(), dns_resolver::Zones::default());
    assert!(recall_as(&mut other, "www.example.").is_none());
}

#[test]
fn what_another_answer_contradicts_is_not_known() {
    let mut world = world();
    world.has_names = false;
    world.ask_for("www.example.", Rtype::TXT);
    world.run_until(at(2000));
    assert!(recall_as(&mut world, "www.example.").is_none(), "the name has gone");
    world.ask("www.example.");
    assert_eq!(world.got.last().unwrap().rcode, 3);
}

#[test]
fn what_is_to_be_fetched_anew_is_not_known_so_that_it_will_be() {
    let mut world = world();
    world.run_until(at(54_000));
    assert!(recall_as(&mut world, "www.example.").is_some());
    world.run_until(at(54_010));
    assert!(recall_as(&mut world, "www.example.").is_none(), "a tenth of its time is left");
    world.ask("www.example.");
    world.version = 2;
    assert!(recall_as(&mut world, "www.example.").is_none(), "what is near its end is not kept");
}

#[test]
fn an_answer_that_is_asked_for_again_and_again_stays_in_the_cache() {
    let options = dns_resolver::Options {
        cache: dns_resolver::CacheOptions { octets_max: 100_000, ..Default::default() },
        ..Default::default()
    };
    let mut world = world();
    world.resolver = Resolver::new(options, zones(1), [7; 16], world.now);
    for _ in 0..2 {
        world.ask("www.example.");
        world.run_until(at(world.now.as_nanos() / 1_000_000 + 100));
    }
    for number in 0..2000 {
        world.ask(&format!("n{number}.example."));
        world.run_until(at(world.now.as_nanos() / 1_000_000 + 10));
        let known = recall_as(&mut world, "www.example.");
        assert!(known.is_some(), "after {number} others, {:?}", world.resolver.cache_usage());
    }
    assert!(world.resolver.cache_usage().2 > 0, "others had to leave");
}
