//! The program's descriptors, and our own among them.

pub(crate) mod fd_table;
pub(crate) mod internal;
