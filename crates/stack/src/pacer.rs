//! Pacing.
