//! CUBIC (RFC 9438).

pub struct Cubic;
