//! Configurations as operators have them, and what becomes of them.

use std::collections::BTreeMap;
use std::io;

use dns_import::{Config, Key, Reader, Secondary, Server, Zone, import};

fn read_all(server: Server, files: &[(&str, &str)]) -> Result<Config, String> {
    let mut files = Texts(files.iter().copied().collect());
    import(server, "/etc/main.conf", &mut files).map_err(|error| error.to_string())
}

struct Texts<'t>(BTreeMap<&'t str, &'t str>);

impl Reader for Texts<'_> {
    fn read(&mut self, path: &str) -> io::Result<String> {
        self.0.get(path).map(|text| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn matching(&mut self, pattern: &str) -> io::Result<Vec<String>> {
        let (begin, end) = pattern.split_once('*').unwrap();
        let is_meant = |path: &&&str| path.starts_with(begin) && path.ends_with(end);
        Ok(self.0.keys().filter(is_meant).map(|path| (*path).to_owned()).collect())
    }
}

fn read(server: Server, text: &str) -> Config {
    read_all(server, &[("/etc/main.conf", text)]).unwrap()
}

fn notes(config: &Config) -> Vec<String> {
    config.notes.iter().map(ToString::to_string).collect()
}

fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

const KEY: &str = "c2VjcmV0IHNlY3JldA==";

/// What all three of the configurations below say.
fn expected() -> (Vec<Key>, Vec<Zone>, Vec<Secondary>) {
    let key = Key { name: "transfer.key".into(), algorithm: "hmac-sha256".into(), secret: KEY.into() };
    let zone = Zone {
        origin: "example.com".into(),
        file: "/var/zones/example.com.zone".into(),
        allow_transfer: Some(strings(["192.0.2.0/24", "transfer.key"])),
        notify: strings(["192.0.2.2", "[2001:db8::2]:5353"]),
        ..Zone::default()
    };
    let secondary = Secondary {
        origin: "example.net".into(),
        primaries: strings(["198.51.100.1", "198.51.100.2:5300"]),
        key: Some("transfer.key".into()),
        file: Some("/var/zones/example.net.zone".into()),
        ..Secondary::default()
    };
    (vec![key], vec![zone], vec![secondary])
}

fn assert_expected(config: &Config) {
    let (keys, zones, secondaries) = expected();
    assert_eq!((&config.keys, &config.zones, &config.secondaries), (&keys, &zones, &secondaries));
    assert_eq!(config.listen, ["192.0.2.1:53", "[2001:db8::1]:5353"]);
    assert_eq!(config.version.as_deref(), Some("none of it"));
}

const BIND: &str = r#"
// Three kinds of comments,
# of which this is one; and this: /* no block */
/* A block;
   over lines. */
acl "secondaries" { 192.0.2.0/24; key "transfer.key"; };
primaries upstream { 198.51.100.1 key transfer.key; 198.51.100.2 port 5300 key transfer.key; };
options {
    directory "/var/zones";
    listen-on { 192.0.2.1; };
    listen-on-v6 port 5353 { 2001:db8::1; };
    version "none of it";
    allow-transfer { none; };
};
key "transfer.key" { algorithm HMAC-SHA256; secret "c2VjcmV0IHNlY3JldA=="; };
include "/etc/zones.conf";
zone "example.net" IN { type slave; masters { upstream; }; file "example.net.zone"; notify no; };
"#;

const BIND_ZONES: &str = r#"zone "example.com" {
    type primary;
    file "example.com.zone";
    allow-transfer { secondaries; };
    notify explicit;
    also-notify { 192.0.2.2; 2001:db8::2 port 5353; };
};"#;

#[test]
fn bind() {
    let config =
        read_all(Server::Bind, &[("/etc/main.conf", BIND), ("/etc/zones.conf", BIND_ZONES)]).unwrap();
    assert_expected(&config);
    assert_eq!(notes(&config), [] as [&str; 0]);
    assert!(config.allow_transfer.is_empty());
}

#[test]
fn nsd() {
    let config = read(
        Server::Nsd,
        r#"
# A comment
server:
    ip-address: 192.0.2.1
    ip-address: 2001:db8::1@5353
    zonesdir: "/var/zones"
    version: "none of it"
key:
    name: "transfer.key"
    algorithm: hmac-sha256
    secret: "c2VjcmV0IHNlY3JldA=="
pattern:
    name: "ours"
    zonefile: "%s.zone"
zone:
    name: "example.com"
    include-pattern: "ours"
    provide-xfr: 192.0.2.0/24 NOKEY
    provide-xfr: 203.0.113.0/24 transfer.key
    notify: 192.0.2.2 NOKEY
    notify: 2001:db8::2@5353 NOKEY
zone: name: example.net
    include-pattern: "ours"
    request-xfr: AXFR 198.51.100.1 transfer.key
    request-xfr: 198.51.100.2@5300 transfer.key
    allow-notify: 198.51.100.1 NOKEY
"#,
    );
    assert_expected(&config);
    assert_eq!(notes(&config), [] as [&str; 0]);
}

