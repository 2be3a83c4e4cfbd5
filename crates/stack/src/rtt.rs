//! Round-trip time (RFC 6298).
