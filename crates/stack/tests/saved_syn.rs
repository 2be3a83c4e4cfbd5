//! What a listener keeps of the SYNs that its connections began with.

mod common;

use std::sync::Arc;

use common::{CLIENT, Pair, SERVER};
use stack::TcpOptions;

/// The flag SYN alone.
const SYN: u8 = 2;

#[test]
fn a_listener_that_wants_syns_has_their_headers_until_they_are_read() {
    for save_syn in [true, false] {
        let mut pair = Pair::new();
        let options = Arc::new(TcpOptions { save_syn, ..TcpOptions::default() });
        let listener = pair.server.stack.tcp_listen(SERVER, false, 4, options).unwrap();
        pair.client.connect(CLIENT, SERVER);
        pair.run();
        let accepted = pair.server.stack.tcp_accept(listener).unwrap();
        let saved = pair.server.stack.saved_syn(accepted).map(<[u8]>::to_vec);
        assert_eq!(saved.is_some(), save_syn);
        let Some(syn) = saved else { continue };
        assert_eq!((syn[0] >> 4, syn[9], syn[33]), (4, 6, SYN));
        assert_eq!(syn.len(), 20 + usize::from(syn[32] >> 4) * 4);
        assert_eq!(syn[20..22], CLIENT.port().to_be_bytes());
        pair.server.stack.forget_saved_syn(accepted);
        assert_eq!(pair.server.stack.saved_syn(accepted), None);
    }
}
