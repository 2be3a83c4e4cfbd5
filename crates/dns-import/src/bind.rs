//! `named.conf`: statements of words, some with a block of statements, each ended by a semicolon.

use std::collections::BTreeMap;

use crate::config::{
    Notifier, Peer, TCP_CONNECTIONS, TCP_IDLE_S, TRANSFERS, endpoint, everybody, not_here, with_port,
};
use crate::{Config, Files, ImportError, Place, Secondary, Zone, join};

/// One statement.
#[derive(Clone, Debug)]
struct Statement {
    place: Place,
    /// Words, without their quotes, up to the block or the semicolon.
    words: Vec<String>,
    block: Vec<Statement>,
}

impl Statement {
    fn at(place: Place) -> Statement {
        Statement { place, words: Vec::new(), block: Vec::new() }
    }

    fn word(&self, number: usize) -> &str {
        self.words.get(number).map_or("", String::as_str)
    }

    /// The statements of the block that begin with `name`.
    fn all<'s>(&'s self, names: &'s [&str]) -> impl Iterator<Item = &'s Statement> {
        self.block.iter().filter(move |statement| names.contains(&statement.word(0)))
    }

    fn one<'s>(&'s self, names: &'s [&str]) -> Option<&'s Statement> {
        self.all(names).last()
    }

    /// What follows `name` in the words.
    fn value_of(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Reads the file at `path` with all that it includes, and makes of it what it can.
pub(crate) fn import(path: &str, files: &mut Files<'_>) -> Result<Config, ImportError> {
    let statements = read(path, files)?;
    let named = |kinds: &[&str]| {
        let of_kind = statements.iter().filter(|statement| kinds.contains(&statement.word(0)));
        of_kind.map(|statement| (statement.word(1).to_owned(), statement)).collect::<BTreeMap<_, _>>()
    };
    let options = statements.iter().find(|statement| statement.word(0) == "options");
    let mut import = Import {
        lists: named(&["acl"]),
        remotes: named(&["primaries", "masters", "remote-servers"]),
        directory: options.and_then(|options| Some(options.one(&["directory"])?.word(1).to_owned())),
        port: options.and_then(|options| Some(options.one(&["port"])?.word(1).to_owned())),
        notifies: options.and_then(|options| options.one(&["also-notify"])).cloned(),
        notifiers: options.and_then(|options| options.one(&["allow-notify"])).cloned(),
        notify: options.and_then(|options| Some(options.one(&["notify"])?.word(1).to_owned())),
        policies: named(&["dnssec-policy"]),
        policy: options.and_then(|options| options.one(&["dnssec-policy"])).cloned(),
        key_directory: options.and_then(|options| Some(options.one(&["key-directory"])?.word(1).to_owned())),
        has_told_of_notify: false,
        config: Config::default(),
    };
    for statement in &statements {
        import.take(statement);
    }
    let catalogs = options.into_iter().flat_map(|options| options.all(&["catalog-zones"]));
    for catalog in catalogs.flat_map(|option| option.all(&["zone"])) {
        import.take_catalog(catalog);
    }
    // Where nothing is said, BIND listens at all addresses.
    for (option, all) in [("listen-on", "0.0.0.0"), ("listen-on-v6", "::")] {
        if options.is_none_or(|options| options.one(&[option]).is_none()) {
            import.config.listen.push(endpoint(all, import.port.as_deref()));
        }
    }
    if options.is_none_or(|options| options.one(&["allow-transfer"]).is_none()) {
        let place = options.map_or(Place { path: path.to_owned(), line: 1 }, |options| options.place.clone());
        let what = "without allow-transfer BIND before 9.20 lets everybody transfer zones; here nobody may";
        import.config.note(&place, what);
    }
    Ok(import.config)
}

struct Import<'s> {
    /// `acl`.
    lists: BTreeMap<String, &'s Statement>,
    /// `primaries`.
    remotes: BTreeMap<String, &'s Statement>,
    /// `dnssec-policy` with a block.
    policies: BTreeMap<String, &'s Statement>,
    directory: Option<String>,
    /// The port of all that name none.
    port: Option<String>,
    /// `also-notify`, `notify` and `dnssec-policy` of all zones.
    notifies: Option<Statement>,
    /// `allow-notify` of all zones.
    notifiers: Option<Statement>,
    notify: Option<String>,
    policy: Option<Statement>,
    key_directory: Option<String>,
    has_told_of_notify: bool,
    config: Config,
}

impl Import<'_> {
    fn take(&mut self, statement: &Statement) {
        match statement.word(0) {
            "options" => self.take_options(statement),
            "key" => self.take_key(statement),
            "zone" => self.take_zone(statement),
            "acl" | "primaries" | "masters" | "remote-servers" => {}
            "dnssec-policy" => self.tell_of_lifetimes(statement),
            "view" => {
                let name = statement.word(1);
                self.note(statement, format!("view {name:?} and its zones: see lines (docs/dns/lines.md)"));
            }
            "controls" | "logging" | "statistics-channels" => {
                self.note(
                    statement,
                    format!("{}: Sidestep has tools of its own for that", statement.word(0)),
                );
            }
            other => self.note(statement, not_here(other)),
        }
    }

