//! `sidestep dns keys` beside a running server.

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
