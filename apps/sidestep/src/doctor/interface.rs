//! Facts about an interface: from netlink, from its driver, and from /sys where that shows this network namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use ::doctor::{
    Attached, Bounded, CoreList, Driver, Feature, FlowMatch, Interface, Interrupt, Known, NodeOf, Probe, Rss,
    Transport, XdpFeatures,
};
use anyhow::Context;
use control::{Mirror, NetlinkMonitor, kernel_name};
use device_xdp::{AttachMode, FlowRule, Inspection, SteeringOptions, SteeringProgram, XdpError, XdpOptions};
use nic::{Nic, NicError, Parameter};

use super::machine::{map, numbered, numbers, read};

const INTERFACES: &str = "/sys/class/net";
const INTERRUPTS: &str = "/sys/kernel/irq";

/// The interface of the default route; `None` if there is none.
pub(super) fn default_name() -> Option<String> {
    let monitor = NetlinkMonitor::new().ok()?;
    let mirror = monitor.mirror();
    let usable = |index| mirror.link_at(index).filter(|link| link.name != "lo");
    mirror.default_interfaces().into_iter().find_map(usable).map(|link| link.name.clone())
}

/// Reads all that is known of an interface, whichever of its names this is. Changes nothing.
pub(super) fn look(name: &str) -> anyhow::Result<Interface> {
    let name = &kernel_name(name);
    let monitor = NetlinkMonitor::new().context("reading the kernel's interfaces")?;
    let mirror = monitor.mirror();
    let inspection = open(name, mirror)?;
    let mut nic = Nic::open(name).context("opening a netlink socket")?;
    let mut interface = Interface { name: name.to_owned(), ..Interface::default() };
    by_netlink(&mut interface, mirror, &inspection);
    by_driver(&mut interface, &mut nic, inspection.index());
    by_sysfs(&mut interface, mirror);
    Ok(interface)
}

/// Finds an interface, or says which there are.
pub(super) fn open(name: &str, mirror: &Mirror) -> anyhow::Result<Inspection> {
    Inspection::open(name).map_err(|error| match error {
        XdpError::NoSuchInterface { .. } => {
            let names: BTreeSet<&str> = mirror.links().map(|link| link.name.as_str()).collect();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            anyhow::anyhow!("there is no interface {name}; there are {names}")
        }
        error => error.into(),
    })
}

/// Attaches the steering program without claims, so that every packet passes it, and detaches it again.
pub(super) fn probe(name: &str) -> Known<Probe> {
    let attached = SteeringProgram::attach(name, SteeringOptions::default());
    attached.map(|program| Probe { is_native: program.mode() == AttachMode::Native }).into()
}

fn by_netlink(interface: &mut Interface, mirror: &Mirror, inspection: &Inspection) {
    let gone = || "the interface is gone".to_owned();
    let link = mirror.link(&interface.name);
    interface.is_up = link.map(|link| link.up).ok_or_else(gone).into();
    interface.has_carrier = link.map(|link| link.carrier).ok_or_else(gone).into();
    interface.mtu = link.map(|link| link.mtu).ok_or_else(gone).into();
    interface.queue_memory = link.and_then(|link| queue_memory(link.mtu)).ok_or_else(gone).into();
    interface.vlans = Known::Is(mirror.interfaces_on(&interface.name).len().saturating_sub(1));
    interface.driver = match inspection.driver() {
        Ok(driver) => Known::Is(Driver { name: driver.name, bus: driver.bus }),
        Err(error) => Known::Not(format!("the driver does not tell its name: {error}")),
    };
    let attached = |program: device_xdp::PresentProgram| Attached {
        id: program.id,
        is_native: program.attach == AttachMode::Native,
        is_ours: program.is_steering,
    };
    interface.hands_programs_down = inspection.hands_programs_down();
    interface.attached = inspection.program().map(|program| program.map(attached)).into();
}

