//! Signed versions that cannot be written: files may have no more than so many octets, as on a full disk.

use super::*;

/// A note of the last serial has place, nothing else that grows.
const FULL: &str = "20";

/// Files cannot be changed either.
const READ_ONLY: &str = "0";

/// A server whose writes fail instead of ending it.
fn start(directory: Directory) -> SignedZone {
    let by = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""].map(str::to_owned);
    SignedZone::start_by(by.to_vec(), directory)
}

fn first() -> SignedZone {
    let directory = SignedZone::directory("");
    let path = directory.path().join("dns.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("allow-transfer = [\"127.0.0.1\"]\n{config}")).unwrap();
    start(directory)
}

fn limit(zone: &SignedZone, octets: &str) {
    let pid = zone.server.process.pid().to_string();
    let status = std::process::Command::new("prlimit")
        .args(["--pid", &pid, &format!("--fsize={octets}:unlimited")])
        .status();
    assert!(status.unwrap().success());
}

/// The owner has another address for `www`.
fn edit(zone: &SignedZone, serial: u32, address: &str) {
    let text = format!("@ 60 SOA ns h {serial} 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nwww 60 A {address}\n");
    zone.server.directory.write("one.test.zone", &text).unwrap();
    zone.reload();
}

fn address(zone: &SignedZone) -> String {
    let dig = Dig::ask(zone.server.v4, Transport::Tcp, &["www.one.test", "A"]);
    dig.section("ANSWER")[0].rsplit_once(' ').unwrap().1.to_owned()
}

fn wait_until(zone: &SignedZone, what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: {}\n{}", zones(zone), zone.server.process.output());
        thread::sleep(Duration::from_millis(50));
    }
}

/// What a secondary has that fetches the zone if its serial is newer than the one it has.
fn refresh(zone: &SignedZone, held: Option<(u32, String)>) -> (u32, String) {
    let served = zone.serial();
    match held {
        Some(held) if served.wrapping_sub(held.0) as i32 <= 0 => held,
        held => {
            let question = held.map_or("AXFR".to_owned(), |(serial, _)| format!("IXFR={serial}"));
            let text = Dig::ask(zone.server.v4, Transport::Tcp, &[ORIGIN, &question]).text;
            let address = text.lines().rfind(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                matches!(words[..], ["www.one.test.", _, _, "A", _])
            });
            (served, address.unwrap_or_default().rsplit_once('\t').unwrap_or_default().1.to_owned())
        }
    }
}

#[test]
fn a_serial_that_was_served_from_a_full_disk_is_not_used_again_after_a_crash() {
    let zone = first();
    let mut secondary = refresh(&zone, None);
    limit(&zone, FULL);
    for (serial, new) in [(2, "192.0.2.81"), (3, "192.0.2.82")] {
        edit(&zone, serial, new);
        wait_until(&zone, "it is served", || address(&zone) == new);
        secondary = refresh(&zone, Some(secondary));
        assert_eq!(secondary.1, new);
    }
    wait_until(&zone, "it is told", || {
        zones(&zone).contains("not up to date: its signed version is served, but not kept")
    });
    assert_eq!(zone.server.counter("zones_with_problem"), 1);
    // What the owner takes back is not what the secondary has.
    let text = "@ 60 SOA ns h 3 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nwww 60 A 192.0.2.83\n";
    zone.server.directory.write("one.test.zone", text).unwrap();
    let zone = zone.restart();
    assert!(zone.serial() > secondary.0, "{} {}", zone.serial(), secondary.0);
    assert_eq!(refresh(&zone, Some(secondary)), (zone.serial(), "192.0.2.83".to_owned()));
    assert!(!zones(&zone).contains("not up to date"));
    let serial = zone.serial();
    assert_eq!(zone.restart().serial(), serial, "it is kept");
}

#[test]
fn a_restart_with_nothing_to_change_has_a_newer_version_than_one_that_was_lost() {
    let zone = first();
    let kept = zone.serial();
    limit(&zone, FULL);
    edit(&zone, 2, "192.0.2.81");
    wait_until(&zone, "it is served", || address(&zone) == "192.0.2.81");
    let secondary = refresh(&zone, None);
    assert!(secondary.0 > kept);
    let text = "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.1\nwww 60 A 192.0.2.80\n";
    zone.server.directory.write("one.test.zone", text).unwrap();
    let zone = zone.restart();
    assert_eq!(refresh(&zone, Some(secondary.clone())), (secondary.0 + 1, "192.0.2.80".to_owned()));
}

#[test]
fn what_could_not_be_kept_is_written_when_there_is_room_and_at_the_end() {
    let zone = first();
    limit(&zone, FULL);
    edit(&zone, 2, "192.0.2.81");
    wait_until(&zone, "it is told", || zones(&zone).contains("not kept"));
    limit(&zone, "unlimited");
    wait_until(&zone, "it is kept", || !zones(&zone).contains("not kept"));
    limit(&zone, FULL);
    edit(&zone, 3, "192.0.2.82");
    wait_until(&zone, "it is told", || zones(&zone).contains("not kept"));
    let serial = zone.serial();
    limit(&zone, "unlimited");
    let SignedZone { server: Serving { mut process, directory, .. }, .. } = zone;
    process.end();
    let zone = start(directory);
    assert_eq!((zone.serial(), address(&zone).as_str()), (serial, "192.0.2.82"));
}

#[test]
fn a_version_whose_serial_cannot_be_noted_is_not_served_until_it_can_be_kept() {
    let zone = first();
    let serial = zone.serial();
    limit(&zone, READ_ONLY);
    edit(&zone, 2, "192.0.2.81");
    wait_until(&zone, "it is told", || zones(&zone).contains("can be neither kept nor noted"));
    assert_eq!((zone.serial(), address(&zone).as_str()), (serial, "192.0.2.80"));
    limit(&zone, "unlimited");
    wait_until(&zone, "it is served", || address(&zone) == "192.0.2.81");
    assert_eq!(zone.serial(), serial + 1);
}
