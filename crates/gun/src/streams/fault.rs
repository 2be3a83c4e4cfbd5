//! What goes wrong with connections.

/// Why a request got no answer, or a connection ended that should not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens there.
    Refused,
    /// There was no connection in time.
    NotConnected,
    /// The own system, or a router, knows no way to the server.
    Unreachable,
    /// The own system had no descriptor or no port left.
    NoSocket,
    /// TLS found no common ground, or the certificate is not trusted.
    Tls,
    /// A reset ended the connection.
    Reset,
    /// The server ended the connection before its answer, or amid it.
    ClosedEarly,
    /// What came is not what is spoken.
    NotTheProtocol,
    /// The answer to a question over HTTPS has another status than 200.
    Status,
    /// There was no answer in time.
    TimedOut,
    /// The server reset a stream of HTTP/2.
    StreamReset,
}

impl Fault {
    /// What is counted, for people and reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Refused => "connections refused",
            Fault::NotConnected => "connections not made in time",
            Fault::Unreachable => "connections without a way to the server",
            Fault::NoSocket => "sockets refused by the system",
            Fault::Tls => "TLS handshakes failed",
            Fault::Reset => "reset",
            Fault::ClosedEarly => "closed early",
            Fault::NotTheProtocol => "answers that are not in the protocol",
            Fault::Status => "answers of HTTP with another status than 200",
            Fault::TimedOut => "timed out",
            Fault::StreamReset => "streams reset",
        }
    }
}