    fn take_options(&mut self, options: &Statement) {
        for option in &options.block {
            match option.word(0) {
                // Looked at already.
                "directory" | "port" | "also-notify" | "allow-notify" | "notify" | "key-directory"
                | "dnssec-policy" | "catalog-zones" => {}
                "listen-on" | "listen-on-v6" => self.take_listen(option),
                "allow-transfer" => self.config.allow_transfer = self.access(option),
                "notify-source" | "notify-source-v6" | "transfer-source" | "transfer-source-v6" => {
                    if let Some(address) = self.source(option) {
                        self.config.take_source(&option.place, option.word(0), &address);
                    }
                }
                "version" => self.config.version = Some(absent_if_none(option.word(1))),
                "hostname" => self.config.hostname = Some(absent_if_none(option.word(1))),
                "max-udp-size" => {
                    self.config.take_udp_payload(&option.place, "max-udp-size", option.word(1));
                }
                "edns-udp-size" => {
                    let what = "answers.udp-payload-max, from max-udp-size, is for what is received as well";
                    self.note(option, format!("edns-udp-size: {what}"));
                }
                "tcp-clients" => {
                    let place = &option.place;
                    self.config.tcp_connections_max =
                        self.config.number(place, "tcp-clients", option.word(1), TCP_CONNECTIONS);
                }
                "tcp-idle-timeout" => self.take_idle_timeout(option),
                "transfers-out" => {
                    let place = &option.place;
                    self.config.transfers_max =
                        self.config.number(place, "transfers-out", option.word(1), TRANSFERS);
                }
                "rrset-order" => self.take_order(option),
                "server-id" if option.word(1) == "hostname" => {
                    self.note(option, "server-id hostname: write the name in answers.nsid");
                }
                "server-id" => self.config.nsid = Some(absent_if_none(option.word(1))),
                // It does not resolve, as here.
                "recursion" if option.word(1) == "no" => {}
                "allow-recursion" | "allow-query-cache" if is_only(option, "none") => {}
                "allow-query" if is_only(option, "any") => {}
                "recursion" | "allow-recursion" | "forwarders" | "allow-query-cache" => {
                    let what = "resolving is another program's work: sidestep dns resolve";
                    self.note(option, format!("{}: {what}", option.word(0)));
                }
                "pid-file"
                | "dump-file"
                | "statistics-file"
                | "managed-keys-directory"
                | "session-keyfile" => {}
                other => self.note(option, not_here(other)),
            }
        }
    }

    /// `transfer-source ADDRESS [port PORT]` and its like; `None` if the kernel is to choose.
    fn source(&mut self, option: &Statement) -> Option<String> {
        if option.value_of("port").is_some() {
            self.note(option, format!("{}: port: it leaves from any port here", option.word(0)));
        }
        Some(option.word(1)).filter(|address| is_address(address)).map(str::to_owned)
    }

    /// `tcp-idle-timeout`, in tenths of a second.
    fn take_idle_timeout(&mut self, option: &Statement) {
        let Ok(tenths) = option.word(1).parse::<u64>() else {
            return self.note(option, format!("tcp-idle-timeout: {:?} is not a number", option.word(1)));
        };
        let seconds = self.config.in_range(
            &option.place,
            "tcp-idle-timeout in seconds",
            tenths.div_ceil(10),
            TCP_IDLE_S,
        );
        self.config.tcp_idle_timeout_s = Some(seconds);
    }

    /// `rrset-order { [class ...] [type ...] [name ...] order ...; };`: here all answers have one order.
    fn take_order(&mut self, option: &Statement) {
        for rule in &option.block {
            match rule.value_of("order") {
                Some("random" | "cyclic") if rule.words.len() == 2 => self.config.rotate = true,
                Some("fixed" | "none") if rule.words.len() == 2 => self.config.rotate = false,
                _ => {
                    let what = "answers.rotate is for all names and types alike";
                    self.note(rule, format!("rrset-order {}: {what}", rule.words.join(" ")));
                }
            }
        }
    }

