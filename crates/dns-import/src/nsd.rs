//! `nsd.conf`: clauses (`server:`, `zone:` and others) of options. Several may stand in a line: the values of an option end with it, or where the next name stands.

use std::collections::BTreeMap;

use crate::config::{
    Notifier, Peer, TCP_CONNECTIONS, TCP_IDLE_S, endpoint, not_here, push_source, split_port, with_port,
};
use crate::{Config, Files, ImportError, Place, Secondary, Zone, directory_of, join};

/// One option with its values.
#[derive(Clone, Debug)]
struct Setting {
    place: Place,
    name: String,
    values: Vec<String>,
}

impl Setting {
    fn value(&self, number: usize) -> &str {
        self.values.get(number).map_or("", String::as_str)
    }
}

/// `zone:` or another one, and its options.
#[derive(Clone, Debug)]
struct Clause {
    place: Place,
    name: String,
    options: Vec<Setting>,
}

impl Clause {
    fn value(&self, name: &str) -> &str {
        self.options.iter().rfind(|option| option.name == name).map_or("", |option| option.value(0))
    }
}

const CLAUSES: [&str; 8] =
    ["server", "remote-control", "key", "tls-auth", "pattern", "zone", "dnstap", "verify"];

/// Reads the file at `path` with all that it includes, and makes of it what it can.
pub(crate) fn import(path: &str, files: &mut Files<'_>) -> Result<Config, ImportError> {
    let mut clauses = Vec::new();
    read(path, files, &mut clauses)?;
    let patterns = clauses.iter().filter(|clause| clause.name == "pattern");
    let patterns = patterns.map(|clause| (clause.value("name").to_owned(), clause)).collect();
    let servers = || clauses.iter().filter(|clause| clause.name == "server");
    let last = |name: &str| servers().map(|clause| clause.value(name)).rfind(|value| !value.is_empty());
    let mut import = Import {
        patterns,
        directory: last("zonesdir").unwrap_or("/etc/nsd").to_owned(),
        port: last("port").map(str::to_owned),
        config: Config::default(),
    };
    for clause in &clauses {
        import.take(clause);
    }
    if import.config.listen.is_empty() {
        let all = ["0.0.0.0", "::"].map(|all| endpoint(all, import.port.as_deref()));
        import.config.listen.extend(all);
    }
    Ok(import.config)
}

struct Import<'c> {
    patterns: BTreeMap<String, &'c Clause>,
    directory: String,
    port: Option<String>,
    config: Config,
}