#[test]
fn knot() {
    let config = read(
        Server::Knot,
        r#"
server:
    listen: [ 192.0.2.1, "2001:db8::1@5353" ]  # Two.
    version: "none of it"

key:
  - id: transfer.key
    algorithm: hmac-sha256
    secret: c2VjcmV0IHNlY3JldA==

remote:
  - id: one
    address: 192.0.2.2
  - id: two
    address: 2001:db8::2@5353
  - id: upstream
    address: [198.51.100.1@53, 198.51.100.2@5300]
    key: transfer.key

acl:
  - id: near
    address: 192.0.2.0/24
    action: transfer
  - id: signed
    key: transfer.key
    action: [transfer, notify]

template:
  - id: default
    storage: /var/zones
    file: "%s.zone"

zone:
  - domain: example.com
    notify: [one, two]
    acl:
      - near
      - signed
  - domain: example.net
    master: upstream
"#,
    );
    assert_expected(&config);
    assert_eq!(notes(&config), [] as [&str; 0]);
}

#[test]
fn an_nsid_in_hexadecimal_is_its_octets_if_they_are_text() {
    let knot = |nsid: &str| read(Server::Knot, &format!("server:\n    nsid: {nsid}\n"));
    let nsd = |nsid: &str| read(Server::Nsd, &format!("server:\n    nsid: {nsid}\n"));
    assert_eq!(knot("0x6162").nsid.as_deref(), Some("ab"));
    assert_eq!(knot("ams1").nsid.as_deref(), Some("ams1"));
    assert_eq!(nsd("\"6162\"").nsid.as_deref(), Some("ab"));
    for config in [knot("0x00ff"), knot("0x616"), knot("0xgg"), nsd("\"c3a4\"")] {
        assert_eq!(config.nsid, None);
        assert!(notes(&config)[0].contains("answers.nsid is text"), "{:#?}", notes(&config));
    }
}

#[test]
fn a_slash_in_the_name_of_a_zone_of_knot_is_no_directory() {
    let config = read(Server::Knot, "zone:\n  - domain: 0/25.2.0.192.in-addr.arpa\n    storage: /z\n");
    assert_eq!(config.zones[0].file, "/z/0_25.2.0.192.in-addr.arpa.zone");
}

#[test]
fn an_update_policy_of_bind_lets_nobody_update_whom_only_an_allow_update_beside_it_names() {
    for (first, second) in [
        ("allow-update { any; };", "update-policy local;"),
        ("update-policy local;", "allow-update { any; };"),
    ] {
        let text = format!("zone \"a\" {{ type master; file \"a\"; {first} {second} }};\n");
        let config = read(Server::Bind, &text);
        assert!(config.zones[0].allow_update.is_empty(), "{text}");
        assert!(notes(&config).iter().any(|note| note.contains("counts for nothing there")), "{text}");
    }
}

#[test]
fn what_has_no_counterpart_is_said_with_its_place() {
    let bind = read(
        Server::Bind,
        "options { recursion yes; max-cache-size 10m; };\nview \"inside\" { zone \"a\" { type master; }; };\n\
         zone \".\" { type hint; file \"root\"; };\nzone \"a\" { type master; file \"a\"; update-policy local; };\n",
    );
    for (line, what) in [
        (1, "recursion: resolving is another program's work"),
        (1, "max-cache-size: no counterpart"),
        (2, "view \"inside\""),
        (3, "zone \".\" is of a resolver"),
        (4, "update-policy: allow-update, for the whole zone"),
        (1, "lets everybody transfer"),
        (4, "notifies the servers of a zone's NS records"),
    ] {
        let begin = format!("/etc/main.conf, line {line}: ");
        assert!(
            notes(&bind).iter().any(|note| note.starts_with(&begin) && note.contains(what)),
            "{what}: {:#?}",
            notes(&bind)
        );
    }
    let nsd = read(
        Server::Nsd,
        "server:\n  xfrd-tcp-max: 10\nzone:\n  name: a\n  zonefile: %1/a\n  provide-xfr: 10.0.0.1-10.0.0.9 NOKEY\n",
    );
    assert_eq!(notes(&nsd).len(), 3, "{:?}", notes(&nsd));
    let knot = read(
        Server::Knot,
        "zone:\n  - domain: a\n    acl: nobody\n    semantic-checks: on\nmod-rrl:\n  - id: default\n",
    );
    assert_eq!(notes(&knot).len(), 3, "{:?}", notes(&knot));
    let comments = bind.to_toml();
    assert!(comments.starts_with("# Not carried over: /etc/main.conf, line 1: "), "{comments}");
}

