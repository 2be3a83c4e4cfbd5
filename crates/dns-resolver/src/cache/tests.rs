//! The rules of the cache, one a test.

use super::*;

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn address(owner: &str, ttl: u32, last: u8) -> Rrset {
    let rdatas = Rdatas::pack([&[192, 0, 2, last][..]]);
    Rrset::unsigned(name(owner), Rtype::A, ttl, rdatas)
}

fn soa(ttl: u32, minimum: u32) -> Arc<Rrset> {
    let mut rdata = vec![0; 18];
    rdata.extend_from_slice(&minimum.to_be_bytes());
    Arc::new(Rrset::unsigned(name("example."), Rtype::SOA, ttl, Rdatas::pack([&rdata[..]])))
}

fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

fn cache() -> Cache {
    Cache::new(CacheOptions::default(), Duration::from_secs(100), 1)
}

const A: Kind = Kind::Type(Rtype::A);

#[test]
fn records_last_for_their_ttl_and_then_stay_as_expired_ones() {
    let mut cache = cache();
    cache.put_records(&address("a.", 10, 1), Rank::Authority, at(0));
    let owner = name("A.");
    assert_eq!(cache.get_fresh(owner.as_name(), A, at(9)).unwrap().ttl(at(9)), 1);
    assert!(cache.get_fresh(owner.as_name(), A, at(10)).is_none());
    assert!(cache.get(owner.as_name(), A, at(109)).unwrap().is_stale(at(109)));
    assert!(cache.get(owner.as_name(), A, at(110)).is_none());
    assert_eq!(cache.usage(), (0, 0, 0));
}

#[test]
fn an_authoritys_answer_is_not_replaced_by_less_while_it_lasts() {
    let mut cache = cache();
    cache.put_records(&address("a.", 10, 1), Rank::Authority, at(0));
    cache.put_records(&address("a.", 60, 2), Rank::Plain, at(1));
    let records = |cache: &mut Cache, now| match cache.get(name("a.").as_name(), A, now).unwrap().content {
        Content::Records(rdatas, ..) => rdatas.iter().next().unwrap()[3],
        other => panic!("{other:?}"),
    };
    assert_eq!(records(&mut cache, at(1)), 1);
    cache.put_records(&address("a.", 60, 2), Rank::Plain, at(10));
    assert_eq!(records(&mut cache, at(10)), 2, "the first one has expired");
}

#[test]
fn a_denial_lasts_for_the_smaller_of_two_times() {
    let mut cache = cache();
    cache.put_denial(name("x.").as_name(), Kind::NoName, &soa(5, 50), at(0));
    cache.put_denial(name("y.").as_name(), A, &soa(50, 7), at(0));
    assert!(cache.get_fresh(name("x.").as_name(), Kind::NoName, at(4)).is_some());
    assert!(cache.get_fresh(name("x.").as_name(), Kind::NoName, at(5)).is_none());
    assert!(cache.get_fresh(name("y.").as_name(), A, at(6)).is_some());
    assert!(cache.get_fresh(name("y.").as_name(), A, at(7)).is_none());
}

#[test]
fn data_ends_the_denial_of_its_name() {
    let mut cache = cache();
    cache.put_denial(name("x.").as_name(), Kind::NoName, &soa(50, 50), at(0));
    cache.put_records(&address("x.", 10, 1), Rank::Authority, at(1));
    assert!(cache.get(name("x.").as_name(), Kind::NoName, at(1)).is_none());
}

#[test]
fn zero_ttls_are_not_kept_and_end_what_was() {
    let mut cache = cache();
    cache.put_records(&address("a.", 10, 1), Rank::Authority, at(0));
    cache.put_records(&address("a.", 0, 2), Rank::Authority, at(11));
    assert!(cache.get(name("a.").as_name(), A, at(11)).is_none());
}

