//! Local ports.
