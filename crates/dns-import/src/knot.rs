//! `knot.conf`: a small part of YAML. Sections with items, which begin with `-`, of options.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::config::{Notifier, Peer, TCP_CONNECTIONS, TCP_IDLE_S, endpoint, not_here, split_port, with_port};
use crate::{Config, Files, ImportError, Place, Secondary, Zone, directory_of, join};

#[derive(Clone, Debug)]
struct Field {
    place: Place,
    name: String,
    values: Vec<String>,
}

impl Field {
    fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }
}

/// One item of a section; the options of a section without items are one.
#[derive(Clone, Debug)]
struct Item {
    section: String,
    place: Place,
    fields: Vec<Field>,
}

impl Item {
    fn values(&self, name: &str) -> &[String] {
        self.fields.iter().rfind(|field| field.name == name).map_or(&[], |field| &field.values)
    }

    fn value(&self, name: &str) -> &str {
        self.values(name).first().map_or("", String::as_str)
    }
}

/// Reads the file at `path` with all that it includes, and makes of it what it can.
pub(crate) fn import(path: &str, files: &mut Files<'_>) -> Result<Config, ImportError> {
    let mut items = Vec::new();
    read(path, files, &mut items)?;
    let by_id = |section: &str| {
        let own = items.iter().filter(|item| item.section == section);
        own.map(|item| (item.value("id").to_owned(), item)).collect::<BTreeMap<_, _>>()
    };
    let mut import = Import {
        remotes: by_id("remote"),
        groups: by_id("remotes"),
        lists: by_id("acl"),
        templates: by_id("template"),
        policies: by_id("policy"),
        config: Config::default(),
    };
    for item in &items {
        import.take(item);
    }
    Ok(import.config)
}

struct Import<'i> {
    remotes: BTreeMap<String, &'i Item>,
    /// `remotes`: several of them by one name.
    groups: BTreeMap<String, &'i Item>,
    lists: BTreeMap<String, &'i Item>,
    templates: BTreeMap<String, &'i Item>,
    policies: BTreeMap<String, &'i Item>,
    config: Config,
}