impl Import<'_> {
    fn take(&mut self, clause: &Clause) {
        match clause.name.as_str() {
            "server" => clause.options.iter().for_each(|option| self.take_server(option)),
            "key" => self.take_key(clause),
            "zone" => self.take_zone(clause),
            "pattern" => {} // Looked at by the zones that include it.
            "remote-control" => {
                self.config.note(&clause.place, "remote-control: sidestep dns zone, sidestep dns zones");
            }
            other => self.config.note(&clause.place, not_here(other)),
        }
    }

    fn take_key(&mut self, key: &Clause) {
        let algorithm = Some(key.value("algorithm")).filter(|algorithm| !algorithm.is_empty());
        let algorithm = algorithm.unwrap_or("hmac-sha256"); // The default of NSD.
        self.config.take_key(&key.place, key.value("name"), algorithm, key.value("secret"));
    }

    fn take_server(&mut self, option: &Setting) {
        match option.name.as_str() {
            "ip-address" | "interface" => {
                let (address, port) = split_port(option.value(0));
                self.config.listen.push(endpoint(address, port.or(self.port.as_deref())));
            }
            "port" | "zonesdir" | "chroot" | "pidfile" | "xfrdfile" | "zonelistfile" => {}
            "version" => self.config.version = Some(option.value(0).to_owned()),
            "hide-version" if option.value(0) == "yes" => self.config.version = Some(String::new()),
            "identity" => self.config.hostname = Some(option.value(0).to_owned()),
            "hide-identity" if option.value(0) == "yes" => self.config.hostname = Some(String::new()),
            "hide-version" | "hide-identity" => {}
            "ipv4-edns-size" | "ipv6-edns-size" => {
                self.config.take_udp_payload(&option.place, &option.name, option.value(0));
            }
            "tcp-count" => {
                let count = self.config.number(&option.place, "tcp-count", option.value(0), TCP_CONNECTIONS);
                self.config.tcp_connections_max = count;
            }
            "tcp-timeout" => {
                let idle = self.config.number(&option.place, "tcp-timeout", option.value(0), TCP_IDLE_S);
                self.config.tcp_idle_timeout_s = idle;
            }
            "round-robin" => self.config.rotate = option.value(0) == "yes",
            "nsid" => self.take_nsid(option),
            other => self.config.note(&option.place, not_here(other)),
        }
    }

    fn take_nsid(&mut self, option: &Setting) {
        match option.value(0).strip_prefix("ascii_") {
            Some(text) => self.config.nsid = Some(text.to_owned()),
            None => self.config.take_hex_nsid(&option.place, option.value(0)),
        }
    }

    fn take_zone(&mut self, clause: &Clause) {
        let mut options = Vec::new();
        self.gather(clause, &mut options, 0);
        let origin = clause.value("name").to_owned();
        let (mut zone, mut secondary) = (Zone::default(), Secondary::default());
        let (mut primaries, mut transfers, mut members) = (Vec::new(), None, None);
        let mut sources = Vec::new();
        // Whom an exclusion is about may have a key, or be in a prefix that is allowed: nobody comes along then.
        let excluded =
            options.iter().find(|option| option.name == "provide-xfr" && option.value(1) == "BLOCKED");
        if let Some(option) = excluded {
            let what = "BLOCKED: an access list here excludes nobody, so nobody may transfer the zone";
            self.config.note(&option.place, format!("zone {origin:?}: {what}"));
        }
        for option in &options {
            match option.name.as_str() {
                "name" | "include-pattern" | "allow-notify" => {}
                "zonefile" => zone.file = self.zone_file(option, &origin),
                "request-xfr" => {
                    let primary = self.primary(option);
                    primaries.push(primary);
                }
                "catalog" if option.value(0) == "consumer" => secondary.is_catalog = true,
                "catalog" => {
                    let what = "see [catalog] (docs/dns/catalog.md)";
                    self.config.note(
                        &option.place,
                        format!("zone {origin:?}: catalog: {}: {what}", option.value(0)),
                    );
                }
                "catalog-member-pattern" => members = Some(option),
                "provide-xfr" if excluded.is_some() => transfers = Some(Vec::new()),
                "provide-xfr" => transfers.get_or_insert_with(Vec::new).extend(self.allowed(option)),
                "notify" => {
                    zone.notify.push(peer(option, 0).to_text());
                }
                // Of a secondary zone; that of others is for what is told to secondaries.
                "outgoing-interface" => sources.push(option),
                other => {
                    self.config.note(&option.place, format!("zone {origin:?}: {}", not_here(other)));
                }
            }
        }
        let is_told = primaries.is_empty() || !zone.notify.is_empty();
        for option in sources {
            let (address, _) = split_port(option.value(0));
            if !primaries.is_empty() && push_source(&mut secondary.source_addresses, address).is_some() {
                let what = "source-addresses of [[secondary]] has one address of a family";
                self.config.note(&option.place, format!("outgoing-interface {address}: {what}"));
            }
            if is_told {
                self.config.take_source(&option.place, "outgoing-interface", address);
            }
        }
        if !primaries.is_empty() {
            secondary.take_primaries(&primaries);
            self.compare_notifiers(&options, &primaries);
            if let Some(option) = members {
                self.compare_members(option, &origin, &secondary);
            }
            let file = Some(zone.file).filter(|file| !file.is_empty());
            let rest =
                Secondary { origin, file, allow_transfer: transfers, notify: zone.notify, ..secondary };
            self.config.secondaries.push(rest);
        } else if zone.file.is_empty() {
            let what = "it has neither zonefile nor request-xfr, so it does not come along";
            self.config.note(&clause.place, format!("zone {origin:?}: {what}"));
        } else {
            self.config.zones.push(Zone { origin, allow_transfer: transfers, ..zone });
        }
    }

    /// `allow-notify: ADDRESSES KEY|NOKEY|BLOCKED`.
    fn compare_notifiers(&mut self, options: &[Setting], primaries: &[Peer]) {
        let own =
            options.iter().filter(|option| option.name == "allow-notify" && option.value(1) != "BLOCKED");
        for option in own {
            let (address, _) = split_port(option.value(0));
            let Peer { key, .. } = peer(option, 0);
            let notifier = Notifier { address: Some(address.to_owned()), key };
            self.config.compare_notifiers(&option.place, "allow-notify", &[notifier], primaries);
        }
    }

    /// The zones of a catalog have its primaries here, and those of a pattern there.
    fn compare_members(&mut self, option: &Setting, origin: &str, catalog: &Secondary) {
        let Some(pattern) = self.patterns.get(option.value(0)).copied() else {
            let what = format!("no pattern is called {:?}", option.value(0));
            return self.config.note(&option.place, what);
        };
        let mut options = Vec::new();
        self.gather(pattern, &mut options, 1);
        let own = options.iter().filter(|option| option.name == "request-xfr");
        let primaries: Vec<Peer> = own.map(|option| self.primary(option)).collect();
        let mut members = Secondary::default();
        members.take_primaries(&primaries);
        if (&members.primaries, &members.key) != (&catalog.primaries, &catalog.key) {
            let what =
                "its zones are had from the catalog's own primaries here, not from those of the pattern";
            self.config.note(&option.place, format!("catalog {origin:?}: {what}"));
        }
    }

    /// The options of a zone, with those of the patterns that it includes in their place.
    fn gather(&mut self, clause: &Clause, options: &mut Vec<Setting>, depth: usize) {
        for option in &clause.options {
            if option.name != "include-pattern" {
                options.push(option.clone());
                continue;
            }
            match self.patterns.get(option.value(0)).copied().filter(|_| depth < 16) {
                Some(pattern) => self.gather(pattern, options, depth + 1),
                None => {
                    let what = format!("no pattern is called {:?}", option.value(0));
                    self.config.note(&option.place, what);
                }
            }
        }
        if depth > 0 {
            options.retain(|option| option.name != "name"); // That of the pattern.
        }
    }

    fn zone_file(&mut self, option: &Setting, origin: &str) -> String {
        let file = option.value(0).replace("%s", origin.trim_end_matches('.'));
        if file.contains('%') {
            self.config.note(&option.place, format!("{file}: of the marks with % only %s comes along"));
        }
        join(&self.directory, &file)
    }

    /// `request-xfr: [AXFR|UDP] ADDRESS[@PORT] KEY|NOKEY [TLS-AUTH]`.
    fn primary(&mut self, option: &Setting) -> Peer {
        let skipped = usize::from(matches!(option.value(0), "AXFR" | "UDP"));
        if !option.value(skipped + 2).is_empty() {
            let what = "a primary that is asked by TLS: see tls and tls-ca of [[secondary]]";
            self.config.note(&option.place, what);
        }
        peer(option, skipped)
    }

    /// `provide-xfr: ADDRESSES KEY|NOKEY`: with a key, the key counts here, wherever it is used.
    fn allowed(&mut self, option: &Setting) -> Option<String> {
        let (addresses, key) = (option.value(0), option.value(1));
        match key {
            "NOKEY" if addresses.contains(['&', '-', '@']) => {
                self.config.note(&option.place, format!("{addresses}: write it as prefixes"));
                None
            }
            "NOKEY" => Some(addresses.to_owned()),
            key => Some(key.to_owned()),
        }
    }
}

