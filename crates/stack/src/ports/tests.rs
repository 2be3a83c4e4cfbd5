use super::*;

fn tcp(local: &str) -> Binding {
    let local = local.parse().unwrap();
    Binding { protocol: Protocol::Tcp, local, v6only: false, reuse_address: false, reuse_port: false }
}

fn reuse_address(local: &str) -> Binding {
    Binding { reuse_address: true, ..tcp(local) }
}

fn reuse_port(local: &str) -> Binding {
    Binding { reuse_port: true, ..tcp(local) }
}

fn v6only(local: &str) -> Binding {
    Binding { v6only: true, ..tcp(local) }
}

/// Whether both can be bound, tried in either order, which makes no difference.
fn coexist(one: Binding, other: Binding) -> bool {
    let both = [(one, other), (other, one)].map(|(first, second)| {
        let mut table = PortTable::new();
        table.bind(first).unwrap();
        table.bind(second).is_ok()
    });
    assert_eq!(both[0], both[1]);
    both[0]
}

#[test]
fn a_wildcard_overlaps_with_every_address() {
    assert!(!coexist(tcp("10.0.0.1:80"), tcp("10.0.0.1:80")));
    assert!(!coexist(tcp("0.0.0.0:80"), tcp("10.0.0.1:80")));
    assert!(!coexist(tcp("[::]:80"), tcp("[2001:db8::1]:80")));
    assert!(coexist(tcp("10.0.0.2:80"), tcp("10.0.0.1:80")));
    assert!(coexist(tcp("0.0.0.0:81"), tcp("10.0.0.1:80")));
    assert!(coexist(tcp("10.0.0.1:80"), tcp("[2001:db8::1]:80")));
    assert!(coexist(tcp("10.0.0.1:80"), Binding { protocol: Protocol::Udp, ..tcp("10.0.0.1:80") }));
}

#[test]
fn the_wildcard_of_ipv6_covers_ipv4_unless_v6only() {
    assert!(!coexist(tcp("[::]:80"), tcp("0.0.0.0:80")));
    assert!(!coexist(tcp("[::]:80"), tcp("10.0.0.1:80")));
    assert!(coexist(v6only("[::]:80"), tcp("0.0.0.0:80")));
    assert!(coexist(v6only("[::]:80"), tcp("[::ffff:10.0.0.1]:80")));
    assert!(!coexist(v6only("[::]:80"), tcp("[::]:80")));
    assert!(!coexist(tcp("[::ffff:10.0.0.1]:80"), tcp("10.0.0.1:80")));
}

#[test]
fn reuse_takes_two() {
    for reuse in [reuse_address, reuse_port] {
        assert!(coexist(reuse("10.0.0.1:80"), reuse("10.0.0.1:80")));
        assert!(coexist(reuse("[::]:80"), reuse("10.0.0.1:80")));
        assert!(!coexist(reuse("10.0.0.1:80"), tcp("10.0.0.1:80")));
    }
    assert!(!coexist(reuse_address("10.0.0.1:80"), reuse_port("10.0.0.1:80")));
}

#[test]
fn a_socket_is_not_in_its_own_way() {
    let mut table = PortTable::new();
    let id = table.bind(tcp("0.0.0.0:80")).unwrap();
    assert_eq!((table.listen(id), table.listen(id)), (Ok(()), Ok(())));
}

#[test]
fn of_sockets_that_share_by_reuseaddr_one_listens() {
    let mut table = PortTable::new();
    let one = table.bind(reuse_address("0.0.0.0:80")).unwrap();
    let other = table.bind(reuse_address("0.0.0.0:80")).unwrap();
    assert_eq!(table.listen(one), Ok(()));
    assert_eq!(table.listen(other), Err(BindError::InUse));
    assert_eq!(table.bind(reuse_address("10.0.0.1:80")), Err(BindError::InUse));
    table.stop_listening(one);
    assert_eq!(table.listen(other), Ok(()));
    table.release(other);
    assert!(table.bind(reuse_address("10.0.0.1:80")).is_ok());
}

#[test]
fn sockets_that_share_by_reuseport_all_listen() {
    let mut table = PortTable::new();
    for _ in 0..3 {
        let id = table.bind(reuse_port("0.0.0.0:80")).unwrap();
        assert_eq!(table.listen(id), Ok(()));
    }
}

