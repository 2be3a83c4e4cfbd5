//! What servers do.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use engine::{Connection, TcpHandler, TcpServer};
use stack::TcpOptions;

use crate::MESSAGE;

/// Where they listen.
pub(crate) const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7);

/// Answers each request by itself.
pub(crate) fn echo() -> TcpServer<Answer> {
    listening(Answer { and_close: false })
}

/// Answers one request of each connection and closes it.
pub(crate) fn answer_and_close() -> TcpServer<Answer> {
    listening(Answer { and_close: true })
}

/// Takes what comes.
pub(crate) fn sink() -> TcpServer<Sink> {
    listening(Sink)
}

fn listening<H: TcpHandler>(handler: H) -> TcpServer<H> {
    let options = TcpOptions { no_delay: true, ..TcpOptions::default() };
    TcpServer::new(handler).with_options(options).listen(SERVER)
}

pub(crate) struct Answer {
    and_close: bool,
}

impl TcpHandler for Answer {
    type State = ();

    fn on_open(&mut self, _: &mut Connection<'_>) {}

    fn on_data(&mut self, (): &mut (), connection: &mut Connection<'_>) {
        while connection.unread() >= MESSAGE {
            let mut message = [0; MESSAGE];
            connection.peek(&mut message);
            connection.consume(MESSAGE);
            connection.send(&message);
            if self.and_close {
                return connection.close();
            }
        }
    }
}

pub(crate) struct Sink;

impl TcpHandler for Sink {
    type State = ();

    fn on_open(&mut self, _: &mut Connection<'_>) {}

    fn on_data(&mut self, (): &mut (), connection: &mut Connection<'_>) {
        connection.consume(connection.unread());
    }
}
