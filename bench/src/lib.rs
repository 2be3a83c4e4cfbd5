//! Figures: make bench.
