//! `sidestep dns`: the authoritative server, and the resolver (`resolve/`).
//!
//! | file | what it does |
//! | --- | --- |
//! | `options.rs` | the command line |
//! | `config.rs`, `config_file.rs` | what the user wrote, and what the program runs on |
//! | `check.rs`, `check/`, `serial.rs` | `sidestep dns check` |
//! | `version.rs` | what is served of a zone, and what led to it |
//! | `load.rs` | zone files to catalogs, with errors for people |
//! | `lines.rs`, `line_table.rs` | which clients belong to which line, and what lines have in zones |
//! | `pools.rs`, `health/` | addresses that are given by weight and health, and checks of hosts |
//! | `service.rs` | the parts put together: start, ready line, drain |
//! | `events.rs` | what it waits for: signals, and zones that load beside it |
//! | `reload.rs` | SIGHUP |
//! | `rebuild.rs` | zones that many updates have changed are built anew, beside all else |
//! | `engines.rs` | the engines: one per core, with a stack where there is an interface |
//! | `devices.rs`, `interface.rs` | which devices the engines serve: kernel sockets, or an interface with its shadows |
//! | `tcp.rs`, `tcp_connection.rs` | DNS over TCP on kernel sockets |
//! | `encrypted.rs`, `encrypted_server.rs` | DNS over TLS, HTTPS and QUIC |
//! | `guard_config.rs` | cookies and limits of rate |
//! | `transfers.rs` | who may transfer zones, and with which keys |
//! | `notify.rs`, `peer.rs` | NOTIFY to secondaries; how other servers are named |
//! | `request_log.rs` | log lines about transfers, notices and updates |
//! | `catalog.rs` | a catalog of the zones that are served from files |
//! | `secondary/` | zones that are transferred from others |
//! | `etcd/` | zones from etcd |
//! | `privileges.rs` | which user the server becomes, and what it keeps of root's privileges |
//! | `descriptors.rs` | how many connections there may be on kernel sockets |
//! | `query/` | `sidestep dns query`: a client |
//! | `explain.rs` | `sidestep dns explain` |
//! | `audit/` | `sidestep dns audit`: what a resolver does with time, place and names |
//! | `source.rs` | the addresses that notices and questions to primaries leave from |
//! | `signing.rs`, `keys.rs`, `key_files.rs` | zones that the server signs, and their keys |
//! | `key_clock.rs` | the time by which keys come and go |
//! | `tokens.rs` | keys of such zones in tokens |
//! | `parents.rs` | what parents have of the DS records of such zones, and keys that end because of that |
//! | `zones.rs` | `sidestep dns zones`, `sidestep dns zone` |
//! | `orders.rs` | what tools have done with single zones |
//! | `stats.rs` | counters, over a Unix socket |
//! | `zone_numbers.rs` | which zones are counted alone |
//! | `top/` | `sidestep dns top`: what servers are asked just now |

mod answer_log;
mod audit;
mod catalog;
mod check;
mod config;
mod config_file;
mod descriptors;
mod devices;
mod encrypted;
mod encrypted_server;
mod engines;
mod etcd;
mod events;
mod explain;
mod geo;
mod guard_config;
mod health;
mod import;
mod interface;
mod journal;
mod key_clock;
mod key_files;
mod keys;
mod line_table;
mod lines;
mod load;
mod notify;
mod online_signing;
mod options;
mod orders;
mod parents;
mod peer;
mod pools;
mod privileges;
mod query;
mod read_once;
mod rebuild;
mod reload;
mod request_log;
mod resolve;
mod secondary;
mod serial;
mod served_serial;
mod service;
mod sharing;
mod signing;
mod source;
mod stats;
mod store;
mod tcp;
mod tcp_connection;
mod tokens;
mod top;
mod transfers;
mod updates;
mod version;
mod zone_metrics;
mod zone_numbers;
mod zones;

pub(crate) use descriptors::raise_limit as raise_descriptor_limit;

use std::process::ExitCode;

use clap::Subcommand;

