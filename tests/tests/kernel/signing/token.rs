//! `key-uri`: a key in SoftHSM.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use lab::{Directory, skip};
use serde_json::Value;
use tests::{Dig, Transport, command};

use super::{DAY, ORIGIN, SignedZone, update, word, zones};

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "1234";

/// Where the tokens of one test are.
struct Tokens(Directory);

impl Tokens {
    /// An empty token; `None` if there is no SoftHSM.
    fn new() -> Option<Tokens> {
        if !Path::new(MODULE).exists() {
            skip("needs softhsm2");
            return None;
        }
        let directory = Directory::new().unwrap();
        fs::create_dir(directory.path().join("tokens")).unwrap();
        let text =
            format!("directories.tokendir = {}/tokens\nlog.level = ERROR\n", directory.path().display());
        directory.write("softhsm2.conf", &text).unwrap();
        let tokens = Tokens(directory);
        tokens.set_pin(PIN);
        let words = ["--init-token", "--free", "--label", "dns", "--so-pin", "4321", "--pin", PIN];
        tokens.run("softhsm2-util", &words);
        Some(tokens)
    }

    fn setting(&self) -> String {
        format!("SOFTHSM2_CONF={}", self.0.path().join("softhsm2.conf").display())
    }

    fn set_pin(&self, pin: &str) {
        self.0.write("pin", &format!("{pin}\n")).unwrap();
    }

