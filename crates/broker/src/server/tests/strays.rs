//! Segments that come by the queue of a process which does not know their connection.

use super::source_ports::{claim, shared_out};
use super::*;
use crate::client::{Search, Ticket};
use crate::protocol::Answer;
use crate::server::turns::listen_anywhere;

const SEGMENT: &[u8] = b"a header, and what follows";

fn listen(client: &mut Client, socket: &TcpListener) {
    client.claim(Transport::Tcp, Purpose::Listener, socket.as_fd()).unwrap();
}

/// The ends of a connection that a peer has with this listener.
fn ends(listener: &TcpListener) -> (SocketAddr, SocketAddr) {
    let port = listener.local_addr().unwrap().port();
    (SocketAddr::from(([192, 0, 2, 1], port)), SocketAddr::from(([192, 0, 2, 2], 4000)))
}

fn begin(client: &mut Client, listener: &TcpListener) -> Ticket {
    let (local, remote) = ends(listener);
    client.begin_stray(local, remote, SEGMENT).unwrap()
}

fn answer(client: &mut Client, ticket: &Ticket) -> Search {
    loop {
        match client.poll_stray(ticket).unwrap() {
            None => assert!(client.wait(PATIENCE).unwrap(), "no answer"),
            Some(search) => return search,
        }
    }
}

/// What a client is told; the token.
fn told(client: &mut Client, listener: &TcpListener) -> u64 {
    match next_event(client) {
        Event::News(News::Strayed { token, local, remote, octets }) => {
            assert_eq!(((local, remote), &*octets), (ends(listener), SEGMENT));
            token
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn it_is_nobodys_when_all_with_the_port_have_said_so() {
    let served = Served::new(1);
    let [mut asker, mut one, mut other, mut stranger] = [(); 4].map(|()| served.connect());
    let [listener, elsewhere] = [(); 2].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    [&mut asker, &mut one, &mut other].into_iter().for_each(|client| listen(client, &listener));
    listen(&mut stranger, &elsewhere);
    let ticket = begin(&mut asker, &listener);
    let token = told(&mut one, &listener);
    assert_eq!(told(&mut other, &listener), token);
    one.disown(token).unwrap();
    stranger.disown(token).unwrap();
    (0..2).for_each(|_| asker.settle().unwrap());
    assert_eq!(asker.poll_stray(&ticket).unwrap(), None, "one has not answered");
    other.disown(token).unwrap();
    assert_eq!(answer(&mut asker, &ticket), Search::Nobodys);
    assert!(stranger.poll_event().unwrap().is_none(), "it has no part in that");
}

#[test]
fn who_is_alone_is_told_so_at_once() {
    let served = Served::new(1);
    let (mut asker, mut other) = (served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listen(&mut asker, &listener);
    let ticket = begin(&mut asker, &listener);
    assert_eq!(answer(&mut asker, &ticket), Search::Alone);
    listen(&mut other, &listener);
    let ticket = begin(&mut asker, &listener);
    told(&mut other, &listener);
    drop(other);
    assert_eq!(answer(&mut asker, &ticket), Search::Nobodys, "the only other one is gone");
}

#[test]
fn who_has_no_claim_there_gets_nobody_to_move_anything() {
    let served = Served::new(1);
    let (mut owner, mut stranger) = (served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    listen(&mut owner, &listener);
    let ticket = begin(&mut stranger, &listener);
    assert_eq!(answer(&mut stranger, &ticket), Search::Open);
    owner.settle().unwrap();
    assert!(owner.poll_event().unwrap().is_none());
}

#[test]
fn who_does_not_read_is_not_disconnected_by_what_others_ask() {
    let served = Served::new(1);
    let (mut asker, mut sleeper) = (served.connect(), served.connect());
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    [&mut asker, &mut sleeper].into_iter().for_each(|client| listen(client, &listener));
    let (local, remote) = ends(&listener);
    for _ in 0..2000 {
        while let Err(error) = asker.begin_stray(local, remote, &[7; 1500]).map(drop) {
            assert!(matches!(error, ClientError::TimedOut), "it has no room: {error}");
        }
        assert!(asker.poll_event().unwrap().is_none()); // It reads what the broker answers.
    }
    assert!(matches!(next_event(&mut sleeper), Event::News(News::Strayed { .. })));
    sleeper.settle().unwrap();
}

/// A segment that a process finds in its ring may have come before its connection moved: the process may have been stopped since.
#[test]
fn what_is_the_kernels_is_not_nobodys() {
    let maps = Maps::default();
    let (mut broker, [asker, other]) = shared_out(&maps);
    let ends @ (local, remote) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
    [asker, other].into_iter().for_each(|client| claim(&mut broker, client, local));
    let mut look = || broker.look_for_owner((asker, 1), ends, SEGMENT, clock::Instant::ZERO);
    assert!(matches!(look(), Ok(None)), "the other one is asked");
    maps.note_kernel_flow(local, remote);
    assert!(matches!(look(), Ok(Some((Answer::Done, None)))));
}

#[test]
fn nobody_waits_for_a_broker_that_stands_still_to_ask_it() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let (local, remote) = ends(&listener);
    let (tell, told) = std::sync::mpsc::channel();
    let name = listen_anywhere().unwrap(); // Nobody reads what comes there.
    std::thread::spawn(move || {
        let (mut client, _) = Client::greet(name.0.as_bytes(), "program", std::process::id(), 3).unwrap();
        let mut ask = || client.begin_stray(local, remote, SEGMENT).map(drop);
        while ask().is_ok() {}
        let refused = (0..100).map(|_| ask()).all(|asked| matches!(asked, Err(ClientError::TimedOut)));
        tell.send(refused).unwrap();
        drop(name);
    });
    assert!(told.recv_timeout(PATIENCE).expect("it does not wait"));
}
