//! Offloads: what is in the way of XDP, and what helps the packets that stay with the kernel.

use std::collections::BTreeMap;

use crate::shell::word;
use crate::{Feature, Finding, Interface, Setting, Step, Topic};

const SOURCE: &str = "ethtool netlink (features)";
const LRO: Topic = Topic { id: "offload.lro", source: SOURCE };
const GRO_HW: Topic = Topic { id: "offload.gro-hw", source: SOURCE };
const VLAN: Topic = Topic { id: "offload.vlan", source: SOURCE };
const GRO: Topic = Topic { id: "offload.gro", source: SOURCE };
const CHECKSUM: Topic = Topic { id: "offload.checksum", source: SOURCE };
const SEGMENTS: Topic = Topic { id: "offload.segments", source: SOURCE };

pub(crate) const TOPICS: [Topic; 6] = [LRO, GRO_HW, VLAN, GRO, CHECKSUM, SEGMENTS];

/// One offload that should be on, or off.
struct Rule {
    topic: Topic,
    feature: &'static str,
    wanted: bool,
    is_bad: bool,
    cost: &'static str,
}

const RULES: [Rule; 5] = [
    Rule {
        topic: LRO,
        feature: "rx-lro",
        wanted: false,
        is_bad: true,
        cost: "the NIC joins packets, and most drivers then take no XDP program",
    },
    Rule {
        topic: GRO_HW,
        feature: "rx-gro-hw",
        wanted: false,
        is_bad: false,
        cost: "the NIC joins packets, and some drivers then take no XDP program",
    },
    Rule {
        topic: GRO,
        feature: "rx-gro",
        wanted: true,
        is_bad: false,
        cost: "connections that stay on the kernel receive one packet at a time",
    },
    Rule {
        topic: CHECKSUM,
        feature: "rx-checksum",
        wanted: true,
        is_bad: false,
        cost: "the kernel sums up every packet that stays with it",
    },
    Rule {
        topic: SEGMENTS,
        feature: "tx-tcp-segmentation",
        wanted: true,
        is_bad: false,
        cost: "large answers are cut on the processor, segment by segment",
    },
];

pub(crate) fn examine(interface: &Interface, findings: &mut Vec<Finding>) {
    for rule in &RULES {
        findings.push(rule.topic.of(&interface.features, |features| rule.judge(interface, features)));
    }
    findings.push(VLAN.of(&interface.features, |features| vlan(interface, features)));
}

impl Rule {
    fn judge(&self, interface: &Interface, features: &BTreeMap<String, Feature>) -> Finding {
        let Rule { topic, feature, wanted, .. } = *self;
        let Some(state) = features.get(feature).copied() else {
            let seen = format!("the driver has no {feature}");
            return if wanted { topic.better(seen, self.cost) } else { topic.good(seen) };
        };
        let seen = format!("{feature} is {}", on_or_off(state.is_on));
        if state.is_on == wanted {
            return topic.good(seen);
        }
        let finding = if self.is_bad { topic.bad(seen, self.cost) } else { topic.better(seen, self.cost) };
        if wanted && interface.follows_another() {
            let what = "and has what the interface below it or the program behind it has";
            return Finding { seen: format!("{}, {what}", finding.seen), ..finding };
        }
        change(finding, &interface.name, feature, state, wanted)
    }
}

/// Tags that the NIC strips are invisible to XDP.
fn vlan(interface: &Interface, features: &BTreeMap<String, Feature>) -> Finding {
    const NAME: &str = "rx-vlan-hw-parse";
    let strips = features.get(NAME).copied().filter(|feature| feature.is_on);
    let vlans = interface.vlans.get().copied().unwrap_or(0);
    match (strips, vlans) {
        (None, _) => VLAN.good("the NIC leaves VLAN tags in the packets"),
        (Some(_), 0) => VLAN.good("the NIC strips VLAN tags, and no VLAN interface is above this one"),
        (Some(feature), count) => {
            let finding = VLAN.bad(
                format!("the NIC strips VLAN tags, and {count} VLAN interfaces are above this one"),
                "XDP does not see stripped tags: packets to addresses of VLANs all go through the kernel",
            );
            change(finding, &interface.name, NAME, feature, false)
        }
    }
}

