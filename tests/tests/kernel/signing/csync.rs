//! `csync`: what the parent is to copy.

use std::fs;

use super::SignedZone;

#[test]
fn the_parent_is_told_to_copy_name_servers_until_the_zones_owner_says_something_else() {
    let zone = SignedZone::start("csync = true\n");
    let [csync] = &zone.at_apex("CSYNC")[..] else { panic!("there is one") };
    assert_eq!(csync, "2 3 A NS AAAA");
    let file = zone.server.directory.path().join("one.test.zone");
    let text = fs::read_to_string(&file).unwrap();
    let write = |more: &str| {
        // Whatever its time: the server compares more than that.
        fs::write(&file, format!("{text}{more}")).unwrap();
        zone.reload();
    };
    write("mail 60 A 192.0.2.25\n");
    zone.wait_for("another name is there", |_| zone.serial() == 3);
    assert_eq!(zone.at_apex("CSYNC"), ["2 3 A NS AAAA"]);
    write("mail 60 A 192.0.2.25\nns 60 A 192.0.2.2\n");
    zone.wait_for("the name server has another address", |_| zone.at_apex("CSYNC") == ["4 3 A NS AAAA"]);
    write("@ 60 CSYNC 1 0 NS\n");
    zone.wait_for("the owner's record counts", |_| zone.at_apex("CSYNC") == ["1 0 NS"]);
}
