//! Client subnets (RFC 7871): those that the resolver tells by itself, those of its clients, and for whom it keeps the answers.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns_wire::{NameBuf, Rtype};

use crate::authority::{Entry, Subnet};
use crate::checks::{Finding, Verdict, WHO_OPT_OUT, WHO_PASSED, WHO_REUSE, WHO_SCOPE, WHO_SUBNET};
use crate::edns;
use crate::networks::is_private;
use crate::plan::{Planner, Question};
use crate::transcript::{Exchange, Transcript};

/// Networks of one kind of address, and how many of their bits are told.
struct Family {
    name: &'static str,
    /// For documentation (RFC 5737, RFC 3849, RFC 9637), as clients in two places would have them: they differ in their first 16 bits, as some
    /// resolvers tell no more.
    networks: [IpAddr; 2],
    bits: u8,
    /// More bits are nobody's business (RFC 7871, 11.1).
    bits_max: u8,
    /// Groups of its questions: one network, another one, and the first one again.
    scoped: [&'static str; 3],
    /// The same for answers that are good for everybody.
    for_all: [&'static str; 2],
}

const FAMILIES: [Family; 2] = [
    Family {
        name: "IPv4",
        networks: [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 0)), IpAddr::V4(Ipv4Addr::new(203, 0, 113, 0))],
        bits: 24,
        bits_max: 24,
        scoped: ["one", "other", "same"],
        for_all: ["all.one", "all.other"],
    },
    Family {
        name: "IPv6",
        networks: [
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 0)),
            IpAddr::V6(Ipv6Addr::new(0x3fff, 8, 0, 0, 0, 0, 0, 0)),
        ],
        bits: 48,
        bits_max: 56,
        scoped: ["six.one", "six.other", "six.same"],
        for_all: ["six.all.one", "six.all.other"],
    },
];
/// From a question to the next one for the same name.
const APART_MS: u64 = 1000;

pub(super) fn plan(planner: &mut Planner<'_>, start_ms: u64) {
    for (number, family) in (0..).zip(&FAMILIES) {
        let [one, other] = family.networks;
        let start_ms = start_ms + 300 * number;
        let name = scoped_name(planner, family.bits);
        for ((group, network), after) in family.scoped.into_iter().zip([one, other, one]).zip(0..) {
            ask(planner, group, start_ms + after * APART_MS, &name, network, family.bits);
        }
        let name = scoped_name(planner, 0);
        for ((group, network), after) in family.for_all.into_iter().zip([one, other]).zip(0..) {
            ask(planner, group, start_ms + 100 + after * APART_MS, &name, network, family.bits);
        }
        // RFC 7871, 7.1.2: an address of no bits.
        let name = scoped_name(planner, family.bits);
        let none = if one.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        ask(planner, "opt-out", start_ms + 200, &name, none, 0);
    }
}

/// A name whose answers are good for networks of so many bits.
fn scoped_name(planner: &mut Planner<'_>, bits: u8) -> NameBuf {
    let mut spec = planner.spec(60);
    spec.scope = Some(bits);
    planner.name(&spec)
}

fn ask(planner: &mut Planner<'_>, group: &str, at_ms: u64, name: &NameBuf, address: IpAddr, source: u8) {
    let subnet = Subnet { address, source, scope: 0 };
    let question = Question::new(name.clone(), Rtype::A);
    planner.ask_question(group, at_ms, question.with_option(edns::CLIENT_SUBNET, subnet.to_data()));
}

pub(super) fn judge(transcript: &Transcript<'_>, plain: &[&Entry]) -> Vec<Finding> {
    vec![
        own_subnet(transcript, plain),
        passed(transcript),
        scope(transcript),
        reuse(transcript),
        opt_out(transcript),
    ]
}

/// Subnets in queries that tell something of somebody.
fn told(entries: &[&Entry]) -> BTreeSet<Subnet> {
    entries.iter().filter_map(|entry| entry.subnet.clone()).filter(|subnet| subnet.source > 0).collect()
}

