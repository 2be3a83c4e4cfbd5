//! The driver: what it does of XDP, and what is in the way.

use crate::shell::word;
use crate::{Attached, Finding, Interface, Known, Probe, Topic, XdpFeatures};

const LINK: Topic = Topic { id: "driver.link", source: "rtnetlink" };
const NAME: Topic = Topic { id: "driver.name", source: "ethtool (ETHTOOL_GDRVINFO)" };
const XDP: Topic = Topic { id: "driver.xdp", source: "netdev netlink (xdp-features)" };
const ZERO_COPY: Topic = Topic { id: "driver.zero-copy", source: "netdev netlink (xdp-features)" };
const ATTACHED: Topic = Topic { id: "driver.program", source: "rtnetlink (IFLA_XDP)" };
const PROBE: Topic = Topic { id: "driver.probe", source: "attaching the steering program" };
const MTU: Topic = Topic { id: "driver.mtu", source: "rtnetlink" };

pub(crate) const TOPICS: [Topic; 7] = [LINK, NAME, XDP, ZERO_COPY, ATTACHED, PROBE, MTU];

const LOOPBACK: &str = "lo";
/// Above this MTU most drivers take no XDP program, because a packet does not fit a page.
const MTU_MAX: u32 = 3498;

pub(crate) fn examine(interface: &Interface, findings: &mut Vec<Finding>) {
    let name = &interface.name;
    findings.extend([
        LINK.of(&interface.is_up, |up| match up {
            _ if name == LOOPBACK => LINK.bad(
                format!("{name} is the loopback interface"),
                "Sidestep leaves loopback to the kernel: name the interface that clients are at",
            ),
            true if interface.has_carrier == Known::Is(false) => LINK.bad(
                format!("{name} is up, but has no carrier"),
                "nothing arrives and nothing leaves: the cable is out, or the other end is down",
            ),
            true => LINK.good(format!("{name} is up")),
            false => LINK
                .bad(format!("{name} is down"), "nothing arrives and nothing leaves")
                .command(format!("ip link set dev {} up", word(name))),
        }),
        NAME.of(&interface.driver, |driver| match driver.place() {
            None => NAME.good(format!("the driver is {}; no hardware is behind it", driver.name)),
            Some(place) => NAME.good(format!("the driver is {}, the device is at {place}", driver.name)),
        }),
        by_word(interface),
        ZERO_COPY.of(&interface.xdp, |features| zero_copy(features, interface)),
        ATTACHED.of(&interface.attached, |attached| program(name, attached.as_ref())),
        MTU.of(&interface.mtu, |mtu| mtu_of(name, *mtu)),
    ]);
    if let Some(outcome) = &interface.probe {
        findings.push(PROBE.of(outcome, |probe| match probe {
            Probe { is_native: false } if interface.hands_programs_down => PROBE.better(
                "generic mode took the steering program; the driver would hand it down to the interfaces below",
                "the kernel makes a buffer of its own for each packet before Sidestep sees it",
            ),
            Probe { is_native: true } => PROBE.good("the driver took the steering program"),
            Probe { is_native: false } => PROBE.better(
                "the driver refused the steering program; generic mode took it",
                "the kernel makes a buffer of its own for each packet before Sidestep sees it",
            ),
        }));
    }
}

/// What the driver says; where the kernel has no words for that, a probe shows what it does.
fn by_word(interface: &Interface) -> Finding {
    let finding = XDP.of(&interface.xdp, |features| xdp(features, interface));
    match (&interface.xdp, &interface.probe) {
        (Known::Not(_), None) => {
            finding.command(format!("sidestep doctor {} --probe", word(&interface.name)))
        }
        _ => finding,
    }
}

/// Whether the driver takes Sidestep's program, as far as is known.
fn is_native(features: &XdpFeatures, interface: &Interface) -> bool {
    let was_refused = matches!(interface.probe, Some(Known::Is(Probe { is_native: false })));
    let has_all = features.basic && features.redirect;
    has_all && !was_refused && !interface.hands_programs_down && refused_by_virtio(interface).is_none()
}

