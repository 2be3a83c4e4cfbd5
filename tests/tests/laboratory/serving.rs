//! The same answers over AF_XDP as everywhere.

use std::net::SocketAddr;

use lab::{Kxdpgun, SERVER_V4, SERVER_V6, Side, Workload, Zone, message};
use tests::{Dig, Transport};

use crate::{Setting, assert_is_mail};

fn dig(setting: &Setting, server: &str, transport: Transport, question: &[&str]) -> Dig {
    let command = setting.lab.command(Side::Client, "dig");
    Dig::ask_by(command, SocketAddr::new(server.parse().unwrap(), 53), transport, question)
}

#[test]
fn dig_gets_answers_by_udp_and_tcp_over_ipv4_and_ipv6() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    for server in [SERVER_V4, SERVER_V6] {
        for transport in [Transport::Udp, Transport::Tcp] {
            let answer = dig(&setting, server, transport, &["ftp.example.com", "A"]);
            assert_eq!(answer.status(), "NOERROR", "{server} {transport:?}: {}", answer.text);
            assert_eq!(answer.section("ANSWER").len(), 3, "{}", answer.text);
        }
    }
    let truncated = dig(&setting, SERVER_V4, Transport::Udp, &["big.example.com", "TXT"]);
    assert!(truncated.has_flag("tc"), "{}", truncated.text);
    let whole = dig(&setting, SERVER_V4, Transport::Tcp, &["big.example.com", "TXT"]);
    assert_eq!(whole.section("ANSWER").len(), 8);
}

#[test]
fn an_unspecified_address_is_every_one_of_its_family_and_none_of_the_other() {
    let Some(setting) = Setting::with(&Zone::sample(), &["--listen", "0.0.0.0"]) else { return };
    assert_is_mail(setting.ask(SERVER_V4));
    let by_tcp = dig(&setting, SERVER_V4, Transport::Tcp, &["mail.example.com", "A"]);
    assert_eq!(by_tcp.status(), "NOERROR", "{}", by_tcp.text);
    assert!(setting.is_silent(SERVER_V6), "by IPv6 as well");
}

#[test]
fn every_query_of_a_modest_load_is_answered() {
    let directory = lab::Directory::new().unwrap();
    let questions = Workload::Address.prepare(&directory).unwrap();
    let Some(setting) = Setting::new(&questions.zone) else { return };
    for target in [SERVER_V4, SERVER_V6] {
        let run = |rate| Kxdpgun { target: target.to_owned(), ..Kxdpgun::asking(&questions, rate) };
        let mut reports = Vec::new();
        // On a machine that does other work the generator itself may lose what it is not there to receive.
        let is_answered = [5_000, 1_000, 200].into_iter().any(|rate| {
            let report = run(rate).run(&setting.lab).unwrap();
            let whole = (report.queries, report.queries);
            let is_whole = report.queries > 0 && (report.replies, report.rcode("NOERROR")) == whole;
            reports.push(report.text);
            is_whole
        });
        assert!(is_answered, "{}", reports.join("\n"));
    }
}

#[test]
fn a_query_in_fragments_is_answered_from_the_shadow() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    for server in [SERVER_V4, SERVER_V6] {
        // Beyond the wire's MTU of 1500, so that the client's kernel sends two fragments.
        let query = message::with_edns(message::query(1, "mail.example.com", message::A), 1232, 1700);
        assert_is_mail(setting.ask_with(server, &query));
    }
}

#[test]
fn tcp_is_answered_by_the_stack_and_on_the_same_host_from_the_shadow() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    let ask = |side: Side| {
        let command = setting.lab.command(side, "dig");
        let server = SocketAddr::new(SERVER_V4.parse().unwrap(), 53);
        let answer = Dig::ask_by(command, server, Transport::Tcp, &["big.example.com", "TXT"]);
        assert_eq!(answer.section("ANSWER").len(), 8, "{}", answer.text);
    };
    ask(Side::Client);
    assert_eq!(setting.count("_TcpPassiveOpens"), 1);
    ask(Side::Server); // By loopback, where there is no steering program.
    assert_eq!(setting.count("_TcpPassiveOpens"), 1);
    assert_eq!(setting.count("connections_accepted"), 2);
}