/// Octets of packet memory that a server makes for a queue.
fn queue_memory(mtu: u32) -> Option<u64> {
    let options = XdpOptions::default();
    Some(u64::from(options.frames_per_queue) * u64::from(options.frame_size_for(mtu)?))
}

fn by_driver(interface: &mut Interface, nic: &mut Nic, index: u32) {
    interface.xdp = nic
        .xdp_features(index)
        .map(|has| XdpFeatures { basic: has.basic, redirect: has.redirect, zero_copy: has.zero_copy })
        .into();
    let mut bounded = |parameter| {
        let value = nic.parameter(parameter);
        value.map(|value| Bounded { current: value.current, max: value.max.unwrap_or(value.current) }).into()
    };
    interface.rx_queues = bounded(Parameter::RxQueues);
    interface.tx_queues = bounded(Parameter::TxQueues);
    interface.combined_queues = bounded(Parameter::CombinedQueues);
    interface.rx_ring = bounded(Parameter::RxRing);
    interface.rx_delay = nic.parameter(Parameter::RxDelay).map(|value| value.current).into();
    interface.adaptive_rx = nic.parameter(Parameter::AdaptiveRx).map(|value| value.current != 0).into();
    interface.features = nic.features().map(|all| all.into_iter().map(feature).collect()).into();
    if (interface.combined_queues.get(), interface.rx_queues.get()) == (None, None) {
        // What the server counts where a driver has no channels.
        interface.combined_queues = device_xdp::queue_pairs(&interface.name)
            .map(|queues| Bounded { current: queues.into(), max: queues.into() })
            .into();
    }
    let rules = device_xdp::flow_rules(&interface.name);
    interface.flow_rules = rules.map(|rules| rules.iter().map(|(_, rule)| flow_match(rule)).collect()).into();
    interface.rss = match nic.spread() {
        Err(NicError::Absent) => Known::Not("the driver has no receive-side scaling".to_owned()),
        spread => spread.map(|spread| Rss { table: spread.table, key: spread.key }).into(),
    };
}

fn feature((name, feature): (String, nic::Feature)) -> (String, Feature) {
    (name, Feature { is_on: feature.is_on, is_changeable: feature.is_changeable })
}

fn flow_match(rule: &FlowRule) -> (FlowMatch, u32) {
    let FlowRule { transport, is_v6, port, source, source_mask, queue } = *rule;
    let transport = match transport {
        steering::Transport::Tcp => Transport::Tcp,
        steering::Transport::Udp => Transport::Udp,
    };
    (FlowMatch { transport, is_v6, port, source, source_mask }, queue)
}

fn by_sysfs(interface: &mut Interface, mirror: &Mirror) {
    let directory = match directory(&interface.name, mirror) {
        Known::Is(directory) => directory,
        Known::Not(because) => {
            interface.defer_hard_irqs = Known::Not(because.clone());
            interface.gro_flush_timeout = Known::Not(because.clone());
            interface.steered_by_kernel = Known::Not(because.clone());
            interface.interrupts = Known::Not(because.clone());
            interface.node = Known::Not(because);
            return;
        }
    };
    let number = |name: &str| map(read(directory.join(name)), |text| text.parse().ok());
    interface.defer_hard_irqs = number("napi_defer_hard_irqs");
    interface.gro_flush_timeout = number("gro_flush_timeout");
    interface.steered_by_kernel = Known::Is(steered_by_kernel(&directory));
    let device = directory.join("device");
    if device.exists() {
        interface.interrupts = interrupts(&device, &interface.name);
        interface.node = node(&device);
    } else {
        interface.interrupts = Known::Is(Vec::new());
        interface.node = Known::Is(NodeOf::Nowhere);
    }
}

