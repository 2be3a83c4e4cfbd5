//! The servers: their configurations, and how they start, stop and end.
//!
//! | server | zone of Sidestep | zone of Knot | zone of BIND |
//! | --- | --- | --- | --- |
//! | `sidestep` | primary | | |
//! | `nsd` | secondary, primary of `behind` | | |
//! | `knot` | secondary | primary | |
//! | `bind` | secondary | | primary |
//! | `second` (Sidestep) | secondary, over TLS | secondary | secondary |
//! | `behind` (Sidestep) | secondary of NSD | | |

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Child, quiet_ports, sidestep_binary};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::client::{Client, other};
use crate::link::Link;

/// Zones by their primaries: Sidestep, Knot, BIND.
pub(crate) const ORIGINS: [&str; 3] = ["sidestep.test.", "knot.test.", "bind.test."];
/// The name of the key that signs transfers, notices and updates.
const KEY: &str = "transfer.key";
const SECRET: &str = "c2l4dGVlbiBvY3RldHMgb2YgYSBzZWNyZXQh";
/// The name in the certificate.
const TLS_NAME: &str = "ns.test";
/// Time for a server to end by itself.
const END_MAX: Duration = Duration::from_secs(120);

/// Which program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Sidestep,
    Nsd,
    Knot,
    Bind,
}

/// A server, which may be away for a while.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) make: Make,
    pub(crate) address: SocketAddr,
    /// Numbers of the zones that it has.
    pub(crate) zones: &'static [usize],
    directory: PathBuf,
    child: Mutex<Option<Child>>,
    /// Odd while something is done to it.
    disturbance: AtomicU64,
    /// Milliseconds of the slowest look since the last report.
    pub(crate) slowest_ms: AtomicU64,
}

/// All servers, and the wires between them.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Server>,
    pub(crate) links: Vec<Link>,
}

/// Ports on 127.0.0.1.
struct Ports {
    sidestep: u16,
    tls: u16,
    nsd: u16,
    knot: u16,
    bind: u16,
    rndc: u16,
    second: u16,
    behind: u16,
    to_nsd: u16,
    to_knot: u16,
    to_bind: u16,
    to_second: u16,
    knot_to_second: u16,
    bind_to_second: u16,
    nsd_to_behind: u16,
}

impl Fleet {
    /// Starts all; files of the zones that have a primary are in `directory`, as `sidestep.test.zone` and so on.
    pub(crate) fn start(directory: &lab::Directory) -> io::Result<Fleet> {
        lab::make_certificate(directory, TLS_NAME);
        let [sidestep, tls, nsd, knot, bind, rndc, second, behind] = quiet_ports();
        let [to_nsd, to_knot, to_bind, to_second, knot_to_second, bind_to_second, nsd_to_behind] =
            quiet_ports();
        let ports = Ports {
            sidestep,
            tls,
            nsd,
            knot,
            bind,
            rndc,
            second,
            behind,
            to_nsd,
            to_knot,
            to_bind,
            to_second,
            knot_to_second,
            bind_to_second,
            nsd_to_behind,
        };
        let root = directory.path();
        let links = [
            ("sidestep to nsd", to_nsd, sidestep),
            ("sidestep to knot", to_knot, sidestep),
            ("sidestep to bind", to_bind, sidestep),
            ("sidestep to second", to_second, tls),
            ("knot to second", knot_to_second, knot),
            ("bind to second", bind_to_second, bind),
            ("nsd to behind", nsd_to_behind, nsd),
        ];
        let links = links.map(|(name, from, to)| Link::start(name.to_owned(), from, local(to)));
        let server = |name, make, port, zones, text: String| -> io::Result<Server> {
            let own = root.join(name);
            fs::create_dir_all(&own)?;
            fs::write(own.join("config"), text)?;
            fs::write(
                own.join("key"),
                format!("key \"{KEY}\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n"),
            )?;
            Ok(Server {
                name,
                make,
                zones,
                address: local(port),
                directory: own,
                child: Mutex::new(None),
                disturbance: AtomicU64::new(0),
                slowest_ms: AtomicU64::new(0),
            })
        };
        let servers = vec![
            server("sidestep", Make::Sidestep, sidestep, &[0], primary(root, &ports))?,
            server("nsd", Make::Nsd, nsd, &[0], nsd_config(&root.join("nsd"), &ports))?,
            server("knot", Make::Knot, knot, &[0, 1], knot_config(root, &ports))?,
            server("bind", Make::Bind, bind, &[0, 2], bind_config(root, &ports))?,
            server("second", Make::Sidestep, second, &[0, 1, 2], second_config(root, &ports))?,
            server("behind", Make::Sidestep, behind, &[0], behind_config(&ports))?,
        ];
        fs::write(root.join("bind/rndc.port"), rndc.to_string())?;
        let fleet = Fleet { servers, links: links.into_iter().collect::<io::Result<_>>()? };
        fleet.servers.iter().try_for_each(Server::start)?;
        Ok(fleet)
    }