impl Import<'_> {
    fn take(&mut self, item: &Item) {
        match item.section.as_str() {
            "server" => item.fields.iter().for_each(|field| self.take_server(field)),
            "key" => {
                let [name, algorithm, secret] = ["id", "algorithm", "secret"].map(|name| item.value(name));
                self.config.take_key(&item.place, name, algorithm, secret);
            }
            "zone" => self.take_zone(item),
            "policy" => {
                let what = "of a policy only nsec3 comes along";
                self.config.note(&item.place, format!("policy {:?}: {what}", item.value("id")));
            }
            "remote" => self.take_remote(item),
            "remotes" | "acl" | "template" => {} // Looked at by what refers to them.
            "log" | "control" | "statistics" | "database" => {}
            other => self.config.note(&item.place, not_here(other)),
        }
    }

    /// Names what of a remote does not come along: all but its addresses and its key.
    fn take_remote(&mut self, remote: &Item) {
        for field in &remote.fields {
            let what = match field.name.as_str() {
                "id" | "address" | "key" => continue,
                "via" => {
                    for value in &field.values {
                        let (address, _) = split_port(value);
                        self.config.take_source(&field.place, "via", address);
                    }
                    "via: source-addresses is for all servers here (docs/dns/reference.md)".to_owned()
                }
                "quic" | "tls" if !is_on(field.value()) => continue,
                name @ ("quic" | "tls") => format!(
                    "{name}: WARNING: Knot talks to it by an encrypted connection, and here zones and notices would go in clear: for zones, see tls and \
                     tls-ca of [[secondary]] (docs/dns/reference.md)"
                ),
                name @ ("cert-key" | "cert-hostname" | "cert-validate") => {
                    format!(
                        "{name}: tls and tls-ca of [[secondary]] say which certificate is right (docs/dns/reference.md)"
                    )
                }
                other => not_here(other),
            };
            self.config.note(&field.place, format!("remote {:?}: {what}", remote.value("id")));
        }
    }

    fn take_server(&mut self, field: &Field) {
        match field.name.as_str() {
            "listen" => {
                let (addresses, listen) = (field.values.iter(), &mut self.config.listen);
                listen.extend(addresses.map(|value| split_port(value)).map(|(ip, port)| endpoint(ip, port)));
            }
            "version" => self.config.version = Some(field.value().to_owned()),
            "nsid" => match field.value().strip_prefix("0x") {
                Some(hex) => self.config.take_hex_nsid(&field.place, hex),
                None => self.config.nsid = Some(field.value().to_owned()),
            },
            "identity" => self.config.hostname = Some(field.value().to_owned()),
            "udp-max-payload" | "udp-max-payload-ipv4" | "udp-max-payload-ipv6" => {
                self.config.take_udp_payload(&field.place, &field.name, field.value());
            }
            "tcp-max-clients" => {
                let count =
                    self.config.number(&field.place, "tcp-max-clients", field.value(), TCP_CONNECTIONS);
                self.config.tcp_connections_max = count;
            }
            "tcp-idle-timeout" => {
                let seconds = seconds(field.value());
                let seconds = seconds.map_or_else(|| field.value().to_owned(), |all| all.to_string());
                let idle = self.config.number(&field.place, "tcp-idle-timeout", &seconds, TCP_IDLE_S);
                self.config.tcp_idle_timeout_s = idle;
            }
            "answer-rotation" => self.config.rotate = is_on(field.value()),
            "rundir" | "pidfile" => {}
            other => self.config.note(&field.place, not_here(other)),
        }
    }

    fn take_zone(&mut self, item: &Item) {
        let origin = item.value("domain").to_owned();
        let fields = self.fields(item);
        let value = |name: &str| fields.iter().rfind(|field| field.name == name).map(Field::value);
        let storage = value("storage").unwrap_or("/var/lib/knot").to_owned();
        let name =
            value("file").unwrap_or("%s.zone").replace("%s", &origin.trim_end_matches('.').replace('/', "_"));
        let (mut zone, mut secondary) = (Zone::default(), Secondary::default());
        let (mut primaries, mut transfers) = (None, None);
        for field in &fields {
            match field.name.as_str() {
                "domain" | "storage" | "file" | "template" => {}
                "master" => {
                    let peers = self.peers(field);
                    secondary.take_primaries(&peers);
                    primaries = Some(peers);
                }
                "notify" => zone.notify.extend(self.peers(field).iter().map(Peer::to_text)),
                "acl" => self.take_lists(field, &mut transfers, &mut zone.allow_update),
                "dnssec-signing" => zone.dnssec = is_on(field.value()),
                // What modules do has its own names.
                "module" | "global-module" => field.values.iter().for_each(|module| {
                    let name = module.split('/').next().unwrap_or_default();
                    self.config.note(&field.place, format!("zone {origin:?}: {}", not_here(name)));
                }),
                "dnssec-policy" => {
                    let what =
                        "a zone is signed with the keys that are there, or with one of ECDSAP256SHA256";
                    self.config.note(&field.place, format!("dnssec-policy {:?}: {what}", field.value()));
                }
                "catalog-role" if field.value() == "interpret" => secondary.is_catalog = true,
                "catalog-role" if field.value() == "none" => {}
                other => {
                    self.config.note(&field.place, format!("zone {origin:?}: {}", not_here(other)));
                }
            }
        }
        if value("catalog-role") == Some("generate") {
            return; // Knot makes its records: there is no file.
        }
        if name.contains('%') {
            self.config.note(&item.place, format!("{name}: of the marks with % only %s comes along"));
        }
        let file = join(&storage, &name);
        if let Some(primaries) = primaries {
            self.compare_notifiers(&fields, &primaries);
            let (file, notify) = (Some(file), zone.notify);
            let rest = Secondary { origin, file, allow_transfer: transfers, notify, ..secondary };
            if zone.dnssec {
                self.config.note(&item.place, "a zone from other servers is not signed here");
            }
            self.config.secondaries.push(rest);
        } else {
            if zone.dnssec {
                let what = "its keys are in Knot's database: bring them first (docs/dns/moving.md), as the server makes none for it";
                self.config.note(&item.place, format!("zone {origin:?}: dnssec-signing: {what}"));
                zone.nsec3 = self.denies_by_nsec3(value("dnssec-policy").unwrap_or("default"));
            }
            self.config.zones.push(Zone { origin, file, allow_transfer: transfers, ..zone });
        }
    }

    /// Whether a policy has NSEC3.
    fn denies_by_nsec3(&mut self, policy: &str) -> bool {
        let Some(policy) = self.policies.get(policy).copied().filter(|policy| is_on(policy.value("nsec3")))
        else {
            return false;
        };
        // Knot has a salt of eight octets where nothing is said.
        let is_plain = |name: &str, default: &str| {
            let value = policy.value(name);
            matches!(if value.is_empty() { default } else { value }, "0" | "off" | "false")
        };
        let all = [("nsec3-iterations", "0"), ("nsec3-salt-length", "8"), ("nsec3-opt-out", "off")];
        if !all.into_iter().all(|(name, default)| is_plain(name, default)) {
            let what = "NSEC3 here has no more iterations, no salt and no opt-out (RFC 9276)";
            self.config.note(&policy.place, format!("policy {:?}: nsec3: {what}", policy.value("id")));
        }
        true
    }

    /// Those of a zone, in front of them those of its template that it does not have.
    fn fields(&mut self, item: &Item) -> Vec<Field> {
        let named = item.values("template");
        let template = match named {
            [] => self.templates.get("default").copied(),
            [name, ..] => self.templates.get(name).copied(),
        };
        if let (Some(name), None) = (named.first(), template) {
            self.config.note(&item.place, format!("no template is called {name:?}"));
        }
        let has = |name: &str| item.fields.iter().any(|field| field.name == name);
        let inherited = template.map_or(&[][..], |template| &template.fields);
        let inherited = inherited.iter().filter(|field| field.name != "id" && !has(&field.name));
        inherited.chain(&item.fields).cloned().collect()
    }

    /// The remotes that a field names, with a key each if they have one.
    fn peers(&mut self, field: &Field) -> Vec<Peer> {
        let mut peers = Vec::new();
        for id in self.members(&field.values) {
            match self.remotes.get(&id) {
                Some(remote) => peers.extend(peers_of(remote)),
                None => self.config.note(&field.place, format!("no remote is called {id:?}")),
            }
        }
        peers
    }

    /// The names of remotes, those of its group in place of the name of one.
    fn members(&self, ids: &[String]) -> Vec<String> {
        let of = |id: &String| match self.groups.get(id) {
            Some(group) => group.values("remote").to_vec(),
            None => vec![id.clone()],
        };
        ids.iter().flat_map(of).collect()
    }

    /// Access lists with `action: notify` of a secondary zone. What is wrong with them is told elsewhere.
    fn compare_notifiers(&mut self, fields: &[Field], primaries: &[Peer]) {
        let named = fields.iter().filter(|field| field.name == "acl").flat_map(|field| &field.values);
        let lists: Vec<&Item> = named.filter_map(|id| self.lists.get(id).copied()).collect();
        for list in lists {
            let may_notify = list.values("action").iter().any(|action| action == "notify");
            if !may_notify || is_on(list.value("deny")) {
                continue;
            }
            let or_none = |name| Some(list.values(name)).filter(|values| !values.is_empty());
            let all = |values: Option<&[String]>| match values {
                Some(values) => values.iter().cloned().map(Some).collect(),
                None => vec![None],
            };
            let keys = all(or_none("key"));
            let each = |address: Option<String>| {
                keys.iter().map(move |key| Notifier { address: address.clone(), key: key.clone() })
            };
            let remotes = self.remotes_of(list);
            let of_remote =
                |peer: &Peer| Notifier { address: Some(peer.address.clone()), key: peer.key.clone() };
            let notifiers: Vec<Notifier> = match &remotes[..] {
                [] => all(or_none("address")).into_iter().flat_map(each).collect(),
                remotes => remotes.iter().map(of_remote).collect(),
            };
            let what = format!("access list {:?}", list.value("id"));
            self.config.compare_notifiers(&list.place, &what, &notifiers, primaries);
        }
    }

    /// Those that an access list names by `remote`.
    fn remotes_of(&self, list: &Item) -> Vec<Peer> {
        let members = self.members(list.values("remote"));
        members.iter().filter_map(|id| self.remotes.get(id)).flat_map(|remote| peers_of(remote)).collect()
    }

    /// Access lists: who has to come from an address and sign with a key there has to sign here, from wherever. The first match counts there, and
    /// here all do: so no list comes along that stands behind one that excludes, and none with limits that are unknown here.
    fn take_lists(&mut self, field: &Field, transfers: &mut Option<Vec<String>>, updates: &mut Vec<String>) {
        const KNOWN: [&str; 6] = ["id", "address", "key", "remote", "action", "deny"];
        for id in &field.values {
            let Some(list) = self.lists.get(id).copied() else {
                self.config.note(&field.place, format!("no access list is called {id:?}"));
                continue;
            };
            if is_on(list.value("deny")) {
                let what = "it excludes clients, which access lists here cannot. It and the zone's access lists behind it are left out";
                return self.config.note(&list.place, format!("access list {id:?}: {what}"));
            }
            if let Some(limit) = list.fields.iter().find(|field| !KNOWN.contains(&field.name.as_str())) {
                let what = format!(
                    "access list {id:?} is left out: it is limited by {}, which access lists here do not know",
                    limit.name
                );
                self.config.note(&limit.place, what);
                continue;
            }
            let keys = list.values("key");
            let remotes = self.remotes_of(list);
            let of_remotes: Vec<String> = remotes.iter().map(who_is).collect();
            let own = if keys.is_empty() { list.values("address") } else { keys };
            let who = if own.is_empty() { &of_remotes[..] } else { own };
            if who.iter().any(|who| who.contains('-') && keys.is_empty()) {
                self.config.note(
                    &list.place,
                    format!("access list {id:?} is left out: write its ranges as prefixes"),
                );
                continue;
            }
            let concerns = |action: &str| list.values("action").iter().any(|own| own == action);
            if who.is_empty() && (concerns("transfer") || concerns("update")) {
                let what = "it names neither an address nor a key, by which Knot lets everybody. Here it lets nobody: if everybody is meant, write \
                            \"0.0.0.0/0\" and \"::/0\"";
                self.config.note(&list.place, format!("access list {id:?}: {what}"));
            }
            for action in list.values("action") {
                match action.as_str() {
                    "transfer" => transfers.get_or_insert_with(Vec::new).extend_from_slice(who),
                    "update" => updates.extend_from_slice(who),
                    "notify" => {} // The primaries of a zone may: others are looked at there.
                    other => {
                        let what = format!("access list {id:?}: the action {other} has no counterpart");
                        self.config.note(&list.place, what);
                    }
                }
            }
        }
    }
}

