//! Deadlines.
