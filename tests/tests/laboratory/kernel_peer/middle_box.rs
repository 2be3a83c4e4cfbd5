//! A box between the stack and the kernel that loses, doubles, delays and reorders packets.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use lab::{BOX_INTERFACES, Child, Lab, Side};
use rustix::process::Signal;

use super::{PATIENCE, Peer, VERSIONS, assert_echo_returns, assert_sink_takes, assert_source_gives};

/// Our stack, with a box that is told by `faults` how bad to be.
struct Setting {
    middle_box: Child,
    peer: Peer,
}

impl Setting {
    fn start(faults: &[&str]) -> Option<Setting> {
        let mut started = None;
        let peer = Peer::start_in(|| {
            let lab = Lab::with_box(1)?;
            let arguments = [&BOX_INTERFACES[..], faults].concat();
            let mut middle_box = lab.spawn_in(Side::Box, env!("CARGO_BIN_EXE_middle_box"), &arguments)?;
            middle_box.wait_for_line("ready", PATIENCE)?;
            started = Some(middle_box);
            Ok(lab)
        })?;
        Some(Setting { middle_box: started.expect("it was started with the laboratory"), peer })
    }

    /// Runs streams of `len` octets each way and one of half the length there and back, in both roles, over both versions of IP
    /// and with all congestion controllers, all at the same time; returns how long it took: that is up to which packets are lost, and to timeouts that double.
    fn run_streams(&self, len: u64) -> Duration {
        let peer = &self.peer;
        let began = Instant::now();
        thread::scope(|scope| {
            let versions = VERSIONS.into_iter();
            for (version, congestion) in
                versions.flat_map(|version| ["reno", "cubic", "bbr"].map(|name| (version, name)))
            {
                for behaviour in ["source", "sink", "echo"] {
                    scope.spawn(move || {
                        run_stream(peer.ask(version.0, &words(congestion, behaviour, len)), behaviour, len);
                    });
                    scope.spawn(move || {
                        let words = words(congestion, behaviour, len);
                        run_stream(peer.begin_and_accept(version.1, &words), behaviour, len);
                    });
                }
            }
        });
        let took = began.elapsed();
        let endings = peer.endings(36);
        assert!(endings.keys().all(|ending| ending.starts_with("closed")), "{endings:?}");
        peer.assert_nothing_leaked();
        took
    }

    /// What the box says that it did of `fault`, to frames of both directions.
    fn count(&mut self, fault: &str) -> u64 {
        self.middle_box.signal(Signal::TERM);
        self.middle_box.wait(PATIENCE).unwrap();
        let output = self.middle_box.output();
        let values = output.split([' ', ',', '{', '}']).collect::<Vec<_>>();
        let named = values.windows(2).filter(|pair| pair[0] == format!("{fault}:"));
        named.filter_map(|pair| pair[1].parse::<u64>().ok()).sum()
    }
}

fn words(congestion: &str, behaviour: &str, len: u64) -> String {
    let len = if behaviour == "source" { len.to_string() } else { String::new() };
    format!("congestion={congestion} {behaviour} {len}")
}

fn run_stream(mut stream: TcpStream, behaviour: &str, len: u64) {
    match behaviour {
        "source" => assert_source_gives(&mut stream, len),
        "sink" => assert_sink_takes(&mut stream, len),
        _ => assert_echo_returns(&stream, len / 2),
    }
}

#[test]
fn streams_pass_a_box_that_does_no_harm() {
    let Some(mut setting) = Setting::start(&[]) else { return };
    let took = setting.run_streams(1 << 20);
    println!("no faults: {took:?}");
    assert_eq!(setting.count("lost"), 0);
}

#[test]
fn streams_survive_a_tenth_of_the_packets_lost() {
    let Some(mut setting) = Setting::start(&["--loss", "0.1", "--seed", "11"]) else { return };
    let took = setting.run_streams(128 << 10);
    println!("10 % loss: {took:?}");
    assert!(setting.count("lost") > 100);
}

#[test]
fn streams_survive_loss_reordering_and_duplication_behind_a_delay() {
    let faults = ["--loss", "0.02", "--duplication", "0.1", "--delay-us", "2000-4000", "--seed", "12"];
    let Some(mut setting) = Setting::start(&faults) else { return };
    let took = setting.run_streams(256 << 10);
    println!("2 % loss, 10 % duplication, 2 to 4 ms: {took:?}");
    assert!(setting.count("duplicated") > 100);
}

#[test]
fn streams_survive_a_tenth_reordered_and_a_tenth_doubled() {
    let faults = ["--duplication", "0.1", "--reordering", "0.1", "--seed", "13"];
    let Some(mut setting) = Setting::start(&faults) else { return };
    let took = setting.run_streams(1 << 20);
    println!("10 % reordering, 10 % duplication: {took:?}");
    assert!(setting.count("reordered") > 100);
}
