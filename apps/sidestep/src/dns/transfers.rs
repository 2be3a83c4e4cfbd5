//! Who may transfer and change zones, from the configuration: keys, lists of addresses and keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use dns_auth::Catalog;
use dns_client::{TransferTls, Trust};
use dns_server::TransferService;
use dns_transfer::{AccessList, Algorithm, Allowed, Key, Keys, Policy, Prefix, Who, ZonePolicy};
use dns_wire::NameBuf;
use dns_zone::Zone;

use super::catalog::CatalogSpec;
use super::config::{DeviceChoice, ZoneSpec, in_range, parse_domain};
use super::config_file::{ConfigFile, KeyTable, SecondaryTable, ZoneTable};
use super::etcd::EtcdSpec;
use super::load::{self, Loaded};
use super::notify::{Announcement, Target};
use super::peer::{Peer, known_key, peers};
use super::privileges::{self, explain_denial};
use super::service::{Shared, origin_of};
use super::source::Sources;
use super::version::Version;

/// Of transfers by TLS (RFC 9103, 6.1).
const TLS_PORT: u16 = 853;

/// All about transfers that the configuration says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    pub(crate) keys: Keys,
    /// Files with secrets that everybody may read.
    pub(crate) exposed: Vec<PathBuf>,
    allow_transfer: AccessList,
    /// Who hears of changes of zones that name nobody of their own.
    notify: Vec<Peer>,
    /// Where notices leave from.
    pub(crate) sources: Sources,
    /// Outgoing transfers at once.
    pub(crate) max: usize,
    /// Zones that are transferred from others.
    pub(crate) secondaries: Vec<Arc<SecondarySpec>>,
    /// The catalog of the other zones, if one is made.
    pub(crate) catalog: Option<CatalogSpec>,
    /// Where zones come from besides, if they do.
    pub(crate) etcd: Option<Arc<EtcdSpec>>,
    /// What single zones have of their own.
    zones: HashMap<ZoneSpec, ZoneTransfers>,
}

/// What one zone has of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct ZoneTransfers {
    allow_transfer: Option<AccessList>,
    /// Who may change it.
    allow_update: AccessList,
    /// Who hears of its changes, in place of those who hear of all.
    notify: Option<Vec<Peer>>,
}

/// A zone that is transferred from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecondarySpec {
    pub(crate) origin: NameBuf,
    pub(crate) primaries: Vec<Peer>,
    /// Where they are asked from.
    pub(crate) sources: Sources,
    /// How primaries are asked by TLS, if they are.
    pub(crate) tls: Option<Arc<TransferTls>>,
    pub(crate) file: Option<PathBuf>,
    allow_transfer: Option<AccessList>,
    /// Who hears of new versions, in place of those who hear of all.
    notify: Option<Vec<Peer>>,
    /// Whether it names other zones (RFC 9432), to be had from the same primaries.
    pub(crate) is_catalog: bool,
    /// The directory of those zones' files.
    pub(crate) members: Option<PathBuf>,
    /// The catalog that has brought it.
    pub(crate) membership: Option<Membership>,
}

/// Where a zone stands in a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) catalog: NameBuf,
    pub(crate) label: Box<[u8]>,
}

impl SecondarySpec {
    /// Takes over the certificates that it trusts from one that was read later, if that is the same otherwise.
    pub(crate) fn renew_trust(&self, read: &SecondarySpec) {
        if let (Some(held), Some(read)) = (&self.tls, &read.tls)
            && held == read
        {
            held.renew_from(read);
        }
    }

    /// The addresses of its primaries.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.primaries.iter().map(|primary| primary.address).collect()
    }

    /// A zone of this catalog, with all that the catalog has, apart from its file.
    pub(crate) fn member(&self, origin: NameBuf, label: Box<[u8]>) -> SecondarySpec {
        let file = self.members.as_ref().map(|directory| directory.join(file_name(&origin)));
        let membership = Some(Membership { catalog: self.origin.clone(), label });
        SecondarySpec { origin, file, membership, is_catalog: false, members: None, ..self.clone() }
    }
}

