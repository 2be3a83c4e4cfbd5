//! Names are found past lame, dead and moved servers, and stale answers are served when they must be.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use lab::{SERVER_V4, Side, message, sidestep_binary};
use rustix::process::Signal;
use tests::Transport;

use super::internet::{Internet, OTHER_SOURCE};
use crate::PATIENCE;

#[test]
fn every_kind_of_name_is_resolved_over_udp_and_tcp() {
    let Some(internet) = Internet::start("") else { return };
    for transport in [Transport::Udp, Transport::Tcp] {
        let ask = |name: &str, rtype: &str| internet.dig(transport, &[name, rtype]);
        let address = ask("www.two.lab", "A");
        let [record] = &address.section("ANSWER")[..] else { panic!("{}", address.text) };
        assert!(record.starts_with("www.two.lab. ") && record.ends_with(" IN A 192.0.2.2"), "{record}");
        let alias = ask("alias.one.lab", "A");
        assert_eq!(alias.section("ANSWER").len(), 2, "{}", alias.text);
        let redirected = ask("www.old.one.lab", "A");
        assert_eq!(redirected.section("ANSWER").len(), 3, "{}", redirected.text);
        assert!(redirected.section("ANSWER")[2].ends_with("192.0.2.2"), "{}", redirected.text);
        assert_eq!(ask("a.b.c.one.lab", "TXT").section("ANSWER").len(), 1);
        let gone = ask("gone.two.lab", "A");
        assert_eq!((gone.status(), gone.section("AUTHORITY").len()), ("NXDOMAIN", 1), "{}", gone.text);
        assert_eq!(
            (ask("c.one.lab", "A").status(), ask("www.two.lab", "MX").status()),
            ("NOERROR", "NOERROR")
        );
        assert!(ask("www.two.lab", "A").has_flag("ra"));
        assert_eq!(ask("localhost", "A").section("ANSWER"), ["localhost. 10800 IN A 127.0.0.1"]);
    }
}

#[test]
fn a_resolver_at_an_interface_answers_what_it_has_at_once_and_the_rest_when_it_knows() {
    let Some(mut internet) = Internet::start_by_interface() else { return };
    for _ in 0..2 {
        let answer = internet.dig(Transport::Udp, &["www.two.lab", "A"]);
        assert!(answer.section("ANSWER")[0].ends_with(" IN A 192.0.2.2"), "{}", answer.text);
    }
    let truncated = internet.dig(Transport::Udp, &["big.one.lab", "TXT"]);
    assert!(truncated.has_flag("tc") && truncated.section("ANSWER").is_empty(), "{}", truncated.text);
    let whole = internet.dig(Transport::Tcp, &["big.one.lab", "TXT"]);
    assert_eq!(whole.section("ANSWER").len(), 20, "{}", whole.text);
    let count = |name: &str| {
        let stats = internet.tool("stats");
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
        line.unwrap_or_default()
    };
    assert_eq!((count("engine_requests"), count("engine_replies")), ("3".to_owned(), "3".to_owned()));

    // By a fragment the kernel's socket has it, and the same engine answers.
    let query = message::with_recursion(message::query(7, "www.two.lab", message::A));
    let query = message::with_edns(query, 1232, 1700);
    let server = SocketAddr::new(SERVER_V4.parse().unwrap(), 53);
    let answer = internet.lab.inside(Side::Client, || message::ask(server, &query, PATIENCE)).unwrap();
    assert!(answer.contains(&[192, 0, 2, 2]), "{answer:?}");

    internet.resolver().signal(Signal::TERM);
    assert!(internet.resolver().wait(PATIENCE).unwrap().success());
}

#[test]
fn queries_leave_from_the_address_that_is_named() {
    let Some(internet) = Internet::start(&format!("source-addresses = [\"{OTHER_SOURCE}\"]\n")) else {
        return;
    };
    assert_eq!(internet.answer("www.one.lab", "A").len(), 1);
    internet.silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_, source) = internet.silent.recv_from(&mut [0; 512]).expect("it is measured");
    assert_eq!(source.ip().to_string(), OTHER_SOURCE);
    let refused = internet.lab.run_in(
        Side::Client,
        &sidestep_binary().display().to_string(),
        &[
            "dns",
            "resolve",
            "--config",
            &internet
                .write("other.toml", "listen = [\"127.0.0.1:0\"]\nsource-addresses = [\"10.53.0.99\"]\n"),
        ],
    );
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("source-addresses: 10.53.0.99: Cannot assign requested address"), "{error}");
}

#[test]
fn a_query_shows_the_way_from_the_root_to_the_answer() {
    let Some(internet) = Internet::start("") else { return };
    let text = internet.query(&["www.two.lab", "+trace"]);
    for step in [
        ";; . 3600 IN NS a.root.",
        "from 10.53.0.11:53 over UDP",
        ";; lab. 3600 IN NS ns.lab.",
        "from 10.53.0.12:53 over UDP", // Which wants its cookie.
        "www.two.lab. 3600 IN A 192.0.2.2",
        "from 10.53.0.15:53 over UDP",
    ] {
        assert!(text.contains(step), "{step}: {text}");
    }
    assert!(internet.query(&["www.two.lab"]).contains("over UDP"));
    assert_eq!(internet.query(&["www.two.lab", "+trace", "+short"]), "192.0.2.2\n");
}