    fn take_listen(&mut self, option: &Statement) {
        let common = self.port.clone();
        let port = option.value_of("port").or(common.as_deref());
        if option.value_of("tls").is_some() || option.value_of("http").is_some() {
            return self.note(option, "listen-on with tls or http: see [encrypted] (docs/dns/encrypted.md)");
        }
        for element in &option.block {
            match element.word(0) {
                "any" if option.word(0) == "listen-on" => self.config.listen.push(endpoint("0.0.0.0", port)),
                "any" => self.config.listen.push(endpoint("::", port)),
                "none" => {}
                address if is_address(address) && !address.contains('/') => {
                    self.config.listen.push(endpoint(address, port));
                }
                other => self.note(element, format!("{}: {other}: name addresses", option.word(0))),
            }
        }
    }

    fn take_key(&mut self, key: &Statement) {
        let value =
            |name: &str| key.one(&[name]).map_or_else(String::new, |option| option.word(1).to_owned());
        self.config.take_key(&key.place, key.word(1), &value("algorithm"), &value("secret"));
    }

    fn take_zone(&mut self, zone: &Statement) {
        let origin = zone.word(1).to_owned();
        if zone.words.get(2).is_some_and(|class| !class.eq_ignore_ascii_case("IN")) {
            return self.note(zone, format!("zone {origin:?}: another class than IN"));
        }
        match zone.one(&["type"]).map_or("", |option| option.word(1)) {
            "primary" | "master" => self.take_primary(zone, origin),
            "secondary" | "slave" => self.take_secondary(zone, origin),
            "hint" | "mirror" | "forward" | "stub" | "static-stub" | "delegation-only" | "redirect" => {
                self.note(zone, format!("zone {origin:?} is of a resolver: sidestep dns resolve"));
            }
            other => self.note(zone, format!("zone {origin:?} of type {other:?}: no counterpart")),
        }
    }

    fn take_primary(&mut self, zone: &Statement, origin: String) {
        let Some(file) = zone.one(&["file"]).map(|option| self.path(option.word(1))) else {
            return self.note(zone, format!("zone {origin:?} has no file"));
        };
        let mut taken = Zone { origin, file, notify: self.notified(zone), ..Zone::default() };
        for option in &zone.block {
            match option.word(0) {
                "type" | "file" | "also-notify" | "notify" | "dnssec-policy" => {}
                "inline-signing" => {
                    let what = "the serial that BIND serves may be ahead of the file's: raise that one above it first";
                    self.note(option, format!("zone {:?}: inline-signing: {what}", taken.origin));
                }
                "allow-transfer" => taken.allow_transfer = Some(self.access(option)),
                "allow-update" if zone.one(&["update-policy"]).is_some() => {
                    let what =
                        "allow-update counts for nothing there, as the zone has an update-policy: left out";
                    self.note(option, format!("zone {:?}: {what}", taken.origin));
                }
                "allow-update" => taken.allow_update = self.access(option),
                "auto-dnssec" => taken.dnssec = option.word(1) == "maintain",
                "key-directory" => taken.keys = Some(self.path(option.word(1))),
                "allow-query" if is_only(option, "any") => {}
                other => self.note(option, format!("zone {:?}: {}", taken.origin, not_here(other))),
            }
        }
        if let Some(policy) = zone.one(&["dnssec-policy"]).cloned().or_else(|| self.policy.clone()) {
            taken.dnssec |= self.signs(&policy, &taken.origin);
            taken.nsec3 = taken.dnssec && self.denies_by_nsec3(&policy, &taken.origin);
        }
        if taken.dnssec {
            let common = self.key_directory.clone().or_else(|| self.directory.clone());
            taken.keys = taken.keys.take().or_else(|| common.map(|directory| self.path(&directory)));
        }
        self.config.zones.push(taken);
    }

    /// Whether a policy has a zone signed.
    fn signs(&mut self, policy: &Statement, origin: &str) -> bool {
        let what = match policy.word(1) {
            "none" => return false,
            "default" => return true,
            "insecure" => {
                "it ceases to be signed there; here it is not, so wait until its parent has no DS record"
            }
            _ => "a zone is signed with the keys that are there, or with one of ECDSAP256SHA256",
        };
        self.note(policy, format!("zone {origin:?}: dnssec-policy {:?}: {what}", policy.word(1)));
        policy.word(1) != "insecure"
    }

