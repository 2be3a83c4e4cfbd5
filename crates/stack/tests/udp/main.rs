//! UDP sockets of one stack, or of two with nothing between them: RFC 768, RFC 1122, 4.1, and what programs expect.

mod errors;
mod hostile;
mod packets;
mod sockets;
mod turns;
mod wire_format;