/// The interface's directory in /sys, which shows the network namespace that it was mounted in: perhaps another one, with an
/// interface of the same name. It is this one's if it has the same interfaces with the same numbers.
pub(super) fn directory(name: &str, mirror: &Mirror) -> Known<PathBuf> {
    let ours: BTreeMap<String, u32> = mirror.links().map(|link| (link.name.clone(), link.index)).collect();
    let number = |entry: fs::DirEntry| {
        let index = read(entry.path().join("ifindex")).get()?.parse().ok()?;
        Some((entry.file_name().into_string().ok()?, index))
    };
    let theirs = fs::read_dir(INTERFACES).into_iter().flatten().flatten().filter_map(number);
    if theirs.collect::<BTreeMap<String, u32>>() != ours {
        return Known::Not("/sys shows another network namespace than this one".to_owned());
    }
    Known::Is(Path::new(INTERFACES).join(name))
}

/// Receive queues with a mask of cores (RPS) that is not empty.
fn steered_by_kernel(directory: &Path) -> CoreList {
    let queues = fs::read_dir(directory.join("queues")).into_iter().flatten().flatten();
    let steered = |entry: fs::DirEntry| {
        let queue = entry.file_name().to_str()?.strip_prefix("rx-")?.parse().ok()?;
        let mask = read(entry.path().join("rps_cpus"));
        mask.get()?.contains(|digit: char| !matches!(digit, '0' | ',')).then_some(queue)
    };
    queues.filter_map(steered).collect()
}

fn node(device: &Path) -> Known<NodeOf> {
    // A virtual device's number is that of the one below it.
    let own = [device.join("numa_node"), device.join("../numa_node")];
    let text = own.iter().map(read).find(|text| text.get().is_some()).unwrap_or_default();
    match text {
        Known::Is(text) => Known::Is(text.parse().map_or(NodeOf::Nowhere, NodeOf::Node)), // -1 is none.
        Known::Not(_) => Known::Is(NodeOf::Nowhere),
    }
}

/// The interrupts of an interface's device, whatever their names.
fn interrupts(device: &Path, interface: &str) -> Known<Vec<Interrupt>> {
    let mut numbers = message_interrupts(device);
    if numbers.is_empty() {
        numbers = interrupts_named_after(device, interface);
    }
    let interrupts: Vec<Interrupt> = numbers.into_iter().filter_map(interrupt).collect();
    if interrupts.is_empty() {
        return Known::Not(format!("/sys shows no interrupts of its device (bus: {})", bus(device)));
    }
    Known::Is(interrupts)
}

