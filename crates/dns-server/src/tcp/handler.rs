//! DNS over TCP on the stack of an engine.

use std::sync::Arc;

use engine::{Connection, TcpHandler};

use super::stream::message_len;
use super::{Admission, Permit, QueryStream, StreamResponder};
use crate::DnsResponder;

/// Answers the queries of every connection in the order in which they come.
pub struct DnsOverTcp {
    responder: StreamResponder,
    admission: Arc<Admission>,
}

/// A client that was admitted.
pub struct Client {
    stream: QueryStream,
    _permit: Permit,
}

impl DnsOverTcp {
    /// Answers the clients that `admission` admits by `responder`.
    pub fn new(responder: DnsResponder, admission: Arc<Admission>) -> DnsOverTcp {
        let responder = StreamResponder::new(responder, admission.limits().idle_timeout);
        DnsOverTcp { responder, admission }
    }

    /// Answers the queries that have arrived, as far as there is space; false when the connection must be closed.
    fn drive(&mut self, client: &mut Client, connection: &mut Connection<'_>) -> bool {
        loop {
            let sent = connection.send(client.stream.output());
            client.stream.on_sent(sent, &mut self.responder);
            if !client.stream.output().is_empty() {
                return true; // Goes on when there is room.
            }
            let now = connection.now();
            let len = message_len(connection.contiguous(2));
            // A message that is not there yet need not be copied.
            let input = connection.contiguous(if connection.unread() < len { 0 } else { len });
            match client.stream.answer(input, &mut self.responder, now) {
                Ok(0) if client.stream.output().is_empty() => {
                    let Some(soon) = client.stream.look_again() else { return !connection.is_ended() };
                    connection.set_deadline(Some(now + soon));
                    return true;
                }
                Ok(count) => connection.consume(count),
                Err(_) => return false,
            }
        }
    }
}

impl TcpHandler for DnsOverTcp {
    /// `None`: not admitted, and closed.
    type State = Option<Client>;

    fn on_open(&mut self, connection: &mut Connection<'_>) -> Option<Client> {
        let Some(permit) = self.admission.admit(connection.remote().ip()) else {
            connection.close();
            return None;
        };
        let mut stream = QueryStream::new(connection.remote(), connection.now());
        let until = stream.idle_until(0, self.admission.limits().idle_timeout, connection.now());
        connection.set_deadline(Some(until));
        Some(Client { stream, _permit: permit })
    }

    fn on_data(&mut self, client: &mut Option<Client>, connection: &mut Connection<'_>) {
        if client.as_mut().is_none_or(|client| !self.drive(client, connection)) {
            // With data unread the connection would be reset, and answers under way lost.
            connection.consume(connection.unread());
            connection.close();
        }
    }

    fn on_end(&mut self, client: &mut Option<Client>, connection: &mut Connection<'_>) {
        self.on_data(client, connection);
    }

    fn on_timeout(&mut self, client: &mut Option<Client>, connection: &mut Connection<'_>) {
        if client.as_ref().is_some_and(|client| client.stream.look_again().is_some()) {
            self.on_data(client, connection);
        }
        let Some(client) = client else { return connection.close() };
        if client.stream.look_again().is_some() {
            return; // With another deadline.
        }
        let (idle_timeout, now) = (self.admission.limits().idle_timeout, connection.now());
        let until = client.stream.idle_until(connection.unacknowledged(), idle_timeout, now);
        if until > now {
            connection.set_deadline(Some(until));
            return;
        }
        self.admission.on_idle_closed();
        if client.stream.is_waiting() {
            connection.abort(); // It does not take them: to go on sending would keep their memory.
        } else {
            connection.close();
        }
    }
}
