//! Wrong input: the message says what is wrong and where, and what can be served is served.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lab::{Directory, Zone, sidestep_binary};
use rustix::process::Signal;
use tests::{Dig, Serving, Transport, command};

/// Runs `sidestep dns serve`, which is to fail, and returns what it says.
fn complaint(arguments: &[&str]) -> String {
    let output: Output = command(&[&["dns", "serve"], arguments].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn bad_zone(directory: &Directory) -> String {
    let text = "$ORIGIN bad.example.\n@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.256\n";
    directory.write("bad.zone", text).unwrap().display().to_string()
}

#[test]
fn a_missing_zone_file_is_named() {
    let message = complaint(&["--zone", "/nowhere/missing.zone", "--listen", "127.0.0.1:0"]);
    assert!(message.contains("/nowhere/missing.zone") && message.contains("none of the zones"), "{message}");
}

#[test]
fn nothing_to_serve_is_an_error_that_says_what_to_do() {
    let message = complaint(&[]);
    assert!(message.contains("--zone FILE"), "{message}");
}

#[test]
fn a_mistake_in_a_zone_is_shown_with_its_file_and_line() {
    let directory = Directory::new().unwrap();
    let file = bad_zone(&directory);
    let message = complaint(&["--zone", &file, "--listen", "127.0.0.1:0"]);
    assert!(message.contains(&format!("{file}:4")) && message.contains("192.0.2.256"), "{message}");
}

#[test]
fn a_bad_zone_does_not_keep_the_others_from_being_served() {
    let directory = Directory::new().unwrap();
    let bad = bad_zone(&directory);
    let good = Zone::sample().file.display().to_string();
    let server = Serving::start_in(directory, &["--zone", &bad, "--zone", &good], &[]);
    let answer = Dig::ask(server.v4, Transport::Udp, &["mail.example.com", "A"]);
    assert_eq!(answer.status(), "NOERROR");
    let other = Dig::ask(server.v4, Transport::Udp, &["ns.bad.example", "A"]);
    assert_eq!(other.status(), "SERVFAIL");
    assert!(other.text.contains("EDE: 24"), "{}", other.text);
    let complaint = "zone bad.example. is answered with SERVFAIL until it can be loaded";
    assert!(server.process.output().contains(complaint), "{}", server.process.output());
}

/// The parent of a zone that cannot be read, and the file of that zone, which is not there yet.
fn parent_of_missing(directory: &Directory) -> (String, std::path::PathBuf) {
    let text = "$TTL 60\n@ SOA ns host 1 1 1 1 1\n NS ns\nns A 192.0.2.1\n* A 192.0.2.2\n";
    let parent = directory.write("example.zone", text).unwrap().display().to_string();
    (parent, directory.path().join("sub.example.zone"))
}

#[test]
fn the_parent_does_not_answer_for_a_zone_that_cannot_be_read_until_it_can() {
    let directory = Directory::new().unwrap();
    let (parent, child) = parent_of_missing(&directory);
    let sources = ["--zone", &parent, "--zone", &child.display().to_string()];
    let mut server = Serving::start_in(directory, &sources, &[]);
    let ask = |server: &Serving, transport| Dig::ask(server.v4, transport, &["www.sub.example", "A"]);
    for transport in [Transport::Udp, Transport::Tcp] {
        let answer = ask(&server, transport);
        assert!(answer.status() == "SERVFAIL" && answer.text.contains("EDE: 14"), "{}", answer.text);
    }
    std::fs::write(&child, "$TTL 60\n@ SOA ns host 1 1 1 1 1\nwww A 192.0.2.3\n").unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: 2 zones", Duration::from_secs(60)).unwrap();
    let answer = ask(&server, Transport::Udp);
    assert_eq!(answer.section("ANSWER"), ["www.sub.example. 60 IN A 192.0.2.3"]);
}

#[test]
fn the_parent_does_not_answer_for_a_zone_that_is_new_and_bad_at_a_reload() {
    let directory = Directory::new().unwrap();
    let (parent, child) = parent_of_missing(&directory);
    let zone = |file: &str| format!("[[zone]]\nfile = {file:?}\n");
    let config = directory.write("dns.toml", &zone(&parent)).unwrap().display().to_string();
    let mut server = Serving::start_in(directory, &["--config", &config], &[]);
    std::fs::write(&child, "$TTL 60\n@ SOA ns host 1 1 1 1 1\nwww A nonsense\n").unwrap();
    std::fs::write(&config, zone(&parent) + &zone(&child.display().to_string())).unwrap();
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("1 zone file with errors", Duration::from_secs(60)).unwrap();
    let answer = Dig::ask(server.v4, Transport::Udp, &["www.sub.example", "A"]);
    assert!(answer.status() == "SERVFAIL" && answer.text.contains("EDE: 24"), "{}", answer.text);
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let zone = Zone::sample().file.display().to_string();
    let message = complaint(&["--zone", &zone, "--listen", &address]);
    assert!(message.contains(&address) && message.to_lowercase().contains("in use"), "{message}");
}

#[test]
fn a_tcp_address_in_use_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let zone = Zone::sample().file.display().to_string();
    let message = complaint(&["--zone", &zone, "--listen", &address]);
    assert!(message.contains(&address) && message.to_lowercase().contains("in use"), "{message}");
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_names_it() {
    let zone = Zone::sample().file.display().to_string();
    let message = complaint(&["--zone", &zone, "--device", "nosuch0"]);
    assert!(message.contains("nosuch0"), "{message}");
}

#[test]
fn an_unknown_option_in_the_configuration_is_named_with_its_line() {
    let directory = Directory::new().unwrap();
    let file = directory.write("dns.toml", "device = \"kernel\"\nlistne = []\n").unwrap();
    let message = complaint(&["--config", &file.display().to_string()]);
    assert!(message.contains("line 2") && message.contains("listne"), "{message}");
}

#[test]
fn statistics_of_no_server_are_an_error_that_names_the_socket() {
    let output = command(&["dns", "stats", "--control", "/nowhere/control.sock"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.contains("/nowhere/control.sock"), "{message}");
}

#[test]
fn check_tells_good_zones_from_bad_ones() {
    let directory = Directory::new().unwrap();
    let good = Zone::sample().file;
    assert!(Path::new(&good).exists());
    let output = command(&["dns", "check", "--zone", &good.display().to_string()]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("example.com"));
    let output = command(&["dns", "check", "--zone", &bad_zone(&directory)]);
    assert_eq!(output.status.code(), Some(1));
}

/// What `dns check` prints about these sources, and its exit status.
fn checked(sources: &[&str]) -> (String, Option<i32>) {
    let output = command(&[&["dns", "check"], sources].concat());
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn check_reports_errors_with_file_and_line_and_warnings_with_zone_and_name() {
    let directory = Directory::new().unwrap();
    let bad = bad_zone(&directory);
    let (text, status) = checked(&["--zone", &bad]);
    assert!(text.starts_with(&format!("{bad}:4:9: error: ")) && status == Some(1), "{text}");
    let text = "$TTL 60\n@ SOA ns host 1 1 1 1 1\n NS ns\nns A 192.0.2.1\nsub NS ns.sub\n@ MX 1 alias\nalias CNAME ns\n";
    let odd = directory.write("odd.example.zone", text).unwrap().display().to_string();
    let (text, status) = checked(&["--zone", &odd]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(&format!("{odd}: zone odd.example. serial 1")), "{text}");
    assert!(lines[1].starts_with("odd.example.: warning: the MX record names alias.odd.example."), "{text}");
    let glue = "odd.example. sub.odd.example.: warning: the name server ns.sub.odd.example.";
    assert!(lines[2].starts_with(glue) && lines.len() == 3, "{text}");
    assert_eq!(status, Some(0), "warnings are no failure");
}

#[test]
fn what_is_wrong_with_one_zone_of_many_is_said_with_its_file() {
    let directory = Directory::new().unwrap();
    for (option, what) in [
        ("notify = [\"ns2.example.com\"]", "notify: \"ns2.example.com\" is not an address"),
        ("allow-update = [\"any\"]", "allow-update: \"any\" is neither an address"),
        ("parent = [\"org\"]\ndnssec = true", "parent: \"org\" is not an address"),
        ("nsec3 = true", "keys, new-keys, key-uri, algorithm, parent, csync, denial and nsec3 have no use"),
    ] {
        let text = format!("[[zone]]\nfile = \"good.zone\"\n[[zone]]\nfile = \"b.zone\"\n{option}\n");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        let said = complaint(&["--config", &config]);
        assert!(said.contains(&format!("zone \"b.zone\": {what}")), "{said}");
    }
}

/// A configuration like that of the package: its user is another one than who checks it.
#[test]
fn check_by_an_ordinary_user_says_that_the_server_is_another_one() {
    const NOBODY: u32 = 65_534;
    let directory = Directory::new().unwrap();
    // Copies, as the others may be in a directory that is for root only.
    let (binary, zone) = (directory.path().join("sidestep"), directory.path().join("example.com.zone"));
    std::fs::copy(sidestep_binary(), &binary).unwrap();
    std::fs::write(&zone, "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n").unwrap();
    let text = "user = \"daemon\"\n[[zone]]\nfile = \"example.com.zone\"\n";
    let config = directory.write("dns.toml", text).unwrap();
    let mut check = Command::new(binary);
    check.args(["dns", "check", "--config"]).arg(config);
    if rustix::process::geteuid().is_root() {
        check.uid(NOBODY).gid(NOBODY);
    }
    let output = check.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("user: warning: only root can check what daemon may read"), "{text}");
    assert!(text.contains(": zone example.com. serial "), "{text}");
}

#[test]
fn check_says_when_the_journal_of_updates_or_a_signed_version_cannot_be_written() {
    let directory = Directory::new().unwrap();
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n";
    directory.write("example.com.zone", zone).unwrap();
    let may = |mode| {
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // Root may write everywhere, so the server is somebody else then.
    let user = if rustix::process::geteuid().is_root() { "user = \"daemon\"\n" } else { "" };
    let check = |options: &str| {
        may(0o755);
        let text = format!("{user}[[zone]]\nfile = \"example.com.zone\"\n{options}");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        may(0o555);
        let (text, status) = checked(&["--config", &config]);
        may(0o755);
        (text, status)
    };
    for (options, what) in [
        ("allow-update = [\"127.0.0.1\"]", "the journal of its updates"),
        ("dnssec = true", "its signed version"),
    ] {
        let (text, status) = check(options);
        assert!(text.contains(&format!("example.com.zone: {what}: error: user ")), "{text}");
        assert!(text.contains(" has to write into the directory ") && status == Some(1), "{text}");
    }
    let (text, status) = check("");
    assert_eq!((text.contains("has to write"), status), (false, Some(0)), "{text}");
}

#[test]
fn check_reports_two_files_for_one_zone_and_a_cname_beside_other_data() {
    let directory = Directory::new().unwrap();
    let soa = "$ORIGIN example.\n@ 60 SOA ns host 1 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n";
    let first = directory.write("first.zone", soa).unwrap().display().to_string();
    let second = directory.write("second.zone", soa).unwrap().display().to_string();
    let (text, status) = checked(&["--zone", &first, "--zone", &second]);
    let expected = format!("{second}:1: error: the zone example. is in {first} too");
    assert!(text.contains(&expected) && status == Some(1), "{text}");
    let cname =
        directory.write("cname.zone", &format!("{soa}ns 60 CNAME x\n")).unwrap().display().to_string();
    let (text, status) = checked(&["--zone", &cname]);
    assert!(
        text.starts_with(&format!("{cname}:5:1: error: a CNAME and other data")) && status == Some(1),
        "{text}"
    );
}

#[test]
fn check_reports_a_serial_that_is_older_than_what_a_server_has() {
    let zone = |serial: u32| {
        format!("$ORIGIN example.\n@ 60 SOA ns host {serial} 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n")
    };
    let directory = Directory::new().unwrap();
    let file = directory.write("zone.zone", &zone(7)).unwrap();
    let server = Serving::start(&file, &[]);
    let arguments = [file.display().to_string(), server.v4.to_string()];
    let check = || checked(&["--zone", &arguments[0], "--server", &arguments[1]]).0;
    for same_or_newer in [7, 8] {
        std::fs::write(&file, zone(same_or_newer)).unwrap();
        assert_eq!(check().lines().count(), 1, "{}", check());
    }
    let only_here = format!("{}more 60 A 192.0.2.2\n", zone(7));
    std::fs::write(&file, only_here).unwrap();
    assert_eq!(check().lines().count(), 1, "it does not let us transfer the zone: {}", check());
    std::fs::write(&file, zone(6)).unwrap();
    let expected = "example.: warning: the serial goes back from 7 to 6";
    assert!(check().lines().nth(1).unwrap().starts_with(expected), "{}", check());
}

#[test]
fn check_reports_other_records_with_the_serial_that_a_server_has() {
    let zone = |host: u8| {
        format!("$ORIGIN example.\n@ 60 SOA ns host 7 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.{host}\n")
    };
    let directory = Directory::new().unwrap();
    directory.write("zone.zone", &zone(1)).unwrap();
    let text = "allow-transfer = [\"127.0.0.1\"]\n[[zone]]\nfile = \"zone.zone\"\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let server = Serving::start_in(directory, &["--config", &config], &[]);
    let check = || checked(&["--config", &config, "--server", &server.v4.to_string()]).0;
    assert_eq!(check().lines().count(), 1, "{}", check());
    server.directory.write("zone.zone", &zone(2)).unwrap();
    let expected = "example.: warning: it has other records, and the same serial 7";
    assert!(check().lines().nth(1).unwrap().starts_with(expected), "{}", check());
}

#[test]
fn a_file_that_a_secondary_zone_and_another_zone_have_is_refused() {
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n").unwrap();
    let secondary = |zone: &str, file: &str| {
        format!("[[secondary]]\nzone = \"{zone}\"\nprimaries = [\"192.0.2.1\"]\nfile = \"{file}\"\n")
    };
    let two = secondary("two.test", "same.zone");
    let zone = "[[zone]]\nfile = \"one.test.zone\"\n".to_owned();
    for (text, of, other) in [
        (two.clone() + &secondary("three.test", "./same.zone"), "three.test.", "secondary two.test."),
        (zone + &secondary("two.test", "./one.test.zone"), "two.test.", "[[zone]] one.test."),
    ] {
        let text = format!("listen = [\"127.0.0.1:0\"]\n{text}");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        let output = command(&["dns", "check", "--config", &config]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let of_check = [output.stdout, output.stderr].concat();
        for message in [String::from_utf8(of_check).unwrap(), complaint(&["--config", &config])] {
            let places = [format!("secondary {of}: file: "), format!("is the file of {other}, too")];
            assert!(places.iter().all(|place| message.contains(place)), "{message}");
        }
    }
}

#[test]
fn check_reports_what_secondary_zones_certificates_logs_and_secrets_lack() {
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n").unwrap();
    directory.write("bad.zone", "nonsense\n").unwrap();
    directory.write("secret", "c2VjcmV0").unwrap();
    directory.write("certificate.pem", "nonsense\n").unwrap();
    let text = "query-log = \"nowhere/queries.log\"\n[[key]]\nname = \"k\"\nsecret-file = \"secret\"\n\
        [[zone]]\nfile = \"one.test.zone\"\n\
        [[secondary]]\nzone = \"one.test\"\nprimaries = [\"192.0.2.1\"]\n\
        [[secondary]]\nzone = \"two.test\"\nprimaries = [\"192.0.2.1\"]\nfile = \"bad.zone\"\n\
        [[secondary]]\nzone = \"three.test\"\nprimaries = [\"192.0.2.1 key k\"]\nfile = \"missing/three.zone\"\n\
        [[secondary]]\nzone = \"four.test\"\nprimaries = [\"192.0.2.1\"]\ncatalog = true\nfile = \"four.zone\"\nmembers = \"members\"\n\
        [encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\ntls = [\"127.0.0.1:0\"]\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let (text, status) = checked(&["--config", &config]);
    for line in [
        "secret: everybody on this host may read this secret",
        "encrypted: error: ",
        "query-log: error: user ",
        "secondary one.test.: error: the zone in ",
        "secondary two.test.: warning: its file is of no use",
        "secondary three.test.: file: error: user ",
        "secondary three.test.: from 192.0.2.1:53 key k., and not there yet",
        "secondary four.test.: members: error: user ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(status, Some(1));
}

#[test]
fn check_says_why_a_certificate_cannot_be_used() {
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n").unwrap();
    let text = "[[zone]]\nfile = \"one.test.zone\"\n\
        [encrypted]\ncertificate = \"away.pem\"\nkey = \"key.pem\"\ntls = [\"127.0.0.1:0\"]\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let (text, status) = checked(&["--config", &config]);
    assert!(text.contains("away.pem: No such file or directory") && status == Some(1), "{text}");
}

#[test]
fn check_reports_what_cannot_be_opened_beside_each_other_and_what_nothing_can_come_of() {
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n").unwrap();
    let config_of = |text: &str| {
        let text = format!("{text}\n[[zone]]\nfile = \"one.test.zone\"\n");
        directory.write("dns.toml", &text).unwrap().display().to_string()
    };
    let encrypted = |addresses: &str| {
        format!(
            "listen = [\"127.0.0.1:5300\"]\n[encrypted]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n{addresses}"
        )
    };
    let secondary = |zone: &str| format!("[[secondary]]\nzone = \"{zone}\"\nprimaries = [\"192.0.2.1\"]\n");
    let long = format!("control = \"/run/{}\"\n", "c".repeat(110));
    for (text, said) in [
        (
            encrypted("tls = [\"127.0.0.1:5300\"]"),
            "encrypted.tls: error: 127.0.0.1:5300 is in listen already",
        ),
        (
            encrypted("tls = [\"127.0.0.1:853\"]\nhttps = [\"127.0.0.1:853\"]"),
            "encrypted.https: error: 127.0.0.1:853 is in encrypted.tls already",
        ),
        (
            encrypted("tls = [\"127.0.0.1\", \"127.0.0.1:853\"]"),
            "encrypted.tls: error: 127.0.0.1:853 is in encrypted.tls already",
        ),
        (
            encrypted("quic = [\"127.0.0.1:5300\"]"),
            "encrypted.quic: error: 127.0.0.1:5300 is in listen already",
        ),
        (
            encrypted("quic = [\"0.0.0.0:5300\"]"),
            "encrypted.quic: error: 0.0.0.0:5300 and 127.0.0.1:5300 of listen have addresses in common",
        ),
        (
            encrypted("tls = [\"0.0.0.0:853\"]\nhttps = [\"127.0.0.1:853\"]"),
            "encrypted.https: error: 127.0.0.1:853 and 0.0.0.0:853 of encrypted.tls have addresses in common",
        ),
        (
            "listen = [\"127.0.0.1:5300\", \"0.0.0.0:5300\", \"[::]:5300\"]".into(),
            "listen: error: 127.0.0.1:5300 and 0.0.0.0:5300 of listen have addresses in common",
        ),
        (encrypted(""), "encrypted: warning: nothing is served"),
        (
            "allow-transfer = [\"encrypted:192.0.2.1\"]".into(),
            "access list: warning: nobody can come by encrypted:",
        ),
        ("[catalog]\nzone = \"ONE.test\"".into(), "catalog: error: there is a zone one.test. already"),
        (
            secondary("two.test") + &secondary("TWO.test"),
            "error: there is another [[secondary]] of this name, and only the last is served",
        ),
        ("[[line]]\nname = \"empty\"".into(), "line empty: warning: no prefix belongs to it"),
        (long, "control: warning: "),
    ] {
        let (printed, status) = checked(&["--config", &config_of(&text)]);
        assert!(printed.to_lowercase().contains(&said.to_lowercase()), "{said}: {printed}");
        let is_error = said.contains("error:") || text.contains("[encrypted]"); // There is no certificate.
        assert_eq!(status, Some(i32::from(is_error)), "{printed}");
    }
    let good = encrypted("tls = [\"127.0.0.1:853\"]\nquic = [\"127.0.0.1:853\"]");
    let (printed, _) = checked(&["--config", &config_of(&good)]);
    assert!(!printed.contains("already"), "TCP and UDP have ports of their own: {printed}");
    let good =
        config_of("listen = [\"127.0.0.1:5300\", \"127.0.0.1:5300\", \"127.0.0.2:5300\", \"[::]:5300\"]");
    let (printed, status) = checked(&["--config", &good]);
    assert_eq!(status, Some(0), "{printed}");
}

#[test]
fn check_and_serve_refuse_a_query_log_in_a_file_of_something_else() {
    let directory = Directory::new().unwrap();
    let zone = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n";
    let file = directory.write("one.test.zone", zone).unwrap();
    for log in ["one.test.zone", "./dns.toml"] {
        let text = format!("query-log = \"{log}\"\n[[zone]]\nfile = \"one.test.zone\"\n");
        let config = directory.write("dns.toml", &text).unwrap().display().to_string();
        let said = complaint(&["--config", &config, "--listen", "127.0.0.1:0"]);
        assert!(said.contains("query-log: ") && said.contains("is the file of something else"), "{said}");
        assert_eq!(checked(&["--config", &config]).1, Some(1));
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), zone);
}
