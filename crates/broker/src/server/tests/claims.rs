//! Claims: who has them, and for how long.

use super::*;

#[test]
fn claims_that_the_kernel_does_not_confirm_are_refused() {
    let served = Served::new(1);
    let mut client = served.connect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut claim = |transport, purpose, fd| refusal(client.claim(transport, purpose, fd));
    let (tcp, listens) = (Transport::Tcp, Purpose::Listener);
    assert_eq!(claim(tcp, listens, listener.as_fd()), Refusal::Loopback);
    assert_eq!(claim(tcp, Purpose::Outgoing, listener.as_fd()), Refusal::InUse);
    assert_eq!(claim(tcp, listens, udp.as_fd()), Refusal::NotThisTransport);
    assert_eq!(claim(Transport::Udp, Purpose::Udp, udp.as_fd()), Refusal::Loopback);
    assert_eq!(claim(tcp, listens, file.as_fd()), Refusal::NoSocket);
    let (id, places) = client.claim(tcp, listens, any.as_fd()).unwrap();
    assert_eq!(places, [], "the interface has loopback addresses only");
    client.drain(id).unwrap();
    client.release(id).unwrap();
    assert_eq!(refusal(client.release(id)), Refusal::NoSuchClaim);
}

#[test]
fn a_port_to_connect_from_is_nobody_elses_though_its_socket_has_lost_it() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};
    let served = Served::new(1);
    let mut client = served.connect();
    let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let made = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let shadow = made();
    bind(&shadow, &any(0)).unwrap();
    let port = SocketAddr::try_from(getsockname(&shadow).unwrap()).unwrap().port();
    let (id, _) = client.claim(Transport::Tcp, Purpose::Outgoing, shadow.as_fd()).unwrap();
    assert!(connect(&shadow, &SocketAddr::from(([127, 0, 0, 1], 1))).is_err(), "nobody listens there");
    let next = made();
    assert_eq!(bind(&next, &any(port)), Err(rustix::io::Errno::ADDRINUSE));
    client.release(id).unwrap();
    assert_eq!(bind(&next, &any(port)), Ok(()));
}

#[test]
fn one_clients_claim_is_not_anothers_to_touch() {
    let served = Served::new(1);
    let (mut owner, mut other) = (served.connect(), served.connect());
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let (id, _) = owner.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap();
    assert_eq!(refusal(other.release(id)), Refusal::NoSuchClaim);
    assert_eq!(refusal(other.drain(id)), Refusal::NoSuchClaim);
    owner.release(id).unwrap();
}

#[test]
fn a_socket_that_one_leaves_is_the_kernels_for_all() {
    let served = Served::new(1);
    let (mut first, mut second) = (served.connect(), served.connect());
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let other = TcpListener::bind("0.0.0.0:0").unwrap();
    let (id, _) = first.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap();
    let (seconds, _) = second.claim(Transport::Tcp, Purpose::Listener, any.as_fd()).unwrap();
    second.leave_socket(id).unwrap();
    assert_eq!(refusal(second.settle()), Refusal::NoSuchClaim);
    first.leave_socket(id).unwrap();
    let told = next_event(&mut second);
    assert!(matches!(told, Event::News(News::SocketLeft { claim }) if claim == seconds), "{told:?}");
    assert_eq!(refusal(second.claim(Transport::Tcp, Purpose::Listener, any.as_fd())), Refusal::SocketLeft);
    second.claim(Transport::Tcp, Purpose::Listener, other.as_fd()).unwrap();
    first.release(id).unwrap();
}

#[test]
fn the_profile_keeps_on_the_kernel_what_it_names() {
    let reason = "it forks for each connection".to_owned();
    let profile = Profile { listeners: false, reason: Some(reason.clone()), ..all() };
    let served = Served::of(1, std::process::id(), profile);
    let mut client = served.connect();
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = refusal(client.claim(Transport::Tcp, Purpose::Listener, any.as_fd()));
    assert_eq!(refused, Refusal::Profile(reason));
}

#[test]
fn a_listener_that_went_without_a_word_leaves_its_port_to_the_kernel() {
    let served = Served::new(1);
    let mut client = served.connect();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap();
    let draining = || {
        let report = served.handle.as_ref().unwrap().reporter().report().unwrap();
        report.programs[0].claims[0].draining
    };
    assert!(!draining());
    std::thread::sleep(Duration::from_millis(1300));
    assert!(!draining(), "it is there");
    drop(listener);
    let deadline = Instant::now() + PATIENCE;
    while !draining() {
        assert!(Instant::now() < deadline, "it is kept");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_port_of_an_outgoing_connection_is_kept_until_it_is_released() {
    let served = Served::new(1);
    let mut client = served.connect();
    let bound = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&bound, &SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let name: SocketAddr = rustix::net::getsockname(&bound).unwrap().try_into().unwrap();
    let (claim, _) = client.claim(Transport::Tcp, Purpose::Outgoing, bound.as_fd()).unwrap();
    drop(bound);
    let bind = || {
        let other = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&other, &name).map(|()| other)
    };
    assert!(bind().is_err());
    assert_eq!(refusal(served.connect().release(claim)), Refusal::NoSuchClaim);
    assert!(bind().is_err(), "it is not others' to release");
    client.release(claim).unwrap();
    let bound = bind().unwrap();
    client.claim(Transport::Tcp, Purpose::Outgoing, bound.as_fd()).unwrap();
    drop((client, bound));
    served.handle.as_ref().unwrap().reporter().linger(PATIENCE.into());
    wait_until(|| bind().is_ok()); // Nor is it kept longer than its client lives.
}

#[test]
fn many_claims_are_released_together_and_what_is_not_ones_own_stays() {
    let served = Served::new(1);
    let (mut client, mut other) = (served.connect(), served.connect());
    let listeners = [(); 5].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    let claim = |client: &mut Client, listener: &TcpListener| {
        client.claim(Transport::Tcp, Purpose::Listener, listener.as_fd()).unwrap().0
    };
    let foreign = claim(&mut other, &listeners[0]);
    let mut claims: Vec<_> =
        listeners.iter().flat_map(|listener| [listener; 100]).map(|it| claim(&mut client, it)).collect();
    claims.insert(250, foreign);
    client.release_all(&claims).unwrap();
    assert!(claims.iter().all(|claim| refusal(client.release(*claim)) == Refusal::NoSuchClaim));
    other.release(foreign).unwrap();
}
