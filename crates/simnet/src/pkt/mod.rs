//! packetdrill's language: scripts of packets and system calls, played against one stack under simulated time.

pub mod ast;
pub mod errno;
mod packet;
pub mod parser;
pub mod python;
pub mod settings;
pub mod shell;
mod symbols;
