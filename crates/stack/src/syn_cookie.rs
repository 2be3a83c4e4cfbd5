//! SYN cookies (RFC 4987).