#[test]
fn each_server_keeps_the_key_that_it_is_asked_with_and_told_with() {
    let bind = "primaries both { 192.0.2.1 key one; 192.0.2.2 port 54; };\n\
                zone \"a\" { type secondary; primaries { both key two; }; also-notify { 192.0.2.3 key one; }; };\n\
                zone \"b\" { type secondary; primaries { 192.0.2.1; 192.0.2.2 key one; }; };\n";
    let nsd = "zone:\n  name: a\n  request-xfr: 192.0.2.1 one\n  request-xfr: 192.0.2.2@54 two\n  notify: 192.0.2.3 one\n\
               zone:\n  name: b\n  request-xfr: 192.0.2.1 NOKEY\n  request-xfr: 192.0.2.2 one\n";
    let knot = "remote:\n  - id: 1\n    address: 192.0.2.1\n    key: one\n  - id: 2\n    address: 192.0.2.2@54\n    key: two\n\
                \x20 - id: 3\n    address: 192.0.2.3\n    key: one\n  - id: 4\n    address: 192.0.2.1\n\
                \x20 - id: 5\n    address: 192.0.2.2\n    key: one\n\
                zone:\n  - domain: a\n    master: [1, 2]\n    notify: 3\n  - domain: b\n    master: [4, 5]\n";
    for (server, text) in [(Server::Bind, bind), (Server::Nsd, nsd), (Server::Knot, knot)] {
        let zones = read(server, text).secondaries;
        assert_eq!(zones[0].primaries, ["192.0.2.1 key one", "192.0.2.2:54 key two"], "{server:?}");
        assert_eq!((&zones[0].key, &zones[0].notify[..]), (&None, &["192.0.2.3 key one".to_owned()][..]));
        assert_eq!(zones[1].primaries, ["192.0.2.1", "192.0.2.2 key one"], "{server:?}");
    }
}

#[test]
fn that_nobody_replaces_keys_of_a_limited_lifetime_is_told() {
    let policy = |lifetime: &str| {
        let text = format!(
            "dnssec-policy p {{ keys {{ ksk lifetime unlimited algorithm 13; zsk {lifetime} algorithm 13; }}; }};\n\
             zone a {{ type primary; file \"a\"; dnssec-policy p; }};\n"
        );
        notes(&read(Server::Bind, &text)).iter().filter(|note| note.contains("lifetime")).count()
    };
    assert_eq!(["lifetime P30D", "lifetime unlimited", "lifetime 0"].map(policy), [1, 0, 0]);
}

#[test]
fn options_of_nsd_may_share_a_line() {
    let config = read(
        Server::Nsd,
        "server: ip-address: 2001:db8::1 port: 5300 zonesdir: \"/z\"\nkey: name: \"k\" algorithm: hmac-sha256 secret: c2U=\n\
         zone: name: a.test zonefile: a.zone provide-xfr: 192.0.2.0/24 NOKEY notify: 2001:db8:: k\nzone:\n name: \"odd:\" zonefile: b\n",
    );
    assert_eq!(notes(&config), strings([]));
    assert_eq!((&config.listen[..], config.keys.len()), (&strings(["[2001:db8::1]:5300"])[..], 1));
    let [first, second] = &config.zones[..] else { panic!("{:?}", config.zones) };
    assert_eq!((&*first.file, &first.allow_transfer), ("/z/a.zone", &Some(strings(["192.0.2.0/24"]))));
    assert_eq!((&first.notify, &*second.origin), (&strings(["2001:db8:: key k"]), "odd:"));
}

#[test]
fn the_port_of_a_list_of_bind_is_that_of_lists_in_it_which_have_none() {
    let primaries = |of_inner: &str| {
        let text = format!(
            "primaries inner {of_inner} {{ 192.0.2.1; 192.0.2.2 port 55; }};\n\
             zone a {{ type secondary; primaries port 5377 {{ inner; 192.0.2.3; }}; }};\n"
        );
        read(Server::Bind, &text).secondaries[0].primaries.clone()
    };
    assert_eq!(primaries(""), strings(["192.0.2.1:5377", "192.0.2.2:55", "192.0.2.3:5377"]));
    assert_eq!(primaries("port 54"), strings(["192.0.2.1:54", "192.0.2.2:55", "192.0.2.3:5377"]));
}

#[test]
fn notes_say_what_is_done_here_by_other_means_and_nothing_of_what_is_the_same() {
    let said = |server, text: &str, what: &str| {
        let config = read(server, text);
        assert!(notes(&config).iter().any(|note| note.contains(what)), "{what}: {:#?}", notes(&config));
    };
    let zone = "zone \"a\" { type primary; file \"a\"; notify no; allow-query { 10.0.0.0/8; }; };";
    said(Server::Bind, "options { rate-limit { responses-per-second 5; }; };", "rate-limit: [rate]");
    said(Server::Bind, zone, "everybody may ask for every zone here");
    said(Server::Nsd, "server:\n  rrl-ratelimit: 5\n", "rrl-ratelimit: [rate]");
    said(Server::Nsd, "zone:\n  name: a\n", "zone \"a\": it has neither zonefile nor request-xfr");
    said(Server::Knot, "mod-rrl:\n  - id: default\n", "mod-rrl: [rate]");
    let same = "options { recursion no; allow-query { any; }; allow-transfer { none; }; };";
    assert_eq!(notes(&read(Server::Bind, same)), [] as [&str; 0]);
    let nsd = read(Server::Nsd, "zone:\n  name: a\n");
    assert_eq!(nsd.zones, [], "a zone without a file is none");
}

#[test]
fn a_zone_that_was_signed_elsewhere_gets_no_new_key() {
    let knot = read(Server::Knot, "zone:\n  - domain: a\n    dnssec-signing: on\n");
    assert!(knot.to_toml().ends_with("dnssec = true\nnew-keys = false\n"), "{}", knot.to_toml());
    assert!(
        notes(&knot)[0].contains("its keys are in Knot's database: bring them first"),
        "{:?}",
        notes(&knot)
    );
}