/// `ADDRESS[@PORT] KEY|NOKEY`, from a value on.
fn peer(option: &Setting, from: usize) -> Peer {
    let (address, port) = split_port(option.value(from));
    let key = Some(option.value(from + 1)).filter(|key| !key.is_empty() && *key != "NOKEY");
    Peer { address: with_port(address, port), key: key.map(str::to_owned) }
}

fn read(path: &str, files: &mut Files<'_>, clauses: &mut Vec<Clause>) -> Result<(), ImportError> {
    let text = files.read(path)?;
    for (number, line) in (1..).zip(text.lines()) {
        let place = Place { path: path.to_owned(), line: number };
        let words = words(line).ok_or_else(|| place.error("a string does not end"))?;
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let Some(name) = word.option() else {
                let word = word.text();
                return Err(
                    place.error(format!("{word:?} is not the name of an option, which ends with ':'"))
                );
            };
            let has_value = words.peek().is_some_and(|word| word.option().is_none());
            if CLAUSES.contains(&name) && !(name == "key" && has_value) {
                clauses.push(Clause { place: place.clone(), name: name.to_owned(), options: Vec::new() });
                continue;
            }
            let values = std::iter::from_fn(|| words.next_if(|word| word.option().is_none()));
            let values: Vec<String> = values.map(|word| word.text().to_owned()).collect();
            if name == "include" {
                let file = join(directory_of(path), values.first().map_or("", String::as_str));
                files.include(&file, |path, files| read(path, files, clauses))?;
                continue;
            }
            let Some(clause) = clauses.last_mut() else {
                return Err(place.error(format!("{name}: stands in no clause, such as server:")));
            };
            clause.options.push(Setting { place: place.clone(), name: name.to_owned(), values });
        }
    }
    Ok(())
}

/// A word of a line.
#[derive(Clone, Copy, Debug)]
enum Word<'l> {
    Plain(&'l str),
    Quoted(&'l str),
}

impl<'l> Word<'l> {
    fn text(self) -> &'l str {
        let (Word::Plain(text) | Word::Quoted(text)) = self;
        text
    }

    /// The name of an option or a clause, if it is one: an address may end with `:`, too.
    fn option(self) -> Option<&'l str> {
        let Word::Plain(text) = self else { return None };
        let name = text.strip_suffix(':')?;
        let is_name = |octet: u8| octet.is_ascii_alphanumeric() || b"-_".contains(&octet);
        name.bytes().all(is_name).then_some(name)
    }
}

/// The words of a line without its comment; `None` if a string does not end.
fn words(line: &str) -> Option<Vec<Word<'_>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            break;
        }
        let (word, len) = if first == '"' || first == '\'' {
            let end = rest[1..].find(first)?;
            (Word::Quoted(&rest[1..=end]), end + 2)
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            // `name:"value"` without a blank between them.
            let end = rest[..end].find(":\"").map_or(end, |colon| colon + 1);
            (Word::Plain(&rest[..end]), end)
        };
        words.push(word);
        rest = rest[len..].trim_start();
    }
    Some(words)
}
