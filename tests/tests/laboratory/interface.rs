//! Addresses and links that change while the server runs: it follows the kernel.

use std::thread;
use std::time::{Duration, Instant};

use lab::{SERVER_V4, SERVER_V6, Side, Zone};

use crate::{FOLLOW_MAX, Setting, assert_is_mail};

#[test]
fn an_address_added_while_serving_is_served_and_one_removed_is_not() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    for (address, length) in [("10.53.0.9", 24), ("fd53::9", 64)] {
        let nodad = if length == 64 { " nodad" } else { "" };
        setting.lab.ip(Side::Server, &format!("address add {address}/{length} dev veth-s{nodad}")).unwrap();
        assert_is_mail(setting.ask_patiently(address));

        setting.lab.ip(Side::Server, &format!("address delete {address}/{length} dev veth-s")).unwrap();
        // The client goes on sending to the interface, so that it is the server's doing if nothing comes back.
        let link = setting.lab.ip(Side::Server, "link show veth-s").unwrap();
        let mac = link.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_owned();
        setting.lab.ip(Side::Client, &format!("neigh replace {address} lladdr {mac} dev veth-c")).unwrap();
        let deadline = Instant::now() + FOLLOW_MAX;
        // Twice: the first time the answer may only be late.
        while !(setting.is_silent(address) && setting.is_silent(address)) {
            assert!(Instant::now() < deadline, "{address} is still served");
        }
    }
    assert_is_mail(setting.ask(SERVER_V4));
    assert_is_mail(setting.ask(SERVER_V6));
}

#[test]
fn a_link_that_was_down_is_served_again() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    setting.lab.ip(Side::Server, "link set veth-s down").unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(setting.is_silent(SERVER_V4));
    setting.lab.ip(Side::Server, "link set veth-s up").unwrap();
    assert_is_mail(setting.ask_patiently(SERVER_V4));
    assert!(setting.has_xdp_program());
}

#[test]
fn an_interface_that_was_deleted_is_served_again_when_it_is_back() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    setting.lab.disconnect().unwrap();
    thread::sleep(Duration::from_millis(300));
    setting.lab.connect().unwrap();
    let deadline = Instant::now() + FOLLOW_MAX;
    while !setting.has_xdp_program() {
        assert!(Instant::now() < deadline, "{}", setting.server.process.output());
        thread::sleep(Duration::from_millis(50));
    }
    assert_is_mail(setting.ask_patiently(SERVER_V4));
    assert_is_mail(setting.ask_patiently(SERVER_V6));
}
