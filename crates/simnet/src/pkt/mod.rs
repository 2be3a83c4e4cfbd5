//! packetdrill's language: scripts of packets and system calls, played against one stack under simulated time.

pub mod ast;
mod compare;
pub mod errno;
mod flow;
mod packet;
pub mod parser;
pub mod python;
pub mod settings;
pub mod shell;
mod show;
mod symbols;