/// The name of a zone's file: that of the zone, with everything but letters, digits, `-`, `_` and `.` as `%` and two hexadecimal digits. Of a long
/// one it is the beginning, `~`, which no other has, and a hash.
pub(crate) fn file_name(origin: &NameBuf) -> String {
    /// Names of files have 255 octets at most, and there are some with `.etcd-zone.sidestep-signed.journal.unfit.15` behind this.
    const LEN_MAX: usize = 200;
    const BEGINNING_LEN: usize = 100;
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-_".contains(&octet);
    let label = |label: &[u8]| -> String {
        let octets = label
            .iter()
            .map(|&octet| if plain(octet) { char::from(octet).to_string() } else { format!("%{octet:02X}") });
        octets.collect()
    };
    let labels: Vec<String> = origin.as_name().labels().map(label).collect();
    let name = labels.join(".");
    if name.len() <= LEN_MAX {
        return format!("{name}.zone");
    }
    let hash = nsec3::Parameters { iterations: 0, salt: &[] }.hash(origin.as_name());
    let hash = nsec3::to_base32hex(&hash).map(char::from);
    format!("{}~{}.zone", &name[..BEGINNING_LEN], String::from_iter(hash))
}

impl Transfers {
    /// Whether zones come from elsewhere than files.
    pub(crate) fn can_bring_zones(&self) -> bool {
        !self.secondaries.is_empty() || self.etcd.is_some()
    }

    /// Checks what the file says. Relative paths start at `directory`.
    pub(crate) fn resolve(file: &ConfigFile, directory: &Path) -> anyhow::Result<Transfers> {
        let (mut keys, mut exposed) = (Keys::default(), Vec::new());
        for table in &file.keys {
            let key =
                read_key(table, directory, &mut exposed).with_context(|| format!("key {:?}", table.name))?;
            if keys.get(key.name()).is_some() {
                bail!("key {:?}: there are two of this name: remove one of them", table.name);
            }
            keys.insert(key);
        }
        let max = file.transfers_max.unwrap_or(100);
        in_range("transfers-max", max as u64, 1, 100_000)?;
        let allow_transfer = access_list("allow-transfer", &file.allow_transfer, &keys)?;
        let notify = peers("notify", &file.notify, 53, &keys)?;
        let sources = Sources::parse(&file.source_addresses)?;
        let secondaries = file.secondaries.iter().map(|table| {
            let spec = secondary(table, &keys, sources, directory);
            spec.map(Arc::new).with_context(|| format!("secondary {:?}", table.zone))
        });
        let secondaries: Vec<Arc<SecondarySpec>> = secondaries.collect::<anyhow::Result<_>>()?;
        let catalog = file.catalog.as_ref().map(|table| CatalogSpec::resolve(table, &keys)).transpose()?;
        let is_other =
            |spec: &Arc<SecondarySpec>| catalog.as_ref().is_some_and(|own| own.origin == spec.origin);
        if let Some(spec) = secondaries.iter().find(|spec| is_other(spec)) {
            bail!("catalog: {} is the name of a [[secondary]], too: give it another one", spec.origin);
        }
        let etcd = file.etcd.as_ref().map(|table| EtcdSpec::resolve(table, &keys, directory)).transpose();
        let etcd = etcd.context("etcd")?.map(Arc::new);
        let password = etcd.as_ref().and_then(|spec| spec.password_file());
        exposed.extend(password.filter(|file| privileges::is_readable_by_all(file)).map(Path::to_owned));
        Ok(Transfers {
            keys,
            exposed,
            allow_transfer,
            notify,
            sources,
            max,
            secondaries,
            catalog,
            etcd,
            zones: HashMap::new(),
        })
    }

    /// Has what goes out leave from the address that the server has, where nothing else is said.
    pub(crate) fn leave_from_served(&mut self, device: &DeviceChoice) {
        self.sources = self.sources.or_served(device);
        for spec in &mut self.secondaries {
            let sources = spec.sources.or_served(device);
            Arc::make_mut(spec).sources = sources;
        }
    }

    /// Why nothing can leave from addresses that the configuration names, or nothing to the peers that it names, each once.
    pub(crate) fn source_problems(&self) -> BTreeSet<String> {
        fn addresses(peers: &[Peer]) -> impl Iterator<Item = SocketAddr> {
            peers.iter().map(|peer| peer.address)
        }
        let of_secondaries =
            self.secondaries.iter().flat_map(|spec| spec.sources.problems(addresses(&spec.primaries)));
        let own = self.zones.values().filter_map(|zone| zone.notify.as_deref());
        let own = own.chain(self.secondaries.iter().filter_map(|spec| spec.notify.as_deref()));
        let notified = addresses(&self.notify).chain(own.flat_map(addresses));
        self.sources.problems(notified).chain(of_secondaries).collect()
    }