/// The first match counts in BIND: whoever stands behind an exclusion may be excluded.
#[test]
fn nobody_is_let_in_who_was_kept_out() {
    let with = |list: &str| {
        let text = format!(
            "acl bad {{ !192.0.2.66; 192.0.2.0/24; }};\nzone \"a\" {{ type primary; file \"/a\"; notify no; allow-transfer {{ {list} }}; }};"
        );
        read(Server::Bind, &text).zones.remove(0).allow_transfer.unwrap()
    };
    assert_eq!(with("10.0.0.1; ! 192.0.2.1; any;"), ["10.0.0.1"]);
    assert_eq!(with("10.0.0.1; !192.0.2.1; any;"), ["10.0.0.1"]);
    assert_eq!(with("bad; any;"), [] as [&str; 0]);
    assert_eq!(with("10.0.0.1; { 10.0.0.2; }; any;"), ["10.0.0.1"]);
    assert_eq!(with("localhost; any;"), ["127.0.0.0/8", "::1", "0.0.0.0/0", "::/0"]);
    assert_eq!(with("none;"), [] as [&str; 0]);
}

#[test]
fn what_is_not_of_the_syntax_is_an_error_with_its_place() {
    for (server, text, said) in [
        (Server::Bind, "options {\n  directory \"/a\"\n};\n", "line 3: '}' is not expected here"),
        (Server::Bind, "options {\n", "line 1: the file ends"),
        (Server::Bind, "\n/* no end", "line 2: a comment does not end"),
        (Server::Bind, "include \"/etc/main.conf\";", "included by itself"),
        (Server::Bind, "include \"/etc/none\";", "/etc/none: entity not found"),
        (Server::Nsd, "server:\n  port 53\n", "line 2: \"port\" is not the name of an option"),
        (Server::Nsd, "port: 53\n", "line 1: port: stands in no clause"),
        (Server::Nsd, "include: main.conf\n", "included by itself"),
        (Server::Nsd, "server:\n version: \"x\n", "line 2: a string does not end"),
        (Server::Knot, "zone:\n  domain\n", "line 2: \"domain\" is not NAME: VALUE"),
        (Server::Knot, "  a: b\n", "line 1: stands in no section"),
        (Server::Knot, "zone:\n  - x\n", "line 2: a value without an option"),
    ] {
        let error = read_all(server, &[("/etc/main.conf", text)]).unwrap_err();
        assert!(error.contains(said), "{text:?}: {error}");
    }
    let deep = "a {".repeat(100_000);
    assert!(read_all(Server::Bind, &[("/etc/main.conf", &deep)]).unwrap_err().contains("too deep"));
}

