//! Buffers of octets from a bounded pool.
