//! What stays behind when the server ends: nothing.

use lab::{Device, Peer, SERVER_V4, Sidestep, Zone};
use rustix::process::Signal;

use crate::{PATIENCE, Setting, assert_is_mail};

#[test]
fn the_program_is_detached_when_the_server_ends_and_when_it_is_killed() {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(mut setting) = Setting::new(&Zone::sample()) else { return };
        assert!(setting.has_xdp_program());
        setting.server.process.signal(signal);
        let status = setting.server.process.wait(PATIENCE).unwrap();
        assert_eq!(status.code(), (signal == Signal::TERM).then_some(0));
        setting.assert_program_goes();
    }
}

#[test]
fn a_server_started_after_one_that_was_killed_serves() {
    let Some(mut setting) = Setting::new(&Zone::sample()) else { return };
    setting.server.process.kill();
    assert!(setting.is_silent(SERVER_V4));
    setting.server = Peer::Sidestep(Sidestep::on(Device::Xdp)).start(&setting.lab, &Zone::sample()).unwrap();
    assert_is_mail(setting.ask(SERVER_V4));
}

#[test]
fn packets_come_by_the_interface_and_not_by_the_shadow() {
    let Some(setting) = Setting::new(&Zone::sample()) else { return };
    let before = setting.count("_rx_frames");
    for _ in 0..10 {
        assert_is_mail(setting.ask(SERVER_V4));
    }
    assert!(
        setting.count("_rx_frames") >= before + 10,
        "{:?}",
        tests::stats(setting.server.directory.path())
    );
}