/// Whether the query tells the address that it comes from: the resolver's own, which the authority sees all the same (RFC 7871, 7.1.2).
fn is_of_resolver(entry: &Entry) -> bool {
    let source = entry.source.ip().to_canonical();
    entry.subnet.as_ref().is_some_and(|subnet| subnet.source > 0 && subnet.contains(source))
}

/// Those that tell the resolver's own network, and those that tell another one.
fn apart(entries: &[&Entry]) -> [BTreeSet<Subnet>; 2] {
    let (own, others): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| is_of_resolver(entry));
    [told(&own), told(&others)]
}

fn list(subnets: &BTreeSet<Subnet>) -> String {
    let shown: Vec<String> = subnets.iter().take(SHOWN_MAX).map(Subnet::to_string).collect();
    match subnets.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join(" "),
        more => format!("{} and {more} more", shown.join(" ")),
    }
}

const SHOWN_MAX: usize = 10;

fn is_too_long(subnet: &Subnet) -> bool {
    let is_six = usize::from(subnet.address.is_ipv6());
    subnet.source > FAMILIES[is_six].bits_max
}

/// A client subnet in questions of clients that sent none.
fn own_subnet(transcript: &Transcript<'_>, plain: &[&Entry]) -> Finding {
    let [own, told] = apart(plain);
    if let Some(subnet) = told.iter().find(|subnet| is_private(subnet.address)) {
        let summary = format!("it tells {subnet}, which is nobody's network, as its client's");
        return WHO_SUBNET.finding(Verdict::Bad, summary);
    }
    if let Some(subnet) = told.iter().find(|subnet| is_too_long(subnet)) {
        let summary =
            format!("it tells authorities more of its clients' addresses than their network: {subnet}");
        return WHO_SUBNET.finding(Verdict::Bad, summary);
    }
    if told.is_empty() && !own.is_empty() {
        let summary = format!("it tells authorities its own network as its clients': {}", list(&own));
        return WHO_SUBNET.finding(Verdict::Notice, summary);
    }
    if told.is_empty() {
        return WHO_SUBNET.finding(Verdict::Good, "it tells no network of its clients");
    }
    let list = list(&told);
    match transcript.client.map(|client| client.to_canonical()).filter(|client| !is_of_either(&told, *client)) {
        // Where addresses are translated, others see another address than this host has.
        Some(client) if is_private(client) => WHO_SUBNET.finding(
            Verdict::Notice,
            format!("it tells authorities as its clients' networks: {list}; that is fixed, or how others see this host"),
        ),
        Some(client) => WHO_SUBNET.finding(
            Verdict::Bad,
            format!("it tells authorities as its clients' networks: {list}; this host, {client}, is in none of them"),
        ),
        None => {
            WHO_SUBNET.finding(Verdict::Notice, format!("it tells authorities its clients' networks: {list}"))
        }
    }
}

/// Whether one of them holds the client. Of a client of IPv4 a network of IPv6 says nothing, nor the reverse.
fn is_of_either(told: &BTreeSet<Subnet>, client: IpAddr) -> bool {
    let mut comparable = told.iter().filter(|subnet| subnet.address.is_ipv4() == client.is_ipv4()).peekable();
    comparable.peek().is_none() || comparable.any(|subnet| subnet.contains(client))
}

/// The first query for a group's name, if it came.
fn first<'t>(transcript: &'t Transcript<'_>, group: &str) -> Option<&'t Entry> {
    transcript.logged_for(group).first().copied()
}

/// Whether a family's networks reach the authority.
fn is_passed(transcript: &Transcript<'_>, family: &Family) -> bool {
    let entry = first(transcript, family.scoped[0]);
    let subnet = entry.and_then(|entry| entry.subnet.as_ref());
    // Shortened it is still the client's.
    subnet.is_some_and(|subnet| subnet.source > 0 && subnet.contains(family.networks[0]))
}

