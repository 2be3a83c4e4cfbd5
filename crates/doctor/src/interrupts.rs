//! Interrupts: where they go, who moves them, how long they wait, and how to do without.

use std::collections::BTreeMap;

use crate::interrupt_names::{elsewhere, of_queues};
use crate::setting::{ACTIVE, INACTIVE};
use crate::{
    CoreList, Finding, Interface, Interrupt, Known, Machine, NodeOf, Parameter, Service, Setting, Step,
    Topic, Wishes,
};

const AFFINITY: Topic = Topic {
    id: "interrupts.affinity",
    source: "/sys/class/net/IF/device/msi_irqs, /sys/kernel/irq/*/actions, /proc/irq/*/smp_affinity_list",
};
const BALANCE: Topic = Topic { id: "interrupts.irqbalance", source: "/proc/*/comm, systemctl" };
const DELAY: Topic = Topic { id: "interrupts.delay", source: "ethtool netlink (coalesce)" };
const BUSY_POLL: Topic =
    Topic { id: "interrupts.busy-poll", source: "/sys/class/net/IF/napi_defer_hard_irqs, gro_flush_timeout" };

pub(crate) const TOPICS: [Topic; 4] = [BALANCE, AFFINITY, DELAY, BUSY_POLL];

/// Microseconds that an interrupt may wait before that is worth a word, and what it becomes.
const DELAY_MAX: u32 = 100;
const DELAY_WANTED: u32 = 50;
/// Empty polls before interrupts come back, and nanoseconds until the kernel polls by itself: what the kernel's documentation of
/// AF_XDP recommends for busy polling.
const DEFER_WANTED: u64 = 2;
const FLUSH_WANTED: u64 = 200_000;

pub(crate) fn examine(
    interface: &Interface,
    machine: Option<&Machine>,
    wishes: &Wishes,
    findings: &mut Vec<Finding>,
) {
    // Before the affinity: irqbalance would change what has just been written.
    if let Some(machine) = machine {
        let has_any = has_interrupts(interface);
        findings.push(BALANCE.of(&machine.irqbalance, |service| balance(*service, has_any)));
    }
    findings.push(match elsewhere(interface) {
        Some(why) => AFFINITY.unknown(why),
        None => AFFINITY.of(&interface.interrupts, |interrupts| affinity(interface, interrupts, machine)),
    });
    findings.extend([delay(interface), busy_poll(interface, wishes)]);
}

/// The cores that interrupts belong on: those of the interface's node, else all.
fn home(interface: &Interface, machine: Option<&Machine>) -> Option<CoreList> {
    let machine = machine?;
    let node = match interface.node.get() {
        Some(NodeOf::Node(node)) => machine.nodes.get().and_then(|nodes| nodes.get(node)),
        _ => None,
    };
    node.or(machine.cores.get()).filter(|cores| !cores.is_empty()).cloned()
}

/// Whether the interface has interrupts of its own, if that is known.
fn has_interrupts(interface: &Interface) -> Option<bool> {
    match interface.interrupts.get() {
        Some(interrupts) => Some(!interrupts.is_empty()),
        None if interface.is_virtual() || elsewhere(interface).is_some() => Some(false),
        None => None,
    }
}

