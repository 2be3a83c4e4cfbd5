//! Which of a device's interrupts are for received packets, by the names that drivers give them.
//!
//! All interrupts below `msi_irqs` of a device are the device's, whatever they are called. But not all of them receive: others report packets
//! that were sent, a change of the link, or a message of the hypervisor. Only their names tell, and each driver has its own.

use crate::{CoreList, Interface, Interrupt};

/// What the names of a driver's interrupts say. A *part* of a name is what stands in front of its number: `-rx-` in `eth0-rx-3`.
enum Rule {
    /// Those with one of these parts receive.
    Parts(&'static [&'static str]),
    /// The same, but for those with this in them: they are of queues for rules of the NIC.
    PartsBut(&'static [&'static str], &'static str),
    /// Those with one of these parts are numbered through: the upper half receives, and the lower half sends.
    UpperHalf(&'static [&'static str]),
    /// The device has none of its own, for this reason.
    Elsewhere(&'static str),
}

const INTEL: &[&str] = &["-TxRx-", "-rx-"];

/// The rule of each driver that we know, and where Linux makes the names (below drivers/).
#[rustfmt::skip]
const DRIVERS: [(&str, Rule); 17] = [
    // net/ethernet/broadcom/bnxt/bnxt.c: bnxt_setup_msix
    ("bnxt_en", Rule::Parts(&["-TxRx-", "-rx-"])),
    // net/ethernet/intel/e1000e/netdev.c: e1000_request_msix
    ("e1000e", Rule::Parts(INTEL)),
    // net/ethernet/amazon/ena/ena_netdev.c: ena_setup_io_intr
    ("ena", Rule::Parts(&["-Tx-Rx-"])),
    // net/ethernet/google/gve/gve_main.c: gve_alloc_notify_blocks, and gve.h: gve_rx_idx_to_ntfy. The second name is of Linux before 6.3.
    ("gve", Rule::UpperHalf(&["gve-ntfy-blk", "-ntfy-block."])),
    // hv/vmbus_drv.c: target_cpu_store, and Documentation/ABI/stable/sysfs-bus-vmbus
    ("hv_netvsc", Rule::Elsewhere("VMBus brings its packets; /sys/class/net/IF/device/channels/*/cpu has the cores")),
    // net/ethernet/intel/i40e/i40e_main.c: i40e_vsi_request_irq_msix, i40e_vsi_open
    ("i40e", Rule::PartsBut(INTEL, ":fdir")),
    // net/ethernet/intel/iavf/iavf_main.c: iavf_request_traffic_irqs
    ("iavf", Rule::Parts(INTEL)),
    // net/ethernet/intel/ice/ice_main.c: ice_vsi_req_irq_msix, and ice_lib.c: ice_vsi_open_ctrl
    ("ice", Rule::PartsBut(INTEL, ":ctrl")),
    // net/ethernet/intel/igb/igb_main.c: igb_request_msix
    ("igb", Rule::Parts(INTEL)),
    // net/ethernet/intel/igc/igc_main.c: igc_request_msix
    ("igc", Rule::Parts(INTEL)),
    // net/ethernet/intel/ixgbe/ixgbe_main.c: ixgbe_request_msix_irqs
    ("ixgbe", Rule::Parts(INTEL)),
    // net/ethernet/intel/ixgbevf/ixgbevf_main.c: ixgbevf_request_msix_irqs
    ("ixgbevf", Rule::Parts(INTEL)),
    // net/ethernet/microsoft/mana/gdma_main.c: mana_gd_setup_irqs
    ("mana", Rule::Parts(&["mana_q"])),
    // net/ethernet/mellanox/mlx5/core/pci_irq.c: irq_set_name
    ("mlx5_core", Rule::Parts(&["mlx5_comp"])),
    // net/ethernet/netronome/nfp/nfp_net_common.c: nfp_net_prepare_vector
    ("nfp", Rule::Parts(&["-rxtx-"])),
    // virtio/virtio_pci_common.c: vp_request_msix_vectors; net/virtio_net.c: virtnet_find_vqs. The second name is one for all queues.
    ("virtio_net", Rule::Parts(&["-input.", "-virtqueues"])),
    // net/vmxnet3/vmxnet3_drv.c: vmxnet3_request_irqs
    ("vmxnet3", Rule::Parts(&["-rxtx-", "-rx-"])),
];

/// Names that a finding shows.
const SHOWN_MAX: usize = 4;

