//! Queues: how many, how long, what is spread over them, and which belong to a port.

use crate::setting::{ABSENT, PRESENT};
use crate::shell::word;
use crate::{
    Bounded, CoreList, Finding, FlowMatch, Interface, Known, Machine, Parameter, Rss, Setting, Step, Topic,
    Wishes,
};

const COUNT: Topic = Topic { id: "queues.count", source: "ethtool netlink (channels)" };
const RING: Topic = Topic { id: "queues.ring", source: "ethtool netlink (rings)" };
const SPREAD: Topic = Topic { id: "queues.spread", source: "ethtool netlink (rss)" };
const KEY: Topic = Topic { id: "queues.key", source: "ethtool netlink (rss)" };
const RPS: Topic = Topic { id: "queues.rps", source: "/sys/class/net/IF/queues/rx-*/rps_cpus" };
const PORT: Topic = Topic { id: "queues.port", source: "ethtool (ntuple rules)" };

pub(crate) const TOPICS: [Topic; 6] = [COUNT, RING, SPREAD, KEY, RPS, PORT];

/// As many descriptors as an AF_XDP ring of ours has entries.
const RING_WANTED: u32 = 2048;
const NTUPLE: &str = "rx-ntuple-filter";

pub(crate) fn examine(
    interface: &Interface,
    machine: Option<&Machine>,
    wishes: &Wishes,
    findings: &mut Vec<Finding>,
) {
    let name = &interface.name;
    let cores = machine.and_then(|machine| machine.cores.get());
    findings.extend([
        count(interface, cores),
        RING.of(&interface.rx_ring, |ring| ring_of(name, *ring)),
        spread(interface, wishes),
        key(interface),
        RPS.of(&interface.steered_by_kernel, |queues| rps(interface, queues)),
    ]);
    if !wishes.ports.is_empty() {
        findings.push(port(interface, wishes));
    }
}

fn count(interface: &Interface, cores: Option<&CoreList>) -> Finding {
    let queues = match (interface.queue_pairs(), &interface.combined_queues) {
        (Some(queues), _) => queues,
        (None, Known::Not(because)) => return COUNT.unknown(because),
        (None, Known::Is(combined)) => combined.current,
    };
    let Some(cores) = cores.map(|cores| u32::try_from(cores.len()).unwrap_or(u32::MAX)) else {
        return COUNT.unknown("the number of cores is not known");
    };
    if queues == 0 {
        return COUNT.bad(
            "it has no queues just now",
            "nothing arrives and nothing leaves: a tap has queues while a program has it open",
        );
    }
    if queues >= cores {
        return COUNT.good(format!("{} for {}", counted(queues, "queue"), counted(cores, "core")));
    }
    let name = &interface.name;
    // Some drivers allow both kinds: those that are in use are meant.
    let combined = [(Parameter::CombinedQueues, &interface.combined_queues)];
    let single = [(Parameter::RxQueues, &interface.rx_queues), (Parameter::TxQueues, &interface.tx_queues)];
    let has_combined = interface.combined_queues.get().is_some_and(|combined| combined.current > 0);
    let used = if has_combined { combined.as_slice() } else { single.as_slice() };
    let steps: Vec<Step> = used
        .iter()
        .filter_map(|(parameter, known)| Some((*parameter, known.get()?)))
        .filter(|(_, Bounded { current, max })| current < max && *current < cores)
        .map(|(parameter, Bounded { current, max })| {
            Step::new(Setting::parameter(name, parameter), current, (*max).min(cores))
        })
        .collect();
    let cost = "a queue is served by one engine on one core: the other cores have nothing to serve";
    let also =
        if interface.is_veth() { ". The other end of the veth pair needs as many: change both" } else { "" };
    let seen = format!("{} for {}", counted(queues, "queue"), counted(cores, "core"));
    if steps.is_empty() {
        let is_hardware = interface.driver.get().is_none_or(|driver| driver.place().is_some());
        let hint = if is_hardware { ". A virtual NIC gets more queues from its hypervisor" } else { "" };
        return COUNT.better(format!("{seen}, and the driver allows no more"), format!("{cost}{hint}"));
    }
    COUNT.better(seen, format!("{cost}{also}")).steps(steps)
}

