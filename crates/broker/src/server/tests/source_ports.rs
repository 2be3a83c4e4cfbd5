//! Ports from which connections come home, for clients that have some of the queues; and interfaces that are not what they say.

use steering::rss::{IndirectionTable, MICROSOFT_KEY, Toeplitz};

use super::super::port::Change;
use super::super::spread::DeviceSpread;
use super::*;
use crate::protocol::{Answer, HomePorts};
use crate::registry::{Bound, ClientId, Scope, Shadow};

const LOCAL: [u8; 4] = [127, 0, 0, 1];
const START: clock::Instant = clock::Instant::ZERO;

fn spread(table: &[u16]) -> DeviceSpread {
    DeviceSpread {
        key: MICROSOFT_KEY.to_vec(),
        table: IndirectionTable::new(table).unwrap(),
        hashes_ports: [Some(true), None],
    }
}

/// A broker at an interface of two queues, each of which has been given to a client.
pub(super) fn shared_out(maps: &Maps) -> (Broker, [ClientId; 2]) {
    let family = Family { head: std::process::id(), group: None };
    let mut broker = Broker::open(setup_with(maps, None, 2, family), START).unwrap();
    let clients = [broker.registry.add_client(), broker.registry.add_client()];
    clients.iter().for_each(|client| broker.registry.attach(*client, START));
    while broker.registry.poll(START).is_some() {}
    for (client, queue) in clients.iter().zip([0, 1]) {
        broker.registry.on_ready(*client, 0, &[queue]);
        assert!(broker.registry.queues_of(*client, 0).contains(queue));
    }
    broker.take_notices();
    (broker, clients)
}

fn home_ports(broker: &mut Broker, client: ClientId) -> Option<HomePorts> {
    broker.home_ports(client, 0, true, START)
}

/// Ends of a connection whose answer the interface would put into this queue.
fn ends_in(queue: u32) -> (SocketAddr, SocketAddr) {
    let remote = SocketAddr::from(([192, 0, 2, 9], 443));
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let mut locals = (40_000..).map(|port| SocketAddr::from((LOCAL, port)));
    let local = locals.find(|local| toeplitz.hash_ports(remote, *local) % 2 == queue).unwrap();
    (local, remote)
}

pub(super) fn claim(broker: &mut Broker, client: ClientId, local: SocketAddr) {
    // A single address of loopback is not claimed.
    let bound = Bound { scope: Scope::Any { v4: true, v6: false }, port: local.port(), device: None };
    let shadow = Shadow {
        transport: steering::Transport::Tcp,
        purpose: Purpose::Outgoing,
        bound,
        cookie: u64::from(local.port()),
        owner: 0,
    };
    broker.registry.claim(client, shadow).unwrap();
}

#[test]
fn who_has_some_of_the_queues_is_told_from_which_ports_answers_come_by_them() {
    let maps = Maps::default();
    maps.say(Some(spread(&[0, 0, 0, 1])));
    let (mut broker, clients) = shared_out(&maps);
    let told = clients.map(|client| home_ports(&mut broker, client).unwrap());
    assert_eq!((told[0].entries, &told[0].key[..]), (4, &MICROSOFT_KEY[..]));
    assert_eq!(told.each_ref().map(|told| told.home.clone()), [vec![0b0111], vec![0b1000]]);
    assert!(told[0].hashes_ports && told[0].range.0 < told[0].range.1);
    assert_eq!(broker.home_ports(clients[0], 0, false, START), None, "it is not said what is hashed of IPv6");
    let third = broker.registry.add_client();
    assert_eq!(home_ports(&mut broker, third), None, "it has no queue");
}

#[test]
fn where_the_interface_does_not_say_how_it_spreads_packets_nobody_is_told_of_ports() {
    let (mut broker, clients) = shared_out(&Maps::default());
    assert_eq!(clients.map(|client| home_ports(&mut broker, client)), [None, None]);
}

#[test]
fn an_indirection_table_that_changes_is_noticed_within_a_second() {
    let maps = Maps::default();
    maps.say(Some(spread(&[0, 1])));
    let (mut broker, [client, _]) = shared_out(&maps);
    assert_eq!(home_ports(&mut broker, client).unwrap().home, [0b01]);
    maps.say(Some(spread(&[1, 0])));
    let later = START + clock::Duration::from_secs(1);
    let paths = broker.paths.as_ref();
    let mut follow = || broker.ports[0].follow(paths, broker.monitor.mirror(), later);
    assert_eq!((follow(), follow()), (vec![Change::Spread], vec![]));
    assert_eq!(home_ports(&mut broker, client).unwrap().home, [0b10]);
}

#[test]
fn an_interface_whose_answers_come_by_other_queues_is_not_believed_any_more() {
    let maps = Maps::default();
    maps.say(Some(spread(&[0, 1])));
    let (mut broker, [client, other]) = shared_out(&maps);
    home_ports(&mut broker, client).unwrap();
    let (local, remote) = ends_in(0);
    claim(&mut broker, client, local);
    let unanswered = |broker: &mut Broker, client, came_elsewhere: bool| {
        if came_elsewhere {
            maps.misdirect(local, remote);
        }
        broker.on_unanswered(client, (local, remote), START)
    };
    assert!(matches!(unanswered(&mut broker, other, true), Err(Refusal::NoSuchClaim)));
    for came_elsewhere in [true, false, true, false, false] {
        let outcome = unanswered(&mut broker, client, came_elsewhere);
        assert!(matches!(outcome, Ok(Some((Answer::Done, None)))));
    }
    assert!(home_ports(&mut broker, client).is_some(), "most peers just did not answer");
    unanswered(&mut broker, client, true).unwrap();
    unanswered(&mut broker, client, true).unwrap();
    assert_eq!(home_ports(&mut broker, client), None);
    let notices: Vec<String> = broker.take_notices().iter().map(ToString::to_string).collect();
    assert!(notices.len() == 1 && notices[0].starts_with("lo: answers came by other queues"), "{notices:?}");
    assert!(broker.status(START).interfaces[0].is_doubted);
}

#[test]
fn an_answer_that_nobody_promised_says_nothing_of_the_interface() {
    let maps = Maps::default();
    maps.say(Some(spread(&[0, 1])));
    let (mut broker, [client, _]) = shared_out(&maps);
    home_ports(&mut broker, client).unwrap();
    let (local, remote) = ends_in(1);
    claim(&mut broker, client, local);
    for _ in 0..10 {
        maps.misdirect(local, remote);
        broker.on_unanswered(client, (local, remote), START).unwrap();
    }
    assert!(home_ports(&mut broker, client).is_some(), "it comes where the interface says");
}
