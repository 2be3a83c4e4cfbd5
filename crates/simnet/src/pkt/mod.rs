//! packetdrill's language: scripts of packets and system calls, played against one stack under simulated time.

pub mod ast;
pub mod parser;
pub mod python;
