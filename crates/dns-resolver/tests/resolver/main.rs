//! The resolver in simulated time: scenarios, server selection, serve-stale, hostile input.

mod hostile;
mod rpl;
mod scenarios;
mod selection;
mod world;
