//! Which interfaces are tried if none is named.

use control::{Link, Mirror, MonitorError, NetlinkMonitor};

/// The names of interfaces that packets for this host may come by.
pub(super) fn candidates() -> Result<Vec<String>, MonitorError> {
    Ok(choose(NetlinkMonitor::new()?.mirror()))
}

fn choose(mirror: &Mirror) -> Vec<String> {
    let is_candidate = |link: &&Link| link.up && speaks_ethernet(link) && has_addresses(link, mirror);
    mirror.links().filter(is_candidate).map(|link| link.name.clone()).collect()
}

/// Tunnels have no hardware address. A VLAN's packets come by the interface below it.
fn speaks_ethernet(link: &Link) -> bool {
    link.name != "lo" && link.vlan.is_none() && link.mac.is_some_and(|mac| mac != [0; 6])
}

/// An interface without any belongs to a bridge, a bond, or nobody.
fn has_addresses(link: &Link, mirror: &Mirror) -> bool {
    let is_global = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(_) => true,
        std::net::IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    mirror.local_addresses(&link.name).into_iter().any(|local| is_global(local.address))
}
