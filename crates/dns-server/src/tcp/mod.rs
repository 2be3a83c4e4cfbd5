//! DNS over TCP without sockets: one client's stream, admission of clients, and the handler on an engine's stack.

mod admission;
mod handler;
mod stream;

pub use admission::{Admission, Permit, TcpCounters, TcpLimits};
pub use handler::DnsOverTcp;
pub use stream::{QueryStream, StreamResponder, Unanswerable};