fn change(finding: Finding, interface: &str, name: &str, state: Feature, wanted: bool) -> Finding {
    if !state.is_changeable {
        let finding =
            Finding { seen: format!("{}, and the driver lets nobody change it", finding.seen), ..finding };
        return match wanted {
            true => finding,
            false => finding
                .command(format!("sidestep doctor {} --probe # does this driver take one?", word(interface))),
        };
    }
    finding.step(Step::new(Setting::feature(interface, name), on_or_off(!wanted), on_or_off(wanted)))
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Known, Verdict};

    fn examined(features: &[(&str, bool, bool)], vlans: usize) -> BTreeMap<&'static str, Finding> {
        let feature = |&(name, is_on, is_changeable): &(&str, bool, bool)| {
            (name.to_owned(), Feature { is_on, is_changeable })
        };
        let interface = Interface {
            name: "eth0".to_owned(),
            features: Known::Is(features.iter().map(feature).collect()),
            vlans: Known::Is(vlans),
            ..Interface::default()
        };
        let mut findings = Vec::new();
        examine(&interface, &mut findings);
        findings.into_iter().map(|finding| (finding.id, finding)).collect()
    }

    #[test]
    fn offloads_as_they_should_be_are_good() {
        let findings = examined(
            &[
                ("rx-lro", false, true),
                ("rx-gro", true, true),
                ("rx-checksum", true, false),
                ("tx-tcp-segmentation", true, true),
                ("rx-vlan-hw-parse", true, true),
            ],
            0,
        );
        assert!(findings.values().all(|finding| finding.verdict == Verdict::Good), "{findings:?}");
        assert_eq!(findings.len(), TOPICS.len());
    }

    #[test]
    fn lro_is_bad_and_the_command_switches_it_off() {
        let finding = &examined(&[("rx-lro", true, true)], 0)["offload.lro"];
        assert_eq!(finding.verdict, Verdict::Bad);
        assert_eq!(finding.commands[0].line(), "ethtool -K eth0 rx-lro off");
    }

    #[test]
    fn what_cannot_be_changed_has_no_step() {
        let findings = examined(&[("rx-gro-hw", true, false), ("rx-gro", false, false)], 0);
        let finding = &findings["offload.gro-hw"];
        assert_eq!(finding.verdict, Verdict::CouldBeBetter);
        assert!(finding.commands[0].line().starts_with("sidestep doctor eth0 --probe"), "{finding:?}");
        assert!(findings["offload.gro"].commands.is_empty());
    }

    #[test]
    fn what_another_one_decides_has_no_step() {
        for (name, bus, steps) in [
            ("tun", "tap", 0),
            ("macvlan", "", 0),
            ("veth", "", 1),
            ("bridge", "N/A", 1),
            ("ice", "0000:01:00.0", 1),
        ] {
            let driver = Driver { name: name.to_owned(), bus: bus.to_owned() };
            let off = Feature { is_on: false, is_changeable: true };
            let interface = Interface {
                driver: Known::Is(driver),
                features: Known::Is(BTreeMap::from([("rx-gro".to_owned(), off)])),
                ..Interface::default()
            };
            let mut findings = Vec::new();
            examine(&interface, &mut findings);
            let gro = findings.iter().find(|finding| finding.id == "offload.gro").unwrap();
            assert_eq!(gro.commands.len(), steps, "{name}: {gro:?}");
        }
    }

    #[test]
    fn stripped_tags_matter_only_where_vlans_are() {
        let strips = [("rx-vlan-hw-parse", true, true)];
        assert_eq!(examined(&strips, 0)["offload.vlan"].verdict, Verdict::Good);
        let finding = &examined(&strips, 2)["offload.vlan"];
        assert_eq!(finding.verdict, Verdict::Bad);
        assert_eq!(finding.commands[0].line(), "ethtool -K eth0 rx-vlan-hw-parse off");
    }

    #[test]
    fn a_missing_help_could_be_better() {
        let findings = examined(&[("rx-gro", false, true)], 0);
        assert_eq!(findings["offload.gro"].commands[0].line(), "ethtool -K eth0 rx-gro on");
        assert_eq!(findings["offload.checksum"].verdict, Verdict::CouldBeBetter);
    }
}