#[test]
fn a_server_that_restarts_needs_reuseaddr_while_connections_last() {
    let mut table = PortTable::new();
    let local = "10.0.0.1:80".parse().unwrap();
    let listener = table.bind(reuse_address("0.0.0.0:80")).unwrap();
    table.listen(listener).unwrap();
    (0..2).for_each(|_| table.hold(Protocol::Tcp, local, true, false));
    table.release(listener);
    assert_eq!(table.bind(tcp("0.0.0.0:80")), Err(BindError::InUse));
    assert!(table.bind(tcp("10.0.0.2:80")).is_ok());
    let again = table.bind(reuse_address("10.0.0.1:80")).unwrap();
    assert_eq!(table.listen(again), Ok(()));
    table.release(again);
    table.release_connection(Protocol::Tcp, local);
    assert_eq!(table.bind(tcp("10.0.0.1:80")), Err(BindError::InUse));
    table.release_connection(Protocol::Tcp, local);
    assert!(table.bind(tcp("10.0.0.1:80")).is_ok());
}

#[test]
fn outgoing_connections_share_a_port_with_each_other_but_not_with_sockets() {
    let mut table = PortTable::new();
    let local = "10.0.0.1:40000".parse().unwrap();
    table.hold(Protocol::Tcp, local, false, false);
    assert!(table.is_connectable(Protocol::Tcp, local));
    assert_eq!(table.bind(reuse_address("0.0.0.0:40000")), Err(BindError::InUse));
    table.release_connection(Protocol::Tcp, local);
    table.bind(reuse_address("0.0.0.0:40000")).unwrap();
    assert!(!table.is_connectable(Protocol::Tcp, local));
    assert!(table.is_connectable(Protocol::Udp, local));
}

#[test]
fn one_connection_without_the_option_takes_it_from_all() {
    let mut table = PortTable::new();
    let local = "10.0.0.1:80".parse().unwrap();
    table.hold(Protocol::Tcp, local, true, false);
    table.hold(Protocol::Tcp, local, false, false);
    assert_eq!(table.bind(reuse_address("10.0.0.1:80")), Err(BindError::InUse));
}

#[test]
fn an_unnamed_port_is_one_that_nobody_has_whatever_the_options() {
    let mut table = PortTable::new();
    table.bind(reuse_port("0.0.0.0:1001")).unwrap();
    let mut bind =
        |chance| table.bind_ephemeral(reuse_port("10.0.0.1:0"), 1000..=1002, chance).map(|(_, port)| port);
    assert_eq!(bind(u32::MAX), Ok(1000)); // u32::MAX is a multiple of 3.
    assert_eq!(bind(1), Ok(1002));
    assert_eq!(bind(2), Err(BindError::NoPortFree));
}

#[test]
fn entries_are_used_again() {
    let mut table = PortTable::new();
    for _ in 0..100 {
        let ids = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(|local| table.bind(tcp(local)).unwrap());
        [1, 0, 2].into_iter().for_each(|at| table.release(ids[at]));
    }
    assert_eq!((table.entries.len(), table.first[0][1]), (3, 0));
}

#[test]
fn ports_to_one_destination_follow_each_other_rfc_6056_section_3_3_4() {
    let mut ports = EphemeralPorts::new(EPHEMERAL, [1, 2]);
    let (local, remote) = ("10.0.0.1".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
    let mut seen = std::collections::BTreeSet::new();
    let first = ports.select(local, remote, |_| true).unwrap();
    assert!(EPHEMERAL.contains(&first) && seen.insert(first));
    for _ in 1..EPHEMERAL.count() {
        assert!(seen.insert(ports.select(local, remote, |_| true).unwrap()));
    }
    assert_eq!(ports.select(local, remote, |_| true), Some(first));
}

#[test]
fn destinations_and_secrets_have_sequences_of_their_own_rfc_6056_section_3_3_4() {
    let local = "10.0.0.1".parse().unwrap();
    let port = |key, remote: &str| {
        EphemeralPorts::new(EPHEMERAL, key).select(local, remote.parse().unwrap(), |_| true).unwrap()
    };
    let one = port([1, 2], "192.0.2.1:443");
    assert_ne!(port([1, 2], "192.0.2.1:444"), one);
    assert_ne!(port([1, 2], "192.0.2.2:443"), one);
    assert_ne!(port([1, 3], "192.0.2.1:443"), one);
}

#[test]
fn every_port_is_tried_before_there_is_none() {
    let mut ports = EphemeralPorts::new(100..=199, [1, 2]);
    let (local, remote) = ("::1".parse().unwrap(), "[::1]:443".parse().unwrap());
    assert_eq!(ports.select(local, remote, |port| port == 150), Some(150));
    let mut tried = Vec::new();
    assert_eq!(
        ports.select(local, remote, |port| {
            tried.push(port);
            false
        }),
        None
    );
    tried.sort_unstable();
    assert!(tried.into_iter().eq(100..=199));
}