fn ring_of(name: &str, ring: Bounded) -> Finding {
    let Bounded { current, max } = ring;
    let wanted = max.min(RING_WANTED);
    if current < wanted {
        return RING
            .better(
                format!("a receive queue holds {current} packets, and could hold {max}"),
                "a pause of the server loses packets sooner",
            )
            .step(Step::new(Setting::parameter(name, Parameter::RxRing), current, wanted));
    }
    if current < RING_WANTED {
        return RING.better(
            format!("a receive queue holds {current} packets, and the driver allows no more"),
            "a pause of the server loses packets sooner",
        );
    }
    RING.good(format!("a receive queue holds {current} packets"))
}

fn spread(interface: &Interface, wishes: &Wishes) -> Finding {
    if interface.queue_pairs() == Some(1) {
        return SPREAD.good("there is one queue, and nothing to spread");
    }
    SPREAD.of(&interface.rss, |Rss { table, .. }| {
        let used: CoreList = table.iter().copied().collect();
        let all: CoreList = (0..interface.queue_pairs().unwrap_or(0)).collect();
        let idle: CoreList = all.as_slice().iter().copied().filter(|queue| !used.contains(*queue)).collect();
        if idle.is_empty() {
            return SPREAD.good(format!("the table spreads flows over queues {used}"));
        }
        if idle.as_slice().iter().all(|queue| wishes.queues.contains(*queue)) {
            return SPREAD
                .good(format!("the table spreads flows over queues {used}, and leaves {idle} to ports"));
        }
        SPREAD
            .bad(
                format!("the table spreads flows over queues {used}: {idle} get none"),
                "engines of queues without flows have nothing to do, unless rules of the NIC send them some",
            )
            .command(format!("ethtool -X {} equal {}", word(&interface.name), all.len()))
    })
}

fn key(interface: &Interface) -> Finding {
    if interface.queue_pairs() == Some(1) {
        return KEY.good("there is one queue: the key of the hash does not matter");
    }
    KEY.of(&interface.rss, |Rss { key, .. }| match key.as_slice() {
        [] => KEY.unknown("the driver does not tell it"),
        key if key.iter().all(|octet| *octet == 0) => KEY
            .bad("the key of the hash is zero", "all flows have the same hash, and go to one queue")
            .command(format!(
                "ethtool -X {} hkey KEY # forty random octets, as 6d:5a:...",
                word(&interface.name)
            )),
        key if key.chunks(2).all(|pair| pair == &key[..pair.len()]) => {
            KEY.good("the key of the hash is symmetric: both directions of a flow have one queue")
        }
        _ => KEY.good("the hash has a key"),
    })
}

fn rps(interface: &Interface, queues: &CoreList) -> Finding {
    let is_generic = interface.xdp.get().is_some_and(|xdp| !xdp.basic);
    if queues.is_empty() {
        return RPS.good("packets stay on the core that their interrupt came to");
    }
    let seen = format!("the kernel spreads packets of queues {queues} over cores (RPS)");
    if !is_generic {
        return RPS.good(format!("{seen}; those that XDP takes come before that"));
    }
    let clear =
        |queue: &u32| format!("echo 0 > /sys/class/net/{}/queues/rx-{queue}/rps_cpus", interface.name);
    let cost = "in generic mode every packet goes to another core before Sidestep sees it";
    queues.as_slice().iter().map(clear).fold(RPS.better(seen, cost), Finding::command)
}