    /// Adds what a zone has of its own.
    pub(crate) fn add_zone(&mut self, spec: &ZoneSpec, table: &ZoneTable) -> anyhow::Result<()> {
        let allow_transfer = table.allow_transfer.as_deref();
        let list = |texts| access_list("allow-transfer", texts, &self.keys);
        let allow_transfer = allow_transfer.map(list).transpose()?;
        let allow_update = access_list("allow-update", &table.allow_update, &self.keys)?;
        let notify = own_peers(table.notify.as_deref(), &self.keys)?;
        self.zones.insert(spec.clone(), ZoneTransfers { allow_transfer, allow_update, notify });
        Ok(())
    }

    /// Whether anybody may change a zone.
    pub(crate) fn has_updates(&self, spec: &ZoneSpec) -> bool {
        self.zones.get(spec).is_some_and(|own| !own.allow_update.0.is_empty())
    }

    /// Whether anybody may transfer anything.
    pub(crate) fn are_allowed(&self) -> bool {
        let own = self.zones.values().filter_map(|own| own.allow_transfer.as_ref());
        own.chain([&self.allow_transfer]).any(|list| !list.0.is_empty())
    }

    /// What is to be said of zones whose serial in `new` is another one than in `old`.
    pub(crate) fn announcements(&self, old: &Loaded, new: &Loaded) -> Vec<Announcement> {
        let of = |(spec, origin)| self.announcements_of(spec, old.serial(origin), new.tree(origin));
        new.specs().flat_map(of).collect()
    }

    /// What is to be said of a zone that had the serial `before`.
    pub(crate) fn announcements_of<'z>(
        &'z self,
        spec: &ZoneSpec,
        before: Option<u32>,
        zone: Option<&'z Zone>,
    ) -> impl Iterator<Item = Announcement> + use<'z> {
        let own = self.zones.get(spec).and_then(|own| own.notify.as_deref());
        let peers = own.unwrap_or(&self.notify);
        let changed = zone.filter(|zone| before != Some(zone.serial()));
        changed.into_iter().flat_map(|zone| self.announce(zone, peers))
    }

    /// What is to be said of another version of a secondary zone, which may be one of those that catalogs have brought.
    pub(crate) fn announcements_of_secondary(
        &self,
        zone: &Zone,
        members: &BTreeMap<NameBuf, Arc<SecondarySpec>>,
    ) -> Vec<Announcement> {
        let specs = self.secondaries.iter().filter(|spec| spec.origin.as_name() == zone.origin());
        let specs = specs.chain(members.get(&NameBuf::from(zone.origin())));
        specs.flat_map(|spec| self.announce(zone, spec.notify.as_ref().unwrap_or(&self.notify))).collect()
    }

    /// What is to be said of another version of the catalog that is made.
    pub(crate) fn announcements_of_catalog(&self, spec: &CatalogSpec, zone: &Zone) -> Vec<Announcement> {
        self.announce(zone, spec.notify.as_ref().unwrap_or(&self.notify)).collect()
    }

    /// What is to be said of another version of a zone from etcd.
    pub(crate) fn announcements_from_etcd(&self, zone: &Zone) -> impl Iterator<Item = Announcement> {
        let own = self.etcd.as_ref().and_then(|spec| spec.notify.as_ref());
        self.announce(zone, own.unwrap_or(&self.notify))
    }

    fn announce(&self, zone: &Zone, peers: &[Peer]) -> impl Iterator<Item = Announcement> {
        peers.iter().map(move |peer| {
            let target = Target { origin: NameBuf::from(zone.origin()), peer: peer.clone() };
            let key = peer.key.as_ref().and_then(|name| self.keys.get(name.as_name())).cloned();
            Announcement::new(target, zone, key)
        })
    }

    /// What responders go by, for the zones that are loaded, and those from `etcd` that are served, all of which are in the catalog.
    pub(crate) fn policy(
        &self,
        loaded: &Loaded,
        shared: &Shared,
        (etcd, catalog): (&[&Version], &Catalog),
    ) -> Policy {
        let zones = loaded.specs().filter_map(|(spec, origin)| {
            let own = self.zones.get(spec)?;
            let (allow_transfer, allow_update) = (own.allow_transfer.clone(), own.allow_update.clone());
            Some((NameBuf::from(origin), ZonePolicy { allow_transfer, allow_update, primaries: Vec::new() }))
        });
        let secondaries = self.secondaries.iter().chain(shared.members.values()).map(|spec| {
            let primaries =
                spec.primaries.iter().map(|primary| (primary.address.ip(), primary.key.clone())).collect();
            let allow_transfer = spec.allow_transfer.clone();
            (spec.origin.clone(), ZonePolicy { allow_transfer, primaries, ..ZonePolicy::default() })
        });
        let own_catalog = self.catalog.iter().map(|spec| {
            let allow_transfer = spec.allow_transfer.clone();
            (spec.origin.clone(), ZonePolicy { allow_transfer, ..ZonePolicy::default() })
        });
        let of_etcd = self.etcd.as_ref().and_then(|spec| spec.allow_transfer.as_ref());
        let from_etcd = etcd.iter().map(|version| {
            let allow_transfer = of_etcd.cloned();
            (origin_of(version), ZonePolicy { allow_transfer, ..ZonePolicy::default() })
        });
        let mut policy = Policy {
            keys: Arc::new(self.keys.clone()),
            allow_transfer: self.allow_transfer.clone(),
            zones: Arc::new(zones.chain(secondaries).chain(own_catalog).chain(from_etcd).collect()),
            histories: catalog.zones().map(|_| None).collect(),
            slots: Some(Arc::clone(&shared.slots)),
        };
        let versions = loaded.versions().chain(shared.secondaries.values()).chain(etcd.iter().copied());
        versions.for_each(|version| set_history(&mut policy, catalog, version));
        policy
    }
}