    /// BIND replaces keys whose lifetime a policy limits.
    fn tell_of_lifetimes(&mut self, policy: &Statement) {
        let keys = policy.all(&["keys"]).flat_map(|keys| &keys.block);
        let mut lifetimes = keys.filter_map(|key| key.value_of("lifetime"));
        if lifetimes.any(|lifetime| !matches!(lifetime, "unlimited" | "0")) {
            let what = "lifetime: keys are replaced by hand here (sidestep dns key roll)";
            self.note(policy, format!("dnssec-policy {:?}: {what}", policy.word(1)));
        }
    }

    /// Whether a policy has NSEC3.
    fn denies_by_nsec3(&mut self, policy: &Statement, origin: &str) -> bool {
        let policy = self.policies.get(policy.word(1)).copied();
        let Some(nsec3) = policy.and_then(|policy| policy.one(&["nsec3param"])) else { return false };
        let is_more = |name: &str| nsec3.value_of(name).is_some_and(|value| !matches!(value, "0" | "no"));
        if ["iterations", "salt-length", "optout"].into_iter().any(is_more) {
            let what = "NSEC3 here has no more iterations, no salt and no opt-out (RFC 9276)";
            self.note(nsec3, format!("zone {origin:?}: nsec3param: {what}"));
        }
        true
    }

    /// BIND may sign what it has from other servers, by a policy that all zones share. Whoever has the DS record then would take the zone for bogus.
    fn warn_of_signing(&mut self, zone: &Statement, origin: &str) {
        let policy = zone.one(&["dnssec-policy"]).or(self.policy.as_ref()).map(|policy| policy.word(1));
        let policy = policy.filter(|policy| !matches!(*policy, "none" | "insecure"));
        let is_on =
            |name: &str| zone.one(&[name]).is_some_and(|option| matches!(option.word(1), "yes" | "maintain"));
        let by = match policy {
            Some(policy) => format!("dnssec-policy {policy:?}"),
            None if is_on("inline-signing") || is_on("auto-dnssec") => "inline-signing".to_owned(),
            None => return,
        };
        let what = "WARNING: BIND signs this zone, which it has from other servers; here it is served as they give it. If its parent has a DS \
                    record, it becomes bogus: have its primary sign it first, or the DS record removed";
        self.note(zone, format!("zone {origin:?}: {by}: {what}"));
    }

    /// A secondary zone whose zones are to be had, too.
    fn take_catalog(&mut self, catalog: &Statement) {
        let plain = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
        let name = plain(catalog.word(1));
        let primaries =
            catalog.words.iter().position(|word| matches!(&**word, "default-primaries" | "default-masters"));
        let peers = primaries.map(|_| self.remotes(catalog)).unwrap_or_default();
        let directory = catalog.value_of("zone-directory").map(|path| self.path(path));
        let Some(zone) = self.config.secondaries.iter_mut().find(|zone| plain(&zone.origin) == name) else {
            return self.note(catalog, format!("catalog-zones: there is no secondary zone {name:?}"));
        };
        zone.is_catalog = true;
        zone.members = directory;
        let mut others = Secondary::default();
        others.take_primaries(&peers);
        if !peers.is_empty() && (&others.primaries, &others.key) != (&zone.primaries, &zone.key) {
            let what = "its zones are had from the catalog's own primaries here, not from default-primaries";
            self.note(catalog, format!("catalog {name:?}: {what}"));
        }
    }

    fn take_secondary(&mut self, zone: &Statement, origin: String) {
        self.warn_of_signing(zone, &origin);
        let mut taken = Secondary { origin, notify: self.notified(zone), ..Secondary::default() };
        let mut primaries = Vec::new();
        for option in &zone.block {
            match option.word(0) {
                "type" | "also-notify" | "notify" | "allow-notify" => {}
                "dnssec-policy" | "inline-signing" | "auto-dnssec" | "key-directory" => {} // Told of above.
                "file" => taken.file = Some(self.path(option.word(1))),
                "masters" | "primaries" => {
                    primaries = self.remotes(option);
                    taken.take_primaries(&primaries);
                }
                "allow-transfer" => taken.allow_transfer = Some(self.access(option)),
                "transfer-source" | "transfer-source-v6" => {
                    taken.source_addresses.extend(self.source(option));
                }
                "allow-query" if is_only(option, "any") => {}
                other => self.note(option, format!("zone {:?}: {}", taken.origin, not_here(other))),
            }
        }
        self.config.secondaries.push(taken);
        if let Some(list) = zone.one(&["allow-notify"]).cloned().or_else(|| self.notifiers.clone()) {
            let mut notifiers = Vec::new();
            self.gather_notifiers(&list, &mut notifiers, 0);
            self.config.compare_notifiers(&list.place, "allow-notify", &notifiers, &primaries);
        }
    }

