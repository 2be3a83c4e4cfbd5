//! Zones whose files have records that another signer has made.

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn a_file_that_was_signed_elsewhere_takes_updates_and_may_end_the_chain_of_trust() {
    let directory = SignedZone::directory("allow-update = [\"127.0.0.1\"]\n");
    let file = directory.path().join("one.test.zone");
    let text = std::fs::read_to_string(&file).unwrap();
    let signed = "www 60 RRSIG A 13 3 60 20261201000000 20261101000000 1234 one.test. AAAA\n\
                  @ 60 CDS 1234 13 2 2ADD1A0E0A7458D03AAA54C57A6E2FC148B479093DB7F4663337EE123C35A513\n";
    std::fs::write(&file, format!("{text}{signed}")).unwrap();
    let zone = SignedZone::start_by(Vec::new(), directory);
    let checked = String::from_utf8(command(&["dns", "check", "--config", &zone.config]).stdout).unwrap();
    assert!(checked.contains("ZONEMD records, 1, are left out"), "{checked}");
    assert!(!checked.contains("sign the zone anew"), "{checked}");
    assert!(zone.at_apex("CDS").is_empty(), "that is of a key of another signer");

    zone.let_pass(3 * HOUR);
    zone.wait_for("the CDS record of our key", |_| zone.at_apex("CDS").len() == 1);
    let at = zone.server.v4;
    let script = format!(
        "server {} {}\nzone {ORIGIN}\nupdate add new.{ORIGIN} 60 A 192.0.2.9\nupdate add {ORIGIN} 60 CDS 0 0 0 00\nsend\n",
        at.ip(),
        at.port()
    );
    let mut nsupdate = Command::new("nsupdate").args(["-u", "30"]).stdin(Stdio::piped()).spawn().unwrap();
    nsupdate.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(nsupdate.wait().unwrap().success(), "{}", zone.server.process.output());
    let answer = Dig::ask(at, Transport::Tcp, &["new.one.test", "A", "+short"]).text;
    assert_eq!(answer.trim(), "192.0.2.9");
    assert_eq!(
        (zone.at_apex("CDS"), zone.at_apex("CDNSKEY")),
        (vec!["0 0 0 00".to_owned()], vec!["0 3 0 AA==".to_owned()])
    );
}
