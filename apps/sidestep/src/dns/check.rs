//! `sidestep dns check`: what `serve` would refuse, or answer in ways that work badly.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use dns_auth::LineData;
use dns_message::is_older;
use dns_wire::NameBuf;
use dns_zone::Zone;
use dns_zone::findings::findings;
use dns_zone::text::ZoneTextErrors;

use super::config::{Config, ZoneSpec, parse_listen};
use super::health::ping_problem;
use super::line_table::LoadedLines;
use super::pools::{CheckKind, PoolSpec};
use super::privileges::OnlyRoot;
use super::{load, options, privileges, serial, signing};
use crate::output::to_stdout;

/// Checks everything; the exit status is a failure if `serve` would refuse something.
pub(crate) fn check(options: &options::Check) -> anyhow::Result<ExitCode> {
    let config = Config::resolve(&options.sources.to_serve())?;
    let server = options.server.as_deref().map(|text| parse_listen(text, 53)).transpose()?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut report = Report { now: since_1970.as_secs() as u32, ..Report::default() };
    report.become_reader(&config)?;
    if let Err(error) = LoadedLines::load(&config.lines, None) {
        report.error("line", format!("{error:#}"));
    }
    for spec in &config.zones {
        match load::read(spec) {
            Ok(zone) => {
                report.add_zone(spec, &zone, server);
                match load::check_lines(spec, &zone) {
                    Ok(data) => report.see_pools(&config.pools, (spec, &zone), &data),
                    Err(errors) => report.add_errors(spec, &errors),
                }
            }
            Err(errors) => report.add_errors(spec, &errors),
        }
    }
    report.check_pools(&config.pools);
    to_stdout(|out| Ok(report.lines.iter().try_for_each(|line| writeln!(out, "{line}"))?))?;
    Ok(if report.has_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Lines to print: one for each good zone, and one for each finding, `PLACE: error: ...` or `PLACE: warning: ...`.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    has_errors: bool,
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

    /// `serve` reads the files as its user. Who cannot become that user checks all the same, as somebody who may be allowed to read others.
    fn become_reader(&mut self, config: &Config) -> anyhow::Result<()> {
        let Err(error) = privileges::give_up(config) else { return Ok(()) };
        let OnlyRoot { user } = error.downcast()?;
        let own = privileges::own_name();
        self.warning("user", format!("only root can check what {user} may read; checked as {own}"));
        Ok(())
    }

    fn add_errors(&mut self, spec: &ZoneSpec, errors: &ZoneTextErrors) {
        for error in &errors.errors {
            let place = format!("{}:{}:{}", error.path.display(), error.position.line, error.position.column);
            self.error(place, &error.problem);
        }
        if errors.stopped_early {
            let place = format!("{}:1", spec.file.display());
            self.error(place, "reading stopped after too many errors: mend these, and check again");
        }
    }

    fn add_zone(&mut self, spec: &ZoneSpec, zone: &Zone, server: Option<SocketAddr>) {
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
            self.warning(format!("{} {}", zone.origin(), found.owner), found.kind);
        }
        match signing::look(zone.origin(), spec) {
            Ok(warning) => {
                warning.into_iter().for_each(|what| self.warning(format!("zone {}", zone.origin()), what))
            }
            Err(error) => self.error(format!("zone {}", zone.origin()), format!("it cannot be signed: {error}")),
        }
        // A zone that we sign is served under serials of its own.
        if let Some(server) = server.filter(|_| spec.keys.is_none()) {
            self.compare_serial(zone, server);
        }
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
        let place = format!("{} {}", zone.origin(), zone.origin());
        let ours = zone.serial();
        match serial::ask(server, zone.origin()) {
            Ok(theirs) if is_older(ours, theirs) => {
                self.warning(place, serial::went_back(theirs, ours));
            }
            Ok(_) => {}
            Err(error) => self.warning(
                place,
                format!("{server} does not say which serial it serves ({error}), so that is not compared: see if it runs"),
            ),
        }
    }
}
