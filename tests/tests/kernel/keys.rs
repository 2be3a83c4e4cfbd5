//! `sidestep dns keys` beside a running server.

use std::process::Command;
use std::time::{Duration, Instant};

use lab::Directory;
use rustix::process::Signal;
use tests::{Serving, command};

const PATIENCE: Duration = Duration::from_secs(60);

/// The tag and the state of each key.
fn states(config: &str) -> Vec<(String, String)> {
    let text = String::from_utf8(command(&["dns", "keys", "--config", config]).stdout).unwrap();
    let words = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.map(|words| (words[1].to_owned(), words[4].to_owned())).collect()
}

/// The tags that the parent is to know, and what else is said.
fn tags_for_parent(config: &str) -> (Vec<String>, String) {
    let output = command(&["dns", "keys", "--config", config, "--ds"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let tags = text.lines().map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect();
    (tags, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_key_that_the_server_has_not_seen_is_shown_so_and_not_for_the_parent() {
    let directory = Directory::new().unwrap();
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n").unwrap();
    let text = "[[zone]]\nfile = \"one.test.zone\"\ndnssec = true\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let server = Serving::start_in(directory, &["--config", &config], &[]);
    let first = states(&config);
    assert_eq!((first.len(), &*first[0].1), (1, "signing"), "{first:?}");
    let rolled = command(&["dns", "key", "roll", "one.test", "--config", &config]);
    let said = String::from_utf8(rolled.stdout).unwrap();
    assert!(said.contains("The server looks for it within an hour, or at SIGHUP"), "{said}");
    let both = states(&config);
    let new = both.iter().find(|(tag, _)| *tag != first[0].0).unwrap();
    assert_eq!(new.1, "unseen", "{both:?}");
    let (tags, said) = tags_for_parent(&config);
    assert_eq!(tags, [first[0].0.clone()], "{said}");
    server.process.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while states(&config).iter().any(|(_, state)| state == "unseen") {
        assert!(Instant::now() < deadline, "{}", server.process.output());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_key_that_cannot_be_used_takes_no_other_zone_and_says_why() {
    let directory = Directory::new().unwrap();
    let zones = ["one.test", "two.test"];
    for (zone, algorithm) in zones.iter().zip([&["RSASHA256", "-b", "1024"][..], &["ED25519"]]) {
        directory
            .write(&format!("{zone}.zone"), "@ 60 SOA ns h 1 2 3 4 5\n@ 60 NS ns.example.net.\n")
            .unwrap();
        let mut keygen = Command::new("dnssec-keygen");
        keygen.args(["-q", "-f", "KSK", "-K"]).arg(directory.path()).arg("-a").args(algorithm).arg(zone);
        assert!(keygen.output().unwrap().status.success());
    }
    let text = zones.map(|zone| format!("[[zone]]\nfile = \"{zone}.zone\"\ndnssec = true\n")).concat();
    let config = directory.write("dns.toml", &text).unwrap().display().to_string();
    let why = "an RSA key of 1024 bits: the shortest that we sign with has 2048";
    for option in [&[][..], &["--ds"], &["--json"]] {
        let output = command(&[&["dns", "keys", "--config", &config], option].concat());
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(out.contains("two.test.") && !out.contains("one.test."), "{out}");
        assert!(error.contains("zone one.test.: reading the key") && error.contains(why), "{error}");
        assert_eq!(output.status.code(), Some(1));
    }
    let rolled = command(&["dns", "key", "roll", "two.test", "--config", &config]);
    assert!(rolled.status.success(), "{}", String::from_utf8_lossy(&rolled.stderr));
}
