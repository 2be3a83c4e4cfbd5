//! `--device dpdk:...` of `sidestep dns serve`, `gun` and `run`, over DPDK's virtual ports. Needs the binary to be built with `--features dpdk`.

use std::net::SocketAddr;
use std::process::Command;

use lab::{Child, Directory, Lab, SERVER_INTERFACE, Side, Zone};
use rustix::process::Signal;
use tests::{Dig, Transport};

use crate::{PATIENCE, turn};

/// The server's addresses on its TAP interface, and its peer's.
const SERVERS: [&str; 2] = ["10.77.0.1", "fd77::1"];
const PEERS: [&str; 2] = ["10.77.0.2", "fd77::2"];

/// A server on a port, with a control socket of its own.
struct DpdkServer {
    child: Child,
    directory: Directory,
}

impl DpdkServer {
    fn start(lab: &Lab, side: Side, port: &str) -> DpdkServer {
        let directory = Directory::new().unwrap();
        let zone = Zone::sample().file.display().to_string();
        let control = directory.path().join("control.sock").display().to_string();
        let device = format!("dpdk:{port}");
        let arguments = ["dns", "serve", "--device", &device, "--zone", &zone, "--control", &control];
        let binary = lab::sidestep_binary().display().to_string();
        let mut child = lab.spawn_in(side, &binary, &arguments).unwrap();
        child.wait_for_line("ready", PATIENCE).unwrap();
        DpdkServer { child, directory }
    }