/// A remote by each of its addresses.
fn peers_of(remote: &Item) -> Vec<Peer> {
    let key = Some(remote.value("key")).filter(|key| !key.is_empty());
    let peer = |value: &String| Peer { address: address(value), key: key.map(str::to_owned) };
    remote.values("address").iter().map(peer).collect()
}

/// A server as an access list has it: by its key if it has one, else by its address.
fn who_is(peer: &Peer) -> String {
    let address = || match peer.address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => peer.address.clone(),
    };
    peer.key.clone().unwrap_or_else(address)
}

/// A time, such as `10` or `2m`.
fn seconds(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

/// How Knot writes yes.
fn is_on(value: &str) -> bool {
    ["on", "true"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

fn address(text: &str) -> String {
    let (address, port) = split_port(text);
    with_port(address, port)
}

fn read(path: &str, files: &mut Files<'_>, items: &mut Vec<Item>) -> Result<(), ImportError> {
    let text = files.read(path)?;
    let mut section = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = Place { path: path.to_owned(), line: number };
        let line = without_comment(line);
        let content = line.trim();
        if content.is_empty() {
            continue;
        }
        if !line.starts_with(char::is_whitespace) && !content.starts_with('-') {
            let (name, value) = option(content, &place)?;
            if name == "include" {
                let values = values(value);
                let file = join(directory_of(path), values.first().map_or("", String::as_str));
                files.include(&file, |path, files| read(path, files, items))?;
            }
            name.clone_into(&mut section);
            continue;
        }
        let in_section = |item: &Item| item.section == section && item.place.path == path;
        let begun = items.last_mut().filter(|item| in_section(item));
        let (dash, content) = match content.strip_prefix('-') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, content),
        };
        // `- value` below an option is one more of its values.
        if dash && !is_option(content) {
            let field = begun.and_then(|item| item.fields.last_mut());
            let field = field.ok_or_else(|| place.error("a value without an option"))?;
            field.values.extend(values(content));
            continue;
        }
        let (name, value) = option(content, &place)?;
        let field = Field { place: place.clone(), name: name.to_owned(), values: values(value) };
        match begun {
            Some(item) if !dash => item.fields.push(field),
            _ if section.is_empty() => return Err(place.error("stands in no section, such as server:")),
            _ => items.push(Item { section: section.clone(), place, fields: vec![field] }),
        }
    }
    Ok(())
}