/// Who hears of a zone, if it says so itself.
pub(crate) fn own_peers(texts: Option<&[String]>, keys: &Keys) -> anyhow::Result<Option<Vec<Peer>>> {
    texts.map(|texts| peers("notify", texts, 53, keys)).transpose()
}

/// Has those who transfer a zone get the differences that led to this version.
pub(crate) fn set_history(policy: &mut Policy, catalog: &Catalog, version: &Version) {
    if let Some(number) = catalog.number_of(version.served.origin()) {
        policy.histories.set(number as usize, Some(Arc::clone(&version.history)));
    }
}

/// What responders need besides zones and settings.
pub(crate) fn service(policy: Policy, shared: &Shared) -> TransferService {
    let notices = shared.notices.clone();
    let on_notify = Box::new(move |notice| notices.notify(notice));
    let queue = shared.updates.clone();
    let on_update = Box::new(move |request, reply| queue.push(request, reply));
    let requests = Arc::clone(&shared.requests);
    let on_special = Box::new(move |policy: &Policy, request: &_| requests.special(policy, request));
    TransferService { policy, unix_time, on_special, on_notify, on_update }
}

/// A number that nobody outside can guess.
pub(crate) fn random_number() -> u32 {
    load::random_seed() as u32
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Transfers {
    /// Whether an access list lets somebody come by encrypted transports only.
    pub(crate) fn has_encrypted_only(&self) -> bool {
        let of_zones =
            self.zones.values().flat_map(|zone| zone.allow_transfer.iter().chain([&zone.allow_update]));
        let of_secondaries = self.secondaries.iter().filter_map(|spec| spec.allow_transfer.as_ref());
        let of_catalog = self.catalog.iter().filter_map(|spec| spec.allow_transfer.as_ref());
        let mut lists = of_zones.chain(of_secondaries).chain(of_catalog).chain([&self.allow_transfer]);
        lists.any(|list| list.0.iter().any(|allowed| allowed.encrypted_only))
    }
}

pub(crate) fn access_list(option: &'static str, texts: &[String], keys: &Keys) -> anyhow::Result<AccessList> {
    let who = |text: &str| {
        if let Some(prefix) = Prefix::from_text(text) {
            return match prefix.without_rest() {
                None => Ok(Who::Address(prefix)),
                Some(without) => Err(anyhow!(
                    "{option}: {text:?} has bits beyond its length: write \"{without}\", or the address alone"
                )),
            };
        }
        let key = parse_domain(option, text).ok().filter(|name| keys.get(name.as_name()).is_some());
        key.map(|name| Who::Key(Box::new(name))).ok_or_else(|| {
            anyhow!(
                "{option}: {text:?} is neither an address, such as 192.0.2.1 or 192.0.2.0/24, nor the name of a [[key]]{}",
                of_other_servers(text)
            )
        })
    };
    let allowed = texts.iter().map(|text| {
        let encrypted = text.strip_prefix("encrypted:");
        Ok(Allowed { who: who(encrypted.unwrap_or(text))?, encrypted_only: encrypted.is_some() })
    });
    allowed.collect::<anyhow::Result<_>>().map(AccessList)
}

/// What to write in place of a word that access lists of other servers have.
fn of_other_servers(text: &str) -> &'static str {
    match text {
        "any" | "all" | "*" => ". For everybody write \"0.0.0.0/0\" and \"::/0\"",
        "none" => ". For nobody the list is empty: []",
        "localhost" => ". For this host write \"127.0.0.0/8\" and \"::1\"",
        "localnets" => ". Write the prefixes of the networks",
        _ if text.starts_with('!') => ". A list excludes nobody: name those who may",
        _ if text.starts_with("key ") => ". A key is named alone, without the word key",
        _ => "",
    }
}