    /// The server with that name.
    pub(crate) fn server(&self, name: &str) -> &Server {
        self.servers.iter().find(|server| server.name == name).expect("names of servers are written here")
    }

    /// The primary of a zone.
    pub(crate) fn primary(&self, zone: usize) -> &Server {
        self.server(["sidestep", "knot", "bind"][zone])
    }

    /// Each server with each of its zones.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&Server, usize)> {
        self.servers.iter().flat_map(|server| server.zones.iter().map(move |&zone| (server, zone)))
    }
}

impl Server {
    /// Whether it is one of ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.make == Make::Sidestep
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    pub(crate) fn start(&self) -> io::Result<()> {
        let own = self.directory.display();
        let words = match self.make {
            Make::Sidestep => {
                let core = if self.name == "sidestep" { "0" } else { "1" };
                let user = if rustix::process::geteuid().is_root() { " --user root" } else { "" };
                let binary = sidestep_binary().display();
                format!(
                    "{binary} dns serve --config {own}/config --control {own}/control --cores {core}{user}"
                )
            }
            Make::Nsd => format!("nsd -d -c {own}/config"),
            Make::Knot => format!("knotd -c {own}/config"),
            Make::Bind => format!("named -g -n 1 -c {own}/config"),
        };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {words} >>{} 2>&1", self.log().display())]);
        let child = Child::spawn(self.name, &mut command).map_err(|error| other(error.to_string()))?;
        *self.child() = Some(child);
        Ok(())
    }

