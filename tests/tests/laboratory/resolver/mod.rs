//! `sidestep dns resolve` in a small Internet: a root, a top-level domain and zones of NSD and Knot at addresses of their own; and in one
//! whose zones are signed.

mod internet;
mod resolving;
mod validating;