fn is_option(content: &str) -> bool {
    content.split_once(':').is_some_and(|(name, rest)| {
        let is_name =
            !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
        is_name && (rest.is_empty() || rest.starts_with(char::is_whitespace))
    })
}

fn option<'t>(content: &'t str, place: &Place) -> Result<(&'t str, &'t str), ImportError> {
    let (name, value) =
        content.split_once(':').ok_or_else(|| place.error(format!("{content:?} is not NAME: VALUE")))?;
    Ok((name.trim(), value.trim()))
}

/// `value` or `[value, value]`.
fn values(text: &str) -> Vec<String> {
    let list = text.strip_prefix('[').map(|list| list.trim_end().trim_end_matches(']'));
    let values = list.map_or(vec![text], |list| list.split(',').collect());
    let values = values.into_iter().map(|value| value.trim().trim_matches(['"', '\'']).to_owned());
    values.filter(|value| !value.is_empty()).collect()
}

/// A comment begins with `#` at the start of a line or behind a blank, outside of quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, char) in line.char_indices() {
        match quote {
            Some(own) if char == own => quote = None,
            None if matches!(char, '"' | '\'') => quote = Some(char),
            None if char == '#' && before.is_whitespace() => return &line[..at],
            _ => {}
        }
        before = char;
    }
    line
}
