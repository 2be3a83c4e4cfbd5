//! `sidestep dns explain`: which line answers a question, and why.

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use dns_auth::{Catalog, Counters, LineData, Outcome, Responder, ServedZone, Settings, Transport};
use dns_lines::{Found, LineId, Lines, Prefix};
use dns_message::{Message, add_to_count, push_record, question_message};
use dns_wire::{Class, Edns, LabelStarts, Name, NameBuf, Rtype, Subnet};
use dns_zone::overlay::OverlaySet;
use dns_zone::{Node, Zone};
use observe::protocol::{ExplainRequest, Reply, Request};

use super::config::{Config, parse_domain};
use super::health::Health;
use super::keys::show_time;
use super::line_table::{Collected, LoadedLines, Rank};
use super::lines::{LineSpec, LineSpecs};
use super::pools::{PoolSpec, Pools};
use super::query::{line as line_of_zone_file, rcode_text};
use super::stats::{NAME, only};
use super::{load, options};
use crate::observe::{Which, next_reply};
use crate::output::to_stdout;

/// Say which line answers a question, and why.
///
/// Reads configuration, lists and zones as `serve` does, and answers as it would: nothing is sent. With --server, --pid or --control a running
/// server says it, with the zones, lines and health of hosts that it has.
#[derive(Args, Clone, Debug)]
pub(crate) struct Explain {
    /// The name that is asked for.
    name: String,

    /// The type.
    #[arg(default_value = "A")]
    qtype: String,

    /// The address from which the query comes.
    #[arg(long, value_name = "ADDRESS")]
    from: IpAddr,

    /// The network of the client that the query names (EDNS client subnet).
    #[arg(long, value_name = "PREFIX")]
    ecs: Option<Prefix>,

    /// Ask the running server.
    #[arg(long, conflicts_with_all = ["config", "zones"])]
    server: bool,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    sources: options::Sources,
}

/// A question, and who asks it.
pub(crate) struct Asked {
    name: NameBuf,
    qtype: Rtype,
    from: IpAddr,
    ecs: Option<Prefix>,
}

impl TryFrom<&ExplainRequest> for Asked {
    type Error = anyhow::Error;

    fn try_from(request: &ExplainRequest) -> anyhow::Result<Asked> {
        let qtype = Rtype::from_text(request.qtype.as_bytes());
        let qtype = qtype.with_context(|| {
            format!("type: {:?} is no type of records, expected one such as AAAA", request.qtype)
        })?;
        let ecs = request.network.as_deref().map(str::parse).transpose()?;
        Ok(Asked {
            name: parse_domain("name", &request.name)?,
            qtype,
            from: request.from.to_canonical(),
            ecs,
        })
    }
}

