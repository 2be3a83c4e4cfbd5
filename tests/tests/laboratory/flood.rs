//! A flood from forged addresses, and clients that are none of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_kernel::PacketSocket;
use lab::{CLIENT_INTERFACE, Directory, SERVER_INTERFACE, SERVER_V4, Side, Zone, message, sidestep_binary};
use serde_json::Value;
use wire::{Endpoints, Envelope, MacAddress, write_udp};

use crate::Setting;

/// Forged queries a second. A server on a machine that does other work carries them, too.
const FLOOD: u64 = 10_000;
/// Networks of 256 addresses that they say to come from.
const NETWORKS: u64 = 8;
/// What each address and each network may have a second: twice of what the honest client asks, a third of what the others do.
const LIMIT: u64 = 400;
/// Questions of the honest client.
const HONEST: u64 = 1000;

/// The answers to the honest client's questions.
fn honest(setting: &Setting, name: &str) -> Value {
    let mut command = setting.lab.command(Side::Client, sidestep_binary().to_str().unwrap());
    let words = ["gun", "dns", SERVER_V4, "--name", name, "--rate", "200", "--duration", "5s", "--json", "-"];
    let output = command.args(words).args(["--timeout", "10s", "--ports", "8"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["loads"][0].clone()
}

/// Sends queries for random names from forged addresses until it is told to stop; how many.
fn forge(setting: &Setting, stop: &AtomicBool) -> u64 {
    let mac = |side, interface| {
        let text = setting.lab.hardware_address(side, interface).unwrap();
        let octets: Vec<u8> = text.trim().split(':').map(|it| u8::from_str_radix(it, 16).unwrap()).collect();
        MacAddress(octets.try_into().unwrap())
    };
    let macs = (mac(Side::Client, CLIENT_INTERFACE), mac(Side::Server, SERVER_INTERFACE));
    let mut device = setting.lab.inside(Side::Client, || PacketSocket::open(CLIENT_INTERFACE, 256)).unwrap();
    let (began, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = began.elapsed().as_micros() as u64 * FLOOD / 1_000_000;
        let mut burst = Burst::new();
        while sent < due && !burst.is_full() {
            let Some(mut frame) = device.alloc() else { break };
            let len =
                write_udp(frame.bytes_and_tailroom_mut(), &from_nowhere(sent, macs), &query(sent)).unwrap();
            frame.set_len(len);
            burst.push(frame);
            sent += 1;
        }
        device.tx_burst(&mut burst, clock::Instant::ZERO);
        burst.drain(..).for_each(|frame| device.release(frame)); // The kernel had no room.
        drain(&mut device);
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// What the server answers comes here, too.
fn drain(device: &mut PacketSocket) {
    let mut burst = Burst::new();
    while device.rx_burst(&mut burst, clock::Instant::ZERO) > 0 {
        burst.drain(..).for_each(|frame| device.release(frame));
    }
}

fn from_nowhere(number: u64, (source_mac, destination_mac): (MacAddress, MacAddress)) -> Envelope {
    let host = (number / NETWORKS) as u8;
    let source = SocketAddr::from((Ipv4Addr::new(198, 18, (number % NETWORKS) as u8, host), 4000));
    let server = SocketAddr::from((SERVER_V4.parse::<Ipv4Addr>().unwrap(), 53));
    let endpoints = Endpoints::new(source, server).unwrap();
    Envelope { source_mac, destination_mac, ..Envelope::untagged(endpoints) }
}

fn query(number: u64) -> Vec<u8> {
    message::query(number as u16, &format!("x{:x}.example.com", number.wrapping_mul(0x9e37_79b9)), message::A)
}

#[test]
fn honest_clients_are_answered_while_forged_ones_are_held_back() {
    let directory = Directory::new().unwrap();
    let limits = format!("[rate]\nper-address = {LIMIT}\nper-prefix = {LIMIT}\n");
    let config = directory.write("dns.toml", &limits).unwrap().display().to_string();
    let Some(setting) = Setting::with(&Zone::sample(), &["--config", &config]) else { return };
    let (stop, forged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (known, unknown) = thread::scope(|scope| {
        scope.spawn(|| forged.store(forge(&setting, &stop), Ordering::Relaxed));
        let answers = (honest(&setting, "mail.example.com"), honest(&setting, "{random}.example.com"));
        stop.store(true, Ordering::Relaxed);
        answers
    });
    for (load, code) in [(known, "0"), (unknown, "3")] {
        assert_eq!(load["counts"]["sent"], HONEST, "{load}");
        let answered = load["rcodes"][code].as_u64().unwrap_or(0);
        assert!(answered * 100 >= HONEST * 99, "{answered} of {HONEST}: {load}");
    }
    let forged = forged.into_inner();
    assert!(forged > 5 * FLOOD, "{forged} queries were forged");
    let dropped = setting.count("dns_dropped_rate");
    assert!(dropped > forged / 4, "{dropped} of {forged} forged queries got no answer");
}