fn affinity(interface: &Interface, interrupts: &[Interrupt], machine: Option<&Machine>) -> Finding {
    if interrupts.is_empty() {
        return AFFINITY.good("the interface has no interrupts of its own");
    }
    let interrupts = match of_queues(interface, interrupts) {
        Ok(interrupts) => interrupts,
        Err(why) => return AFFINITY.unknown(&why),
    };
    let Some(home) = home(interface, machine) else {
        return AFFINITY.unknown("the cores are not known");
    };
    let mut on: BTreeMap<u32, usize> = BTreeMap::new();
    for interrupt in &interrupts {
        for core in interrupt.effective.as_slice() {
            *on.entry(*core).or_default() += 1;
        }
    }
    let fair = interrupts.len().div_ceil(home.len());
    let is_away = on.keys().any(|core| !home.contains(*core));
    let is_crowded = on.values().any(|count| *count > fair);
    let cores: CoreList = on.keys().copied().collect();
    let seen = match (interrupts.len(), cores.len()) {
        (1, 1) => format!("the interrupt of the one queue comes to core {cores}"),
        (count, 1) => format!("the interrupts of {count} queues come to core {cores}"),
        (count, _) => format!("the interrupts of {count} queues come to cores {cores}"),
    };
    if !is_away && !is_crowded {
        return AFFINITY.good(seen);
    }
    let cost = match is_away {
        true => "packets cross from one NUMA node to another before anybody reads them",
        false => "one core takes the interrupts of several queues while others take none",
    };
    let steps = interrupts.iter().zip(home.as_slice().iter().cycle()).filter_map(|(interrupt, core)| {
        let wanted: CoreList = [*core].into_iter().collect();
        let path = format!("/proc/irq/{}/smp_affinity_list", interrupt.number);
        let setting = Setting::File { path, interface: Some(interface.name.clone()) };
        (interrupt.allowed != wanted).then(|| Step::new(setting, &interrupt.allowed, wanted))
    });
    AFFINITY.better(seen, cost).steps(steps)
}

fn balance(service: Service, has_interrupts: Option<bool>) -> Finding {
    match (service, has_interrupts) {
        (Service::Absent, _) => BALANCE.good("irqbalance does not run: interrupts stay where they are put"),
        (_, None) => BALANCE.unknown("whether irqbalance, which runs, moves interrupts of the interface"),
        (_, Some(false)) => {
            BALANCE.good("irqbalance runs, and the interface has no interrupts that it could move")
        }
        (Service::Unit, Some(true)) => BALANCE
            .better(
                "irqbalance runs",
                "it moves interrupts away from the cores that their queues are served on",
            )
            .step(Step::new(Setting::Service { name: "irqbalance".to_owned() }, ACTIVE, INACTIVE)),
        (Service::Process, Some(true)) => BALANCE
            .better(
                "irqbalance runs",
                "it moves interrupts away from the cores that their queues are served on",
            )
            .command("pkill irqbalance # and stop what starts it"),
    }
}

fn delay(interface: &Interface) -> Finding {
    if interface.adaptive_rx == Known::Is(true) {
        return DELAY.good("the driver chooses how long interrupts wait, by the load (adaptive-rx)");
    }
    DELAY.of(&interface.rx_delay, |delay| match *delay {
        0 => DELAY.good("an interrupt comes at once"),
        1..=DELAY_MAX => DELAY.good(format!("an interrupt waits for at most {delay} µs")),
        _ => DELAY
            .better(
                format!("an interrupt waits for up to {delay} µs"),
                "every packet to a server that sleeps may be late by as much",
            )
            .step(Step::new(Setting::parameter(&interface.name, Parameter::RxDelay), delay, DELAY_WANTED)),
    })
}

