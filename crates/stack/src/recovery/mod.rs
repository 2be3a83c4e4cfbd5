//! Loss recovery.
