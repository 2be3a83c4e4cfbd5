//! `source-addresses`: where notices and questions to primaries leave from.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::time::Duration;

use lab::{Child, Directory, sidestep_binary};
use rustix::process::Signal;
use tests::{Serving, command, make_certificate};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sockets at one port of 127.0.0.1 that see who asks, and answer nothing.
struct Silent {
    by_udp: UdpSocket,
    by_tcp: TcpListener,
}

impl Silent {
    fn new() -> Silent {
        loop {
            let by_tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            let Ok(by_udp) = UdpSocket::bind(by_tcp.local_addr().unwrap()) else { continue };
            by_udp.set_read_timeout(Some(PATIENCE)).unwrap();
            return Silent { by_udp, by_tcp };
        }
    }

    fn address(&self) -> SocketAddr {
        self.by_udp.local_addr().unwrap()
    }

    fn port(&self) -> u16 {
        self.address().port()
    }

    /// Who sends the next datagram, and what kind of message it is.
    fn next_by_udp(&self) -> (IpAddr, u8) {
        let mut octets = [0; 512];
        let (_, from) = self.by_udp.recv_from(&mut octets).expect("somebody asks");
        (from.ip(), octets[2] >> 3)
    }

    fn next_by_tcp(&self) -> IpAddr {
        self.by_tcp.accept().unwrap().1.ip()
    }
}

const QUERY: u8 = 0;
const NOTIFY: u8 = 4;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn write_zone(directory: &Directory, serial: u32) {
    let text =
        format!("$ORIGIN one.test.\n@ 60 SOA ns host {serial} 1 1 7200 1\n 60 NS ns\nns 60 A 192.0.2.1\n");
    directory.write("one.test.zone", &text).unwrap();
}

/// Whoever has a version asks for the serial first, by UDP.
fn write_zones(directory: &Directory) {
    write_zone(directory, 1);
    directory
        .write("two.test.zone", "$ORIGIN two.test.\n@ 60 SOA ns host 1 1 1 7200 1\n 60 NS ns.one.test.\n")
        .unwrap();
}

/// A zone that tells `told`, and one that is to be had from `asked`.
fn config(options: &str, told: &Silent, asked: &Silent) -> String {
    format!(
        "{options}\n[[zone]]\nfile = \"one.test.zone\"\nnotify = [\"{}\"]\n[[secondary]]\nzone = \"two.test\"\nprimaries = [\"{}\"]\nfile = \"two.test.zone\"\n",
        told.address(),
        asked.address()
    )
}

fn change(process: &mut Child, directory: &Directory) {
    write_zone(directory, 2);
    process.signal(Signal::HUP);
    process.wait_for_line("reloaded: ", PATIENCE).unwrap();
}

#[test]
fn notices_and_questions_by_all_transports_leave_from_the_address_that_is_named() {
    let (told, asked, over_tls) = (Silent::new(), Silent::new(), Silent::new());
    let directory = Directory::new().unwrap();
    write_zones(&directory);
    make_certificate(&directory, "ns.test");
    let tls = format!(
        "[[secondary]]\nzone = \"three.test\"\nprimaries = [\"127.0.0.1:{}\"]\ntls = \"ns.test\"\ntls-ca = \"certificate.pem\"\n\
         source-addresses = [\"127.0.0.78\"]\n",
        over_tls.port()
    );
    let text = format!("{}{tls}", config("source-addresses = [\"127.0.0.77\", \"::1\"]", &told, &asked));
    let path = directory.write("dns.toml", &text).unwrap().display().to_string();
    let checked = command(&["dns", "check", "--config", &path]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let mut server = Serving::start_in(directory, &["--config", &path], &[]);
    assert_eq!(asked.next_by_udp(), (ip("127.0.0.77"), QUERY));
    assert_eq!(asked.next_by_tcp(), ip("127.0.0.77"), "as UDP is silent");
    assert_eq!(over_tls.next_by_tcp(), ip("127.0.0.78"));
    change(&mut server.process, &server.directory);
    assert_eq!(told.next_by_udp(), (ip("127.0.0.77"), NOTIFY));
}

#[test]
fn a_server_of_one_address_says_and_asks_all_from_there() {
    let (told, asked) = (Silent::new(), Silent::new());
    let directory = Directory::new().unwrap();
    write_zones(&directory);
    let text = config("listen = [\"127.0.0.5:0\"]\ncores = \"0\"\ncontrol = \"control.sock\"", &told, &asked);
    directory.write("dns.toml", &text).unwrap();
    let mut command = Command::new(sidestep_binary());
    command.args(["dns", "serve", "--config", "dns.toml"]).current_dir(directory.path());
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "root"]);
    }
    let mut process = Child::spawn("sidestep", &mut command).unwrap();
    process.wait_for_line("sidestep dns: ready", PATIENCE).unwrap();
    assert_eq!(asked.next_by_udp(), (ip("127.0.0.5"), QUERY));
    assert_eq!(asked.next_by_tcp(), ip("127.0.0.5"));
    change(&mut process, &directory);
    assert_eq!(told.next_by_udp(), (ip("127.0.0.5"), NOTIFY));
}

#[test]
fn an_address_that_the_host_lacks_is_told_and_the_server_serves() {
    let (told, asked) = (Silent::new(), Silent::new());
    let directory = Directory::new().unwrap();
    write_zones(&directory);
    let text = config("source-addresses = [\"203.0.113.77\"]", &told, &asked);
    let path = directory.write("dns.toml", &text).unwrap().display().to_string();
    let checked = command(&["dns", "check", "--config", &path]);
    let said = String::from_utf8(checked.stdout).unwrap();
    let why = "source-addresses: error: this host has no address 203.0.113.77: ";
    assert!(!checked.status.success() && said.contains(why), "{said}");
    let mut server = Serving::start_in(directory, &["--config", &path], &[]);
    let why = "source-addresses: this host has no address 203.0.113.77: ";
    server
        .process
        .wait_for_line(&format!("zone two.test. from {}: {why}", asked.address()), PATIENCE)
        .unwrap();
    // Whether the notice fails in front of the line that ends the reload or behind it is nobody's promise.
    write_zone(&server.directory, 2);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line(&format!("no NOTIFY is sent from 203.0.113.77: {why}"), PATIENCE).unwrap();
    let said = server.process.output();
    assert!(said.contains(&format!("ERROR sidestep dns: {why}")), "{said}");
}
