//! The resolver in simulated time: scenarios, server selection, serve-stale, validation, hostile input.

mod answers;
mod bounds;
mod cookies;
mod dnssec;
mod hostile;
mod rpl;
mod scenarios;
mod selection;
mod subnets;
mod world;
