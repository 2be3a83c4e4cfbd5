//! Configurations that BIND, NSD and Knot themselves find good, served by us.

use std::net::SocketAddr;
use std::process::Command;

use lab::Directory;
use tests::{Dig, Serving, Transport};

const SECRET: &str = "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I=";

fn write_zone(directory: &Directory, zone: &str) {
    let text = format!("$ORIGIN {zone}.\n@ 60 SOA ns host 7 1 1 1000 1\n 60 NS ns\nns 60 A 192.0.2.1\n");
    directory.write(&format!("{zone}.zone"), &text).unwrap();
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Serves what the import of a configuration says, at other addresses.
fn serve(directory: Directory, server: &str, file: &str) -> Serving {
    let path = directory.path().join(file).display().to_string();
    let output = tests::command(&["dns", "import", server, &path]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // The other server's user need not be ours.
    let mut notes = text.lines().filter(|line| line.starts_with("# Not carried over"));
    assert!(notes.all(|note| note.contains(": username: user ")), "{text}");
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    Serving::start_in(directory, &["--config", &config], &[])
}

/// It has the two zones; the key may transfer one of them, and nobody the other.
fn assert_served(server: SocketAddr) {
    let key = format!("hmac-sha256:transfer:{SECRET}");
    for zone in ["one.test", "two.test"] {
        assert_eq!(Dig::ask(server, Transport::Udp, &[zone, "SOA"]).status(), "NOERROR", "{zone}");
        let transferred = |words: &[&str]| {
            let dig = Dig::ask(server, Transport::Tcp, &[&[zone, "AXFR"], words].concat());
            dig.text.contains("192.0.2.1")
        };
        assert!(!transferred(&[]), "{zone}");
        assert_eq!(transferred(&["-y", &key]), zone == "one.test", "{zone}");
    }
}

fn directory() -> Directory {
    let directory = Directory::new().unwrap();
    ["one.test", "two.test"].iter().for_each(|zone| write_zone(&directory, zone));
    directory
}

#[test]
fn what_bind_serves() {
    let directory = directory();
    let path = directory.path().display().to_string();
    let text = format!(
        "options {{ directory \"{path}\"; allow-transfer {{ none; }}; listen-on-v6 {{ none; }}; notify no; }};\n\
         acl ours {{ key transfer; }};\ninclude \"{path}/more.conf\";\n\
         zone \"one.test\" {{ type primary; file \"one.test.zone\"; allow-transfer {{ ours; }}; notify no; }};\n\
         zone \"two.test\" {{ type primary; file \"two.test.zone\"; notify no; }};\n"
    );
    // BIND's `notify` of all zones is one of each zone here.
    let text = text.replace("listen-on-v6 { none; }; notify no; }", "listen-on-v6 { none; }; }");
    directory.write("named.conf", &text).unwrap();
    directory
        .write("more.conf", &format!("key \"transfer\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n"))
        .unwrap();
    run(Command::new("named-checkconf").arg("-z").arg(directory.path().join("named.conf")));
    assert_served(serve(directory, "bind", "named.conf").v4);
}

#[test]
fn what_nsd_serves() {
    let directory = directory();
    let path = directory.path().display().to_string();
    let text = format!(
        "server:\n  zonesdir: \"{path}\"\n  username: \"\"\ninclude: \"{path}/*.more\"\npattern:\n  name: \"ours\"\n  zonefile: \"%s.zone\"\n\
         zone:\n  name: \"one.test\"\n  include-pattern: \"ours\"\n  provide-xfr: 0.0.0.0/0 transfer\n\
         zone:\n  name: \"two.test\"\n  include-pattern: \"ours\"\n"
    );
    directory.write("nsd.conf", &text).unwrap();
    let key = format!("key:\n  name: \"transfer\"\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n");
    directory.write("keys.more", &key).unwrap();
    run(Command::new("/usr/sbin/nsd-checkconf").arg(directory.path().join("nsd.conf")));
    assert_served(serve(directory, "nsd", "nsd.conf").v4);
}

#[test]
fn what_knot_serves() {
    let directory = directory();
    let path = directory.path().display().to_string();
    let text = format!(
        "key:\n  - id: transfer\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\nacl:\n  - id: ours\n    key: transfer\n    action: transfer\n\n\
         template:\n  - id: default\n    storage: \"{path}\"\n    file: \"%s.zone\"\n\n\
         zone:\n  - domain: one.test\n    acl: ours\n  - domain: two.test\n"
    );
    directory.write("knot.conf", &text).unwrap();
    run(Command::new("/usr/sbin/knotc").arg("-c").arg(directory.path().join("knot.conf")).arg("conf-check"));
    assert_served(serve(directory, "knot", "knot.conf").v4);
}

#[test]
fn what_is_wrong_or_missing_is_said_with_its_place() {
    let directory = Directory::new().unwrap();
    let bad =
        directory.write("bad.conf", "options {\n directory \"/a\"\n};\n").unwrap().display().to_string();
    let views = directory.write("views.conf", "view \"a\" { };\n").unwrap().display().to_string();
    for (words, status, said) in [
        (["bind", &bad], 1, format!("{bad}, line 3: '}}' is not expected here")),
        (["bind", "/nowhere/named.conf"], 1, "/nowhere/named.conf: No such file".to_owned()),
        (["bind", &views], 0, format!("not carried over: {views}, line 1: view \"a\"")),
        (["powerdns", &bad], 2, "possible values: bind, nsd, knot".to_owned()),
    ] {
        let output = tests::command(&[&["dns", "import"][..], &words].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(status) && error.contains(&said), "{words:?}: {error}");
    }
}

#[test]
fn a_zone_that_knot_signs_gets_no_other_key_and_check_says_what_is_missing() {
    let directory = directory();
    let storage = directory.path().display().to_string();
    let text = format!("zone:\n  - domain: one.test\n    storage: \"{storage}\"\n    dnssec-signing: on\n");
    let path = directory.write("knot.conf", &text).unwrap().display().to_string();
    let imported = tests::command(&["dns", "import", "knot", &path]);
    assert!(
        String::from_utf8_lossy(&imported.stderr)
            .contains("its keys are in Knot's database: bring them first")
    );
    let text =
        format!("{}\n[[zone]]\nfile = \"two.test.zone\"\n", String::from_utf8(imported.stdout).unwrap());
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    let check = tests::command(&["dns", "check", "--config", &config]);
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(
        said.contains("zone one.test.: error: it cannot be signed: there is no key of one.test."),
        "{said}"
    );
    assert!(!check.status.success());
    let serving = Serving::start_in(directory, &["--config", &config], &[]);
    assert_eq!(Dig::ask(serving.v4, Transport::Udp, &["one.test", "SOA"]).status(), "SERVFAIL");
    let files = std::fs::read_dir(serving.directory.path()).unwrap();
    let keys =
        files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(".private"));
    assert_eq!(keys.count(), 0);
}

#[test]
fn a_zone_is_signed_beside_the_signed_file_of_bind_which_stays() {
    let directory = directory();
    let [zone, raw] = ["one.test.zone", "one.test.zone.signed"].map(|name| directory.path().join(name));
    let mut compile = Command::new("named-compilezone");
    run(compile.args(["-q", "-F", "raw", "-o"]).args([
        &raw.display().to_string(),
        "one.test",
        &zone.display().to_string(),
    ]));
    let before = std::fs::read(&raw).unwrap();
    let text = "[[zone]]\nfile = \"one.test.zone\"\ndnssec = true\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let signed = |serving: &Serving| {
        let dig = Dig::ask(serving.v4, Transport::Udp, &["one.test", "SOA", "+dnssec"]);
        assert!(dig.text.contains("RRSIG"), "{}", dig.text);
        dig.section("ANSWER")
    };
    let serving = Serving::start_in(directory, &["--config", &config], &[]);
    let first = signed(&serving);
    assert_eq!(std::fs::read(&raw).unwrap(), before);
    let Serving { directory, process, .. } = serving;
    drop(process);
    // After a restart it is the same version, also when the other server's file has gone.
    std::fs::remove_file(&raw).unwrap();
    let serving = Serving::start_in(directory, &["--config", &config], &[]);
    assert_eq!(signed(&serving), first);
}
