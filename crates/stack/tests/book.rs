//! Which connections there are is noted as they begin, end, leave and come back.

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use clock::Duration;
use common::{CLIENT, Pair, SERVER};
use stack::{Book, Config, Hop, Stack};

type Ends = (SocketAddr, SocketAddr);

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeMap<u32, Ends>>>);

impl Notes {
    fn all(&self) -> Vec<Ends> {
        self.0.lock().unwrap().values().copied().collect()
    }
}

impl Book for Notes {
    fn note(&mut self, place: u32, ends: Option<Ends>) {
        let mut notes = self.0.lock().unwrap();
        match ends {
            Some(ends) => notes.insert(place, ends),
            None => notes.remove(&place),
        };
    }
}

/// Both stacks have books.
fn pair() -> (Pair, Notes, Notes) {
    let (mut pair, clients, servers) = (Pair::new(), Notes::default(), Notes::default());
    pair.client.stack.keep_book(Box::new(clients.clone()));
    pair.server.stack.keep_book(Box::new(servers.clone()));
    (pair, clients, servers)
}

#[test]
fn a_connection_is_noted_until_it_is_over() {
    let (mut pair, clients, servers) = pair();
    let (client, server) = pair.connected();
    assert_eq!((clients.all(), servers.all()), (vec![(CLIENT, SERVER)], vec![(SERVER, CLIENT)]));
    pair.client.stack.close(client, pair.now);
    pair.run();
    assert_eq!(clients.all().len(), 1, "the server has not closed its end");
    pair.server.stack.close(server, pair.now);
    pair.run_for(Duration::from_millis(1000));
    assert_eq!((clients.all(), servers.all()), (vec![], vec![]), "TIME-WAIT is nobody's");
}

#[test]
fn one_that_is_reset_is_over_though_its_socket_is_open() {
    let (mut pair, clients, servers) = pair();
    let (client, _server) = pair.connected();
    pair.client.stack.abort(client, pair.now);
    pair.run();
    assert_eq!((clients.all(), servers.all()), (vec![], vec![]));
}

#[test]
fn one_that_leaves_is_not_ours_until_it_comes_back() {
    let (mut pair, _, servers) = pair();
    let (_, server) = pair.connected();
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    assert_eq!(servers.all(), []);
    pair.server.stack.attach(&detached, Hop::default(), pair.now).unwrap();
    assert_eq!(servers.all(), [(SERVER, CLIENT)]);
}

#[test]
fn a_new_book_has_what_there_is_and_no_more() {
    let (mut pair, _, _) = pair();
    let (_, server) = pair.connected();
    let another = Notes::default();
    pair.server.stack.keep_book(Box::new(another.clone()));
    assert_eq!(another.all(), [(SERVER, CLIENT)]);
    let detached = pair.server.stack.detach(server, pair.now).unwrap();
    pair.server.stack = Stack::new(Config::default(), [7; 32], pair.now);
    pair.server.stack.attach(&detached, Hop::default(), pair.now).unwrap();
    assert_eq!(another.all(), [], "the other stack has none");
}