/// Explains; the exit status is a failure if no zone here has the name.
pub(crate) fn explain(options: &Explain) -> anyhow::Result<ExitCode> {
    let request = ExplainRequest {
        name: options.name.clone(),
        qtype: options.qtype.clone(),
        from: options.from,
        network: options.ecs.map(|prefix| prefix.to_string()),
    };
    let asked = Asked::try_from(&request)?;
    let lines = if options.server || options.which.pid.is_some() || options.which.control.is_some() {
        ask(&options.which, request)?
    } else {
        let config = Config::resolve(&options.sources.to_serve())?;
        let lines = LoadedLines::load(&config.lines, None)?;
        let pools = Pools { specs: Arc::clone(&config.pools), health: Health::default() };
        let clients = load::Clients { lines, lines_problem: None, pools: pools.clone() };
        let loaded = load::load_catalog(&config.zones, None, &load::Choice::default(), false, clients);
        explained(&asked, (&config.lines, None), &pools, (&loaded.catalog, &config.settings))?
    };
    to_stdout(|out| Ok(lines.iter().try_for_each(|line| writeln!(out, "{line}"))?))?;
    let has_zone = !lines.iter().any(|line| line.starts_with(&line_of("zone", NO_ZONE)));
    Ok(if has_zone { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a running server says.
fn ask(which: &Which, request: ExplainRequest) -> anyhow::Result<Vec<String>> {
    let (answering, mut answer) = only(which.ask(&Request::Explain(request))?, &[NAME])?;
    let mut lines = Vec::new();
    while let Some(reply) = next_reply(&answering, &mut answer)? {
        match reply {
            Reply::Lines(more) => lines.extend(more),
            Reply::Error(error) => bail!(error),
            _ => {}
        }
    }
    Ok(lines)
}

/// Explains an answer by what is served. Beside the lines that are configured stands why others are in use, or none, if that is so.
pub(crate) fn explained(
    asked: &Asked,
    (specs, lines_problem): (&LineSpecs, Option<&str>),
    pools: &Pools,
    (catalog, settings): (&Catalog, &Arc<Settings>),
) -> anyhow::Result<Vec<String>> {
    let mut report = Report { options: asked, specs, lines_problem, pools, lines: Vec::new() };
    let found = report.client(catalog.lines().map(|lines| &**lines));
    let (name, qtype) = (asked.name.as_name(), asked.qtype);
    report.zone(catalog, name, qtype, found);
    report.answer(catalog, settings, name, qtype)?;
    Ok(report.lines)
}

const NO_ZONE: &str = "none: the name is in no zone of this server";

/// A line of the explanation.
fn line_of(what: &str, text: impl AsRef<str>) -> String {
    format!("{what:<8} {}", text.as_ref())
}

struct Report<'o> {
    options: &'o Asked,
    specs: &'o LineSpecs,
    lines_problem: Option<&'o str>,
    pools: &'o Pools,
    lines: Vec<String>,
}

impl Report<'_> {
    fn say(&mut self, what: &str, text: impl AsRef<str>) {
        self.lines.push(line_of(what, text));
    }

    /// Who counts as the client, and its line.
    fn client(&mut self, lines: Option<&Lines>) -> Found {
        let named = self.options.ecs.filter(|prefix| prefix.length() > 0);
        let address = named.map_or(self.options.from, Prefix::address);
        match (named, self.options.ecs) {
            (Some(prefix), _) => {
                self.say("client", format!("{prefix}, which the query names (EDNS client subnet)"))
            }
            (None, Some(_)) => {
                self.say("client", format!("{address}, which sent the query: it names no network"))
            }
            (None, None) => self.say("client", format!("{address}, which sent the query")),
        }
        let Some(lines) = lines else {
            self.say(
                "line",
                format!("none: {}", self.lines_problem.unwrap_or("the configuration has no [[line]]")),
            );
            return Found::NOTHING;
        };
        let found = lines.find(address);
        let mut collected = Collected::default();
        let read = collected.add_all(self.specs);
        // A server goes on with what it has read before.
        let deciding = collected.builder.deciding(address).filter(|(_, id, _)| Some(*id) == found.line);
        match (found.line.and_then(|id| lines.lines().get(usize::from(id.0))), deciding) {
            (Some(line), Some((prefix, id, rank))) => {
                let source = source(&self.specs.lines[usize::from(id.0)], prefix, Rank::of(rank));
                self.say("line", format!("{}: {prefix} decides, of its {source}", line.name));
            }
            (Some(line), None) => self.say("line", format!("{}: by lists that are others by now", line.name)),
            (None, _) => self.say("line", "none: no prefix of a line has this address"),
        }
        match (self.lines_problem, read) {
            (Some(problem), _) => self.say("", problem),
            (None, Err(error)) => self.say("", format!("its lists cannot be read now: {error:#}")),
            (None, Ok(())) => {}
        }
        self.say("", format!("all of {} is alike", Prefix::new(address, found.length)));
        found
    }

    /// Whose records answer in which zone.
    fn zone(&mut self, catalog: &Catalog, name: Name<'_>, qtype: Rtype, found: Found) {
        let Some(served) = catalog.find(name) else { return self.say("zone", NO_ZONE) };
        let origin = served.origin();
        let Some(data) = served.lines().map(|lines| lines.data()) else {
            return self
                .say("zone", format!("{origin}: no line has records there, all clients get the same"));
        };
        let having: Vec<&str> = data.lines().iter().map(|line| &*line.line).collect();
        match having.is_empty() {
            true => self.say("zone", format!("{origin}: no line has records there")),
            false => self.say("zone", format!("{origin}: there are records of {}", having.join(", "))),
        }
        let node = served.tree().ok().and_then(|zone| node_for(zone, name));
        self.records(catalog.lines(), (served, data), (name, qtype), (node, found.line));
        self.pool(served, data, &owner(node, name));
    }

    /// Which addresses of the name are given how often.
    fn pool(&mut self, served: &ServedZone, data: &LineData, name: &NameBuf) {
        let (Some(pool), Some(spec)) = (data.pools().get(name), self.pools.of_name(name)) else { return };
        let addresses = load::addresses_at(served.tree().ok(), data, name);
        let is_down = |address: &IpAddr| {
            let state = spec.check.as_ref().and_then(|_| self.pools.health.state(&spec.name, *address));
            state.is_some_and(|state| !state.is_up)
        };
        let none_is_up = !addresses.is_empty() && addresses.iter().all(is_down);
        let answers = match pool.answers {
            _ if none_is_up => "none is up, so all count as if they were".to_owned(),
            Some(answers) => format!("{answers} of its addresses in an answer, by weight"),
            None => "all that are up".to_owned(),
        };
        self.say("pool", format!("{}: {answers}", spec.name));
        for address in addresses {
            let weight = spec.weights.get(&address).copied().unwrap_or(1);
            let weight = if spec.weights.is_empty() { String::new() } else { format!(", weight {weight}") };
            let health = self.health(spec, address);
            self.say("", format!("{address}{weight}{health}"));
        }
    }

    fn health(&self, spec: &PoolSpec, address: IpAddr) -> String {
        let Some(check) = &spec.check else { return String::new() };
        let kind = &check.kind;
        match self.pools.health.state(&spec.name, address) {
            None => format!(": {kind}, which only a running server checks"),
            Some(state) if state.last.is_empty() => format!(": {kind} was not checked yet, it counts as up"),
            Some(state) => {
                let (is, since) = (if state.is_up { "up" } else { "down" }, show_time(state.since));
                format!(": {is} since {since}, {kind}: {}", state.last)
            }
        }
    }

    /// Which line's records those of the name are.
    fn records(
        &mut self,
        lines: Option<&Arc<Lines>>,
        (served, data): (&ServedZone, &LineData),
        (name, qtype): (Name<'_>, Rtype),
        (node, line): (Option<Node<'_>>, Option<LineId>),
    ) {
        let name = owner(node, name);
        let fits = |set: &OverlaySet| served.tree().is_ok_and(|zone| set.fits(zone, data.signer().is_some()));
        let has = |line: &str| {
            let own = data.lines().iter().find(|own| *own.line == *line)?;
            let sets = own.overlays.last()?.sets();
            let set = sets
                .iter()
                .filter(|set| set.owner == name && (set.rtype == qtype || set.rtype == Rtype::CNAME))
                .find(|set| fits(set))?;
            Some(format!("{}:{}", set.place.0.display(), set.place.1.line))
        };
        let chain =
            line.into_iter().flat_map(|line| lines.into_iter().flat_map(move |lines| lines.chain(line)));
        for (number, (_, line)) in chain.enumerate() {
            let by = if number == 0 { "" } else { ", on which the line falls back" };
            match has(&line.name) {
                Some(place) => return self.say("records", format!("of line {}{by}: {place}", line.name)),
                None => self.say("", format!("line {}{by} has none of this name and type", line.name)),
            }
        }
        let varies = node.is_some_and(|node| node.is_varied());
        let note = if varies { "" } else { ": no line has any at this name" };
        self.say("records", format!("of the zone's own file{note}"));
    }

    /// The answer as the server would give it.
    fn answer(
        &mut self,
        catalog: &Catalog,
        settings: &Arc<Settings>,
        name: Name<'_>,
        qtype: Rtype,
    ) -> anyhow::Result<()> {
        let query = query(name, qtype, self.options.ecs);
        let mut responder = Responder::new(Arc::clone(settings), Arc::new(Counters::default()));
        let mut buffer = vec![0; 65_535];
        buffer[..query.len()].copy_from_slice(&query);
        let from = self.options.from;
        let Outcome::Reply(len) = responder.respond(catalog, &mut buffer, query.len(), Transport::Tcp, from)
        else {
            return Err(anyhow!("the query gets no answer"));
        };
        let malformed = |_| anyhow!("the answer cannot be read");
        let mut message = Message::parse(&buffer[..len]).map_err(malformed)?;
        self.say("answer", rcode_text(message.flags() & 0xf));
        for (section, count) in message.counts().into_iter().enumerate() {
            for _ in 0..count {
                let record = message.next_record().map_err(malformed)?;
                match record.rtype {
                    Rtype::OPT => self.scope(&record.rdata),
                    _ if section == 0 => self.say("", line_of_zone_file(&record)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn scope(&mut self, options: &[u8]) {
        // It is the only option that the query asks for, but for what settings add behind it.
        let network = options.windows(4).position(|head| head[..2] == Edns::CLIENT_SUBNET.to_be_bytes());
        let data = network.and_then(|at| options.get(at + 4..at + 4 + usize::from(options[at + 3])));
        if let Some((network, scope)) = data.and_then(Subnet::read) {
            let kept = Prefix::new(network.address(), scope);
            self.say("scope", format!("{scope}: caches may give it to all of {kept}"));
        }
    }
}

/// Which of a line's lists or places a prefix is of.
fn source(spec: &LineSpec, prefix: Prefix, rank: Rank) -> String {
    match rank {
        Rank::Listed if spec.prefixes.contains(&prefix) => "prefixes".to_owned(),
        Rank::Listed => {
            let file = spec.prefixes_file.as_ref().map(|file| file.display().to_string());
            format!("prefixes-file {}", file.unwrap_or_default())
        }
        Rank::Asn => "asns, by geo.asn".to_owned(),
        Rank::Region => "regions, by geo.city".to_owned(),
        Rank::Country => "countries, by the geo file".to_owned(),
    }
}

fn query(name: Name<'_>, qtype: Rtype, ecs: Option<Prefix>) -> Vec<u8> {
    let mut message = question_message(0, 0, name, qtype);
    if let Some(prefix) = ecs {
        let data = Subnet::new(prefix.address(), prefix.length()).write(0);
        let [high, low] = Edns::CLIENT_SUBNET.to_be_bytes();
        let option = [&[high, low, 0, data.len() as u8][..], &data].concat(); // At most 20 octets.
        push_record(&mut message, Name::ROOT, Rtype::OPT, Class(1232), 0, &option);
        add_to_count(&mut message, 2, 1);
    }
    message
}

/// What answers for a name: its own node, or a wildcard.
fn node_for<'z>(zone: &'z Zone, name: Name<'_>) -> Option<Node<'z>> {
    let wildcard = || zone.closest_encloser(name.as_bytes(), &LabelStarts::of(name)).wildcard();
    zone.find(name.as_bytes()).or_else(wildcard)
}

/// The name that the records have in the zone.
fn owner(node: Option<Node<'_>>, name: Name<'_>) -> NameBuf {
    node.and_then(|node| Name::from_wire(node.name()).ok()).map_or(NameBuf::from(name), NameBuf::from)
}