fn passed(transcript: &Transcript<'_>) -> Finding {
    let seen = FAMILIES.iter().filter_map(|family| Some((family, first(transcript, family.scoped[0])?)));
    let seen: Vec<(&Family, &Entry)> = seen.collect();
    if seen.is_empty() {
        return WHO_PASSED.unknown("no question with a client subnet reached the authority");
    }
    let line = |(family, entry): &(&Family, &Entry)| {
        let sent = format!("{} {}/{}", family.name, family.networks[0], family.bits);
        match &entry.subnet {
            Some(subnet) if subnet.source < family.bits && subnet.contains(family.networks[0]) => {
                format!("{sent} is shortened to {subnet}")
            }
            Some(subnet) => format!("{sent} becomes {subnet}"),
            None => format!("{sent} is dropped"),
        }
    };
    let passed: Vec<&str> =
        FAMILIES.iter().filter(|family| is_passed(transcript, family)).map(|family| family.name).collect();
    let finding = match (passed.is_empty(), told(&[seen[0].1]).first()) {
        (false, _) => WHO_PASSED.finding(
            Verdict::Notice,
            format!("a client's own client subnet is passed on: {}", passed.join(" and ")),
        ),
        (true, Some(subnet)) => {
            WHO_PASSED.finding(Verdict::Good, format!("a client's own client subnet becomes {subnet}"))
        }
        (true, None) => WHO_PASSED.finding(Verdict::Good, "a client's own client subnet is dropped"),
    };
    finding.because(seen.iter().map(line))
}

/// The families whose networks are passed on, and when the answers to these groups were made, where all came.
fn answers<'t, const COUNT: usize>(
    transcript: &'t Transcript<'_>,
    groups: impl Fn(&'static Family) -> [&'static str; COUNT] + 't,
) -> impl Iterator<Item = (&'static Family, [u64; COUNT])> + 't {
    FAMILIES.iter().filter(|family| is_passed(transcript, family)).filter_map(move |family| {
        let dated = groups(family).map(|group| transcript.one(group).and_then(Exchange::dated));
        dated.iter().all(Option::is_some).then(|| (family, dated.map(|own| own.map_or(0, |own| own.made_ms))))
    })
}

fn lines<'t>(
    transcript: &'t Transcript<'_>,
    groups: impl Fn(&Family) -> Vec<&'static str> + 't,
) -> impl Iterator<Item = String> + 't {
    FAMILIES.iter().filter(|family| is_passed(transcript, family)).flat_map(move |family| {
        let exchanges = groups(family).into_iter().filter_map(|group| transcript.one(group));
        exchanges
            .map(|exchange| format!("{}: {}", exchange.step.group, transcript.line(exchange)))
            .collect::<Vec<_>>()
    })
}

/// Two networks ask for one name, whose answers are good for one network each.
fn scope(transcript: &Transcript<'_>) -> Finding {
    if !FAMILIES.iter().any(|family| transcript.one(family.scoped[0]).and_then(Exchange::dated).is_some()) {
        return WHO_SCOPE.unknown("no answers came");
    }
    if !FAMILIES.iter().any(|family| is_passed(transcript, family)) {
        let summary = "it passes no client's network on, so it gets no answers for one network only";
        return WHO_SCOPE.finding(Verdict::Good, summary);
    }
    let seen: Vec<_> = answers(transcript, |family| [family.scoped[0], family.scoped[1]]).collect();
    let finding = match seen.iter().find(|(_, [one, other])| one == other) {
        None if seen.is_empty() => WHO_SCOPE.unknown("no two answers came"),
        None => WHO_SCOPE.finding(Verdict::Good, "each network got an answer of its own"),
        Some((Family { networks: [one, other], bits, .. }, _)) => WHO_SCOPE.finding(
            Verdict::Bad,
            format!("an answer that was good for {one}/{bits} was given to {other}/{bits}"),
        ),
    };
    finding.because(lines(transcript, |family| family.scoped[..2].to_vec()))
}