    /// Ends it, by SIGTERM or SIGKILL.
    pub(crate) fn end(&self, signal: Signal) -> io::Result<()> {
        let pids = self.pids();
        let child = self.child().take();
        let Some(mut child) = child else { return Ok(()) };
        child.signal(signal);
        child.wait(END_MAX).map_err(|error| other(format!("{} does not end: {error}", self.name)))?;
        // NSD's others have its port for a while longer.
        let deadline = Instant::now() + END_MAX;
        while pids.iter().any(|&pid| test_kill_process(pid).is_ok()) {
            if Instant::now() >= deadline {
                return Err(other(format!("{} has left processes", self.name)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends a signal to all of its processes.
    pub(crate) fn signal(&self, signal: Signal) {
        for pid in self.pids() {
            let _ = kill_process(pid, signal); // NSD's come and go.
        }
    }

    /// Whether it runs, as it should.
    pub(crate) fn is_running(&self) -> bool {
        self.child().as_mut().is_some_and(|child| child.try_wait().is_none())
    }

    /// Its files of zones, which it has from others.
    pub(crate) fn forget(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains(".secondary") {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Has it transfer a whole zone.
    pub(crate) fn retransfer(&self, origin: &str) -> io::Result<()> {
        let (own, bare) = (self.directory.display(), origin.trim_end_matches('.'));
        let line = match self.make {
            Make::Sidestep => {
                let binary = sidestep_binary().display();
                format!("{binary} dns zone retransfer {bare} --control {own}/control")
            }
            Make::Nsd => format!("nsd-control -c {own}/config force_transfer {bare}"),
            Make::Knot => format!("knotc -s {own}/knot.sock zone-retransfer {origin}"),
            Make::Bind => {
                let port = fs::read_to_string(self.directory.join("rndc.port"))?;
                format!("rndc -s 127.0.0.1 -p {port} -k {own}/key retransfer {bare}")
            }
        };
        run(&line).map(drop)
    }

    /// The file with the key, for tools.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.directory.join("key")
    }

    /// Runs commands of Knot's in one session.
    pub(crate) fn knotc(&self, script: &Path) -> io::Result<Output> {
        run(&format!("knotc -s {}/knot.sock <{}", self.directory.display(), script.display()))
    }

    /// Something is done to it from here on.
    pub(crate) fn disturb(&self) {
        self.disturbance.fetch_add(1, Ordering::SeqCst);
    }

    /// It is as it was.
    pub(crate) fn calm(&self) {
        self.disturbance.fetch_add(1, Ordering::SeqCst);
    }

    /// A number that changes whenever something begins or ends that is done to it. Odd: meanwhile.
    pub(crate) fn disturbance(&self) -> u64 {
        self.disturbance.load(Ordering::SeqCst)
    }

    /// The serial that it has.
    pub(crate) fn serial(&self, zone: usize) -> io::Result<u32> {
        Client::connect(self.address)?.serial(ORIGINS[zone])
    }

    /// Waits until it has a version of the zone that satisfies.
    pub(crate) fn wait_for(
        &self,
        zone: usize,
        patience: Duration,
        is_enough: impl Fn(u32) -> bool,
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let serial = self.serial(zone);
            if serial.as_ref().is_ok_and(|&serial| is_enough(serial)) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(other(format!(
                    "{} of {}: {serial:?} after {patience:?}",
                    ORIGINS[zone], self.name
                )));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Memory in KiB that belongs to its processes, shared parts by their share.
    pub(crate) fn memory_kib(&self) -> u64 {
        let of = |pid: Pid| {
            let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero()));
            let line = text.ok()?.lines().find_map(|line| line.strip_prefix("Pss:").map(str::to_owned))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.pids().into_iter().filter_map(of).sum()
    }

    /// Processor time of its processes since it was started, those that have ended included.
    pub(crate) fn cpu_time(&self) -> Duration {
        const TICKS_PER_SECOND: u64 = 100; // USER_HZ, the same on every architecture that we run on.
        let of = |pid: Pid| {
            let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            // The name, in parentheses, may hold anything; what follows are fields 3 and so on of proc_pid_stat(5).
            let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
            // User, system, and both of children that have ended.
            fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>()
        };
        Duration::from_secs(self.pids().into_iter().map(of).sum::<u64>() / TICKS_PER_SECOND)
    }

    /// Its process and those below it.
    fn pids(&self) -> Vec<Pid> {
        let first = self.child().as_ref().and_then(|child| Pid::from_raw(child.pid() as i32));
        let mut pids: Vec<Pid> = first.into_iter().collect();
        let mut at = 0;
        while let Some(pid) = pids.get(at).copied() {
            let own = pid.as_raw_nonzero();
            let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)));
            at += 1;
        }
        pids
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a line of the shell; an error has what it printed.
pub(crate) fn run(line: &str) -> io::Result<Output> {
    let output = Command::new("sh").args(["-c", line]).output()?;
    if output.status.success() {
        return Ok(output);
    }
    let text = [&output.stdout[..], &output.stderr].concat();
    Err(other(format!("{line}: {}", String::from_utf8_lossy(&text).trim())))
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn sidestep_key() -> String {
    format!("[[key]]\nname = \"{KEY}\"\nsecret = \"{SECRET}\"\n")
}

fn primary(root: &Path, ports: &Ports) -> String {
    let (root, key) = (root.display(), sidestep_key());
    let Ports { sidestep, tls, nsd, knot, bind, second, .. } = ports;
    format!(
        "listen = [\"127.0.0.1:{sidestep}\"]\nallow-transfer = [\"127.0.0.0/8\"]\n{key}\
         [[zone]]\nfile = \"{root}/{zone}zone\"\nallow-update = [\"{KEY}\"]\n\
         notify = [\"127.0.0.1:{nsd} key {KEY}\", \"127.0.0.1:{knot} key {KEY}\", \"127.0.0.1:{bind}\", \"127.0.0.1:{second} key {KEY}\"]\n\
         [encrypted]\ncertificate = \"{root}/certificate.pem\"\nkey = \"{root}/key.pem\"\ntls = [\"127.0.0.1:{tls}\"]\n",
        zone = ORIGINS[0]
    )
}

fn second_config(root: &Path, ports: &Ports) -> String {
    let (root, key) = (root.display(), sidestep_key());
    let Ports { second, to_second, knot_to_second, bind_to_second, .. } = ports;
    let secondary = |zone: usize, port: u16, more: &str| {
        let origin = ORIGINS[zone];
        format!(
            "[[secondary]]\nzone = \"{origin}\"\nprimaries = [\"127.0.0.1:{port}\"]\nkey = \"{KEY}\"\nfile = \"{origin}secondary\"\n{more}"
        )
    };
    format!(
        "listen = [\"127.0.0.1:{second}\"]\nallow-transfer = [\"127.0.0.0/8\"]\n{key}{}{}{}",
        secondary(0, *to_second, &format!("tls = \"{TLS_NAME}\"\ntls-ca = \"{root}/certificate.pem\"\n")),
        secondary(1, *knot_to_second, ""),
        secondary(2, *bind_to_second, ""),
    )
}

fn behind_config(ports: &Ports) -> String {
    let (key, origin) = (sidestep_key(), ORIGINS[0]);
    let Ports { behind, nsd_to_behind, .. } = ports;
    format!(
        "listen = [\"127.0.0.1:{behind}\"]\nallow-transfer = [\"127.0.0.0/8\"]\n{key}\
         [[secondary]]\nzone = \"{origin}\"\nprimaries = [\"127.0.0.1:{nsd_to_behind}\"]\nkey = \"{KEY}\"\nfile = \"{origin}secondary\"\n"
    )
}

fn nsd_config(own: &Path, ports: &Ports) -> String {
    let (own, zone) = (own.display(), ORIGINS[0]);
    let Ports { nsd, to_nsd, behind, .. } = ports;
    format!(
        "server:\n  server-count: 1\n  ip-address: 127.0.0.1@{nsd}\n  username: \"\"\n  chroot: \"\"\n  database: \"\"\n\
         \x20 zonesdir: \"{own}\"\n  pidfile: \"{own}/nsd.pid\"\n  xfrdfile: \"{own}/xfrd.state\"\n  xfrdir: \"{own}\"\n\
         \x20 zonelistfile: \"{own}/zone.list\"\n  rrl-ratelimit: 0\n  verbosity: 1\n  zonefiles-write: 300\n\
         remote-control:\n  control-enable: yes\n  control-interface: \"{own}/nsd.sock\"\n\
         key:\n  name: {KEY}\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n\
         zone:\n  name: {zone}\n  zonefile: {zone}secondary\n  request-xfr: 127.0.0.1@{to_nsd} {KEY}\n\
         \x20 allow-notify: 127.0.0.1 {KEY}\n  provide-xfr: 127.0.0.1 NOKEY\n  provide-xfr: 127.0.0.1 {KEY}\n\
         \x20 notify: 127.0.0.1@{behind} {KEY}\n  store-ixfr: yes\n  ixfr-number: 100\n  ixfr-size: 4194304\n"
    )
}

fn knot_config(root: &Path, ports: &Ports) -> String {
    let (own, root) = (root.join("knot"), root.display());
    let (own, [zone, own_zone, _]) = (own.display(), ORIGINS);
    let Ports { knot, to_knot, second, .. } = ports;
    format!(
        "server:\n    rundir: \"{own}\"\n    listen: 127.0.0.1@{knot}\n    udp-workers: 1\n    tcp-workers: 1\n\
         \x20   background-workers: 1\n    tcp-max-clients: 100\ncontrol:\n    listen: \"{own}/knot.sock\"\n\
         log:\n  - target: stderr\n    any: notice\ndatabase:\n    storage: \"{own}\"\n\
         key:\n  - id: {KEY}\n    algorithm: hmac-sha256\n    secret: {SECRET}\n\
         remote:\n  - id: sidestep\n    address: 127.0.0.1@{to_knot}\n    key: {KEY}\n\
         \x20 - id: second\n    address: 127.0.0.1@{second}\n    key: {KEY}\n\
         acl:\n  - id: anybody\n    action: transfer\n\
         \x20 - id: signed\n    key: {KEY}\n    action: [ transfer, notify, update ]\n\
         template:\n  - id: default\n    storage: \"{own}\"\n    zonefile-sync: -1\n\
         zone:\n  - domain: {zone}\n    master: sidestep\n    acl: [ anybody, signed ]\n\
         \x20 - domain: {own_zone}\n    file: \"{root}/{own_zone}zone\"\n    notify: second\n    acl: [ anybody, signed ]\n"
    )
}

fn bind_config(root: &Path, ports: &Ports) -> String {
    let (own, root) = (root.join("bind"), root.display());
    let (own, [zone, _, own_zone]) = (own.display(), ORIGINS);
    let Ports { bind, to_bind, rndc, second, .. } = ports;
    format!(
        "include \"{own}/key\";\n\
         options {{ directory \"{own}\"; pid-file none; session-keyfile none; recursion no; dnssec-validation no;\n\
         listen-on port {bind} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; allow-transfer {{ any; }}; notify explicit; notify-delay 0;\n\
         min-refresh-time 5; min-retry-time 1; serial-query-rate 100; notify-rate 100; check-names primary ignore; }};\n\
         controls {{ inet 127.0.0.1 port {rndc} allow {{ 127.0.0.1; }} keys {{ \"{KEY}\"; }}; }};\n\
         zone \"{zone}\" {{ type secondary; file \"{zone}secondary\"; primaries {{ 127.0.0.1 port {to_bind} key \"{KEY}\"; }}; }};\n\
         zone \"{own_zone}\" {{ type primary; file \"{root}/{own_zone}zone\"; allow-update {{ key \"{KEY}\"; }};\n\
         also-notify {{ 127.0.0.1 port {second} key \"{KEY}\"; }}; }};\n"
    )
}
