//! Sockets, counters and traces of a running engine.

mod common;

use common::{CLIENT, SERVER, World};
use engine::DeviceId;
use observe::client::ClientError;
use observe::protocol::{Reply, Request};
use observe::report::{SocketReport, TraceReport};
use stack::tcp::Shutdown;
use stack::udp::UdpBind;

fn with_state<'s>(sockets: &'s [SocketReport], state: &str) -> Vec<&'s SocketReport> {
    sockets.iter().filter(|socket| socket.state == state).collect()
}

fn trace(world: &World, filter: &str, connection: Option<&str>) -> Vec<TraceReport> {
    let request = Request::Trace { filter: filter.to_owned(), connection: connection.map(str::to_owned) };
    let replies = world.replies(&request).unwrap();
    let records = replies.into_iter().map(|reply| match reply {
        Reply::Trace(records) => records,
        other => panic!("{other:?}"),
    });
    records.flatten().collect()
}

#[test]
fn a_connection_and_its_listener_are_listed_with_what_they_counted() {
    let world = World::new();
    let connection = world.client().connect(CLIENT.port());
    world.client().exchange(connection, &[7; 5000]);
    let (sockets, engine) = world.sockets("");
    assert_eq!(sockets.len(), 2, "{sockets:?}");
    let listener = with_state(&sockets, "LISTEN")[0];
    assert_eq!((listener.local, listener.recv_q, listener.half_open), (SERVER, 0, Some(0)));
    let open = with_state(&sockets, "ESTAB")[0];
    assert_eq!((open.local, open.remote), (SERVER, Some(CLIENT)));
    let tcp = open.tcp.as_ref().unwrap();
    assert_eq!((tcp.bytes_received, tcp.bytes_sent), (5000, 5000));
    assert_eq!((tcp.congestion.as_str(), tcp.retrans_total), ("cubic", 0));
    assert!(tcp.segs_in >= 5 && tcp.cwnd >= 10 && tcp.mss >= 1400 && tcp.wscale.is_some(), "{tcp:?}");
    assert_eq!((engine.connections, engine.half_open, engine.missing), (1, 0, None));
}

#[test]
fn states_are_those_that_the_wire_brought_about() {
    let world = World::new();
    let closing = world.client().connect(CLIENT.port());
    let half_closed = world.client().connect(CLIENT.port() + 1);
    world.server().ask(move |stack, now| {
        // The server's ends: one closes first.
        let ids: Vec<_> = stack.connections().collect();
        let first = ids.into_iter().find(|id| stack.endpoints(*id).unwrap().1 == CLIENT).unwrap();
        stack.shutdown(first, Shutdown::Write, now);
    });
    world.client().wait_for(move |stack| stack.readiness(closing).is_some_and(|ready| ready.read_closed));
    world.client().exchange(half_closed, b"still open");
    let (sockets, _) = world.sockets("tcp and dst net 192.0.2.0/24");
    assert_eq!(with_state(&sockets, "FIN-WAIT-2")[0].remote, Some(CLIENT), "{sockets:?}");
    assert_eq!(with_state(&sockets, "ESTAB").len(), 1, "{sockets:?}");
    let (one, _) = world.sockets(&format!("dst port {}", CLIENT.port() + 1));
    assert_eq!(one.len(), 1, "{one:?}");
}

#[test]
fn udp_sockets_are_listed_and_listening_shows_who_waits() {
    let world = World::new();
    let connection = world.client().connect(CLIENT.port());
    world.client().exchange(connection, b"open");
    let local = "192.0.2.1:9".parse().unwrap();
    world.server().ask(move |stack, _| stack.udp_bind(&UdpBind::new(local)).unwrap());
    let (sockets, _) = world.sockets("udp");
    assert_eq!((sockets.len(), sockets[0].local, sockets[0].state.as_str()), (1, local, "UNCONN"));
    let listening = world.replies(&Request::Sockets { filter: String::new(), listening: true }).unwrap();
    let sockets = listening.iter().flat_map(|reply| match reply {
        Reply::Sockets(sockets) => sockets.as_slice(),
        _ => &[],
    });
    let states: Vec<&str> = sockets.map(|socket| socket.state.as_str()).collect();
    assert_eq!(states, ["LISTEN", "UNCONN"]);
}