/// `exposed` gets the file of its secret, if everybody may read it.
fn read_key(table: &KeyTable, directory: &Path, exposed: &mut Vec<PathBuf>) -> anyhow::Result<Key> {
    let name = parse_domain("name", &table.name)?;
    let algorithm = table.algorithm.as_deref().unwrap_or("hmac-sha256");
    let algorithm = Algorithm::from_text(algorithm).ok_or_else(|| {
        anyhow!("algorithm: {algorithm:?} is not hmac-sha256, hmac-sha384, hmac-sha512 or hmac-sha1")
    })?;
    let text = match (&table.secret, &table.secret_file) {
        (Some(secret), None) => secret.clone(),
        (None, Some(file)) => {
            let path: PathBuf = directory.join(file);
            let text = std::fs::read_to_string(&path).map_err(explain_denial);
            exposed.extend(privileges::is_readable_by_all(&path).then(|| path.clone()));
            text.with_context(|| format!("reading {}", path.display()))?
        }
        _ => bail!("expected either secret or secret-file"),
    };
    // The message must not show the secret.
    let secret = decode_base64(text.trim()).ok_or_else(|| anyhow!("the secret is not base64"))?;
    Ok(Key::new(name.as_name(), algorithm, &secret))
}

/// RFC 4648, 4.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.trim_end_matches('=');
    if text.is_empty() || !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let (mut bits, mut count, mut octets) = (0u32, 0, Vec::new());
    for digit in digits.bytes() {
        bits = bits << 6 | ALPHABET.iter().position(|letter| *letter == digit)? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            octets.push((bits >> count) as u8);
        }
    }
    Some(octets)
}

fn secondary(
    table: &SecondaryTable,
    keys: &Keys,
    sources: Sources,
    directory: &Path,
) -> anyhow::Result<SecondarySpec> {
    let tls = transfer_tls(table, directory)?;
    let port = if tls.is_some() { TLS_PORT } else { 53 };
    let key = table.key.as_deref().map(|text| known_key("key", text, keys)).transpose()?;
    let mut primaries = peers("primaries", &table.primaries, port, keys)?;
    for primary in &mut primaries {
        primary.address.set_ip(primary.address.ip().to_canonical());
        primary.key = primary.key.take().or_else(|| key.clone());
    }
    if primaries.is_empty() {
        bail!("primaries: none is named, expected at least one address");
    }
    if table.members.is_some() && !table.catalog {
        bail!("members: expected catalog = true beside it");
    }
    if table.members.is_some() && table.file.is_none() {
        bail!(
            "members: expected file beside it: without the catalog, files of its zones are of no use after a restart"
        );
    }
    Ok(SecondarySpec {
        is_catalog: table.catalog,
        members: table.members.as_ref().map(|members| directory.join(members)),
        membership: None,
        origin: parse_domain("zone", &table.zone)?,
        primaries,
        sources: Sources::parse(&table.source_addresses)?.or(sources),
        tls,
        file: table.file.as_ref().map(|file| directory.join(file)),
        notify: own_peers(table.notify.as_deref(), keys)?,
        allow_transfer: table
            .allow_transfer
            .as_deref()
            .map(|texts| access_list("allow-transfer", texts, keys))
            .transpose()?,
    })
}