    /// Whom a list names. Those whom it excludes are left out: primaries may always send NOTIFY, here as there.
    fn gather_notifiers(&self, list: &Statement, notifiers: &mut Vec<Notifier>, depth: usize) {
        for element in &list.block {
            let named = self.lists.get(element.word(0)).copied();
            let inner = named.or_else(|| Some(element).filter(|element| element.words.is_empty()));
            if let Some(list) = inner.filter(|_| depth < 16) {
                self.gather_notifiers(list, notifiers, depth + 1);
                continue;
            }
            match element.word(0) {
                "none" => {}
                "key" => notifiers.push(Notifier { address: None, key: Some(element.word(1).to_owned()) }),
                excluded if excluded.starts_with('!') => {}
                address => notifiers.push(Notifier { address: Some(address.to_owned()), key: None }),
            }
        }
    }

    /// Who hears of new versions of a zone.
    fn notified(&mut self, zone: &Statement) -> Vec<String> {
        let common = self.notify.clone().unwrap_or_else(|| "yes".to_owned());
        let says = zone.one(&["notify"]).map_or(common.as_str(), |option| option.word(1));
        if says == "no" {
            return Vec::new();
        }
        if says == "yes" {
            let what = "BIND notifies the servers of a zone's NS records too: name them in notify";
            if !std::mem::replace(&mut self.has_told_of_notify, true) {
                self.note(zone, what);
            }
        }
        let option = zone.one(&["also-notify"]).cloned().or_else(|| self.notifies.clone());
        option.iter().flat_map(|option| self.remotes(option)).map(|peer| peer.to_text()).collect()
    }

    /// Servers with their ports and keys.
    fn remotes(&mut self, option: &Statement) -> Vec<Peer> {
        let mut peers = Vec::new();
        let port = self.port.clone();
        self.gather_remotes(option, (port.as_deref(), None), &mut peers, 0);
        peers
    }

    /// A list that stands in another one with a port and a key has these for those that have none.
    fn gather_remotes(
        &mut self,
        option: &Statement,
        (port, key): (Option<&str>, Option<&str>),
        peers: &mut Vec<Peer>,
        depth: usize,
    ) {
        let port = option.value_of("port").or(port);
        for server in &option.block {
            if is_address(server.word(0)) {
                let port = server.value_of("port").or(port);
                let key = server.value_of("key").or(key).map(str::to_owned);
                peers.push(Peer { address: with_port(server.word(0), port), key });
                if server.value_of("tls").is_some() {
                    self.note(server, "a server that is asked by TLS: see tls and tls-ca of [[secondary]]");
                }
            } else if let Some(list) = self.remotes.get(server.word(0)).copied().filter(|_| depth < 16) {
                self.gather_remotes(list, (port, server.value_of("key").or(key)), peers, depth + 1);
            } else {
                self.note(server, format!("no list of servers is called {:?}", server.word(0)));
            }
        }
    }

    /// An access list in our words.
    fn access(&mut self, option: &Statement) -> Vec<String> {
        if option.words.len() > 1 {
            let what = "is limited to a port or a transport, so nobody comes along";
            self.note(option, format!("{} {what}", option.word(0)));
            return Vec::new();
        }
        let mut allowed = Vec::new();
        self.gather_access(option, &mut allowed, 0);
        allowed
    }

    /// Adds those whom a list allows. The first match counts there; here all do. So nobody comes along who stands behind an exclusion:
    /// false if there was one.
    fn gather_access(&mut self, list: &Statement, allowed: &mut Vec<String>, depth: usize) -> bool {
        for element in &list.block {
            match element.word(0) {
                "any" => allowed.extend(everybody()),
                "none" => {}
                "localhost" => allowed.extend(["127.0.0.0/8".to_owned(), "::1".to_owned()]),
                "key" => allowed.push(element.word(1).to_owned()),
                address if is_address(address) => allowed.push(address.to_owned()),
                name => {
                    let known = self.lists.get(name).copied().filter(|_| depth < 16);
                    if known.is_some_and(|list| self.gather_access(list, allowed, depth + 1)) {
                        continue;
                    }
                    if known.is_none() {
                        let what = "an access list here has addresses, prefixes and keys, and excludes nobody. This entry and those behind it are left \
                                    out";
                        self.note(element, format!("{:?}: {what}", element.words.join(" ")));
                    }
                    return false;
                }
            }
        }
        true
    }