/// Rules that give ports queues of their own. Several queues share a port by the low bits of the source port.
fn port(interface: &Interface, wishes: &Wishes) -> Finding {
    let name = &interface.name;
    let (queues, count) = (&wishes.queues, interface.queue_pairs());
    if !queues.len().is_power_of_two() {
        let seen = format!("{} for a port: the NIC can share it among 1, 2, 4, 8 ... only", queues.len());
        return PORT.bad(seen, "no rule is made");
    }
    let missing = queues.as_slice().iter().find(|queue| count.is_some_and(|count| **queue >= count));
    if let (Some(missing), Some(count)) = (missing, count) {
        let seen = format!("there is no queue {missing}: {name} has {}", counted(count, "queue"));
        return PORT.bad(seen, "no rule is made");
    }
    let ntuple = interface.features.get().and_then(|features| features.get(NTUPLE)).copied();
    let is_able = ntuple.is_some_and(|feature| feature.is_on || feature.is_changeable);
    if !is_able {
        return PORT.bad(
            format!("the driver of {name} has no rules for flows ({NTUPLE})"),
            "packets to the port arrive on the queues that the hash chooses",
        );
    }
    let rules = missing_rules(interface, wishes);
    if rules.is_empty() {
        return PORT.good(format!("rules of the NIC send the ports to queues {queues}"));
    }
    let switch = ntuple
        .filter(|feature| !feature.is_on)
        .map(|_| Step::new(Setting::feature(name, NTUPLE), "off", "on"));
    // The table can be cut to the first queues only, so those of the ports have to be the last ones.
    let first = queues.as_slice().first().copied().unwrap_or(0);
    let are_last = count.is_some_and(|count| (first..count).collect::<CoreList>() == *queues);
    let finding = PORT
        .better(
            format!("the hash chooses the queues of the ports; they are to be {queues}"),
            "packets of other programs share queues and cores with them",
        )
        .steps(switch)
        .steps(rules);
    match (first, are_last) {
        (others @ 1.., true) => {
            finding.command(format!("ethtool -X {name} equal {others} # keeps other flows off them"))
        }
        _ => finding,
    }
}

fn missing_rules(interface: &Interface, wishes: &Wishes) -> Vec<Step> {
    let present = interface.flow_rules.get().map(Vec::as_slice).unwrap_or_default();
    let queues = wishes.queues.as_slice();
    let source_mask = u16::try_from(queues.len().saturating_sub(1)).unwrap_or(0);
    let mut steps = Vec::new();
    for &(transport, port) in &wishes.ports {
        for is_v6 in [false, true] {
            for (source, &queue) in (0..).zip(queues) {
                let packets = FlowMatch { transport, is_v6, port, source, source_mask };
                if !present.contains(&(packets, queue)) {
                    let setting = Setting::FlowRule { interface: interface.name.clone(), packets, queue };
                    steps.push(Step::new(setting, ABSENT, PRESENT));
                }
            }
        }
    }
    steps
}

