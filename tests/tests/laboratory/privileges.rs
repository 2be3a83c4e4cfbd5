//! A server that root started runs as another user, and follows its interface and its zones all the same.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Child, Directory, Lab, SERVER_INTERFACE, SERVER_V4, Side, sidestep_binary};
use rustix::process::Signal;
use tests::{Dig, Transport, VERSION_NAME, VersionedZone};

use crate::{FOLLOW_MAX, PATIENCE, empty_lab, has_xdp_program, server_v4};

/// User and group `nobody`.
const NOBODY: u32 = 65_534;
/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON and CAP_BPF as a mask: capabilities(7).
const FOR_AN_INTERFACE: u64 = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;

/// `sidestep dns serve` of one zone in the server's namespace, as user `nobody`.
struct Unprivileged<'lab> {
    lab: &'lab Lab,
    process: Child,
    zone: VersionedZone,
    /// Where tools look for it.
    runtime: Directory,
}

impl<'lab> Unprivileged<'lab> {
    /// Starts it with these options.
    fn start(lab: &'lab Lab, arguments: &[&str]) -> Unprivileged<'lab> {
        let (zone, runtime) = (VersionedZone::new(1, 0), Directory::new().unwrap());
        let mut command = lab.command(Side::Server, &sidestep_binary().display().to_string());
        command.env("SIDESTEP_RUNTIME_DIR", runtime.path());
        command.args(["dns", "serve", "--user", "nobody", "--zone"]).arg(zone.file());
        let mut process = Child::spawn("sidestep", command.args(arguments)).unwrap();
        process.wait_for_line("sidestep dns: ready", PATIENCE).unwrap();
        Unprivileged { lab, process, zone, runtime }
    }

    fn control_socket(&self) -> PathBuf {
        self.runtime.path().join(NOBODY.to_string()).join(format!("{}.sock", self.process.pid()))
    }

    /// The address that says which version is served; none if nobody answers.
    fn version(&self, server: SocketAddr) -> Option<String> {
        let dig = self.lab.command(Side::Client, "dig");
        let answer = Dig::ask_by(dig, server, Transport::Udp, &["+time=1", VERSION_NAME, "A"]);
        Some(answer.section("ANSWER").first()?.rsplit(' ').next()?.to_owned())
    }

    fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + FOLLOW_MAX;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {}", self.process.output());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Packets that the steering program gave to the server, a second ago at most.
    fn redirected(&self) -> u64 {
        let mut command = std::process::Command::new(sidestep_binary());
        let pid = self.process.pid().to_string();
        command.env("SIDESTEP_RUNTIME_DIR", self.runtime.path()).args(["dns", "stats", "--pid", &pid]);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let count = output.lines().find_map(|line| line.strip_prefix("steering_redirected "));
        count.map_or(0, |count| count.parse().unwrap())
    }

    /// Checks of every thread that it is nobody's and has these capabilities. A thread may end while the others
    /// are read: it has no status any more.
    fn assert_privileges(&self, capabilities: u64) {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.pid())).unwrap();
        let statuses: Vec<String> =
            tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok()).collect();
        assert!(statuses.len() > 1, "{statuses:?}");
        let mask = format!("{capabilities:016x}");
        let none = format!("{:016x}", 0);
        let nobody = NOBODY.to_string();
        for status in statuses {
            let has = |name: &str, value: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
                assert!(line.split_whitespace().all(|word| word == value), "{name}: {line}, not {value}");
            };
            ["Uid", "Gid", "Groups"].into_iter().for_each(|name| has(name, &nobody));
            ["CapPrm", "CapEff", "CapBnd"].into_iter().for_each(|name| has(name, &mask));
            ["CapInh", "CapAmb"].into_iter().for_each(|name| has(name, &none));
            has("NoNewPrivs", "1");
        }
    }
}

#[test]
fn on_an_interface_it_keeps_what_that_needs_and_follows_its_changes() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let server = Unprivileged::start(&lab, &["--device", SERVER_INTERFACE]);
    let said = server.process.output();
    let kept = "runs as user nobody with CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_BPF only";
    assert!(said.contains(kept), "{said}");
    server.assert_privileges(FOR_AN_INTERFACE);
    assert_eq!(server.version(server_v4()).as_deref(), Some("192.0.2.1"));

    let later: SocketAddr = "10.53.0.9:53".parse().unwrap();
    lab.ip(Side::Server, &format!("address add {}/24 dev {SERVER_INTERFACE}", later.ip())).unwrap();
    server.wait_until("an address that comes later", || server.version(later).is_some());
    // The kernel's socket answers too: what shows the claim is that packets to this address alone are redirected.
    let before = server.redirected();
    server.wait_until("the claim", || server.version(later).is_some() && server.redirected() > before + 8);

    lab.disconnect().unwrap();
    lab.connect().unwrap();
    server.wait_until("the XDP program", || has_xdp_program(&lab));
    server.wait_until("the interface that is back", || server.version(server_v4()).is_some());
    assert!(!server.process.output().contains("not permitted"), "{}", server.process.output());
}

#[test]
fn on_kernel_sockets_it_keeps_nothing_and_reloads() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let mut server = Unprivileged::start(&lab, &["--listen", &format!("{SERVER_V4}:53")]);
    server.assert_privileges(0);
    assert_eq!(server.version(server_v4()).as_deref(), Some("192.0.2.1"));

    server.zone.set(2, 0);
    server.process.signal(Signal::HUP);
    server.process.wait_for_line("reloaded: 1 zone", PATIENCE).unwrap();
    assert_eq!(server.version(server_v4()).as_deref(), Some("192.0.2.2"));

    server.zone.set(3, 0);
    fs::set_permissions(server.zone.file(), PermissionsExt::from_mode(0o600)).unwrap();
    server.process.signal(Signal::HUP);
    let denied = format!("{}: user nobody is not allowed to read it", server.zone.file().display());
    server.process.wait_for_line(&denied, PATIENCE).unwrap();
    server.process.wait_for_line("keeps its last good version", PATIENCE).unwrap();
    assert_eq!(server.version(server_v4()).as_deref(), Some("192.0.2.2"));
}

#[test]
fn its_control_socket_is_found_and_goes_with_it() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let mut server = Unprivileged::start(&lab, &["--device", SERVER_INTERFACE]);
    let socket = server.control_socket();
    assert_eq!(fs::metadata(&socket).unwrap().uid(), NOBODY);
    server.version(server_v4());
    server.wait_until("root's look at it", || server.redirected() > 0);
    server.process.end();
    assert!(!socket.exists());
}

#[test]
fn a_zone_that_the_user_may_not_read_is_an_error_at_the_start() {
    if crate::turn().is_none() {
        return;
    }
    let zone = VersionedZone::new(1, 0);
    fs::set_permissions(zone.file(), PermissionsExt::from_mode(0o600)).unwrap();
    let file = zone.file().display().to_string();
    let serve = |user: &str| {
        let output =
            tests::command(&["dns", "serve", "--user", user, "--zone", &file, "--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let denied = serve("nobody");
    assert!(denied.contains(&format!("{file}: user nobody is not allowed to read it")), "{denied}");
    let unknown = serve("no-such-user");
    assert!(unknown.contains("user: there is no user no-such-user"), "{unknown}");
}
