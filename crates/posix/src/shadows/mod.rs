//! Listeners and UDP sockets, which are the kernel's and the stack's at once: how they come onto the stack, and follow their options.

mod claimed;
mod datagrams;
mod listener;
pub(crate) mod shadow;
