//! `sidestep dns` on kernel sockets: no privilege, nothing but the loopback interface.

mod catalogs;
mod encrypted;
mod encrypted_transfers;
mod encrypted_zones;
mod errors;
mod guard;
mod idle;
mod import;
mod keys;
mod lifecycle;
mod lines;
mod lost_output;
mod malformed;
mod notices;
mod observe;
mod orders;
mod pools;
mod primaries;
mod query;
mod query_log;
mod reload;
mod resolver;
mod serving;
mod signing;
mod tcp;
mod updates;
