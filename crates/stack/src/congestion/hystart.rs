//! HyStart++ (RFC 9406).
