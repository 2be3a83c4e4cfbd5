//! How many descriptors there may be. Each connection on a kernel socket takes one, and a reload needs some for its files.

use dns_server::TcpLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config::DeviceChoice;

/// Descriptors for all but connections: sockets that are bound, files of zones, tools.
const RESERVE: usize = 256;

/// Raises the soft limit to the hard one, and returns it. The soft one is 1024 nearly everywhere, for programs that call select(2).
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    // Nobody is refused this.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current
}

/// `tcp` with no more connections than `descriptors` are enough for. With an interface nearly all connections are on our own stack and take
/// none, so there they stay as many.
pub(super) fn fit(tcp: TcpLimits, device: &DeviceChoice, descriptors: Option<u64>) -> TcpLimits {
    let descriptors = descriptors.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let enough_for = descriptors.saturating_sub(RESERVE).max(1);
    if tcp.connections_max <= enough_for {
        return tcp;
    }
    let wanted = format!("tcp.connections-max is {}, and {descriptors} descriptors are", tcp.connections_max);
    let remedy = "raise the limit (LimitNOFILE= in a unit, ulimit -Hn)";
    match device {
        DeviceChoice::Kernel(_) => {
            log::warn!("{wanted} enough for {enough_for} connections, so more are refused: {remedy}");
            TcpLimits { connections_max: enough_for, ..tcp }
        }
        DeviceChoice::Interface(..) => {
            log::warn!("{wanted} enough for {enough_for} connections on kernel sockets: {remedy}");
            tcp
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Duration;

    use super::super::config::Link;
    use super::*;

    fn connections(device: &DeviceChoice, descriptors: Option<u64>) -> usize {
        let tcp = TcpLimits {
            idle_timeout: Duration::from_secs(10),
            connections_max: 1024,
            connections_per_client_max: 128,
        };
        fit(tcp, device, descriptors).connections_max
    }

    #[test]
    fn connections_on_kernel_sockets_leave_a_reserve_of_descriptors() {
        let kernel = DeviceChoice::Kernel(Vec::new());
        assert_eq!(connections(&kernel, None), 1024);
        assert_eq!(connections(&kernel, Some(1024 + 256)), 1024);
        assert_eq!(connections(&kernel, Some(1024)), 768);
        assert_eq!(connections(&kernel, Some(10)), 1);
    }

    #[test]
    fn connections_of_an_interface_take_none() {
        let interface = DeviceChoice::Interface(Link::Xdp("eth0".to_owned()), Vec::new());
        assert_eq!(connections(&interface, Some(300)), 1024);
    }
}
