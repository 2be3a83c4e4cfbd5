//! Memory: NUMA nodes and huge pages.

use crate::{Finding, Interface, Machine, NodeOf, Setting, Step, Topic, Wishes};

const NODES: Topic =
    Topic { id: "memory.node", source: "/sys/devices/system/node, /sys/class/net/IF/device/numa_node" };
const HUGE_PAGES: Topic = Topic { id: "memory.huge-pages", source: "/proc/meminfo" };

pub(crate) const TOPICS: [Topic; 2] = [NODES, HUGE_PAGES];

const HUGE_PAGES_FILE: &str = "/proc/sys/vm/nr_hugepages";

pub(crate) fn examine(
    machine: &Machine,
    interface: Option<&Interface>,
    wishes: &Wishes,
    findings: &mut Vec<Finding>,
) {
    findings.push(nodes(machine, interface));
    findings.push(huge_pages(machine, wishes));
}

fn nodes(machine: &Machine, interface: Option<&Interface>) -> Finding {
    NODES.of(&machine.nodes, |nodes| {
        if nodes.len() <= 1 {
            return NODES.good("all memory is equally far from all cores (one NUMA node)");
        }
        let Some(interface) = interface else {
            return NODES.good(format!(
                "there are {} NUMA nodes; name an interface to see which is its",
                nodes.len()
            ));
        };
        NODES.of(&interface.node, |node| match node {
            NodeOf::Nowhere => NODES.good(format!(
                "there are {} NUMA nodes, and {} belongs to none",
                nodes.len(),
                interface.name
            )),
            NodeOf::Node(node) => {
                let cores = nodes.get(node).cloned().unwrap_or_default();
                NODES.good(format!(
                    "{} is at node {node} of {}: give servers its cores, --cores {cores}",
                    interface.name,
                    nodes.len()
                ))
            }
        })
    })
}

fn huge_pages(machine: &Machine, wishes: &Wishes) -> Finding {
    HUGE_PAGES.of(&machine.huge_pages, |count| match wishes.huge_pages {
        Some(wanted) if *count < wanted => match beyond_memory(machine, wanted - count) {
            Some(why) => HUGE_PAGES.bad(
                format!("{wanted} huge pages are wanted, and {why}"),
                "programs would be killed for want of memory",
            ),
            None => HUGE_PAGES
                .better(
                    format!("{count} huge pages are reserved, and {wanted} are wanted"),
                    "DPDK does not start without the memory that it is given",
                )
                .step(Step::new(Setting::machine_file(HUGE_PAGES_FILE), count, wanted)),
        },
        Some(_) => HUGE_PAGES.good(format!("{count} huge pages are reserved")),
        None => {
            let size = machine.huge_page_size.get().map(|kib| format!(" of {kib} KiB")).unwrap_or_default();
            HUGE_PAGES.good(format!("{count} huge pages{size} are reserved; AF_XDP needs none, DPDK does"))
        }
    })
}

/// Why so many more huge pages cannot be had, if it is known.
fn beyond_memory(machine: &Machine, more: u64) -> Option<String> {
    const MIB: u64 = 1024;
    let (size, available) = (*machine.huge_page_size.get()?, *machine.available.get()?);
    let needed = more.saturating_mul(size);
    (needed > available).then(|| {
        format!(
            "{more} more take {} MiB of memory, of which {} MiB are available: want fewer",
            needed / MIB,
            available / MIB
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Known, Verdict};

    fn machine(nodes: u32) -> Machine {
        let node = |node| (node, [node * 2, node * 2 + 1].into_iter().collect());
        Machine {
            nodes: Known::Is((0..nodes).map(node).collect()),
            huge_pages: Known::Is(0),
            huge_page_size: Known::Is(2048),
            ..Machine::default()
        }
    }

    fn examined(machine: &Machine, interface: Option<&Interface>, wishes: &Wishes) -> Vec<Finding> {
        let mut findings = Vec::new();
        examine(machine, interface, wishes, &mut findings);
        findings
    }

    #[test]
    fn the_node_of_a_nic_says_which_cores_its_servers_want() {
        let nic =
            Interface { name: "eth0".to_owned(), node: Known::Is(NodeOf::Node(1)), ..Interface::default() };
        let findings = examined(&machine(2), Some(&nic), &Wishes::default());
        assert!(findings[0].seen.ends_with("--cores 2-3"), "{}", findings[0].seen);
        let silent = Interface::default();
        assert_eq!(examined(&machine(2), Some(&silent), &Wishes::default())[0].verdict, Verdict::NotKnown);
        assert_eq!(examined(&machine(1), Some(&silent), &Wishes::default())[0].verdict, Verdict::Good);
    }

    #[test]
    fn huge_pages_are_reserved_for_those_who_want_them() {
        assert_eq!(examined(&machine(1), None, &Wishes::default())[1].verdict, Verdict::Good);
        let wishes = Wishes { huge_pages: Some(512), ..Wishes::default() };
        let finding = &examined(&machine(1), None, &wishes)[1];
        assert_eq!(finding.commands[0].line(), "sysctl -w vm.nr_hugepages=512");
        let small = Machine { available: Known::Is(512 * 2048 - 1), ..machine(1) };
        let finding = &examined(&small, None, &wishes)[1];
        assert_eq!((finding.verdict, finding.commands.len()), (Verdict::Bad, 0));
        let memory = "512 more take 1024 MiB of memory, of which 1023 MiB are available";
        assert!(finding.seen.contains(memory), "{}", finding.seen);
    }
}
