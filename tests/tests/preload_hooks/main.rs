//! The hooks of libsidestep_preload.so: small real programs must see no difference.
//!
//! Each program runs without the library, with it and no broker, and with its *mirror* (`crates/preload/examples/mirror`), which takes
//! every socket for its own and has the kernel answer: what the hooks lose on the way is what differs.

mod accelerated;
mod children;
mod exports;
mod library;
mod network;
mod transparency;
