//! Which interfaces to use.

use control::{Link, Mirror, MonitorError, NetlinkMonitor};

/// The names of interfaces that packets for this host may come by.
pub(super) fn candidates() -> Result<Vec<String>, MonitorError> {
    Ok(choose(NetlinkMonitor::new()?.mirror()))
}

/// Takes those out of `named` that nothing can be claimed on, and says why.
pub(super) fn take_out_useless(named: &mut Vec<String>) -> Result<Vec<String>, MonitorError> {
    let monitor = NetlinkMonitor::new()?;
    let link_of = |name: &String| monitor.mirror().links().find(|link| link.name == *name);
    let why = |name: &String| link_of(name).and_then(why_useless).map(|why| format!("{name} {why}"));
    let notes = named.iter().filter_map(why).collect();
    named.retain(|name| why(name).is_none());
    Ok(notes)
}

fn why_useless(link: &Link) -> Option<&'static str> {
    match (link.name.as_str(), speaks_ethernet(link) || link.vlan.is_some()) {
        ("lo", _) => Some("is the kernel's: what is sent there never leaves this host"),
        (_, false) => Some("carries packets without Ethernet headers"),
        (_, true) => None,
    }
}

fn choose(mirror: &Mirror) -> Vec<String> {
    let is_candidate = |link: &&Link| link.up && speaks_ethernet(link) && has_addresses(link, mirror);
    mirror.links().filter(is_candidate).map(|link| link.name.clone()).collect()
}

/// Tunnels have no hardware address. A VLAN's packets come by the interface below it.
fn speaks_ethernet(link: &Link) -> bool {
    link.name != "lo" && link.vlan.is_none() && link.mac.is_some_and(|mac| mac != [0; 6])
}

/// An interface without an address belongs to a bridge or a bond, or is unused.
fn has_addresses(link: &Link, mirror: &Mirror) -> bool {
    let is_global = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(_) => true,
        std::net::IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    mirror.local_addresses(&link.name).into_iter().any(|local| is_global(local.address))
}