/// The numbers of a device's message-signalled interrupts (MSI, MSI-X).
fn message_interrupts(device: &Path) -> BTreeSet<u32> {
    let below = |holder: PathBuf| -> BTreeSet<u32> {
        let entries = fs::read_dir(holder.join("msi_irqs")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let own = below(device.to_owned());
    // A virtio device, or a part of a NIC, has those of the PCI function that it is on. A PCI function is on a bridge, whose interrupts are its own.
    if own.is_empty() && bus(device) != "pci" { below(device.join("..")) } else { own }
}

/// The interrupts that bear the name of the interface or of its device, as those of virtio-mmio, of Xen, and of old PCI devices do.
fn interrupts_named_after(device: &Path, interface: &str) -> BTreeSet<u32> {
    let device = fs::canonicalize(device).unwrap_or_default();
    let device = device.file_name().and_then(OsStr::to_str).unwrap_or(interface);
    let bears = |name: &str| {
        [interface, device]
            .iter()
            .any(|of| name.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
    };
    numbered(INTERRUPTS, "").into_iter().filter(|number| name_of(*number).split(',').any(bears)).collect()
}

/// The bus that a device is on: pci, virtio, usb, ...
fn bus(device: &Path) -> String {
    let subsystem = fs::read_link(device.join("subsystem")).unwrap_or_default();
    subsystem.file_name().map_or("none".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What an interrupt's handlers are called; empty if it has none.
fn name_of(number: u32) -> String {
    read(format!("{INTERRUPTS}/{number}/actions")).get().cloned().unwrap_or_default()
}

fn interrupt(number: u32) -> Option<Interrupt> {
    let list = |name: &str| numbers(read(format!("/proc/irq/{number}/{name}"))).get().cloned();
    let allowed = list("smp_affinity_list")?;
    let effective = list("effective_affinity_list").filter(|cores| !cores.is_empty());
    let effective = effective.unwrap_or_else(|| allowed.clone());
    Some(Interrupt { number, name: name_of(number), effective, allowed })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

    use super::*;

    /// A directory with devices as /sys has them.
    struct Devices(PathBuf);

    impl Devices {
        fn new(name: &str) -> Devices {
            let path = std::env::temp_dir().join(format!("sidestep-devices-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Devices(path)
        }

        fn add(&self, path: &str, bus: &str, interrupts: &[u32]) -> PathBuf {
            let device = self.0.join(path);
            fs::create_dir_all(device.join("msi_irqs")).unwrap();
            std::os::unix::fs::symlink(format!("/sys/bus/{bus}"), device.join("subsystem")).unwrap();
            for number in interrupts {
                fs::write(device.join("msi_irqs").join(number.to_string()), "msix\n").unwrap();
            }
            device
        }
    }

    impl Drop for Devices {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn interrupts_are_the_devices_whatever_their_names() {
        let devices = Devices::new("interrupts");
        devices.add("bridge", "pci", &[24]);
        let nic = devices.add("bridge/nic", "pci", &[40, 41, 42]);
        let part = devices.add("bridge/nic/virtio2", "virtio", &[]);
        let silent = devices.add("bridge/silent", "pci", &[]);
        assert_eq!(message_interrupts(&nic), [40, 41, 42].into());
        assert_eq!(message_interrupts(&part), [40, 41, 42].into(), "those of the function that it is on");
        assert_eq!(message_interrupts(&silent), [].into(), "those of the bridge are the bridge's");
        assert_eq!((bus(&part), bus(&devices.0)), ("virtio".to_owned(), "none".to_owned()));
    }

    #[test]
    fn loopback_is_looked_at_without_privileges() {
        let interface = look("lo").unwrap();
        assert_eq!(interface.mtu, Known::Is(65536));
        assert_eq!(interface.attached, Known::Is(None));
        assert_eq!(interface.node, Known::Is(NodeOf::Nowhere));
    }

    #[test]
    fn frames_of_larger_packets_take_more_memory() {
        assert_eq!((queue_memory(1500), queue_memory(9000)), (Some(8 << 20), Some(16 << 20)));
    }

    /// A network namespace that goes with this value.
    struct Namespace(String);

    impl Namespace {
        fn new(name: &str) -> Namespace {
            let name = format!("sidestep-{name}-{}", std::process::id());
            assert!(ip(&["netns", "add", &name]));
            Namespace(name)
        }

        fn enter(&self) {
            let namespace = fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        }
    }

    impl Drop for Namespace {
        fn drop(&mut self) {
            ip(&["netns", "delete", &self.0]);
        }
    }

    fn ip(words: &[&str]) -> bool {
        Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
    }

    #[test]
    fn an_interface_is_looked_at_by_its_alternative_name() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let namespace = Namespace::new("altname");
        let of_it = |words: &str| {
            let words = ["-n", &namespace.0].into_iter().chain(words.split(' '));
            assert!(ip(&words.collect::<Vec<_>>()));
        };
        of_it("link add eth7 type veth peer name eth8");
        of_it("link property add dev eth7 altname another-name-of-eth7");
        let looked = std::thread::scope(|scope| {
            let look = || {
                namespace.enter();
                look("another-name-of-eth7")
            };
            scope.spawn(look).join().unwrap()
        });
        let interface = looked.unwrap();
        assert_eq!(
            (&interface.name[..], interface.is_up, interface.mtu),
            ("eth7", Known::Is(false), Known::Is(1500))
        );
    }

    #[test]
    fn an_interface_that_is_not_there_is_answered_with_those_that_are() {
        let error = look("no-such-if").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no interface no-such-if; there are ") && error.contains("lo"),
            "{error}"
        );
    }
}
