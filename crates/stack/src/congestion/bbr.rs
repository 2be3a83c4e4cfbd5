//! BBR.

pub struct Bbr;
