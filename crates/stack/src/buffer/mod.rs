//! Buffers of octets from a bounded pool.
//!
//! ```text
//!   BufferPool   chunks of 2 KiB, a link beside each   | 0 | 1 | 2 | 3 | 4 | ...
//!   ByteQueue    a chain of them                       3 -> 0 -> 4
//!
//!   chunk 3                    chunk 0                    chunk 4
//!   |      |-- readable ----------------|      gap      |-- out of order --|      |
//!          ^ front (offset 0)           ^ len()                            ^ written
//! ```
//!
//! A chunk that lies wholly in a gap is not in the chain; the pool notes beside each link how many are missing.
//!
//! A queue holds chunks only while it holds octets, so an idle connection costs [`ByteQueue`]'s 28 octets a direction.
//! Every function takes the pool, and all calls on one queue take the same pool.

mod pool;
mod queue;
#[cfg(test)]
mod tests;

pub use pool::{BufferPool, CHUNK_LEN};
pub use queue::{ByteQueue, Exhausted, Slices};
