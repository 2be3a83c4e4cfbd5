//! TCP Fast Open cookies (RFC 7413).