pub(crate) fn counted(count: u32, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Feature, Transport, Verdict, XdpFeatures};

    fn machine(cores: u32) -> Machine {
        Machine { cores: Known::Is((0..cores).collect()), ..Machine::default() }
    }

    fn nic(queues: u32, max: u32) -> Interface {
        let combined_queues = Known::Is(Bounded { current: queues, max });
        Interface { name: "eth0".to_owned(), combined_queues, ..Interface::default() }
    }

    fn found(interface: &Interface, cores: u32, wishes: &Wishes, id: &str) -> Finding {
        let mut findings = Vec::new();
        examine(interface, Some(&machine(cores)), wishes, &mut findings);
        findings.into_iter().find(|finding| finding.id == id).unwrap()
    }

    fn lines(finding: &Finding) -> Vec<String> {
        finding.commands.iter().map(crate::Command::line).collect()
    }

    #[test]
    fn a_queue_for_each_core_is_good_and_fewer_are_not() {
        let wishes = Wishes::default();
        assert_eq!(found(&nic(4, 8), 4, &wishes, "queues.count").verdict, Verdict::Good);
        assert_eq!(found(&nic(8, 8), 4, &wishes, "queues.count").verdict, Verdict::Good);
        let few = found(&nic(2, 8), 4, &wishes, "queues.count");
        assert_eq!(few.verdict, Verdict::CouldBeBetter);
        assert_eq!(lines(&few), ["ethtool -L eth0 combined 4"]);
        let closed = found(&nic(0, 256), 4, &wishes, "queues.count");
        assert_eq!((closed.verdict, &closed.seen[..]), (Verdict::Bad, "it has no queues just now"));
        let limited = found(&nic(1, 1), 4, &wishes, "queues.count");
        assert_eq!((limited.verdict, limited.commands.len()), (Verdict::CouldBeBetter, 0));
    }

    #[test]
    fn queues_of_one_direction_are_raised_both() {
        let veth = Interface {
            name: "veth0".to_owned(),
            rx_queues: Known::Is(Bounded { current: 1, max: 4 }),
            tx_queues: Known::Is(Bounded { current: 1, max: 4 }),
            ..Interface::default()
        };
        let finding = found(&veth, 2, &Wishes::default(), "queues.count");
        assert_eq!(lines(&finding), ["ethtool -L veth0 rx 2", "ethtool -L veth0 tx 2"]);
    }

    #[test]
    fn only_the_kind_of_queues_that_is_in_use_is_raised() {
        let none = Known::Is(Bounded { current: 0, max: 8 });
        let both = Interface { rx_queues: none.clone(), tx_queues: none, ..nic(2, 8) };
        let finding = found(&both, 4, &Wishes::default(), "queues.count");
        assert_eq!(lines(&finding), ["ethtool -L eth0 combined 4"]);
    }

    #[test]
    fn a_short_ring_is_made_as_long_as_ours() {
        let ring = |current, max| {
            let interface = Interface { rx_ring: Known::Is(Bounded { current, max }), ..nic(1, 1) };
            found(&interface, 1, &Wishes::default(), "queues.ring")
        };
        assert_eq!(ring(2048, 4096).verdict, Verdict::Good);
        assert_eq!(lines(&ring(512, 4096)), ["ethtool -G eth0 rx 2048"]);
        assert_eq!(lines(&ring(512, 1024)), ["ethtool -G eth0 rx 1024"]);
        assert_eq!((ring(256, 256).verdict, ring(256, 256).commands.len()), (Verdict::CouldBeBetter, 0));
    }

    #[test]
    fn a_table_that_leaves_queues_out_is_bad() {
        let with =
            |table: Vec<u32>, key: Vec<u8>| Interface { rss: Known::Is(Rss { table, key }), ..nic(4, 4) };
        let even = with(vec![0, 1, 2, 3], vec![0x6d, 0x5a, 0x6d, 0x5a]);
        assert_eq!(found(&even, 4, &Wishes::default(), "queues.spread").verdict, Verdict::Good);
        assert!(found(&even, 4, &Wishes::default(), "queues.key").seen.contains("symmetric"));
        let uneven = with(vec![0, 1, 0, 1], vec![0; 4]);
        let finding = found(&uneven, 4, &Wishes::default(), "queues.spread");
        assert_eq!(finding.verdict, Verdict::Bad);
        assert!(finding.seen.contains("2-3 get none"), "{}", finding.seen);
        assert_eq!(found(&uneven, 4, &Wishes::default(), "queues.key").verdict, Verdict::Bad);
        assert_eq!(found(&nic(4, 4), 4, &Wishes::default(), "queues.key").verdict, Verdict::NotKnown);
    }

    #[test]
    fn one_queue_needs_no_table() {
        assert_eq!(found(&nic(1, 1), 1, &Wishes::default(), "queues.spread").verdict, Verdict::Good);
    }

    #[test]
    fn the_kernels_own_spreading_costs_in_generic_mode_only() {
        let with = |basic| Interface {
            steered_by_kernel: Known::Is("0".parse().unwrap()),
            xdp: Known::Is(XdpFeatures { basic, redirect: basic, zero_copy: false }),
            ..nic(1, 1)
        };
        assert_eq!(found(&with(true), 1, &Wishes::default(), "queues.rps").verdict, Verdict::Good);
        let generic = found(&with(false), 1, &Wishes::default(), "queues.rps");
        assert_eq!(lines(&generic), ["echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus"]);
    }

    fn with_ntuple(is_on: bool, is_changeable: bool) -> Interface {
        let features = [(NTUPLE.to_owned(), Feature { is_on, is_changeable })].into_iter().collect();
        Interface { features: Known::Is(features), ..nic(4, 4) }
    }

    fn dns(queues: &str) -> Wishes {
        let ports = vec![(Transport::Udp, 53)];
        Wishes { ports, queues: queues.parse().unwrap(), ..Wishes::default() }
    }

    #[test]
    fn a_port_gets_two_queues_by_a_bit_of_the_source_port() {
        let finding = found(&with_ntuple(false, true), 4, &dns("2-3"), "queues.port");
        assert_eq!(
            lines(&finding),
            [
                "ethtool -K eth0 rx-ntuple-filter on",
                "ethtool -N eth0 flow-type udp4 dst-port 53 src-port 0 m 0xfffe action 2",
                "ethtool -N eth0 flow-type udp4 dst-port 53 src-port 1 m 0xfffe action 3",
                "ethtool -N eth0 flow-type udp6 dst-port 53 src-port 0 m 0xfffe action 2",
                "ethtool -N eth0 flow-type udp6 dst-port 53 src-port 1 m 0xfffe action 3",
                "ethtool -X eth0 equal 2 # keeps other flows off them",
            ]
        );
    }

    #[test]
    fn rules_that_are_there_are_not_made_again() {
        let (wishes, nic) = (dns("3"), with_ntuple(true, true));
        let rule = |is_v6| {
            let packets = FlowMatch { transport: Transport::Udp, is_v6, port: 53, source: 0, source_mask: 0 };
            (packets, 3)
        };
        let half = Interface { flow_rules: Known::Is(vec![rule(false)]), ..nic.clone() };
        let commands = lines(&found(&half, 4, &wishes, "queues.port"));
        assert_eq!(commands[0], "ethtool -N eth0 flow-type udp6 dst-port 53 action 3");
        let whole = Interface { flow_rules: Known::Is(vec![rule(false), rule(true)]), ..nic };
        assert_eq!(found(&whole, 4, &wishes, "queues.port").verdict, Verdict::Good);
        let rss = Known::Is(Rss { table: vec![0, 1, 2], key: vec![1, 2] });
        let left = Interface { rss, ..whole };
        assert_eq!(found(&left, 4, &wishes, "queues.spread").verdict, Verdict::Good);
        assert_eq!(found(&left, 4, &Wishes::default(), "queues.spread").verdict, Verdict::Bad);
    }

    #[test]
    fn the_table_is_cut_only_where_the_last_queues_are_the_ports() {
        let last = lines(&found(&with_ntuple(true, true), 4, &dns("3"), "queues.port"));
        assert!(last.iter().any(|line| line.starts_with("ethtool -X eth0 equal 3")));
        let middle = lines(&found(&with_ntuple(true, true), 4, &dns("1"), "queues.port"));
        assert!(!middle.iter().any(|line| line.starts_with("ethtool -X")), "{middle:?}");
    }

    #[test]
    fn what_no_rule_can_do_is_bad_and_makes_none() {
        let able = with_ntuple(true, true);
        for (interface, queues) in [(&able, "1-3"), (&able, "3-4"), (&with_ntuple(false, false), "2-3")] {
            let finding = found(interface, 4, &dns(queues), "queues.port");
            assert_eq!((finding.verdict, finding.commands.len()), (Verdict::Bad, 0), "{queues}");
        }
    }
}