/// The same network asks again; another one asks for a name whose answers are good for all.
fn reuse(transcript: &Transcript<'_>) -> Finding {
    if !FAMILIES.iter().any(|family| is_passed(transcript, family)) {
        return WHO_REUSE
            .finding(Verdict::Good, "it passes no client's network on, so its answers are for all");
    }
    let mut asked_again = Vec::new();
    let mut count = 0;
    for (family, [one, same]) in answers(transcript, |family| [family.scoped[0], family.scoped[2]]) {
        count += 1;
        asked_again.extend((one != same).then(|| format!("the same {} network asked again", family.name)));
    }
    for (family, [one, other]) in answers(transcript, |family| family.for_all) {
        count += 1;
        let words = || format!("another {} network asked for an answer that was good for all", family.name);
        asked_again.extend((one != other).then(words));
    }
    let finding = match (count, asked_again.is_empty()) {
        (0, _) => WHO_REUSE.unknown("no two answers came"),
        (_, true) => {
            WHO_REUSE.finding(Verdict::Good, "answers are kept for the networks that they are good for")
        }
        (_, false) => WHO_REUSE
            .finding(Verdict::Notice, format!("the authority was asked anew: {}", asked_again.join("; "))),
    };
    finding.because(lines(transcript, |family| {
        [family.scoped[0], family.scoped[2]].into_iter().chain(family.for_all).collect()
    }))
}

/// A client says that it wants no network told.
fn opt_out(transcript: &Transcript<'_>) -> Finding {
    let entries = transcript.logged_for("opt-out");
    if entries.is_empty() {
        return WHO_OPT_OUT.unknown("no question with a client subnet of no bits reached the authority");
    }
    let [own, told] = apart(&entries);
    let zeros = entries.iter().filter(|entry| entry.subnet.is_some()).count();
    let finding = match (told.is_empty(), zeros) {
        (false, _) => WHO_OPT_OUT.finding(
            Verdict::Bad,
            format!("of a client that wants no network told, it told {}", list(&told)),
        ),
        (true, _) if !own.is_empty() => WHO_OPT_OUT.finding(
            Verdict::Good,
            format!("of a client that wants no network told, it told its own: {}", list(&own)),
        ),
        (true, 0) => WHO_OPT_OUT.finding(Verdict::Good, "of a client that wants no network told, none was"),
        (true, _) => WHO_OPT_OUT.finding(
            Verdict::Good,
            "of a client that wants no network told, none was: authorities see a client subnet of no bits",
        ),
    };
    let refused = transcript.group("opt-out").filter(|exchange| exchange.dated().is_none());
    finding.because(refused.map(|exchange| transcript.line(exchange)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Via;

    fn entry(source: &str, subnet: Option<(&str, u8)>) -> Entry {
        let subnet =
            subnet.map(|(address, source)| Subnet { address: address.parse().unwrap(), source, scope: 0 });
        Entry {
            at_ms: 0,
            number: 0,
            server: 0,
            source: format!("{source}:4242").parse().unwrap(),
            via: Via::Udp,
            id: 7,
            qname: "x.".to_owned(),
            qtype: 1,
            rd: false,
            cd: false,
            edns_size: None,
            dnssec_ok: false,
            has_cookie: false,
            subnet,
        }
    }

    #[test]
    fn a_network_that_holds_who_asks_is_the_resolvers_own() {
        let counts = |entry: &Entry| apart(&[entry]).map(|subnets| subnets.len());
        assert_eq!(counts(&entry("192.0.2.53", Some(("192.0.2.53", 32)))), [1, 0]);
        assert_eq!(counts(&entry("192.0.2.53", Some(("192.0.2.0", 24)))), [1, 0]);
        assert_eq!(counts(&entry("192.0.2.53", Some(("198.51.100.0", 24)))), [0, 1]);
        assert_eq!(counts(&entry("192.0.2.53", Some(("127.0.0.1", 32)))), [0, 1]);
        assert_eq!(counts(&entry("192.0.2.53", Some(("0.0.0.0", 0)))), [0, 0]);
        assert_eq!(counts(&entry("192.0.2.53", None)), [0, 0]);
    }
}
