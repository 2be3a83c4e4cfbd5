//! NewReno (RFC 5681, RFC 6582).

pub struct NewReno;