/// RFC 9103: whom to trust, and under which name.
fn transfer_tls(table: &SecondaryTable, directory: &Path) -> anyhow::Result<Option<Arc<TransferTls>>> {
    let Some(name) = &table.tls else {
        return match &table.tls_ca {
            Some(_) => bail!(
                "tls-ca: expected the option tls beside it, with the name in the primaries' certificates"
            ),
            None => Ok(None),
        };
    };
    let trust = table.tls_ca.as_ref().map_or(Trust::System, |file| Trust::File(directory.join(file)));
    Ok(Some(Arc::new(TransferTls::new(name, &trust).context("tls")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> anyhow::Result<Transfers> {
        Transfers::resolve(&toml::from_str(text).unwrap(), Path::new("/nowhere"))
    }

    const KEY: &str = "[[key]]\nname = \"k\"\nsecret = \"c2VjcmV0\"\n";

    #[test]
    fn addresses_and_keys_may_be_named_and_nothing_else() {
        let list = |allow: &str| resolve(&format!("allow-transfer = [{allow}]\n{KEY}"));
        assert_eq!(list(r#""192.0.2.0/24", "::1", "K.""#).unwrap().allow_transfer.0.len(), 3);
        let error = list(r#""other""#).unwrap_err().to_string();
        assert!(error.starts_with("allow-transfer: \"other\" is neither an address"), "{error}");
        assert!(resolve("").unwrap().allow_transfer.0.is_empty(), "nobody may by default");
        for (word, instead) in [
            ("any", "For everybody write \"0.0.0.0/0\" and \"::/0\""),
            ("none", "the list is empty: []"),
            ("!192.0.2.1", "A list excludes nobody"),
            ("key k", "without the word key"),
        ] {
            let error = list(&format!("\"{word}\"")).unwrap_err().to_string();
            assert!(error.contains("is neither an address") && error.contains(instead), "{error}");
        }
    }

    #[test]
    fn a_prefix_has_no_bits_beyond_its_length_and_a_key_is_there_once() {
        let error = |text: &str| format!("{:#}", resolve(text).unwrap_err());
        for (wrong, right) in
            [("127.0.0.1/8", "127.0.0.0/8"), ("2001:db8::1/32", "2001:db8::/32"), ("1.2.3.4/0", "0.0.0.0/0")]
        {
            let said = error(&format!("allow-transfer = [\"{wrong}\"]\n"));
            assert!(said.contains(&format!("write \"{right}\"")), "{said}");
        }
        assert!(error(&format!("{KEY}{}", KEY.replace("\"k\"", "\"K.\""))).contains("two of this name"));
    }

    #[test]
    fn a_key_that_is_wrong_is_named_and_its_secret_never() {
        let error = |text: &str| format!("{:#}", resolve(text).unwrap_err());
        let wrong = error("[[key]]\nname = \"k\"\nsecret = \"geheim!\"\n");
        assert_eq!(wrong, "key \"k\": the secret is not base64");
        assert!(error("[[key]]\nname = \"k\"\n").contains("either secret or secret-file"));
        assert!(
            error("[[key]]\nname = \"k\"\nalgorithm = \"md5\"\nsecret = \"\"\n").contains("\"md5\" is not")
        );
        let missing = error("[[key]]\nname = \"k\"\nsecret-file = \"f\"\n");
        assert!(missing.contains("reading /nowhere/f"), "{missing}");
    }

    #[test]
    fn a_secondary_zone_has_primaries_and_a_key_that_is_there() {
        let table = |rest: &str| format!("{KEY}[[secondary]]\nzone = \"example\"\n{rest}");
        let good = resolve(&table(
            "primaries = [\"192.0.2.1\", \"[::1]:5353\"]\nkey = \"K\"\nfile = \"f\"\nnotify = [\"::2\"]\n",
        ))
        .unwrap();
        let spec = &good.secondaries[0];
        let shown = |peers: &[Peer]| peers.iter().map(Peer::to_string).collect::<Vec<_>>();
        assert_eq!(shown(spec.notify.as_ref().unwrap()), ["[::2]:53"]);
        assert_eq!(shown(&spec.primaries), ["192.0.2.1:53 key K.", "[::1]:5353 key K."]);
        assert_eq!(spec.file.as_deref(), Some(Path::new("/nowhere/f")));
        let error = |rest: &str| format!("{:#}", resolve(&table(rest)).unwrap_err());
        assert!(error("primaries = []\n").starts_with("secondary \"example\": primaries: none is named"));
        assert!(error("primaries = [\"x\"]\n").contains("primaries: \"x\" is not an address"));
        let unknown = error("primaries = [\"::1\"]\nkey = \"other\"\n");
        assert_eq!(unknown, "secondary \"example\": key: there is no [[key]] of the name other.");
    }

    #[test]
    fn a_peer_may_have_a_key_of_its_own() {
        let more = "[[key]]\nname = \"other\"\nsecret = \"c2VjcmV0\"\n";
        let table = |rest: &str| format!("{KEY}{more}[[secondary]]\nzone = \"example\"\nkey = \"k\"\n{rest}");
        let good = "primaries = [\"192.0.2.1\", \"192.0.2.2:54 key other\"]\nnotify = [\"::1 key k\"]\n";
        let spec = &resolve(&table(good)).unwrap().secondaries[0];
        let shown: Vec<String> =
            spec.primaries.iter().chain(spec.notify.as_ref().unwrap()).map(Peer::to_string).collect();
        assert_eq!(shown, ["192.0.2.1:53 key k.", "192.0.2.2:54 key other.", "[::1]:53 key k."]);
        let error = |peer: &str| {
            format!("{:#}", resolve(&table(&format!("primaries = [\"{peer}\"]\n"))).unwrap_err())
        };
        assert!(error("::1 key no").ends_with("primaries: there is no [[key]] of the name no."));
        assert!(error("::1 other").contains("primaries: \"::1 other\" is neither an address"));
    }

    #[test]
    fn a_zone_of_a_catalog_has_what_the_catalog_has_and_a_file_of_its_own() {
        let text = "[[secondary]]\nzone = \"catalog\"\ncatalog = true\nprimaries = [\"::1\"]\nmembers = \"m\"\nfile = \"c\"\n";
        let catalog = &resolve(text).unwrap().secondaries[0];
        let origin = NameBuf::from_text(b"a\\/\\.\\..Example.", None).unwrap();
        let member = catalog.member(origin.clone(), b"label"[..].into());
        assert_eq!(member.file.as_deref(), Some(Path::new("/nowhere/m/a%2F%2E%2E.Example.zone")));
        assert_eq!((&member.primaries, &member.origin), (&catalog.primaries, &origin));
        assert!(!member.is_catalog, "a catalog in a catalog is a zone");
        let error = resolve("[[secondary]]\nzone = \"z\"\nprimaries = [\"::1\"]\nmembers = \"m\"\n");
        assert!(format!("{:#}", error.unwrap_err()).contains("members: expected catalog = true"));
    }

    #[test]
    fn a_zone_of_a_long_name_has_a_file_that_can_be_made() {
        let label = "a".repeat(60);
        let file = |last: &str| {
            let text = format!("{label}.{label}.{label}.{last}");
            file_name(&NameBuf::from_text(text.as_bytes(), None).unwrap())
        };
        let names = [
            file(&format!("{label}.")),
            file(&format!("{}b.", &label[1..])),
            file("\\/\\/\\/\\/\\/\\/\\/\\/."),
        ];
        for (number, name) in names.iter().enumerate() {
            let longest = name.replace(".zone", ".etcd-zone.sidestep-signed.journal.unfit.15");
            assert!(longest.len() <= 255 && name.ends_with(".zone"), "{name}");
            assert!(names[..number].iter().all(|other| other != name), "{name}");
            // The file system has the last word.
            let path = std::env::temp_dir().join(longest);
            std::fs::write(&path, "").unwrap();
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (text, octets) in [("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decode_base64(text).as_deref(), Some(octets.as_bytes()), "{text}");
        }
        for text in ["", "Zg", "Z===", "Zm9v!", "Zm9vY"] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
    }
}
