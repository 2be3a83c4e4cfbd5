//! `sidestep dns resolve`: the recursive resolver on kernel sockets or an interface, one thread.
//!
//! | file | what it does |
//! | --- | --- |
//! | `options.rs` | the command line |
//! | `config.rs`, `config_file.rs`, `constants.rs`, `front_config.rs`, `hints_file.rs` | what the user wrote, and what the program runs on |
//! | `trust.rs` | trust anchors, and zones that are not validated |
//! | `front.rs` | who may ask, and how much; cookies |
//! | `service.rs` | the parts put together: start, ready line, signals |
//! | `driver.rs` | the loop, and the engine of the interface |
//! | `server.rs` | a turn of it: sockets and time to the core, and back |
//! | `core.rs` | questions judged and answered |
//! | `streams.rs`, `stream.rs` | TCP of clients |
//! | `clients.rs` | who waits for an answer |
//! | `upstreams.rs` | sockets to servers, one a query |
//! | `query_log.rs` | a line for each answer |
//! | `saved.rs` | the cache from one run to the next |
//! | `control.rs` | questions of tools, answered by the loop |
//! | `servers_table.rs` | `sidestep dns servers` |
//! | `flush.rs` | `sidestep dns flush` |

mod clients;
mod config;
mod config_file;
mod constants;
mod control;
mod core;
mod driver;
mod flush;
mod front;
mod front_config;
mod hints_file;
mod options;
mod saved;
mod server;
mod servers_table;
mod service;
mod stream;
mod streams;
mod trust;
mod upstreams;

pub(super) use driver::open as open_interface;
pub(super) use flush::flush;
pub(super) use options::{Flush, Resolve, ShowServers};
pub(super) use servers_table::print as print_servers;
pub(super) use service::resolve;

/// What resolvers are called among the programs that can be looked at.
pub(super) const NAME: &str = "resolver";