    fn count(&self, ending: &str) -> u64 {
        let control = self.directory.path().join("control.sock").display().to_string();
        let output =
            Command::new(lab::sidestep_binary()).args(["dns", "stats", "--control", &control]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let values = text.lines().filter_map(|line| line.split_once(' '));
        values
            .filter(|(name, _)| name.ends_with(ending))
            .map(|(_, value)| value.parse::<u64>().unwrap())
            .sum()
    }
}

/// A laboratory with the turn to use it; `None` if this binary has no DPDK, or the test may not do this.
fn lab() -> Option<(Lab, std::sync::MutexGuard<'static, ()>)> {
    let turn = turn()?;
    if !has_dpdk() {
        lab::skip("needs a binary with --features dpdk");
        return None;
    }
    Some((Lab::new().unwrap(), turn))
}

fn has_dpdk() -> bool {
    let output = Command::new(lab::sidestep_binary())
        .args(["dns", "serve", "--device", "dpdk:net_none0", "--zone", "/dev/null"])
        .output()
        .unwrap();
    !String::from_utf8_lossy(&output.stderr).contains("has no DPDK")
}

/// Gives an interface addresses as a user does it, and has it up.
fn configure(lab: &Lab, side: Side, interface: &str, addresses: [&str; 2]) {
    let [v4, v6] = addresses;
    lab.ip(side, &format!("address add {v4}/24 dev {interface}")).unwrap();
    lab.ip(side, &format!("address add {v6}/64 dev {interface} nodad")).unwrap();
    lab.ip(side, &format!("link set {interface} up")).unwrap();
}

fn dig(lab: &Lab, server: &str, transport: Transport, question: &[&str]) -> Dig {
    let command = lab.command(Side::Client, "dig");
    Dig::ask_by(command, SocketAddr::new(server.parse().unwrap(), 53), transport, question)
}

/// What any user of an interface expects: the kernel answers pings, and the server questions, by UDP and TCP.
fn assert_serves(lab: &Lab) {
    for server in SERVERS {
        lab.run_in(Side::Client, "ping", &["-c1", "-w30", server]).unwrap();
        for transport in [Transport::Udp, Transport::Tcp] {
            let answer = dig(lab, server, transport, &["ftp.example.com", "A"]);
            assert_eq!(answer.section("ANSWER").len(), 3, "{server} {transport:?}: {}", answer.text);
        }
        let long = dig(lab, server, Transport::Tcp, &["big.example.com", "TXT"]);
        assert_eq!(long.section("ANSWER").len(), 8, "{}", long.text);
    }
}

/// net_tap is a NIC whose wire ends in an interface of the kernel. It fills in checksums and cuts segments, as NICs do.
#[test]
fn a_port_serves_its_addresses_and_leaves_all_else_to_the_kernel() {
    let Some((lab, _turn)) = lab() else { return };
    let mut server = DpdkServer::start(&lab, Side::Server, "net_tap0,iface=wire0");
    lab.ip(Side::Server, &format!("link set wire0 netns {}", lab.namespace(Side::Client))).unwrap();
    // The wire's other end has the port's address until it gets its own.
    lab.ip(Side::Client, "link set wire0 address 02:00:00:00:00:02").unwrap();
    configure(&lab, Side::Server, "dpdk0", SERVERS);
    configure(&lab, Side::Client, "wire0", PEERS);
    assert_serves(&lab);
    assert_eq!(server.count("engine_0_requests"), 2, "questions by UDP come by the port");
    assert_eq!(server.count("_TcpPassiveOpens"), 4, "and connections");
    assert!(server.count("steering_passed_not_ip") > 0, "ARP is the kernel's");
    assert!(server.count("steering_sent_by_kernel") > 0, "and its answers leave by the port");

    lab.ip(Side::Server, "address add 10.77.0.9/24 dev dpdk0").unwrap();
    let later = dig(&lab, "10.77.0.9", Transport::Udp, &["ftp.example.com", "A"]);
    assert_eq!(later.status(), "NOERROR", "an address that came later: {}", later.text);

    server.child.signal(Signal::TERM);
    assert!(server.child.wait(PATIENCE).unwrap().success(), "{}", server.child.output());
    assert!(lab.ip(Side::Server, "link show dpdk0").is_err(), "the TAP interface goes with the server");
}

/// memif is a wire of shared memory between two processes.
#[test]
fn two_servers_reach_each_other_over_memif() {
    let Some((lab, _turn)) = lab() else { return };
    let directory = Directory::new().unwrap();
    let socket = directory.path().join("memif.sock").display().to_string();
    let port = |role: &str| format!("net_memif0,role={role},socket-abstract=no,socket={socket}");
    let server = DpdkServer::start(&lab, Side::Server, &port("server"));
    let _client = DpdkServer::start(&lab, Side::Client, &port("client"));
    configure(&lab, Side::Server, "dpdk0", SERVERS);
    configure(&lab, Side::Client, "dpdk0", PEERS);
    assert_serves(&lab);
    assert_eq!(server.count("engine_0_requests"), 2);
}

/// The generator asks by one end of a memif, and the server answers by the other one.
#[test]
fn questions_of_the_load_generator_are_answered_over_memif() {
    let Some((lab, _turn)) = lab() else { return };
    let directory = Directory::new().unwrap();
    let socket = directory.path().join("memif.sock").display().to_string();
    let port = |role: &str| format!("net_memif0,role={role},socket-abstract=no,socket={socket}");
    let server = DpdkServer::start(&lab, Side::Server, &port("server"));
    configure(&lab, Side::Server, "dpdk0", SERVERS);
    let device = format!("dpdk:{}", port("client"));
    for (server, own) in SERVERS.iter().zip(["10.77.0.2/24", "fd77::2/64"]) {
        let mut gun = lab.command(Side::Client, &lab::sidestep_binary().display().to_string());
        gun.args(["gun", "dns", server, "--device", &device, "--address", own, "--name", "ftp.example.com"]);
        let output =
            gun.args(["--rate", "200", "--duration", "1s", "--timeout", "60s", "--json", "-"]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{server}: {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let load = &report["loads"][0];
        assert_eq!((&load["rcodes"]["0"], &load["lost"]), (&200.into(), &0.into()), "{server}: {report}");
        assert!(report["device"].as_str().unwrap().contains("DPDK net_memif0"), "{report}");
    }
    assert_eq!(server.count("engine_0_requests"), 400);

    let mut gun = lab.command(Side::Client, &lab::sidestep_binary().display().to_string());
    let output = gun.args(["gun", "dns", SERVERS[0], "--device", "lo", "--address", "10.77.0.2/24"]).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(said.contains("--address is for a port of DPDK"), "{said}");
}

#[test]
fn an_interface_that_the_user_has_made_is_taken_and_stays() {
    let Some((lab, _turn)) = lab() else { return };
    lab.ip(Side::Server, "tuntap add dev dpdk0 mode tap").unwrap();
    configure(&lab, Side::Server, "dpdk0", SERVERS);
    let mut server = DpdkServer::start(&lab, Side::Server, "net_tap0,iface=wire0");
    lab.ip(Side::Server, &format!("link set wire0 netns {}", lab.namespace(Side::Client))).unwrap();
    lab.ip(Side::Client, "link set wire0 address 02:00:00:00:00:02").unwrap();
    configure(&lab, Side::Client, "wire0", PEERS);
    assert_serves(&lab);
    server.child.end();
    assert!(lab.ip(Side::Server, "address show dpdk0").unwrap().contains(SERVERS[0]));
}

/// The octets of a page of a program's, or why there are none.
fn page(lab: &Lab, server: &str, path: &str) -> Result<Vec<u8>, String> {
    let mut curl = lab.command(Side::Client, "curl");
    let output = curl.args(["-sgm", "30", &format!("http://{server}:8080/{path}")]).output().unwrap();
    if output.status.success() { Ok(output.stdout) } else { Err(output.status.to_string()) }
}

#[test]
fn a_program_is_accelerated_behind_a_port_and_all_else_is_the_kernels() {
    let Some((lab, _turn)) = lab() else { return };
    let pages = Directory::new().unwrap();
    let large = "0123456789abcdef".repeat(100_000);
    pages.write("small", "hello\n").unwrap();
    pages.write("large", &large).unwrap();
    let directory = pages.path().display().to_string();
    let run = [
        "run",
        "--device",
        "dpdk:net_tap0,iface=wire0",
        "--address",
        "10.77.0.1/24",
        "--address",
        "fd77::1/64",
    ];
    let program = ["--", "python3", "-m", "http.server", "8080", "--bind", "::", "--directory", &directory];
    let binary = lab::sidestep_binary().display().to_string();
    let mut server = lab.spawn_in(Side::Server, &binary, &[&run[..], &program].concat()).unwrap();
    server.wait_for_line("Serving HTTP", PATIENCE).unwrap();
    lab.ip(Side::Server, &format!("link set wire0 netns {}", lab.namespace(Side::Client))).unwrap();
    lab.ip(Side::Client, "link set wire0 address 02:00:00:00:00:02").unwrap();
    configure(&lab, Side::Client, "wire0", PEERS);
    for server in SERVERS {
        let server = if server.contains(':') { format!("[{server}]") } else { server.to_owned() };
        assert_eq!(page(&lab, &server, "small").unwrap(), b"hello\n");
        assert!(page(&lab, &server, "large").unwrap() == large.as_bytes(), "{server}");
    }
    lab.run_in(Side::Client, "ping", &["-c1", "-w30", SERVERS[0]]).unwrap();

    let pid = server.pid().to_string();
    let status = lab.command(Side::Server, &binary).args(["status", "--pid", &pid]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("dpdk0: AF_XDP") && status.contains("redirected"), "{status}");

    server.signal(Signal::TERM);
    assert_eq!(server.wait(PATIENCE).unwrap().code(), Some(128 + 15), "the program's: {}", server.output());
    assert!(lab.ip(Side::Server, "link show dpdk0").is_err(), "the TAP interface goes with `sidestep run`");
}

#[test]
fn a_program_has_none_of_the_descriptors_of_a_port() {
    let Some((lab, _turn)) = lab() else { return };
    let directory = Directory::new().unwrap();
    let memif =
        format!("dpdk:net_memif0,role=server,socket-abstract=no,socket={}/s", directory.path().display());
    let listed = |device: &str| {
        let mut command = lab.command(Side::Server, &lab::sidestep_binary().display().to_string());
        let output = command.args(["run", "--device", device, "--", "ls", "/proc/self/fd"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(listed(&memif), listed(SERVER_INTERFACE));
}

#[test]
fn what_a_run_cannot_do_with_ports_it_says_and_starts_no_program() {
    let Some((lab, _turn)) = lab() else { return };
    let fails = |words: &[&str]| {
        let mut command = lab.command(Side::Server, &lab::sidestep_binary().display().to_string());
        let output = command.arg("run").args(words).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let port = "--device=dpdk:net_null0";
    let several = fails(&[port, "--device=dpdk:net_null1", "--", "echo"]);
    assert!(several.contains("one process can have one port of DPDK"), "{several}");
    let taken_over = fails(&[port, "--take-over"]);
    assert!(taken_over.contains("there is nothing to take over"), "{taken_over}");
    let none = fails(&["--device=lo", "--address=10.77.0.1/24", "--", "echo"]);
    assert!(none.contains("--address is for a port of DPDK: --device lo is none"), "{none}");
    let no_driver = fails(&["--device=dpdk:net_nonsense0", "--", "echo"]);
    assert!(no_driver.contains("DPDK's environment did not start"), "{no_driver}");
}

#[test]
fn a_port_that_cannot_be_opened_is_a_clear_error() {
    let Some((lab, _turn)) = lab() else { return };
    let zone = Zone::sample().file.display().to_string();
    let fails = |device: &str, further: &[&str]| {
        let mut command = lab.command(Side::Server, &lab::sidestep_binary().display().to_string());
        command.args(["dns", "serve", "--device", device, "--zone", &zone]).args(further);
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{device}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let no_name = fails("dpdk:--no-pci", &[]);
    assert!(no_name.contains("names no port"), "{no_name}");
    let no_driver = fails("dpdk:net_nonsense0", &[]);
    assert!(no_driver.contains("DPDK's environment did not start"), "{no_driver}");
    let no_nic = fails("dpdk:ffff:03:00.0", &[]);
    assert!(no_nic.contains("DPDK has no port ffff:03:00.0; there is none"), "{no_nic}");
    let argument = fails("dpdk:net_null0", &["--eal-args=--no-such-argument"]);
    assert!(argument.contains("--no-such-argument"), "{argument}");
    let long_name = fails("dpdk:net_null0", &["--tap", "a-name-of-more-than-15-octets"]);
    assert!(long_name.contains("1 to 15 octets"), "{long_name}");
}