/// The interrupts of an interface's receive queues among those of its device, in their order; or why they are not known.
pub(crate) fn of_queues<'i>(
    interface: &Interface,
    interrupts: &'i [Interrupt],
) -> Result<Vec<&'i Interrupt>, String> {
    // A device with one interrupt has it for everything.
    if interrupts.len() <= 1 {
        return Ok(interrupts.iter().collect());
    }
    let receiving = rule(interface).map(|rule| rule.receiving(interrupts)).unwrap_or_default();
    if receiving.is_empty() { Err(unknown(interface, interrupts)) } else { Ok(receiving) }
}

/// Why a device has no interrupts of its own, if its driver is known for that.
pub(crate) fn elsewhere(interface: &Interface) -> Option<&'static str> {
    match rule(interface)? {
        Rule::Elsewhere(why) => Some(why),
        _ => None,
    }
}

fn rule(interface: &Interface) -> Option<&'static Rule> {
    let name = &interface.driver.get()?.name;
    DRIVERS.iter().find(|(driver, _)| driver == name).map(|(_, rule)| rule)
}

impl Rule {
    fn receiving<'i>(&self, interrupts: &'i [Interrupt]) -> Vec<&'i Interrupt> {
        match self {
            Rule::Parts(parts) => with_parts(interrupts, parts).map(|(_, it)| it).collect(),
            Rule::PartsBut(parts, others) => {
                let numbered = with_parts(interrupts, parts).map(|(_, it)| it);
                numbered.filter(|it| !it.name.contains(others)).collect()
            }
            Rule::UpperHalf(parts) => {
                let mut all: Vec<_> = with_parts(interrupts, parts).collect();
                all.sort_by_key(|(number, _)| *number);
                let half = all.len() / 2;
                all.into_iter().skip(half).map(|(_, it)| it).collect()
            }
            Rule::Elsewhere(_) => Vec::new(),
        }
    }
}

/// Those whose names have one of these parts, each with the number behind it, 0 if there is none.
fn with_parts<'i>(interrupts: &'i [Interrupt], parts: &[&str]) -> impl Iterator<Item = (u32, &'i Interrupt)> {
    interrupts.iter().filter_map(move |interrupt| {
        let number = parts.iter().find_map(|part| number_behind(&interrupt.name, part))?;
        Some((number, interrupt))
    })
}

/// The number behind the last `part` of a name, which ends there or goes on with the device (`@pci:...`).
fn number_behind(name: &str, part: &str) -> Option<u32> {
    let (_, rest) = name.rsplit_once(part)?;
    let number = rest.split('@').next()?;
    if number.is_empty() { Some(0) } else { number.parse().ok() }
}