/// What `sidestep dns` can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve zones over UDP and TCP.
    ///
    /// Without --device: kernel sockets on 127.0.0.1 and ::1, port 5300. Needs no privileges.
    /// With --device IFNAME: AF_XDP, port 53 of every address of that interface. The kernel keeps all other traffic.
    ///
    /// SIGHUP reads the configuration and the zones again. SIGTERM answers the queries that have arrived, then ends the server.
    #[command(verbatim_doc_comment)]
    Serve(options::Serve),
    /// Read configuration and zones as `serve` does, and report errors and warnings.
    ///
    /// Prints one line for each good zone, and one for each finding: `FILE:LINE:COLUMN: error: ...` or `ZONE NAME: warning: ...`.
    /// An error is something that `serve` refuses; a warning is something that it serves and that works badly. Exit status 1 means errors.
    #[command(verbatim_doc_comment)]
    Check(options::Check),
    /// Show the zones of a running server: where each comes from, its serial, how many records and names it has, whether it is signed.
    Zones(zones::Zones),
    /// Look at one zone of a running server, or have it read again, frozen and thawed.
    #[command(subcommand)]
    Zone(zones::Zone),
    Explain(explain::Explain),
    /// Show the keys of zones with `dnssec = true`: what each signs and does, and what happens next.
    Keys(keys::Keys),
    /// Change the keys of a zone with `dnssec = true`.
    #[command(subcommand)]
    Key(keys::Key),
    Import(import::Import),
    /// Print the counters of a running server or resolver.
    Stats(options::Stats),
    Top(top::Top),
    /// Resolve names: a recursive resolver over UDP and TCP, and over TLS, HTTPS and QUIC with a certificate.
    ///
    /// It listens on 127.0.0.1 and ::1, port 5300, and answers this host alone, unless it is told otherwise: `dig @127.0.0.1 -p 5300`.
    /// It validates DNSSEC.
    ///
    /// SIGHUP reads the configuration again and keeps the cache. SIGTERM answers the clients that wait, then ends the resolver.
    #[command(verbatim_doc_comment)]
    Resolve(resolve::Resolve),
    /// Ask a server, in dig's words: `sidestep dns query @127.0.0.1 -p 5300 example.com MX +dnssec`.
    ///
    /// Over UDP, or with +tcp, +tls, +https[=PATH] or +quic. An answer over UDP that is cut is asked for again over TCP (not with +ignore).
    /// Certificates have to be good: for the system, or with +tls-ca=FILE, under the server's name or address, or +tls-host=NAME; with
    /// +insecure any will do. +trace asks from the root's servers on. +short prints the data alone, +json what RFC 8427 has.
    ///
    /// More options: +norecurse, +cd, +noad, +noedns, +nocookie, +bufsize=N, +nsid, +subnet=ADDRESS/LENGTH, +timeout=SECONDS.
    /// Exit status 1 means that there was no answer.
    #[command(verbatim_doc_comment)]
    Query(query::Query),
    /// Measure what resolvers do with time, place and names.
    #[command(subcommand)]
    Audit(Box<audit::Command>),
    /// Show the name servers that a running resolver knows: time of answers, penalty, queries, probes, losses.
    Servers(resolve::ShowServers),
    /// Drop what a running resolver's cache has: about a name, with --below about all names below it too, with --all everything.
    Flush(resolve::Flush),
}

/// Runs one of them.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(options) => service::serve(&options),
        Command::Check(options) => check::check(&options),
        Command::Zones(options) => zones::print(&options),
        Command::Zone(command) => zones::one(&command),
        Command::Explain(options) => explain::explain(&options),
        Command::Import(options) => import::import(&options),
        Command::Keys(options) => keys::print(&options),
        Command::Key(command) => keys::change(&command),
        Command::Stats(options) => stats::print(&options),
        Command::Top(options) => top::run(&options),
        Command::Resolve(options) => resolve::resolve(&options),
        Command::Query(options) => query::query(&options),
        Command::Audit(command) => audit::run(*command),
        Command::Flush(options) => resolve::flush(&options),
        Command::Servers(options) => resolve::print_servers(&options),
    }
}
