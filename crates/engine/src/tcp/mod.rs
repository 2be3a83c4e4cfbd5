//! Services on TCP: one handler for all connections of an engine, one state for each of them.

mod connection;
mod server;

use std::net::SocketAddr;

pub use connection::Connection;
pub use server::TcpServer;
use stack::ListenError;
use stack::tcp::TcpError;

use crate::Echo;

/// A service on TCP connections, run by [`TcpServer`]. Methods are called between bursts of packets and must not block: one
/// that has to wait returns, and is called again when it can go on.
///
/// ```
/// use std::net::SocketAddr;
///
/// use device::memory;
/// use engine::{Config, Connection, DeviceId, Echo, Engine, TcpHandler, TcpServer};
/// use stack::{Connect, Hop, LinkId};
///
/// /// Answers every line by its length. A longer one than `LINE_MAX` ends the connection.
/// struct Lengths;
///
/// const LINE_MAX: usize = 4096;
///
/// impl TcpHandler for Lengths {
///     type State = ();
///
///     fn on_open(&mut self, _: &mut Connection<'_>) {}
///
///     fn on_data(&mut self, (): &mut (), connection: &mut Connection<'_>) {
///         while let Some(len) = connection.contiguous(LINE_MAX).iter().position(|&octet| octet == b'\n') {
///             connection.consume(len + 1);
///             let answer = format!("{len}\n");
///             if connection.send(answer.as_bytes()) < answer.len() {
///                 return connection.abort(); // The peer does not read.
///             }
///         }
///         // What is left is the beginning of a line, the rest of which may be still to come.
///         if connection.is_ended() || connection.unread() >= LINE_MAX {
///             connection.close();
///         }
///     }
/// }
///
/// /// Leaves what comes where it is.
/// struct Asking;
///
/// impl TcpHandler for Asking {
///     type State = ();
///
///     fn on_open(&mut self, _: &mut Connection<'_>) {}
///
///     fn on_data(&mut self, (): &mut (), _: &mut Connection<'_>) {}
/// }
///
/// // A server on one end of a wire in memory, a client on the other; each on a thread, as if it were a core.
/// let (mut left, mut right) = memory::pair(&memory::Config::default());
/// let address: SocketAddr = "192.0.2.1:7".parse()?;
/// let server = TcpServer::new(Lengths).listen(address);
/// let (engine, server) = Engine::with_stack(Config::default(), Echo, stack::Config::default(), server)?;
/// server.add_link(DeviceId(0), LinkId(0), Box::new(right.remove(0)));
/// let serving = std::thread::spawn(move || engine.run());
///
/// let client = TcpServer::new(Asking); // Listens nowhere.
/// let (engine, client) = Engine::with_stack(Config::default(), Echo, stack::Config::default(), client)?;
/// client.add_link(DeviceId(0), LinkId(0), Box::new(left.remove(0)));
/// let asking = std::thread::spawn(move || engine.run());
///
/// let lines = format!("hello\n{}\n", "x".repeat(3000)); // Too long to be received in one piece.
/// let connection = client.ask_stack(move |stack, now| {
///     let local = "192.0.2.2:40000".parse().unwrap();
///     let (hop, options, data) = (Hop::default(), Default::default(), lines.as_bytes());
///     let connect = Connect { local, remote: address, is_bound: false, hop, options, data };
///     stack.tcp_connect(&connect, now).unwrap()
/// });
/// let connection = connection.expect("the engine runs");
/// let mut answer = Vec::new();
/// while answer != b"5\n3000\n" {
///     let part = client.ask_stack(move |stack, now| {
///         let mut part = [0; 16];
///         let count = stack.recv(connection, &mut part, now).unwrap_or(0);
///         part[..count].to_vec()
///     });
///     answer.extend(part.expect("the engine runs"));
/// }
/// client.with_stack(move |stack, now| stack.close(connection, now));
/// for (handle, thread) in [(client, asking), (server, serving)] {
///     handle.stop();
///     thread.join().unwrap();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TcpHandler: Send {
    /// What is kept for each connection.
    type State: Send;

    /// Nobody can connect to `address`: the stack has no listener there, for this reason.
    fn on_listen_error(&mut self, _address: SocketAddr, _error: ListenError) {}

    /// A peer connected, or we did.
    fn on_open(&mut self, connection: &mut Connection<'_>) -> Self::State;

    /// Data came, or the peer sends no more and there is data left. What is not consumed stays, and is offered again with what
    /// follows it; that nothing follows, [`Connection::is_ended`] tells.
    fn on_data(&mut self, state: &mut Self::State, connection: &mut Connection<'_>);

    /// There is room again after [`Connection::send`] had taken less than it was given.
    fn on_writable(&mut self, state: &mut Self::State, connection: &mut Connection<'_>) {
        self.on_data(state, connection);
    }

    /// The peer sends no more, and all that it sent was consumed.
    fn on_end(&mut self, _state: &mut Self::State, connection: &mut Connection<'_>) {
        connection.close();
    }

    /// The time that was set by [`Connection::set_deadline`] has come.
    fn on_timeout(&mut self, _state: &mut Self::State, connection: &mut Connection<'_>) {
        connection.close();
    }

    /// The connection is over: it was closed here, or failed with `error`.
    fn on_closed(&mut self, _state: Self::State, _error: Option<TcpError>) {}
}

/// Sends everything back as it came.
impl TcpHandler for Echo {
    type State = ();

    fn on_open(&mut self, _: &mut Connection<'_>) {}

    fn on_data(&mut self, (): &mut (), connection: &mut Connection<'_>) {
        let mut part = [0; 4096];
        loop {
            let count = connection.peek(&mut part);
            let sent = connection.send(&part[..count]);
            connection.consume(sent);
            if sent < part.len() {
                return; // All is sent, or there is no room; then it goes on when there is.
            }
        }
    }
}