fn busy_poll(interface: &Interface, wishes: &Wishes) -> Finding {
    let (defer, flush) = match (&interface.defer_hard_irqs, &interface.gro_flush_timeout) {
        (Known::Is(defer), Known::Is(flush)) => (*defer, *flush),
        (Known::Not(because), _) | (_, Known::Not(because)) => return BUSY_POLL.unknown(because),
    };
    let seen = match (defer, flush) {
        (0, _) | (_, 0) => "interrupts come as packets do".to_owned(),
        (defer, flush) => format!("interrupts stay away for {defer} empty polls, {} µs each", flush / 1000),
    };
    if defer > 0 && flush > 0 {
        return BUSY_POLL.good(format!("{seen}: good for servers with --busy-poll"));
    }
    if !wishes.busy_poll {
        return BUSY_POLL.good(format!("{seen}: good for servers without --busy-poll"));
    }
    let step = |name, now, wanted| Step::new(Setting::interface_file(&interface.name, name), now, wanted);
    let wanted = [("napi_defer_hard_irqs", defer, DEFER_WANTED), ("gro_flush_timeout", flush, FLUSH_WANTED)];
    let steps = wanted.into_iter().filter(|(_, now, _)| *now == 0);
    BUSY_POLL
        .better(seen, "a server with --busy-poll is interrupted while it polls")
        .steps(steps.map(|(name, now, wanted)| step(name, now, wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Verdict};

    fn machine() -> Machine {
        let nodes = [(0, "0-1".parse().unwrap()), (1, "2-3".parse().unwrap())].into_iter().collect();
        Machine {
            cores: Known::Is("0-3".parse().unwrap()),
            nodes: Known::Is(nodes),
            irqbalance: Known::Is(Service::Unit),
            ..Machine::default()
        }
    }

    fn nic(cores: &[&str], node: NodeOf) -> Interface {
        let interrupt = |(number, cores): (u32, &&str)| Interrupt {
            number,
            name: format!("eth0-TxRx-{}", number - 40),
            allowed: "0-3".parse().unwrap(),
            effective: cores.parse().unwrap(),
        };
        Interface {
            name: "eth0".to_owned(),
            driver: driver("ixgbe"),
            interrupts: Known::Is((40..).zip(cores).map(interrupt).collect()),
            node: Known::Is(node),
            defer_hard_irqs: Known::Is(0),
            gro_flush_timeout: Known::Is(0),
            ..Interface::default()
        }
    }

    fn driver(name: &str) -> Known<Driver> {
        Known::Is(Driver { name: name.to_owned(), bus: "0000:00:04.0".to_owned() })
    }

    fn found(interface: &Interface, wishes: &Wishes, id: &str) -> Finding {
        let mut findings = Vec::new();
        examine(interface, Some(&machine()), wishes, &mut findings);
        findings.into_iter().find(|finding| finding.id == id).unwrap()
    }

    fn lines(finding: &Finding) -> Vec<String> {
        finding.commands.iter().map(crate::Command::line).collect()
    }

    #[test]
    fn an_interrupt_for_each_core_is_good() {
        let spread = nic(&["0", "1", "2", "3"], NodeOf::Nowhere);
        assert_eq!(found(&spread, &Wishes::default(), "interrupts.affinity").verdict, Verdict::Good);
        assert_eq!(
            found(&nic(&[], NodeOf::Nowhere), &Wishes::default(), "interrupts.affinity").verdict,
            Verdict::Good
        );
    }

    #[test]
    fn interrupts_on_one_core_are_spread() {
        let crowded = nic(&["0", "0"], NodeOf::Nowhere);
        let finding = found(&crowded, &Wishes::default(), "interrupts.affinity");
        assert_eq!(finding.verdict, Verdict::CouldBeBetter);
        let expected = ["echo 0 > /proc/irq/40/smp_affinity_list", "echo 1 > /proc/irq/41/smp_affinity_list"];
        assert_eq!(lines(&finding), expected);
    }

    #[test]
    fn interrupts_belong_on_the_node_of_the_nic() {
        let away = nic(&["0", "1"], NodeOf::Node(1));
        let finding = found(&away, &Wishes::default(), "interrupts.affinity");
        assert!(finding.cost.as_ref().unwrap().contains("NUMA"));
        let expected = ["echo 2 > /proc/irq/40/smp_affinity_list", "echo 3 > /proc/irq/41/smp_affinity_list"];
        assert_eq!(lines(&finding), expected);
    }

    #[test]
    fn irqbalance_matters_where_interrupts_are() {
        let finding = found(&nic(&["0"], NodeOf::Nowhere), &Wishes::default(), "interrupts.irqbalance");
        assert_eq!(lines(&finding), ["systemctl stop irqbalance"]);
        let veth = nic(&[], NodeOf::Nowhere);
        assert_eq!(found(&veth, &Wishes::default(), "interrupts.irqbalance").verdict, Verdict::Good);
    }

    #[test]
    fn names_that_are_not_known_are_not_good_and_irqbalance_may_move_them() {
        let strange = Interface { driver: driver("never-heard-of"), ..nic(&["0", "0"], NodeOf::Nowhere) };
        let finding = found(&strange, &Wishes::default(), "interrupts.affinity");
        assert_eq!((finding.verdict, finding.commands.len()), (Verdict::NotKnown, 0));
        let finding = found(&strange, &Wishes::default(), "interrupts.irqbalance");
        assert_eq!(finding.verdict, Verdict::CouldBeBetter);
    }

    #[test]
    fn interrupts_that_cannot_be_seen_are_not_known_to_be_none() {
        let hidden =
            Interface { interrupts: Known::Not("/sys shows none".to_owned()), ..nic(&[], NodeOf::Nowhere) };
        for id in ["interrupts.affinity", "interrupts.irqbalance"] {
            assert_eq!(found(&hidden, &Wishes::default(), id).verdict, Verdict::NotKnown, "{id}");
        }
        let veth = Driver { name: "veth".to_owned(), bus: String::new() };
        let veth = Interface { driver: Known::Is(veth), ..hidden.clone() };
        assert_eq!(found(&veth, &Wishes::default(), "interrupts.irqbalance").verdict, Verdict::Good);
        let hyper_v = Interface { driver: driver("hv_netvsc"), ..hidden };
        assert!(found(&hyper_v, &Wishes::default(), "interrupts.affinity").seen.contains("VMBus"));
        assert_eq!(found(&hyper_v, &Wishes::default(), "interrupts.irqbalance").verdict, Verdict::Good);
    }

    #[test]
    fn irqbalance_stops_before_affinity_is_written() {
        let mut findings = Vec::new();
        examine(&nic(&["0", "0"], NodeOf::Nowhere), Some(&machine()), &Wishes::default(), &mut findings);
        let commands: Vec<String> = findings.iter().flat_map(lines).collect();
        assert_eq!(commands[0], "systemctl stop irqbalance", "{commands:?}");
        assert!(commands[1].contains("smp_affinity_list"), "{commands:?}");
    }

    #[test]
    fn long_delays_are_shortened_unless_the_driver_chooses_them() {
        let with = |delay, adaptive| {
            let interface = Interface {
                rx_delay: Known::Is(delay),
                adaptive_rx: Known::Is(adaptive),
                ..nic(&["0"], NodeOf::Nowhere)
            };
            found(&interface, &Wishes::default(), "interrupts.delay")
        };
        assert_eq!(with(20, false).verdict, Verdict::Good);
        assert_eq!(with(500, true).verdict, Verdict::Good);
        assert_eq!(lines(&with(500, false)), ["ethtool -C eth0 rx-usecs 50"]);
        let silent = nic(&["0"], NodeOf::Nowhere);
        assert_eq!(found(&silent, &Wishes::default(), "interrupts.delay").verdict, Verdict::NotKnown);
    }

    #[test]
    fn busy_polling_is_prepared_for_those_who_want_it() {
        let plain = nic(&[], NodeOf::Nowhere);
        assert_eq!(found(&plain, &Wishes::default(), "interrupts.busy-poll").verdict, Verdict::Good);
        let wishes = Wishes { busy_poll: true, ..Wishes::default() };
        let finding = found(&plain, &wishes, "interrupts.busy-poll");
        assert_eq!(
            lines(&finding),
            [
                "echo 2 > /sys/class/net/eth0/napi_defer_hard_irqs",
                "echo 200000 > /sys/class/net/eth0/gro_flush_timeout"
            ]
        );
        let ready =
            Interface { defer_hard_irqs: Known::Is(2), gro_flush_timeout: Known::Is(20_000), ..plain };
        assert_eq!(found(&ready, &wishes, "interrupts.busy-poll").verdict, Verdict::Good);
    }
}