#[test]
fn thousands_of_connections_come_in_pieces_and_none_is_missing() {
    const COUNT: u16 = 2000;
    let world = World::new();
    for port in 0..COUNT {
        world.client().ask(move |stack, now| {
            let local = std::net::SocketAddr::new(CLIENT.ip(), 10_000 + port);
            let (hop, options) = (Default::default(), Default::default());
            let connect = stack::Connect { local, remote: SERVER, is_bound: false, hop, options, data: b"" };
            stack.tcp_connect(&connect, now).unwrap()
        });
    }
    world.server().wait_for(|stack| stack.population().0 == u32::from(COUNT));
    let (sockets, engine) = world.sockets("dst host 192.0.2.2");
    let mut ports: Vec<u16> = sockets.iter().map(|socket| socket.remote.unwrap().port()).collect();
    ports.sort_unstable();
    assert!(ports.into_iter().eq(10_000..10_000 + COUNT));
    assert_eq!(engine.connections, u32::from(COUNT));
}

#[test]
fn counters_have_their_names_in_snmp() {
    let world = World::new();
    let connection = world.client().connect(CLIENT.port());
    world.client().exchange(connection, b"hello");
    let replies = world.replies(&Request::Counters).unwrap();
    let [Reply::Counters(report)] = replies.as_slice() else { panic!("{replies:?}") };
    assert_eq!(report.own, [("own_count".to_owned(), 7)]);
    let engine = &report.engines[0];
    let value = |name: &str| engine.stack.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
    assert_eq!(value("TcpPassiveOpens"), Some(1));
    assert!(value("TcpInSegs").unwrap() >= 3);
    assert_eq!(engine.devices[0].device, 3);
    assert!(engine.engine.iter().any(|(name, _)| name == "sleeps"));
}

#[test]
fn counters_of_a_device_that_is_removed_stay_in_the_sum() {
    let world = World::new();
    let connection = world.client().connect(CLIENT.port());
    world.client().exchange(connection, b"hello");
    let count = || {
        let replies = world.replies(&Request::Counters).unwrap();
        let [Reply::Counters(report)] = replies.as_slice() else { panic!("{replies:?}") };
        let engine = &report.engines[0];
        let counts = engine.devices.iter().flat_map(|device| &device.counters).chain(&engine.devices_gone);
        let received = counts.filter(|(name, _)| name == "rx_frames").map(|(_, value)| value).sum::<u64>();
        (engine.devices.len(), received)
    };
    let (devices, before) = count();
    assert!(devices == 1 && before >= 3, "{before}");
    world.server().handle.remove_device(DeviceId(3));
    let (devices, after) = count();
    assert!(devices == 0 && after >= before, "{before} became {after}");
}

#[test]
fn a_trace_tells_what_happened_on_a_connection() {
    let world = World::new();
    let connection = world.client().connect(CLIENT.port());
    world.client().exchange(connection, b"hello");
    let id = world.sockets("dst port 40000").0[0].id.clone().unwrap();
    let records = trace(&world, "port 40000", Some(&id));
    assert!(records.iter().all(|record| record.connection == id && record.ends == Some((SERVER, CLIENT))));
    let data = records.iter().find(|record| {
        record.event == "received" && record.segment.as_ref().is_some_and(|segment| segment.len == 5)
    });
    assert!(data.is_some(), "{records:?}");
    let sent = records.iter().find(|record| record.event == "sent").unwrap();
    assert!(sent.cwnd.is_some_and(|cwnd| cwnd >= 10_000) && sent.segment.is_some(), "{sent:?}");
    assert!(records.is_sorted_by_key(|record| record.time_ns));
    assert!(trace(&world, "port 1", None).is_empty());
    assert!(trace(&world, "", Some("77.0")).is_empty());
}

#[test]
fn what_was_asked_wrongly_is_told() {
    let world = World::new();
    let wrong = [
        Request::Sockets { filter: "host nobody".to_owned(), listening: false },
        Request::Trace { filter: String::new(), connection: Some("x".to_owned()) },
        Request::Capture { filter: "(".to_owned(), snaplen: 1 },
    ];
    for request in wrong {
        let error = world.replies(&request).unwrap_err();
        assert!(matches!(error, ClientError::Refused(_)), "{request:?}: {error}");
    }
}