#[test]
fn failures_are_remembered_longer_while_they_go_on() {
    let mut cache = cache();
    let (owner, zone) = (name("a."), NameBuf::root());
    let mut now = at(0);
    for expected in [5, 10, 20, 30, 30] {
        cache.put_failure(owner.as_name(), Rtype::A, Ede::OTHER, &zone, now);
        let found = cache.get_fresh(owner.as_name(), Kind::Failure(Rtype::A), now).unwrap();
        assert_eq!(found.expires - now, Duration::from_secs(expected));
        now = found.expires;
    }
    cache.put_failure(owner.as_name(), Rtype::A, Ede::OTHER, &zone, now + Duration::from_secs(31));
    let found = cache.get(owner.as_name(), Kind::Failure(Rtype::A), now).unwrap();
    assert_eq!(found.expires - found.stored, Duration::from_secs(5), "another failure");
}

#[test]
fn octets_stay_within_the_bound_and_what_is_used_stays() {
    let options = CacheOptions { octets_max: 100_000, ..CacheOptions::default() };
    let mut cache = Cache::new(options, Duration::ZERO, 1);
    cache.put_records(&address("hot.", 3600, 1), Rank::Authority, at(0));
    for number in 0..10_000 {
        cache.put_records(&address(&format!("n{number}."), 3600, 1), Rank::Authority, at(1));
        assert!(cache.get(name("hot.").as_name(), A, at(1)).is_some(), "after {number}");
        assert!(cache.usage().1 <= 100_000);
    }
    let (entries, octets, evictions) = cache.usage();
    assert!(entries > 100 && octets > 90_000 && evictions > 9_000);
}

#[test]
fn a_million_entries_take_less_than_600_octets_each() {
    let mut cache = cache();
    for number in 0..1000 {
        cache.put_records(&address(&format!("www.n{number}.example."), 3600, 1), Rank::Authority, at(0));
    }
    assert!(cache.usage().1 / 1000 < 600, "{:?}", cache.usage());
}

#[test]
fn a_subtree_is_flushed_and_nothing_else() {
    let mut cache = cache();
    for owner in ["a.example.", "example.", "b.a.example.", "notexample.", "."] {
        cache.put_records(&address(owner, 3600, 1), Rank::Authority, at(0));
    }
    assert_eq!(cache.flush(name("A.Example.").as_name(), Scope::Name), 1);
    assert_eq!(cache.flush(name("EXAMPLE.").as_name(), Scope::Subtree), 2);
    assert_eq!(cache.usage().0, 2);
}

/// One that keeps what has expired for five minutes.
fn new_cache() -> Cache {
    Cache::new(CacheOptions::default(), Duration::from_secs(300), 1)
}

/// A cache with a signed set and its proof, one that has expired, a denial, and what is not kept.
fn cache_to_save() -> Cache {
    let mut cache = new_cache();
    let mut signed = address("www.Example.", 600, 1);
    signed.security = Security::Secure;
    let absence = vec![Rrset {
        proof: Some(Arc::new(Proof { sigs: Rdatas::pack([&b"sig"[..]]), absence: Vec::new() })),
        ..address("x.example.", 9, 9)
    }];
    signed.proof = Some(Arc::new(Proof { sigs: Rdatas::pack([&b"one"[..], b"two"]), absence }));
    cache.put_records(&signed, Rank::Authority, at(1000));
    cache.put_records(&address("old.example.", 10, 2), Rank::Authority, at(1000));
    cache.put_denial(name("gone.example.").as_name(), Kind::NoName, &soa(300, 300), at(1000));
    cache.put_failure(name("bad.example.").as_name(), Rtype::A, Ede::BOGUS, &name("example."), at(1000));
    cache
}

/// So long after 1970 and some.
fn occasion(terms: u64, passed_s: u64, now: Instant) -> Occasion {
    Occasion { terms, unix_secs: 1_000_000_000 + passed_s, now }
}

fn saved(cache: &Cache) -> Vec<u8> {
    let mut octets = Vec::new();
    assert_eq!(cache.save(occasion(7, 0, at(1100)), &mut octets).unwrap(), 3);
    octets
}

