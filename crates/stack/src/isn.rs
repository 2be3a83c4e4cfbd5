//! Initial sequence numbers (RFC 6528).