    fn run(&self, program: &str, words: &[&str]) -> Output {
        let output = Command::new("env").arg(self.setting()).arg(program).args(words).output().unwrap();
        assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Makes a key outside, and brings it into the token.
    fn add_key(&self, curve: &str, label: &str, id: &str) {
        let file = self.0.path().join(format!("{id}.pem")).display().to_string();
        let words =
            ["genpkey", "-algorithm", "EC", "-pkeyopt", &format!("ec_paramgen_curve:{curve}"), "-out", &file];
        self.run("openssl", &words);
        let words = ["--import", &file, "--token", "dns", "--label", label, "--id", id, "--pin", PIN];
        self.run("softhsm2-util", &words);
    }

    fn uri(&self, key: &str) -> String {
        let pin = self.0.path().join("pin").display().to_string();
        format!("pkcs11:token=dns;{key}?module-path={MODULE}&pin-source=file:{pin}")
    }

    fn start(&self, uri: &str) -> SignedZone {
        let directory =
            SignedZone::directory(&format!("key-uri = \"{uri}\"\nallow-update = [\"127.0.0.1\"]\n"));
        SignedZone::start_by(vec!["env".to_owned(), self.setting()], directory)
    }
}

/// The chain of trust holds, by the DS record that the parent would have.
fn assert_is_valid(zone: &SignedZone) {
    zone.wait_for_keys("it is signed", |_| !zone.at_apex("DNSKEY").is_empty());
    let ds = zone.ds().remove(0);
    let digest: String = ds[4..].iter().map(|octet| format!("{octet:02X}")).collect();
    let tag = u16::from_be_bytes([ds[0], ds[1]]);
    let text = format!("trust-anchors {{ {ORIGIN} static-ds {tag} {} {} \"{digest}\"; }};\n", ds[2], ds[3]);
    let anchor = zone.server.directory.write("anchor", &text).unwrap().display().to_string();
    let port = zone.server.v4.port().to_string();
    let root = format!("+root={ORIGIN}");
    let words = ["@127.0.0.1", "-p", &port, "-a", &anchor, &root, "www.one.test", "A"];
    let output = Command::new("delv").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("; fully validated"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_key_in_a_token_signs_and_is_replaced_by_another_one() {
    let Some(tokens) = Tokens::new() else { return };
    tokens.add_key("P-256", "first", "01");
    let zone = tokens.start(&tokens.uri("object=first"));
    assert_is_valid(&zone);
    let secrets = zone.server.directory.path();
    let noted =
        fs::read_dir(secrets).unwrap().filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    assert!(noted.into_iter().all(|text| !text.contains("PrivateKey:")), "the secret stays in the token");
    assert_eq!(update(&zone, "host"), "");
    assert_is_valid(&zone);

    let roll = |zone: &SignedZone| {
        let words = ["dns", "key", "roll", ORIGIN, "--config", &zone.config];
        let binary = lab::sidestep_binary();
        Command::new("env").arg(tokens.setting()).arg(binary).args(words).output().unwrap()
    };
    let refused = String::from_utf8(roll(&zone).stderr).unwrap();
    assert!(refused.contains("is one of the zone's already"), "{refused}");
    tokens.add_key("P-256", "second", "02");
    let text = fs::read_to_string(&zone.config).unwrap();
    fs::write(&zone.config, text.replace("object=first", "object=second")).unwrap();
    let rolled = roll(&zone);
    assert!(rolled.status.success(), "{}", String::from_utf8_lossy(&rolled.stderr));
    zone.let_pass(30 * DAY);
    let both = |keys: &[Value]| keys.len() == 2 && keys.iter().all(|key| word(key, "state") == "signing");
    zone.wait_for("both sign", both);
    assert_is_valid(&zone);
}

#[test]
fn a_key_of_the_same_name_and_a_curve_that_is_another_one_do_not_sign() {
    let Some(tokens) = Tokens::new() else { return };
    tokens.add_key("P-256", "twins", "01");
    tokens.add_key("P-256", "twins", "02");
    tokens.add_key("secp256k1", "odd", "03");
    for (key, why) in [("object=twins", "2 keys of that name"), ("object=odd", "not of ECDSA on P-256")] {
        let zone = tokens.start(&tokens.uri(key));
        zone.wait_for(why, |_| zone.server.process.output().contains(why));
        assert_eq!(zone.at_apex("SOA"), [] as [&str; 0], "it is answered with SERVFAIL");
    }
    tokens.add_key("P-256", "first", "04");
    let zone = tokens.start(&tokens.uri("object=first"));
    assert_is_valid(&zone);
    // Its name alone is ambiguous from now on, and its DNSKEY record says which one it is.
    tokens.add_key("P-256", "first", "05");
    let zone = zone.restart();
    assert_eq!(update(&zone, "host"), "");
    assert_is_valid(&zone);
}

#[test]
fn a_wrong_pin_is_tried_once_and_other_zones_go_on() {
    let Some(tokens) = Tokens::new() else { return };
    tokens.add_key("P-256", "first", "01");
    tokens.set_pin("9999");
    let zone = tokens.start(&tokens.uri("object=first"));
    let refused = "the token refuses the PIN";
    zone.wait_for(refused, |_| zone.server.process.output().contains(refused));
    for _ in 0..3 {
        zone.reload();
    }
    tokens.set_pin(PIN);
    // The failure is remembered for some seconds.
    zone.wait_for("the PIN is right now", |_| {
        zone.reload();
        zone.at_apex("DNSKEY").len() == 1
    });
    assert_is_valid(&zone);
}

/// `zones_with_problem` of the metrics.
fn with_problem(zone: &SignedZone) -> String {
    let control = zone.server.directory.path().join("control.sock").display().to_string();
    let text = String::from_utf8(command(&["dns", "stats", "--control", &control]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains("zones_with_problem")).unwrap_or_default();
    line.split_whitespace().last().unwrap_or_default().to_owned()
}

#[test]
fn a_token_that_is_away_is_a_problem_of_the_zone_until_it_is_back() {
    let Some(tokens) = Tokens::new() else { return };
    tokens.add_key("P-256", "first", "01");
    let zone = tokens.start(&tokens.uri("object=first"));
    assert_is_valid(&zone);
    let (place, away) = (tokens.0.path().join("tokens"), tokens.0.path().join("away"));
    let take_away = || {
        fs::rename(&place, &away).unwrap();
        fs::create_dir(&place).unwrap();
    };
    let bring_back = || {
        fs::remove_dir(&place).unwrap();
        fs::rename(&away, &place).unwrap();
    };
    assert_eq!(with_problem(&zone), "0");
    take_away();
    assert!(update(&zone, "early").contains("SERVFAIL"));
    let why = "not up to date: its updates are not carried out: the zone cannot be signed now";
    assert!(zones(&zone).contains(why), "{}", zones(&zone));
    assert_eq!(with_problem(&zone), "1");
    zone.reload();
    zone.wait_for("it is tried again", |_| {
        zone.server.process.output().matches("there is no such token").count() > 1
    });
    assert!(zones(&zone).contains(why), "{}", zones(&zone));
    bring_back();
    let began = Instant::now();
    zone.reload();
    zone.wait_for("a reload looks at once", |_| !zones(&zone).contains("not up to date"));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!((update(&zone, "late"), with_problem(&zone)), (String::new(), "0".to_owned()));
    assert_is_valid(&zone);
    // A server that has never seen the token finds it, too, by the next update, once the failure is not remembered any more.
    take_away();
    let zone = zone.restart();
    assert!(update(&zone, "other").contains("SERVFAIL"));
    bring_back();
    zone.wait_for("the token is back", |_| update(&zone, "other").is_empty());
    assert!(!zones(&zone).contains("not up to date"), "{}", zones(&zone));
    assert_is_valid(&zone);
}

#[test]
fn a_right_pin_is_taken_at_once_by_a_reload() {
    let Some(tokens) = Tokens::new() else { return };
    tokens.add_key("P-256", "first", "01");
    tokens.set_pin("9999");
    let zone = tokens.start(&tokens.uri("object=first"));
    let refused = || zone.server.process.output().matches("the token refuses the PIN").count();
    zone.wait_for("the PIN is refused", |_| refused() > 0);
    tokens.set_pin(PIN);
    zone.reload();
    zone.wait_for("it is read again", |_| zone.server.process.output().contains("reloaded"));
    assert_eq!((zone.at_apex("DNSKEY").len(), refused()), (1, 1), "{}", zone.server.process.output());
}

#[test]
fn a_module_that_hangs_holds_up_no_other_zone() {
    let Some(tokens) = Tokens::new() else { return };
    let text = "#include <unistd.h>\n\
        unsigned long C_GetFunctionList(void *list) { for (;;) pause(); }\n\
        unsigned long C_GetInterface(void *name, void *version, void *list, unsigned long flags) { for (;;) pause(); }\n";
    let source = tokens.0.write("hang.c", text).unwrap().display().to_string();
    let module = tokens.0.path().join("hang.so").display().to_string();
    tokens.run("cc", &["-shared", "-fPIC", "-o", &module, &source]);
    let zone = tokens.start(&tokens.uri("object=first").replace(MODULE, &module));
    let hangs = "does not answer within";
    zone.wait_for(hangs, |_| zone.server.process.output().contains(hangs));
    zone.reload();
    let dig = Dig::ask(zone.server.v4, Transport::Tcp, &["other.test", "SOA"]);
    assert_eq!(dig.status(), "NOERROR", "{}", dig.text);
    zone.wait_for("a reload ends", |_| zone.server.process.output().contains("reloaded"));
}