fn xdp(features: &XdpFeatures, interface: &Interface) -> Finding {
    const GENERIC: &str = "the kernel makes a buffer of its own for each packet before Sidestep sees it";
    if interface.hands_programs_down {
        return XDP.better(
            "the driver hands XDP programs down to the interfaces below this one: only generic mode is there",
            format!("{GENERIC}; an interface of a single NIC is faster"),
        );
    }
    if let Some(why) = refused_by_virtio(interface).filter(|_| features.basic) {
        return XDP
            .better(
                format!("virtio_net runs XDP programs, but takes none while {why}"),
                format!("{GENERIC}; the hypervisor can change that (QEMU: ctrl_guest_offloads=on, or guest_csum=off and guest_tso4, _tso6, _ecn, _ufo=off)"),
            )
            .command(format!("sidestep doctor {} --probe", word(&interface.name)));
    }
    match (features.basic, features.redirect) {
        (true, true) => XDP.good("the driver runs XDP programs and can redirect packets (native mode)"),
        (true, false) => XDP.bad(
            "the driver runs XDP programs, but cannot redirect packets",
            "no packet reaches Sidestep by way of the driver; servers run on kernel sockets",
        ),
        (false, _) if interface.is_veth() => XDP
            .better(
                "this end of the veth pair runs no XDP programs, because the other end sends from more queues than this one receives on",
                GENERIC,
            )
            .command(format!("ethtool -L OTHER_END rx N tx N # N as `ethtool -l {}` says", word(&interface.name))),
        (false, _) => {
            XDP.better("the driver runs no XDP programs: only generic mode is there", GENERIC)
        }
    }
}

/// Why `virtnet_xdp_set` (drivers/net/virtio_net.c) refuses a program, if it does: the host joins packets or leaves sums unfinished
/// (VIRTIO_NET_F_GUEST_TSO4, _GUEST_CSUM and others), and the guest cannot tell it to stop (VIRTIO_NET_F_CTRL_GUEST_OFFLOADS). That the guest can
/// is the same as that rx-gro-hw can be changed. A probe knows better.
fn refused_by_virtio(interface: &Interface) -> Option<&'static str> {
    if interface.driver.get()?.name != "virtio_net" || matches!(interface.probe, Some(Known::Is(_))) {
        return None;
    }
    let features = interface.features.get()?;
    let is_on = |name: &str| features.get(name).is_some_and(|feature| feature.is_on);
    if features.get("rx-gro-hw").is_some_and(|feature| feature.is_changeable) {
        return None;
    }
    match (is_on("rx-gro-hw"), is_on("rx-checksum")) {
        (true, _) => Some("the host joins packets and cannot be told not to (rx-gro-hw is on and fixed)"),
        (false, true) => Some(
            "the host leaves checksums unfinished and cannot be told not to (rx-checksum is on and fixed)",
        ),
        (false, false) => None,
    }
}

fn zero_copy(features: &XdpFeatures, interface: &Interface) -> Finding {
    match (features.zero_copy, is_native(features, interface)) {
        (true, true) => ZERO_COPY.good("the driver has zero-copy: the NIC writes into Sidestep's memory"),
        (true, false) => ZERO_COPY.better(
            "the driver has zero-copy, but only in native mode, which is not there",
            "the kernel copies each packet, and sends by way of its own buffers, until the driver takes a program",
        ),
        (false, _) => ZERO_COPY.better(
            "the driver has no zero-copy",
            "the kernel copies each packet, and sends by way of its own buffers; only another NIC or a newer driver changes that",
        ),
    }
}

fn program(name: &str, attached: Option<&Attached>) -> Finding {
    match attached {
        None => ATTACHED.good("no XDP program is on the interface"),
        Some(Attached { id, is_native, is_ours: true }) => {
            let mode = if *is_native { "native" } else { "generic" };
            ATTACHED.good(format!("Sidestep's steering program is on the interface ({mode} mode, id {id})"))
        }
        Some(Attached { id, .. }) => ATTACHED
            .bad(
                format!("another XDP program is on the interface (id {id})"),
                "Sidestep leaves it alone and cannot serve there",
            )
            .command(format!("bpftool prog show id {id} # whose is it?"))
            .command(format!("ip link set dev {} xdp off # if nobody needs it", word(name))),
    }
}