#[test]
fn strings_keep_their_octets_in_toml() {
    let text = r#"options { version "a \ b	c"; allow-transfer { none; }; };"#;
    assert!(read(Server::Bind, text).to_toml().contains(r#"version = "a \\ b\u0009c""#));
}

#[test]
fn files_that_a_pattern_means_are_included_in_their_order_and_known_by_their_own_names() {
    let (a, b) = ("zone:\n name: a\n zonefile: a\n", "zone:\n name: b\n zonefile: b\n unknown: yes\n");
    let main = ("/etc/main.conf", "include: \"/etc/d/*.conf\"\n");
    let config = read_all(Server::Nsd, &[("/etc/d/b.conf", b), ("/etc/d/a.conf", a), main]).unwrap();
    let files: Vec<&str> = config.zones.iter().map(|zone| zone.file.as_str()).collect();
    assert_eq!(files, ["/etc/nsd/a", "/etc/nsd/b"]);
    assert_eq!(notes(&config), ["/etc/d/b.conf, line 4: zone \"b\": unknown: no counterpart"]);
}

#[test]
fn who_says_nothing_is_heard_everywhere_except_by_knot() {
    let listen = |server, text| read(server, text).listen;
    assert_eq!(listen(Server::Bind, "options { };"), ["0.0.0.0:53", "[::]:53"]);
    assert_eq!(listen(Server::Bind, "options { listen-on-v6 { none; }; };"), ["0.0.0.0:53"]);
    assert_eq!(listen(Server::Nsd, "server:\n port: 5300\n"), ["0.0.0.0:5300", "[::]:5300"]);
    assert_eq!(listen(Server::Knot, "server:\n"), [] as [&str; 0]);
}

#[test]
fn an_exclusion_lets_nobody_in_whom_it_may_be_about() {
    let nsd =
        "zone:\n name: a\n zonefile: a\n provide-xfr: 10.0.0.66 BLOCKED\n provide-xfr: 10.0.0.0/8 NOKEY\n";
    let config = read(Server::Nsd, nsd);
    assert_eq!((config.zones[0].allow_transfer.as_deref(), notes(&config).len()), (Some(&[][..]), 1));
    for (first, who, count) in [
        ("deny: TRUE", None, 1),
        ("deny: on", None, 1),
        ("deny: off", Some(strings(["10.0.0.66", "10.0.0.0/8"])), 0),
        ("update-type: TXT", Some(strings(["10.0.0.0/8"])), 1),
    ] {
        let knot = format!(
            "acl:\n  - id: one\n    address: 10.0.0.66\n    action: transfer\n    {first}\n\
             \x20 - id: two\n    address: 10.0.0.0/8\n    action: transfer\n\
             zone:\n  - domain: a\n    acl: [one, two]\n"
        );
        let config = read(Server::Knot, &knot);
        assert_eq!((&config.zones[0].allow_transfer, notes(&config).len()), (&who, count), "{first}");
    }
    let bind = "zone \"a\" { type primary; file \"a\"; notify no; allow-transfer port 853 transport tls { any; }; };";
    let config = read(Server::Bind, bind);
    assert_eq!(config.zones[0].allow_transfer.as_deref(), Some(&[][..]));
}

#[test]
fn a_zone_is_signed_if_it_was_whoever_says_so() {
    let bind = |options: &str, zone: &str| {
        let text = format!(
            "options {{ {options} }};\nzone \"a\" {{ type primary; file \"/a\"; notify no; {zone} }};"
        );
        read(Server::Bind, &text).zones[0].dnssec
    };
    assert!(bind("", "dnssec-policy default;") && bind("dnssec-policy default;", ""));
    assert!(!bind("", "") && !bind("dnssec-policy default;", "dnssec-policy none;"));
    assert!(!bind("", "dnssec-policy insecure;"));
    let knot = |word: &str| {
        read(Server::Knot, &format!("zone:\n  - domain: a\n    dnssec-signing: {word}\n")).zones[0].dnssec
    };
    assert!(knot("on") && knot("True") && !knot("off") && !knot("false"));
}

#[test]
fn options_of_all_zones_hold_for_each() {
    let text = "options { notify no; also-notify { 192.0.2.99; }; };\n\
                zone \"a\" { type primary; file \"/a\"; };\nzone \"b\" { type primary; file \"/b\"; notify explicit; };";
    let zones = read(Server::Bind, text).zones;
    assert_eq!((zones[0].notify.len(), &zones[1].notify), (0, &strings(["192.0.2.99"])));
}

#[test]
fn a_secondary_that_bind_signs_is_told_of_with_a_warning_also_where_all_zones_share_the_policy() {
    let warned = |options: &str, zone: &str| {
        let text = format!(
            "options {{ allow-transfer {{ none; }}; {options} }};\n\
             zone \"a\" {{ type secondary; primaries {{ 192.0.2.1; }}; notify no; {zone} }};\n"
        );
        notes(&read(Server::Bind, &text))
            .iter()
            .any(|note| note.contains("line 2: zone \"a\"") && note.contains("WARNING"))
    };
    assert!(warned("dnssec-policy default;", "") && warned("", "dnssec-policy default;"));
    assert!(warned("", "inline-signing yes; auto-dnssec maintain;"));
    assert!(!warned("", "") && !warned("dnssec-policy default;", "dnssec-policy none;"));
}

#[test]
fn catalogs_that_are_followed_come_along_from_bind_and_nsd() {
    let bind = |catalog: &str| {
        let text = format!(
            "options {{ directory \"/etc/bind\"; allow-transfer {{ none; }}; catalog-zones {{ zone \"Catalog.example.\" {catalog}; }}; }};\n\
             zone \"catalog.example\" {{ type secondary; primaries {{ 192.0.2.1; }}; file \"c.db\"; notify no; }};\n"
        );
        read(Server::Bind, &text)
    };
    let config = bind("default-primaries { 192.0.2.1; } zone-directory \"m\"");
    assert!(config.secondaries[0].is_catalog && config.to_toml().contains("members = \"/etc/bind/m\"\n"));
    assert!(config.to_toml().contains("catalog = true\n"));
    assert_eq!(notes(&config), [] as [&str; 0]);
    let others = bind("default-primaries { 192.0.2.9; }");
    assert!(others.secondaries[0].is_catalog && notes(&others)[0].contains("not from default-primaries"));

    let nsd = |pattern: &str| {
        let text = format!(
            "pattern:\n name: m\n request-xfr: {pattern} NOKEY\nzone:\n name: c.example\n catalog: consumer\n \
             catalog-member-pattern: m\n request-xfr: 192.0.2.1 NOKEY\n"
        );
        read(Server::Nsd, &text)
    };
    let config = nsd("192.0.2.1");
    assert!(config.secondaries[0].is_catalog && config.notes.is_empty(), "{:?}", config.notes);
    assert!(notes(&nsd("192.0.2.9"))[0].contains("not from those of the pattern"));
}

#[test]
fn nsec3_of_a_policy_becomes_that_of_its_zones() {
    let bind = |policy: &str| {
        let text = format!(
            "options {{ allow-transfer {{ none; }}; notify no; }};\ndnssec-policy p {{ {policy} }};\n\
             zone \"a\" {{ type primary; file \"a\"; dnssec-policy p; }};\n"
        );
        read(Server::Bind, &text)
    };
    let config = bind("nsec3param;");
    assert!(config.zones[0].nsec3 && config.to_toml().contains("nsec3 = true\n"));
    assert!(!bind("").zones[0].nsec3 && !bind("").to_toml().contains("nsec3"));
    let is_told = |config: &Config| notes(config).iter().any(|note| note.contains("RFC 9276"));
    assert!(
        is_told(&bind("nsec3param iterations 5 optout no;")) && !is_told(&bind("nsec3param iterations 0;"))
    );

    let knot = |policy: &str, zone: &str| {
        let text = format!(
            "policy:\n - id: {policy}\n   nsec3: on\n   nsec3-salt-length: 0\nzone:\n - domain: a\n{zone}"
        );
        read(Server::Knot, &text)
    };
    let signed = "   dnssec-signing: on\n";
    assert!(knot("default", signed).zones[0].nsec3);
    assert!(!knot("p", signed).zones[0].nsec3);
    let named = knot("p", &format!("{signed}   dnssec-policy: p\n"));
    assert!(named.zones[0].nsec3 && !is_told(&named), "{:?}", named.notes);
}

#[test]
fn an_access_list_of_knot_that_names_nobody_lets_nobody_and_that_is_told() {
    let text = "acl:\n - id: all\n   action: transfer\nzone:\n - domain: a\n   acl: all\n";
    let config = read(Server::Knot, text);
    assert_eq!(config.zones[0].allow_transfer, Some(Vec::new()));
    assert!(
        notes(&config)[0].contains("line 2: access list \"all\": it names neither"),
        "{:?}",
        config.notes
    );
    let notify = read(Server::Knot, &text.replace("transfer", "notify"));
    assert_eq!(notes(&notify), [] as [&str; 0]);
}

#[test]
fn who_may_send_notices_there_and_is_no_primary_is_told() {
    let bind = "acl own { 192.0.2.1/32; { 192.0.2.9; !192.0.2.7; }; };\noptions { allow-notify { own; key two; }; notify no; };\n\
                zone \"a\" { type secondary; allow-notify { 192.0.2.2; 192.0.2.8; key one; key two; any; }; \
                primaries { 192.0.2.1 key one.; 192.0.2.2 port 54 key ONE; }; };\n\
                zone \"b\" { type secondary; primaries { 192.0.2.1; }; };\n\
                zone \"c\" { type secondary; primaries { 192.0.2.1; }; allow-notify { 192.0.2.1; key two; }; };\n\
                zone \"d\" { type primary; file \"/d\"; };\n";
    let nsd = "zone:\n name: a\n allow-notify: 192.0.2.2@53 one\n allow-notify: 192.0.2.8 NOKEY\n allow-notify: 192.0.2.1 two\n\
               \x20request-xfr: 192.0.2.1 one\n request-xfr: 192.0.2.2@54 one\n allow-notify: 192.0.2.0/24 BLOCKED\n\
               zone:\n name: b\n request-xfr: 192.0.2.1 NOKEY\n allow-notify: 192.0.2.1 two\n";
    let knot = "acl:\n - id: x\n   address: [192.0.2.2, 192.0.2.8]\n   key: one\n   action: [transfer, notify]\n\
                \x20- id: y\n   key: one\n   action: notify\n - id: z\n   address: 192.0.2.9\n   action: transfer\n\
                remote:\n - id: r\n   address: [192.0.2.1, 192.0.2.2@54]\n   key: one\n\
                zone:\n - domain: a\n   acl: [x, y, z]\n   master: r\n - domain: d\n   acl: x\n";
    let told = |server: Server, text: &str| {
        let all = notes(&read(server, text)).into_iter();
        let own =
            all.filter_map(|note| Some(note.split_once(": NOTIFY from there is refused here")?.0.to_owned()));
        own.map(|note| note.replace("/etc/main.conf, ", "")).collect::<Vec<_>>()
    };
    let expected = ["line 2: allow-notify: 192.0.2.9", "line 3: allow-notify: 192.0.2.8, key two, any"];
    assert_eq!(told(Server::Bind, bind), expected);
    let expected = ["line 4: allow-notify: 192.0.2.8", "line 5: allow-notify: 192.0.2.1 key two"];
    assert_eq!(told(Server::Nsd, nsd), expected);
    assert_eq!(told(Server::Knot, knot), ["line 2: access list \"x\": 192.0.2.8 key one"]);
}

/// What an operator has tuned comes along, in the units and within the bounds of here.
#[test]
fn limits_names_and_the_order_of_answers_come_along() {
    let bind = "options { recursion no; allow-transfer { none; }; port 5300; hostname \"ns1\"; max-udp-size 1400; tcp-clients 500;\n\
                tcp-idle-timeout 155; transfers-out 20; rrset-order { order cyclic; }; };\n\
                zone \"a\" { type secondary; primaries { 192.0.2.1; 192.0.2.2 port 53; }; notify no; };\n";
    let nsd = "server:\n port: 5300\n identity: ns1\n ipv4-edns-size: 1432\n ipv6-edns-size: 1400\n tcp-count: 500\n tcp-timeout: 16\n\
               \x20round-robin: yes\n";
    let knot = "server:\n  listen: [0.0.0.0@5300, ::@5300]\n  identity: ns1\n  udp-max-payload: 1400\n  tcp-max-clients: 500\n\
                \x20 tcp-idle-timeout: 16s\n  answer-rotation: on\n";
    for (server, text) in [(Server::Bind, bind), (Server::Nsd, nsd), (Server::Knot, knot)] {
        let config = read(server, text);
        assert_eq!(notes(&config), [] as [&str; 0], "{server:?}");
        assert_eq!(config.listen, ["0.0.0.0:5300", "[::]:5300"], "{server:?}");
        let toml = config.to_toml();
        let expected = "\n[answers]\nudp-payload-max = 1400\nrotate = true\nhostname = \"ns1\"\n\n[tcp]\nidle-timeout-s = 16\nconnections-max = 500\n";
        assert!(toml.contains(expected), "{toml}");
        assert_eq!(toml.contains("transfers-max = 20\n"), server == Server::Bind, "only BIND has a limit");
    }
    assert_eq!(read(Server::Bind, bind).secondaries[0].primaries, ["192.0.2.1:5300", "192.0.2.2"]);
    let silent = read(Server::Bind, "options { hostname none; rrset-order { order fixed; }; };");
    assert_eq!((silent.hostname.as_deref(), silent.rotate), (Some(""), false));
    assert_eq!(read(Server::Nsd, "server:\n hide-identity: yes\n").hostname.as_deref(), Some(""));
    assert_eq!(read(Server::Knot, "server:\n  tcp-idle-timeout: 2m\n").tcp_idle_timeout_s, Some(120));
}

#[test]
fn what_comes_along_in_other_bounds_or_for_all_names_is_told() {
    let bind = "options { allow-transfer { none; }; max-udp-size 8192; tcp-idle-timeout x; rrset-order { name \"a\" order random; };\n\
                https-port 443; http-port 80; edns-udp-size 1232; tcp-initial-timeout 300; };";
    let config = read(Server::Bind, bind);
    assert_eq!((config.udp_payload_max, config.tcp_idle_timeout_s, config.rotate), (Some(4096), None, false));
    let expected = [
        "line 1: max-udp-size 8192: answers.udp-payload-max is from 512 to 4096, so it is 4096 here",
        "line 1: rrset-order name a order random: answers.rotate is for all names and types alike",
        "line 1: tcp-idle-timeout: \"x\" is not a number",
        "line 2: edns-udp-size: answers.udp-payload-max, from max-udp-size, is for what is received as well",
        "line 2: http-port: HTTP without TLS is not spoken here; with TLS: [encrypted] (docs/dns/encrypted.md)",
        "line 2: https-port: the ports of addresses in [encrypted] (docs/dns/encrypted.md)",
        "line 2: tcp-initial-timeout: tcp.idle-timeout-s is the one limit of connections here (docs/dns/reference.md)",
    ];
    assert_eq!(notes(&config), expected.map(|what| format!("/etc/main.conf, {what}")));
}

#[test]
fn groups_of_remotes_of_knot_are_their_members_also_in_access_lists() {
    let text = "remote:\n - id: one\n   address: 192.0.2.1\n   key: k\n - id: two\n   address: [192.0.2.2@54, 2001:db8::2]\n\
                remotes:\n - id: both\n   remote: [one, two]\n\
                acl:\n - id: theirs\n   remote: both\n   action: [transfer, notify]\n\
                zone:\n - domain: a\n   master: both\n   notify: [both]\n   acl: theirs\n";
    let config = read(Server::Knot, text);
    assert_eq!(notes(&config), [] as [&str; 0]);
    let zone = &config.secondaries[0];
    let all = strings(["192.0.2.1 key k", "192.0.2.2:54", "2001:db8::2"]);
    assert_eq!((&zone.primaries, &zone.notify), (&all, &all));
    assert_eq!(zone.allow_transfer, Some(strings(["k", "192.0.2.2", "2001:db8::2"])));
}

/// Zones that came by an encrypted connection would come in clear.
#[test]
fn what_a_remote_of_knot_has_beside_its_address_and_its_key_is_told() {
    let text = "remote:\n - id: r1\n   address: 192.0.2.3\n   quic: on\n   cert-key: abcd=\n - id: r2\n   address: 192.0.2.4\n   tls: on\n\
                \x20  via: 192.0.2.9\n - id: r3\n   address: 192.0.2.5\n   tls: off\n   block-notify-after-transfer: on\n\
                zone:\n - domain: a\n   master: [r1, r2, r3]\n";
    let config = read(Server::Knot, text);
    assert_eq!(config.secondaries[0].primaries, ["192.0.2.3", "192.0.2.4", "192.0.2.5"]);
    let notes = notes(&config);
    let expected = [
        "line 4: remote \"r1\": quic: WARNING: Knot talks to it by an encrypted connection",
        "line 5: remote \"r1\": cert-key: tls and tls-ca of [[secondary]]",
        "line 8: remote \"r2\": tls: WARNING: ",
        "line 9: remote \"r2\": via: source-addresses",
        "line 13: remote \"r3\": block-notify-after-transfer: no counterpart",
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    for (note, what) in notes.iter().zip(expected) {
        assert!(note.contains(what), "{what}: {note}");
    }
}

#[test]
fn a_key_has_one_of_our_algorithms_or_is_left_out_and_told() {
    let of = |server, text: &str| {
        let config = read(server, text);
        let algorithms: Vec<String> = config.keys.iter().map(|key| key.algorithm.clone()).collect();
        (algorithms, notes(&config).join("\n"))
    };
    let nsd = |algorithm: &str| of(Server::Nsd, &format!("key:\n  name: k\n{algorithm}  secret: c2U=\n"));
    let knot = |algorithm: &str| {
        of(Server::Knot, &format!("key:\n - id: k\n   algorithm: {algorithm}\n   secret: c2U=\n"))
    };
    let bind = |algorithm: &str| {
        let key = format!("key k {{ algorithm {algorithm}; secret \"c2U=\"; }};");
        of(Server::Bind, &format!("options {{ allow-transfer {{ none; }}; }};\n{key}\n"))
    };
    let good = |algorithm: &str| (vec![algorithm.to_owned()], String::new());
    assert_eq!(nsd(""), good("hmac-sha256"), "the default of NSD");
    assert_eq!(nsd("  algorithm: sha512\n"), good("hmac-sha512"), "an abbreviation");
    assert_eq!(nsd("  algorithm: hmac-sha1\n"), good("hmac-sha1"));
    assert_eq!((knot("hmac-sha384"), bind("HMAC-SHA256.")), (good("hmac-sha384"), good("hmac-sha256")));
    for (keys, notes) in [nsd("  algorithm: sha224\n"), knot("hmac-sha224"), bind("hmac-sha224")] {
        assert!(keys.is_empty() && notes.contains("key \"k\": hmac-sha224 is not known here"), "{notes}");
    }
    for (keys, notes) in [nsd("  algorithm: md5\n"), knot("hmac-md5"), bind("hmac-md5")] {
        assert!(keys.is_empty() && notes.contains("key \"k\": hmac-md5 is broken"), "{notes}");
    }
}

#[test]
fn options_that_have_a_counterpart_are_told_with_it() {
    let said = |server, text: &str, what: &str| {
        let config = read(server, text);
        assert!(notes(&config).iter().any(|note| note.contains(what)), "{what}: {:#?}", notes(&config));
    };
    said(Server::Knot, "server:\n  cert-file: a\n", "cert-file: certificate and key of [encrypted]");
    said(Server::Knot, "server:\n  listen-xdp: eth0\n", "listen-xdp: device");
    said(Server::Knot, "server:\n  user: knot\n", "user: user");
    said(Server::Nsd, "server:\n  username: nsd\n  refuse-any: yes\n", "username: user");
    said(Server::Nsd, "server:\n  refuse-any: yes\n", "refuse-any: answers to ANY");
    said(Server::Nsd, "tls-auth:\n  name: a\n", "tls-auth: tls and tls-ca");
    said(Server::Bind, "options { geoip-directory \"/g\"; };", "geoip-directory: [geo]");
}

#[test]
fn a_catalog_that_knot_makes_is_no_zone_with_a_file() {
    let config = read(Server::Knot, "zone:\n - domain: gen.test\n   catalog-role: generate\n");
    assert_eq!((config.zones.len(), config.secondaries.len()), (0, 0));
    assert!(notes(&config)[0].contains("zone \"gen.test\": catalog-role: [catalog]"), "{:?}", notes(&config));
}

#[test]
fn addresses_that_servers_leave_from_come_along_and_where_there_are_several_that_is_told() {
    let config = read(
        Server::Bind,
        "options { notify-source 192.0.2.1; transfer-source 192.0.2.1 port 53; transfer-source-v6 2001:db8::1; notify-source-v6 *; };\n\
         zone \"a.test\" { type secondary; primaries { 198.51.100.1; }; transfer-source 192.0.2.7; notify-source 192.0.2.8; };\n",
    );
    assert_eq!(config.source_addresses, strings(["192.0.2.1", "2001:db8::1"]));
    assert_eq!(config.secondaries[0].source_addresses, strings(["192.0.2.7"]));
    let told = notes(&config).join("\n");
    for part in ["transfer-source: port: it leaves", "notify-source: source-addresses, for all zones"] {
        assert!(told.contains(part), "{told}");
    }
    let text = config.to_toml();
    assert!(text.contains("\nsource-addresses = [\"192.0.2.1\", \"2001:db8::1\"]\n"), "{text}");
    assert!(text.contains("\nsource-addresses = [\"192.0.2.7\"]\n"), "{text}");
    let other = read(Server::Bind, "options { notify-source 192.0.2.1; transfer-source 192.0.2.2; };\n");
    let told = notes(&other).join("\n");
    assert!(told.contains("transfer-source 192.0.2.2: source-addresses has 192.0.2.1 already"), "{told}");

    let config = read(
        Server::Nsd,
        "zone:\n name: a.test\n request-xfr: 198.51.100.1 NOKEY\n outgoing-interface: 192.0.2.7@53\n outgoing-interface: 192.0.2.8\n\
         zone:\n name: b.test\n zonefile: b\n notify: 198.51.100.1 NOKEY\n outgoing-interface: 192.0.2.9\n",
    );
    assert_eq!(config.source_addresses, strings(["192.0.2.9"]));
    assert_eq!(config.secondaries[0].source_addresses, strings(["192.0.2.7"]));
    assert!(notes(&config).join("\n").contains("outgoing-interface 192.0.2.8: source-addresses of"));

    let config = read(
        Server::Knot,
        "remote:\n  - id: r\n    address: 198.51.100.1\n    via: [ 192.0.2.1@53, 2001:db8::1 ]\n",
    );
    assert_eq!(config.source_addresses, strings(["192.0.2.1", "2001:db8::1"]));
    assert!(notes(&config).join("\n").contains("via: source-addresses is for all servers here"));
}
