//! `sidestep dns resolve` in a small Internet: a root, a top-level domain and zones of NSD and Knot at addresses of their own.

mod internet;
mod resolving;