    fn path(&self, path: &str) -> String {
        join(self.directory.as_deref().unwrap_or_default(), path)
    }

    fn note(&mut self, statement: &Statement, what: impl Into<String>) {
        self.config.note(&statement.place, what);
    }
}

/// Whether an access list says this alone.
fn is_only(option: &Statement, word: &str) -> bool {
    matches!(&option.block[..], [only] if only.word(0) == word && only.words.len() == 1)
}

/// An address or a prefix.
fn is_address(word: &str) -> bool {
    word.split('/').next().is_some_and(|address| address.parse::<std::net::IpAddr>().is_ok())
}

fn absent_if_none(word: &str) -> String {
    if word == "none" { String::new() } else { word.to_owned() }
}

/// The statements of a file, with those of files that it includes in their place.
fn read(path: &str, files: &mut Files<'_>) -> Result<Vec<Statement>, ImportError> {
    let text = files.read(path)?;
    let tokens = tokens(path, &text)?;
    let mut tokens = tokens.into_iter();
    let mut statements = Vec::new();
    let end = Place { path: path.to_owned(), line: text.lines().count() };
    for statement in block(&mut tokens, &end, 0)? {
        if statement.word(0) == "include" {
            files.include(statement.word(1), |path, files| {
                statements.extend(read(path, files)?);
                Ok(())
            })?;
        } else {
            statements.push(statement);
        }
    }
    Ok(statements)
}

/// Statements up to the end of the block, or of the file at depth 0.
fn block(
    tokens: &mut impl Iterator<Item = (Place, Token)>,
    end: &Place,
    depth: usize,
) -> Result<Vec<Statement>, ImportError> {
    const DEPTH_MAX: usize = 32;
    if depth > DEPTH_MAX {
        return Err(end.error("blocks in blocks, too deep"));
    }
    let mut statements = Vec::new();
    let mut open: Option<Statement> = None;
    while let Some((place, token)) = tokens.next() {
        match token {
            Token::Word(word) => {
                open.get_or_insert_with(|| Statement::at(place)).words.push(word);
            }
            Token::Open => {
                let inside = block(tokens, &place, depth + 1)?;
                open.get_or_insert_with(|| Statement::at(place)).block = inside;
            }
            Token::End => statements.extend(open.take()),
            Token::Close if depth > 0 && open.is_none() => return Ok(statements),
            Token::Close => return Err(place.error("'}' is not expected here: is a ';' missing before it?")),
        }
    }
    if depth > 0 || open.is_some() {
        return Err(end.error("the file ends before what begins here does"));
    }
    Ok(statements)
}

/// Comments are `# ...`, `// ...` and `/* ... */`.
fn tokens(path: &str, text: &str) -> Result<Vec<(Place, Token)>, ImportError> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    let skip = |rest: &str, len: usize| rest[..len].matches('\n').count();
    while let Some(first) = rest.chars().next() {
        let place = Place { path: path.to_owned(), line };
        let (token, len) = match first {
            '\n' => {
                line += 1;
                (None, 1)
            }
            '#' => (None, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("//") => (None, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => {
                let end = rest[2..].find("*/").ok_or_else(|| place.error("a comment does not end"))?;
                line += skip(rest, end + 4);
                (None, end + 4)
            }
            '{' => (Some(Token::Open), 1),
            '}' => (Some(Token::Close), 1),
            ';' => (Some(Token::End), 1),
            '"' => {
                let end = rest[1..].find('"').ok_or_else(|| place.error("a string does not end"))?;
                line += skip(rest, end + 2);
                (Some(Token::Word(rest[1..=end].to_owned())), end + 2)
            }
            '!' => (Some(Token::Word("!".to_owned())), 1),
            char if char.is_whitespace() => (None, char.len_utf8()),
            _ => {
                let is_end = |char: char| char.is_whitespace() || matches!(char, '{' | '}' | ';' | '"' | '#');
                let end = rest.find(is_end).unwrap_or(rest.len());
                (Some(Token::Word(rest[..end].to_owned())), end)
            }
        };
        tokens.extend(token.map(|token| (place, token)));
        rest = &rest[len..];
    }
    Ok(tokens)
}
