//! `sidestep dns check`: what `serve` would refuse, or answer in ways that work badly.

mod conflicts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use dns_auth::LineData;
use dns_auth::pools::ADDRESS_TYPES;
use dns_message::is_older;
use dns_transfer::Difference;
use dns_wire::NameBuf;
use dns_zone::Zone;
use dns_zone::findings::findings;
use dns_zone::text::{ZoneTextError, ZoneTextErrors};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::answer_log::QueryLogSpec;
use super::config::{Config, ZoneSpec, parse_listen};
use super::health::ping_problem;
use super::pools::{CheckKind, PoolSpec};
use super::privileges::OnlyRoot;
use super::{encrypted, etcd, load, options, privileges, secondary, serial, signing, source};
use crate::output::to_stdout;

/// Checks everything; the exit status is a failure if `serve` would refuse something, or leave it out.
pub(crate) fn check(options: &options::Check) -> anyhow::Result<ExitCode> {
    let config = Config::resolve(&options.sources.to_serve())?;
    let server = options.server.as_deref().map(|text| parse_listen(text, config.port())).transpose()?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut report = Report { now: since_1970.as_secs() as u32, ..Report::default() };
    // The server reads them before it becomes another user.
    match config.encrypted.as_ref().map(dns_front::Options::check_certificate).transpose() {
        Ok(ends_at) => {
            let ending = ends_at.flatten().and_then(|at| encrypted::ending(at, since_1970.as_secs()));
            ending.into_iter().for_each(|what| report.warning("encrypted", what));
        }
        Err(error) => report.error("encrypted", crate::explain(&error.into())),
    }
    report.become_reader(&config)?;
    report.check_lines(&config);
    report.check_conflicts(&config);
    config.warnings().iter().for_each(|(place, warning)| report.warning(place, warning));
    for problem in config.transfers.source_problems() {
        report.add_source_problem(&problem);
    }
    report.check_places(&config);
    for spec in &config.zones {
        match load::read_and_count(spec) {
            Ok((zone, left_out)) => {
                report.add_zone(spec, (&zone, left_out), server);
                match load::check_lines(spec, &zone) {
                    Ok((data, misfits)) => {
                        misfits.iter().for_each(|misfit| report.add_error(misfit));
                        report.see_pools(&config.pools, (spec, &zone), &data);
                    }
                    Err(errors) => report.add_errors(spec, &errors),
                }
            }
            Err(errors) => report.add_errors(spec, &errors),
        }
    }
    report.check_catalog(&config);
    report.check_pools(&config.pools);
    report.check_secondaries(&config);
    report.check_etcd(&config);
    to_stdout(|out| Ok(report.lines.iter().try_for_each(|line| writeln!(out, "{line}"))?))?;
    Ok(if report.has_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Lines to print: one for each good zone, and one for each finding, `PLACE: error: ...` or `PLACE: warning: ...`.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    has_errors: bool,
    /// The server runs as another user, which may do other things.
    is_somebody_else: bool,
    /// Seconds since 1970.
    now: u32,
    /// The file of each zone.
    files: HashMap<NameBuf, PathBuf>,
    /// The addresses at names of pools.
    pooled: BTreeMap<NameBuf, BTreeSet<IpAddr>>,
}

impl Report {
    fn error(&mut self, place: impl Display, what: impl Display) {
        self.lines.push(format!("{place}: error: {what}"));
        self.has_errors = true;
    }

    fn warning(&mut self, place: impl Display, what: impl Display) {
        self.lines.push(format!("{place}: warning: {what}"));
    }

    /// The message begins with the option.
    fn add_source_problem(&mut self, problem: &str) {
        let (option, what) = problem.split_once(": ").unwrap_or((source::OPTION, problem));
        self.error(option, what);
    }

    /// `serve` reads the files as its user. Who cannot become that user checks all the same, as somebody who may be allowed to read others.
    fn become_reader(&mut self, config: &Config) -> anyhow::Result<()> {
        let Err(error) = privileges::give_up(config) else { return Ok(()) };
        let OnlyRoot { user } = error.downcast()?;
        let own = privileges::own_name();
        self.warning("user", format!("only root can check what {user} may read; checked as {own}"));
        self.is_somebody_else = true;
        Ok(())
    }

    fn add_error(&mut self, error: &ZoneTextError) {
        let place = format!("{}:{}:{}", error.path.display(), error.position.line, error.position.column);
        self.error(place, &error.problem);
    }

    fn add_errors(&mut self, spec: &ZoneSpec, errors: &ZoneTextErrors) {
        errors.errors.iter().for_each(|error| self.add_error(error));
        if errors.stopped_early {
            let place = format!("{}:1", spec.file.display());
            self.error(place, "reading stopped after too many errors: mend these, and check again");
        }
    }

    fn add_zone(&mut self, spec: &ZoneSpec, (zone, left_out): (&Zone, usize), server: Option<SocketAddr>) {
        self.lines.push(load::describe(spec, zone));
        if let Some(first) = self.files.insert(NameBuf::from(zone.origin()), spec.file.clone()) {
            let what = format!(
                "the zone {} is in {} too, and only this one is served: remove one of them",
                zone.origin(),
                first.display()
            );
            self.error(format!("{}:1", spec.file.display()), what);
        }
        for found in findings(zone, self.now) {
            self.warning(place_of(zone, &found.owner), found.kind);
        }
        if left_out > 0 {
            let what = format!(
                "its RRSIG, NSEC, NSEC3, NSEC3PARAM and ZONEMD records, {left_out}, are left out: dnssec = true has the server make all but the last"
            );
            self.warning(format!("zone {}", zone.origin()), what);
        }
        match signing::look(zone, spec) {
            Ok(warning) => {
                warning.into_iter().for_each(|what| self.warning(format!("zone {}", zone.origin()), what))
            }
            Err(error) => {
                self.error(format!("zone {}", zone.origin()), format!("it cannot be signed: {error}"))
            }
        }
        // A zone that we sign is served under serials of its own.
        if let Some(server) = server.filter(|_| spec.keys.is_none()) {
            self.compare_serial(zone, server);
        }
    }

    /// Files besides those of zones, which have to be there or to be written.
    fn check_places(&mut self, config: &Config) {
        if let Some(file) = config.query_log.as_ref().and_then(QueryLogSpec::file) {
            self.check_directory_of("query-log", file);
        }
        for spec in &config.zones {
            let what = match (&spec.keys, config.transfers.has_updates(spec)) {
                (Some(_), _) => "its signed version",
                (None, true) => "the journal of its updates",
                (None, false) => continue,
            };
            self.check_directory_of(&format!("{}: {what}", spec.file.display()), &spec.file);
        }
    }

    fn check_directory_of(&mut self, place: &str, file: &Path) {
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.check_directory(place, directory.unwrap_or(Path::new(".")));
    }

    /// A directory that the server writes into.
    fn check_directory(&mut self, place: &str, directory: &Path) {
        let may_write = Access::WRITE_OK | Access::EXEC_OK;
        let wanted = if self.is_somebody_else { Access::EXISTS } else { may_write };
        if let Err(error) = accessat(CWD, directory, wanted, AtFlags::EACCESS) {
            let user = privileges::own_name();
            let directory = directory.display();
            self.error(place, format!("user {user} has to write into the directory {directory}: {error}"));
        }
    }

    /// Secondary zones: their files, and those of catalogs' zones.
    fn check_secondaries(&mut self, config: &Config) {
        for spec in &config.transfers.secondaries {
            let place = format!("secondary {}", spec.origin);
            if let Some(first) = self.files.get(&spec.origin).cloned() {
                let what = format!(
                    "the zone in {} has the same name, and is not served: remove one of them",
                    first.display()
                );
                self.error(&place, what);
            }
            if let Some(members) = &spec.members {
                self.check_directory(&format!("{place}: members"), members);
            }
            let primaries: Vec<String> = spec.primaries.iter().map(ToString::to_string).collect();
            let from = format!("{place}: from {}", primaries.join(", "));
            let Some(file) = &spec.file else {
                self.lines.push(format!("{from}, and not kept over a restart"));
                continue;
            };
            self.check_directory_of(&format!("{place}: file"), file);
            if !file.exists() {
                self.lines.push(format!("{from}, and not there yet"));
                continue;
            }
            match load::read(&ZoneSpec { origin: Some(spec.origin.clone()), ..ZoneSpec::of(file.clone()) }) {
                Ok(zone) => {
                    self.lines.push(format!("{from}, serial {} in {}", zone.serial(), file.display()))
                }
                Err(errors) => {
                    let what = errors.errors.first().map(ToString::to_string).unwrap_or_default();
                    self.warning(
                        &place,
                        format!("its file is of no use, so the zone is transferred anew: {what}"),
                    );
                }
            }
        }
    }

    /// Where zones from etcd are kept, and the files of the connection. Nothing is asked of etcd.
    fn check_etcd(&mut self, config: &Config) {
        let Some(spec) = &config.transfers.etcd else { return };
        let from = format!("etcd: zones of {} from {}", spec.prefix, spec.endpoints.join(", "));
        for file in spec.files() {
            if let Err(error) = std::fs::File::open(file) {
                self.error("etcd", format!("reading {}: {error}", file.display()));
            }
        }
        for directory in spec.directory.iter().chain(&spec.keys) {
            self.check_directory("etcd", directory);
        }
        self.lines.push(match &spec.directory {
            Some(directory) => {
                format!("{from}, {} kept in {}", etcd::count_kept(directory), directory.display())
            }
            None => format!("{from}, and not kept over a restart"),
        });
    }

    /// Notes which addresses the names of pools have in a zone.
    fn see_pools(&mut self, pools: &[PoolSpec], (spec, zone): (&ZoneSpec, &Zone), data: &LineData) {
        for pool in pools {
            let mut is_inside = false;
            for name in pool.names.iter().filter(|name| name.as_name().ends_with(zone.origin())) {
                is_inside = true;
                self.pooled.entry(name.clone()).or_default().extend(load::addresses_at(
                    Some(zone),
                    data,
                    name,
                ));
            }
            if pool.check.is_some() {
                self.see_ttls(pool, zone);
            }
            if is_inside && zone.is_signed() && spec.keys.is_none() {
                let what = format!(
                    "zone {} was signed elsewhere, so its addresses cannot be given by weight and health: let the server sign it with \
                     dnssec = true",
                    zone.origin()
                );
                self.error(format!("pool {}", pool.name), what);
            }
        }
    }

    /// Says which addresses outlive their hosts in caches.
    fn see_ttls(&mut self, pool: &PoolSpec, zone: &Zone) {
        const TTL_MAX: u32 = 300;
        for name in &pool.names {
            let sets = zone.find(name.as_name().as_bytes()).into_iter().flat_map(|node| node.rrsets());
            let longest = sets.filter(|set| ADDRESS_TYPES.contains(&set.rtype())).map(|set| set.ttl()).max();
            if let Some(ttl) = longest.filter(|ttl| *ttl > TTL_MAX) {
                let what = format!(
                    "the addresses of {name} have the TTL {ttl}: caches give those of hosts that are down for so long; {TTL_MAX} or less is usual"
                );
                self.warning(format!("pool {}", pool.name), what);
            }
        }
    }

    /// Says which pools are about nothing, and what of them cannot be checked from here.
    fn check_pools(&mut self, pools: &[PoolSpec]) {
        for pool in pools {
            let place = format!("pool {}", pool.name);
            let mut all = BTreeSet::new();
            for name in &pool.names {
                match self.pooled.get(name).filter(|addresses| !addresses.is_empty()) {
                    Some(addresses) => all.extend(addresses.iter().copied()),
                    None => self.error(&place, format!("{name} has no A or AAAA records in any zone")),
                }
            }
            for address in pool.weights.keys().filter(|address| !all.contains(*address)) {
                self.warning(&place, format!("weights: {address} is not an address of its names"));
            }
        }
        let mut pinging = pools
            .iter()
            .filter(|pool| pool.check.as_ref().is_some_and(|check| check.kind == CheckKind::Ping));
        if let Some((pool, problem)) = pinging.next().zip(ping_problem()) {
            self.error(format!("pool {}", pool.name), format!("check.ping: {problem}"));
        }
    }

    fn compare_serial(&mut self, zone: &Zone, server: SocketAddr) {
        let place = zone.origin().to_string();
        let ours = zone.serial();
        match serial::ask(server, zone.origin()) {
            Ok(theirs) if is_older(ours, theirs) => {
                self.warning(place, serial::went_back(theirs, ours));
            }
            Ok(theirs) if theirs == ours && differs(zone, server) => {
                self.warning(place, serial::stayed(ours));
            }
            Ok(_) => {}
            Err(error) => self.warning(
                place,
                format!("{server} does not say which serial it serves ({error}), so that is not compared: see if it runs"),
            ),
        }
    }
}

/// A zone, and the name in it that something is about, if that is another one.
pub(crate) fn place_of(zone: &Zone, owner: impl Display) -> String {
    let (origin, owner) = (zone.origin().to_string(), owner.to_string());
    if origin == owner { origin } else { format!("{origin} {owner}") }
}

/// Whether a server has other records in a zone, as far as it lets us transfer it.
fn differs(zone: &Zone, server: SocketAddr) -> bool {
    let theirs = secondary::fetch(server, zone.origin());
    theirs.is_some_and(|theirs| {
        !Difference::between(&theirs, zone, usize::MAX).is_some_and(|all| all.is_nothing())
    })
}