#[test]
fn what_fits_no_datagram_goes_over_tcp_on_both_sides() {
    let Some(internet) = Internet::start("") else { return };
    let truncated = internet.dig(Transport::Udp, &["big.one.lab", "TXT"]);
    assert!(truncated.has_flag("tc") && truncated.section("ANSWER").is_empty(), "{}", truncated.text);
    let whole = internet.dig(Transport::Tcp, &["big.one.lab", "TXT"]);
    assert_eq!(whole.section("ANSWER").len(), 20, "{}", whole.text);
    assert!(
        internet
            .tool("stats")
            .lines()
            .any(|line| line.starts_with("resolver_upstream_tcp ") && !line.ends_with(" 0"))
    );
}

#[test]
fn lame_dead_and_moved_servers_keep_nobody_from_the_answer() {
    let Some(internet) = Internet::start("") else { return };
    assert_eq!(internet.answer("www.lame.lab", "A"), ["www.lame.lab. 3600 IN A 192.0.2.3"]);
    let dead = internet.dig(Transport::Udp, &["www.dead.lab", "A"]);
    assert_eq!(dead.status(), "SERVFAIL", "{}", dead.text);
    assert!(dead.text.contains("EDE: 22"), "{}", dead.text);
    let again = internet.dig(Transport::Udp, &["www.dead.lab", "A"]);
    assert!(again.text.contains("EDE: 13"), "{}", again.text);

    // The first answer comes from the glue's address, and with it the news that the server has moved.
    assert_eq!(internet.answer("first.moved.lab", "A"), ["first.moved.lab. 3600 IN A 192.0.2.4"]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(internet.answer("www.moved.lab", "A"), ["www.moved.lab. 3600 IN A 192.0.2.5"]);
}

#[test]
fn the_table_of_servers_shows_who_is_silent() {
    let Some(internet) = Internet::start("") else { return };
    internet.answer("www.one.lab", "A");
    thread::sleep(Duration::from_secs(1));
    internet.answer("a.b.c.one.lab", "TXT");
    let good = internet.server_line("10.53.0.12").expect("the top-level domain's server");
    let words: Vec<&str> = good.split_whitespace().collect();
    assert!(words[1].parse::<f64>().unwrap() < 100.0 && words[4] == "0", "{good}");
    let silent = internet.server_line("10.53.0.19").expect("it was measured");
    let words: Vec<&str> = silent.split_whitespace().collect();
    assert!(words[4] != "0" && words[7] == "0", "{silent}");
    assert!(internet.tool("stats").lines().any(|line| line.starts_with("resolver_upstream_queries ")));
}

#[test]
fn an_outage_gives_stale_answers_and_its_end_fresh_ones() {
    let Some(mut internet) = Internet::start("[stale]\nclient-timer-ms = 400\n") else { return };
    assert_eq!(internet.answer("www.one.lab", "A"), ["www.one.lab. 1 IN A 192.0.2.1"]);
    internet.hosts.clear();
    thread::sleep(Duration::from_millis(1200));
    let stale = internet.dig(Transport::Udp, &["www.one.lab", "A"]);
    assert_eq!(stale.section("ANSWER"), ["www.one.lab. 30 IN A 192.0.2.1"], "{}", stale.text);
    assert!(stale.text.contains("EDE: 3"), "{}", stale.text);

    internet.revive_hosts();
    let back = Instant::now();
    loop {
        let answer = internet.dig(Transport::Udp, &["www.one.lab", "A"]);
        assert_eq!(answer.section("ANSWER").len(), 1, "{}", answer.text);
        if !answer.text.contains("EDE: 3") {
            break;
        }
        assert!(back.elapsed() < Duration::from_secs(5), "still stale: {}", answer.text);
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_reload_keeps_the_cache_and_a_stop_ends_well() {
    let Some(mut internet) = Internet::start("") else { return };
    assert_eq!(internet.answer("www.two.lab", "A").len(), 1);
    let queries = |internet: &Internet| {
        let stats = internet.tool("stats");
        let line = stats.lines().find_map(|line| line.strip_prefix("resolver_upstream_queries "));
        line.unwrap().parse::<u64>().unwrap()
    };
    thread::sleep(Duration::from_secs(1)); // What goes on in the background ends.
    let before = queries(&internet);
    internet.configure("[[forward]]\nzone = \"corp.lab.\"\nservers = [\"10.53.0.15\"]\n");
    internet.resolver().signal(Signal::HUP);
    internet.resolver().wait_for_line("reloaded: the cache stays", PATIENCE).unwrap();
    assert_eq!(internet.answer("www.two.lab", "A").len(), 1);
    assert_eq!(queries(&internet), before);
    internet.configure("minimisation = \"sometimes\"\n");
    internet.resolver().signal(Signal::HUP);
    internet.resolver().wait_for_line("not reloaded", PATIENCE).unwrap();
    internet.resolver().signal(Signal::TERM);
    assert!(internet.resolver().wait(PATIENCE).unwrap().success());
}

#[test]
fn strangers_are_refused() {
    let Some(internet) = Internet::start("allow = [\"192.0.2.0/24\"]\n") else { return };
    let refused = internet.dig(Transport::Udp, &["www.two.lab", "A"]);
    assert_eq!(refused.status(), "REFUSED", "{}", refused.text);
    assert!(refused.text.contains("EDE: 18"), "{}", refused.text);
}
