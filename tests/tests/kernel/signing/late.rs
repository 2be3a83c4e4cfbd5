//! Keys that change later than their times say, as the server was down.

use super::*;

/// The tag of the key that has signed the address of a name.
fn signer_of_www(zone: &SignedZone) -> String {
    let dig = Dig::ask(zone.server.v4, Transport::Tcp, &["www.one.test", "A", "+dnssec"]);
    let answer = dig.section("ANSWER");
    let signature = answer.iter().find(|line| line.contains(" RRSIG "));
    signature.and_then(|line| line.split(' ').nth(10)).unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

#[test]
fn a_zone_signing_key_that_comes_late_signs_when_caches_can_have_it() {
    let mut zone = SignedZone::start_with_two_keys("");
    let old = signer_of_www(&zone);
    assert_eq!(zone.at_apex("DNSKEY").len(), 2);

    zone.server.process.kill();
    let rolled = command(&["dns", "key", "roll", ORIGIN, "--zsk", "--config", &zone.config]);
    assert!(rolled.status.success(), "{}", String::from_utf8_lossy(&rolled.stderr));
    make_keys_older(zone.server.directory.path(), 30 * DAY);
    let zone = zone.restart();
    assert_eq!((signer_of_www(&zone), zone.at_apex("DNSKEY").len()), (old.clone(), 3));
    assert!(zone.server.process.output().contains("are put off"), "{}", zone.server.process.output());

    zone.let_pass(3 * HOUR);
    zone.wait_for("the new key signs", |_| signer_of_www(&zone) != old);
    assert_eq!(zone.at_apex("DNSKEY").len(), 3, "caches have signatures of the old one");
    zone.let_pass(8 * DAY);
    zone.wait_for("the old key is gone", |_| zone.at_apex("DNSKEY").len() == 2);
}
