//! Sockets that change their place: what `socket/place.rs` decides is carried out here.
//!
//! Everything that brings a connection to another place is a *move*; what a child has from its parent is *inherited*.
//!
//! | file | what moves |
//! | --- | --- |
//! | `usage.rs` | what the kernel serves better |
//! | `inherited.rs`, `unserved.rs`, `strays.rs` | what a child asks for; what no thread takes; what comes by another process's queue |
//! | `brokers.rs`, `claims.rs` | all, when the broker ends; when another has taken the place of a killed one, it learns of our claims |
//! | `steps.rs` | a step of the table, whatever it is |
//! | `keep.rs`, `to_stack.rs` | a shadow that only the kernel may have; a socket that connects |
//! | `listener.rs`, `datagrams.rs`, `renewal.rs` | all that a listener has; what waits at a UDP socket; back to a socket without a past |
//! | `leaving.rs` | a listener that leaves, and what belongs to it: step by step, as far as the broker goes along |
//! | `queues.rs`, `waiting.rs` | all connections, then the queues; connections that wait for accept |
//! | `driving.rs` | nothing: peers are served while the broker is waited for |
//! | `to_kernel.rs` | a connection of the stack: off it, to the kernel, behind the same descriptors |
//! | `places.rs`, `ports.rs`, `behind.rs`, `family.rs` | where a socket is; its port; its descriptors; who of the family has it |

mod behind;
mod brokers;
mod claims;
mod datagrams;
mod driving;
mod family;
mod inherited;
mod keep;
mod leaving;
mod listener;
mod places;
pub(crate) mod ports;
mod queues;
mod renewal;
mod steps;
mod strays;
pub(crate) mod to_kernel;
mod to_stack;
pub(crate) mod unserved;
mod usage;
mod waiting;