#[test]
fn a_saved_cache_is_the_same_later_and_on_another_clock() {
    let octets = saved(&cache_to_save());
    let mut cache = new_cache();
    // Two minutes later, on a clock that shows an hour less.
    let now = at(90_000);
    assert_eq!(cache.restore(&octets, occasion(7, 120, now)), Ok(3));
    let www = cache.get(name("www.example.").as_name(), Kind::Type(Rtype::A), now).unwrap();
    assert_eq!((www.ttl(now), www.stored), (380, at(90_000 - 220)));
    let Content::Records(rdatas, Security::Secure, Some(proof)) = www.content else { panic!("{www:?}") };
    assert_eq!(rdatas.iter().collect::<Vec<_>>(), [[192, 0, 2, 1]]);
    assert_eq!(proof.sigs.iter().count(), 2);
    assert_eq!(proof.absence[0].sigs().collect::<Vec<_>>(), [b"sig"]);
    assert_eq!(
        cache.spelling(name("www.example.").as_name(), Kind::Type(Rtype::A)),
        Some(name("www.Example."))
    );
    let old = cache.get(name("old.example.").as_name(), Kind::Type(Rtype::A), now).unwrap();
    assert_eq!((old.is_stale(now), old.expires), (true, at(90_000 - 210)));
    let gone = cache.get(name("gone.example.").as_name(), Kind::NoName, now).unwrap();
    assert_eq!(gone.ttl(now), 80);
    assert!(cache.get(name("bad.example.").as_name(), Kind::Failure(Rtype::A), now).is_none());
}

#[test]
fn what_is_there_stays_and_what_is_too_old_does_not_come_back() {
    let octets = saved(&cache_to_save());
    let mut cache = new_cache();
    let newer = address("www.example.", 60, 7);
    cache.put_records(&newer, Rank::Authority, at(90_000));
    assert_eq!(cache.restore(&octets, occasion(7, 60, at(90_000))), Ok(2));
    let found = cache.get(name("www.example.").as_name(), Kind::Type(Rtype::A), at(90_000)).unwrap();
    assert_eq!(found.ttl(at(90_000)), 60);
    // All have expired, and not just now; all are older than the clock.
    assert_eq!(new_cache().restore(&octets, occasion(7, 86_000, at(90_000))), Ok(0));
    assert_eq!(new_cache().restore(&octets, occasion(7, 0, at(50))), Ok(0));
}

#[test]
fn octets_that_were_changed_anywhere_or_cut_are_refused() {
    let octets = saved(&cache_to_save());
    for at_octet in 0..octets.len() {
        let mut changed = octets.clone();
        changed[at_octet] ^= 1;
        assert_eq!(
            new_cache().restore(&changed, occasion(7, 0, at(90_000))),
            Err(NotRestored::Damaged),
            "{at_octet}"
        );
        assert_eq!(
            new_cache().restore(&octets[..at_octet], occasion(7, 0, at(90_000))),
            Err(NotRestored::Damaged)
        );
    }
}

#[test]
fn what_was_true_under_other_terms_is_not_taken_in() {
    let octets = saved(&cache_to_save());
    assert_eq!(new_cache().restore(&octets, occasion(8, 0, at(90_000))), Err(NotRestored::OtherTerms));
}

#[test]
fn what_comes_back_lasts_no_longer_than_allowed_now() {
    let octets = saved(&cache_to_save());
    let options = CacheOptions {
        ttl_max: Duration::from_secs(30),
        negative_ttl_max: Duration::from_secs(20),
        ..CacheOptions::default()
    };
    let mut cache = Cache::new(options, Duration::from_secs(300), 1);
    cache.restore(&octets, occasion(7, 0, at(90_000))).unwrap();
    let ttl = |cache: &mut Cache, name: NameBuf, kind| {
        cache.get(name.as_name(), kind, at(90_000)).unwrap().ttl(at(90_000))
    };
    assert_eq!(ttl(&mut cache, name("www.example."), A), 30);
    assert_eq!(ttl(&mut cache, name("gone.example."), Kind::NoName), 20);
}