fn unknown(interface: &Interface, interrupts: &[Interrupt]) -> String {
    let names: Vec<&str> = interrupts.iter().map(|it| it.name.as_str()).filter(|it| !it.is_empty()).collect();
    let count = interrupts.len();
    if names.is_empty() {
        return format!("its driver handles none of the device's {count} interrupts: is the interface up?");
    }
    let more = if names.len() > SHOWN_MAX { ", ..." } else { "" };
    let shown = names[..names.len().min(SHOWN_MAX)].join(", ");
    let driver =
        interface.driver.get().map_or(String::new(), |driver| format!(" by the driver {}", driver.name));
    let cores: CoreList = interrupts.iter().flat_map(|it| it.effective.as_slice().iter().copied()).collect();
    format!(
        "which of the device's {count} interrupts are for received packets: Sidestep does not know these names{driver}: {shown}{more}. They come to cores {cores}; those that receive count up in /proc/interrupts under load"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Driver, Known};

    fn interface(driver: &str) -> Interface {
        let driver = Driver { name: driver.to_owned(), bus: "0000:00:04.0".to_owned() };
        Interface { name: "eth0".to_owned(), driver: Known::Is(driver), ..Interface::default() }
    }

    fn interrupts(names: &[&str]) -> Vec<Interrupt> {
        let interrupt = |(number, name): (u32, &&str)| Interrupt {
            number,
            name: (*name).to_owned(),
            allowed: "0-3".parse().unwrap(),
            effective: [number % 4].into_iter().collect(),
        };
        (40..).zip(names).map(interrupt).collect()
    }

    /// The names of those that receive.
    fn receiving(driver: &str, names: &[&str]) -> Result<Vec<String>, String> {
        let all = interrupts(names);
        let found = of_queues(&interface(driver), &all)?;
        Ok(found.into_iter().map(|it| it.name.clone()).collect())
    }

    #[test]
    fn the_interrupts_of_receive_queues_are_known_by_the_names_of_each_driver() {
        let gve: Vec<String> = (0..4).map(|block| format!("gve-ntfy-blk{block}@pci:0000:00:04.0")).collect();
        let gve = [&gve[0], &gve[1], &gve[2], &gve[3], "gve-mgmnt@pci:0000:00:04.0"];
        let cases: [(&str, &[&str], &[usize]); 15] = [
            ("ixgbe", &["eth0-TxRx-0", "eth0-TxRx-1", "eth0"], &[0, 1]),
            ("igb", &["eth0", "eth0-rx-0", "eth0-tx-0"], &[1]),
            ("igc", &["eth0", "eth0-TxRx-0", "eth0-TxRx-1"], &[1, 2]),
            ("e1000e", &["eth0-rx-0", "eth0-tx-0", "eth0"], &[0]),
            ("i40e", &["i40e-0000:00:04.0:misc", "i40e-eth0-TxRx-0", "i40e-0000:00:04.0:fdir-TxRx-0"], &[1]),
            ("ice", &["ice-0000:00:04.0:misc", "ice-eth0-TxRx-0", "ice-0000:00:04.0:ctrl-TxRx-0"], &[1]),
            ("iavf", &["iavf-0000:00:04.0:mbx", "iavf-eth0-TxRx-0", "iavf-eth0-TxRx-1"], &[1, 2]),
            ("mlx5_core", &["mlx5_async0@pci:0000:00:04.0", "mlx5_comp0@pci:0000:00:04.0"], &[1]),
            ("ena", &["ena-mgmnt@pci:0000:00:04.0", "eth0-Tx-Rx-0", "eth0-Tx-Rx-1"], &[1, 2]),
            ("virtio_net", &["virtio2-config", "virtio2-input.0", "virtio2-output.0"], &[1]),
            ("virtio_net", &["virtio2-config", "virtio2-virtqueues"], &[1]),
            ("gve", &gve, &[2, 3]),
            (
                "mana",
                &["mana_hwc@pci:7870:00:00.0", "mana_q0@pci:7870:00:00.0", "mana_q1@pci:7870:00:00.0"],
                &[1, 2],
            ),
            ("bnxt_en", &["eth0-TxRx-0", "eth0-TxRx-1"], &[0, 1]),
            ("vmxnet3", &["eth0-rxtx-0", "eth0-rxtx-1", "eth0-event-2"], &[0, 1]),
        ];
        for (driver, names, expected) in cases {
            let expected: Vec<String> = expected.iter().map(|at| names[*at].to_owned()).collect();
            assert_eq!(receiving(driver, names), Ok(expected), "{driver}");
        }
    }

    #[test]
    fn blocks_are_halved_by_their_numbers_and_not_by_their_places() {
        let blocks: Vec<String> = [10, 11, 2, 3, 0, 1, 4, 5, 6, 7, 8, 9]
            .iter()
            .map(|block| format!("eth%d-ntfy-block.{block}"))
            .collect();
        let blocks: Vec<&str> = blocks.iter().map(String::as_str).collect();
        let found = receiving("gve", &blocks).unwrap();
        assert_eq!(found.len(), 6);
        assert_eq!((&found[0][..], &found[5][..]), ("eth%d-ntfy-block.6", "eth%d-ntfy-block.11"));
    }

    #[test]
    fn a_part_of_an_interfaces_name_is_no_part_of_the_interrupts() {
        let names = ["a-rx-1-TxRx-0", "a-rx-1-tx-0"];
        assert_eq!(receiving("ixgbe", &names), Ok(vec!["a-rx-1-TxRx-0".to_owned()]));
    }

    #[test]
    fn one_interrupt_is_for_everything_whatever_its_name() {
        assert_eq!(receiving("never-heard-of", &["thing"]), Ok(vec!["thing".to_owned()]));
        assert_eq!(receiving("never-heard-of", &[]), Ok(Vec::new()));
    }

    #[test]
    fn names_that_are_not_known_are_shown_with_the_cores_of_all() {
        let why = receiving("never-heard-of", &["foo-a", "foo-b", "foo-c", "foo-d", "foo-e"]).unwrap_err();
        assert!(
            why.contains("device's 5 interrupts") && why.contains("by the driver never-heard-of"),
            "{why}"
        );
        assert!(why.contains("foo-a, foo-b, foo-c, foo-d, ...") && why.contains("cores 0-3"), "{why}");
        // A driver that is known has other names in another version.
        assert!(receiving("ena", &["ena-new-0", "ena-new-1"]).is_err());
    }

    #[test]
    fn interrupts_that_nothing_handles_are_of_no_queue() {
        let why = receiving("ixgbe", &["", "", ""]).unwrap_err();
        assert!(
            why.contains("none of the device's 3 interrupts") && why.contains("is the interface up?"),
            "{why}"
        );
    }
}