fn mtu_of(name: &str, mtu: u32) -> Finding {
    if mtu <= MTU_MAX {
        return MTU.good(format!("an MTU of {mtu} fits the frames of XDP"));
    }
    MTU.better(
        format!("the MTU is {mtu}"),
        format!(
            "most drivers take no XDP program above {MTU_MAX} and generic mode remains; longer packets stay with the kernel in any case"
        ),
    )
    .command(format!("ip link set dev {} mtu 1500 # if its peers use that, too", word(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Verdict};

    fn verdicts(interface: &Interface) -> Vec<(&'static str, Verdict)> {
        let mut findings = Vec::new();
        examine(interface, &mut findings);
        findings.iter().map(|finding| (finding.id, finding.verdict)).collect()
    }

    #[test]
    fn a_good_nic_has_nothing_but_good_findings() {
        let nic = Interface {
            name: "eth0".to_owned(),
            is_up: Known::Is(true),
            has_carrier: Known::Is(true),
            mtu: Known::Is(1500),
            driver: Known::Is(Driver { name: "ice".to_owned(), bus: "0000:01:00.0".to_owned() }),
            xdp: Known::Is(XdpFeatures { basic: true, redirect: true, zero_copy: true }),
            attached: Known::Is(None),
            probe: Some(Known::Is(Probe { is_native: true })),
            ..Interface::default()
        };
        assert!(verdicts(&nic).iter().all(|(_, verdict)| *verdict == Verdict::Good), "{:?}", verdicts(&nic));
        assert_eq!(verdicts(&nic).len(), TOPICS.len());
    }

    #[test]
    fn what_is_in_the_way_is_bad_and_says_what_to_type() {
        let nic = Interface {
            name: "eth0".to_owned(),
            is_up: Known::Is(false),
            xdp: Known::Is(XdpFeatures { basic: true, ..XdpFeatures::default() }),
            attached: Known::Is(Some(Attached { id: 7, is_native: true, is_ours: false })),
            ..Interface::default()
        };
        let mut findings = Vec::new();
        examine(&nic, &mut findings);
        let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).collect();
        assert_eq!(
            bad.iter().map(|it| it.id).collect::<Vec<_>>(),
            ["driver.link", "driver.xdp", "driver.program"]
        );
        assert_eq!(bad[0].commands[0].line(), "ip link set dev eth0 up");
        assert!(bad[2].commands[1].line().contains("xdp off"));
    }

    #[test]
    fn a_link_without_carrier_is_bad_though_it_is_up() {
        let unplugged = Interface {
            name: "eth0".to_owned(),
            is_up: Known::Is(true),
            has_carrier: Known::Is(false),
            ..Interface::default()
        };
        assert_eq!(verdicts(&unplugged)[0], ("driver.link", Verdict::Bad));
    }

    #[test]
    fn loopback_is_no_interface_to_serve_on() {
        let loopback = Interface { name: "lo".to_owned(), is_up: Known::Is(true), ..Interface::default() };
        assert_eq!(verdicts(&loopback)[0], ("driver.link", Verdict::Bad));
    }

    #[test]
    fn generic_mode_copies_and_long_packets_could_be_better() {
        let veth = Interface {
            xdp: Known::Is(XdpFeatures::default()),
            mtu: Known::Is(9000),
            attached: Known::Is(Some(Attached { id: 7, is_native: false, is_ours: true })),
            probe: Some(Known::Is(Probe { is_native: false })),
            ..Interface::default()
        };
        let better = ["driver.xdp", "driver.zero-copy", "driver.mtu", "driver.probe"];
        for (id, verdict) in verdicts(&veth) {
            assert_eq!(verdict == Verdict::CouldBeBetter, better.contains(&id), "{id} {verdict:?}");
        }
    }

    #[test]
    fn a_driver_that_hands_programs_down_has_no_native_mode() {
        let bond = Interface {
            xdp: Known::Is(XdpFeatures { basic: true, redirect: true, zero_copy: true }),
            hands_programs_down: true,
            ..Interface::default()
        };
        let mut findings = Vec::new();
        examine(&bond, &mut findings);
        assert!(findings[2].seen.ends_with("only generic mode is there"), "{:?}", findings[2]);
        assert_eq!(
            verdicts(&bond)[2..4],
            ["driver.xdp", "driver.zero-copy"].map(|id| (id, Verdict::CouldBeBetter))
        );
        let probed = Interface { probe: Some(Known::Is(Probe { is_native: false })), ..bond };
        examine(&probed, &mut findings);
        assert!(findings.last().unwrap().seen.contains("hand it down"), "{:?}", findings.last());
    }

    #[test]
    fn zero_copy_is_there_in_native_mode_only() {
        let all = XdpFeatures { basic: true, redirect: true, zero_copy: true };
        let zero_copy = |features, probe: Option<bool>| {
            let probe = probe.map(|is_native| Known::Is(Probe { is_native }));
            verdicts(&Interface { xdp: Known::Is(features), probe, ..Interface::default() })[3].1
        };
        assert_eq!((zero_copy(all, None), zero_copy(all, Some(true))), (Verdict::Good, Verdict::Good));
        assert_eq!(zero_copy(all, Some(false)), Verdict::CouldBeBetter);
        assert_eq!(zero_copy(XdpFeatures { redirect: false, ..all }, None), Verdict::CouldBeBetter);
    }

    #[test]
    fn ends_of_a_veth_pair_depend_on_each_other() {
        let veth = Interface {
            name: "veth0".to_owned(),
            driver: Known::Is(Driver { name: "veth".to_owned(), bus: String::new() }),
            xdp: Known::Is(XdpFeatures::default()),
            ..Interface::default()
        };
        let mut findings = Vec::new();
        examine(&veth, &mut findings);
        assert!(findings[2].seen.contains("other end"), "{:?}", findings[2]);
        assert!(findings[2].commands[0].line().starts_with("ethtool -L OTHER_END"));
    }

    #[test]
    fn what_drivers_of_no_hardware_say_is_no_place() {
        for (name, bus) in [("veth", ""), ("bridge", "N/A"), ("tun", "tap"), ("tun", "tun")] {
            let driver = Known::Is(Driver { name: name.to_owned(), bus: bus.to_owned() });
            let mut findings = Vec::new();
            examine(&Interface { driver, ..Interface::default() }, &mut findings);
            assert_eq!(findings[1].seen, format!("the driver is {name}; no hardware is behind it"));
        }
    }

    #[test]
    fn virtio_takes_no_program_while_the_host_joins_packets() {
        let verdict = |features: &[(&str, bool, bool)], probe: Option<bool>| {
            let feature = |&(name, is_on, is_changeable): &(&str, bool, bool)| {
                (name.to_owned(), crate::Feature { is_on, is_changeable })
            };
            let nic = Interface {
                name: "eth0".to_owned(),
                driver: Known::Is(Driver { name: "virtio_net".to_owned(), bus: "0000:00:03.0".to_owned() }),
                xdp: Known::Is(XdpFeatures { basic: true, redirect: true, zero_copy: false }),
                features: Known::Is(features.iter().map(feature).collect()),
                probe: probe.map(|is_native| Known::Is(Probe { is_native })),
                ..Interface::default()
            };
            let mut findings = Vec::new();
            examine(&nic, &mut findings);
            findings[2].verdict
        };
        let (on, fixed) = (("rx-gro-hw", true, true), ("rx-gro-hw", true, false));
        let (sums, off) = (("rx-checksum", true, false), ("rx-gro-hw", false, false));
        assert_eq!(verdict(&[fixed, sums], None), Verdict::CouldBeBetter);
        assert_eq!(verdict(&[off, sums], None), Verdict::CouldBeBetter);
        assert_eq!(verdict(&[on, sums], None), Verdict::Good);
        assert_eq!(verdict(&[off], None), Verdict::Good);
        assert_eq!(verdict(&[fixed, sums], Some(true)), Verdict::Good, "it took one");
    }

    #[test]
    fn what_is_not_known_says_why() {
        let xdp = Known::Not("the kernel does not say".to_owned());
        let interface = Interface { name: "eth0".to_owned(), xdp, ..Interface::default() };
        let mut findings = Vec::new();
        examine(&interface, &mut findings);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::NotKnown));
        assert_eq!(findings[2].seen, "not known: the kernel does not say");
        assert_eq!(findings[2].commands[0].line(), "sidestep doctor eth0 --probe");
    }
}
