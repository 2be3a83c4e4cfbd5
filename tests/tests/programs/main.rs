//! A matrix of real programs, each unmodified and under `sidestep run` in a laboratory: what it is for still works, and a short load
//! brings no error. Needs root and AF_XDP; skipped otherwise, and says so.
//!
//! `SIDESTEP_PROGRAMS=kernel` runs the same programs without Sidestep: what does not hold there cannot be asked of us.
//! `scripts/programs.sh` does both and writes docs/programs.md.

mod addresses;
mod chroot;
mod clients;
mod cpython;
mod databases;
mod ends;
mod fallback;
mod forged;
mod interpreted;
mod joining;
mod killed;
mod moving;
mod mtu;
mod names;
mod nginx;
mod observe;
mod one_thread;
mod port_sharing;
mod reload;
mod sharing;
mod soak;
mod status;
mod threads;
mod tools;
mod trial;
