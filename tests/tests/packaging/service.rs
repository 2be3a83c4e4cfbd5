//! The units under a real systemd, in namespaces of its own (`boot.sh`).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use lab::Child;

use crate::{PATIENCE, is_root, package, text};

/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON and CAP_BPF as a mask: capabilities(7).
const FOR_AN_INTERFACE: u64 = 1 << 10 | 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;
/// The server's log has these priorities for what it says and for what fails: syslog(3).
const INFO: &str = "6";
const ERROR: &str = "3";

/// A system that is running, with the package installed.
struct System {
    init: String,
    _child: Child,
}

impl System {
    fn boot() -> System {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packaging/boot.sh");
        let mut child = Child::spawn("systemd", Command::new(script).arg(package())).unwrap();
        let line = child.wait_for_line("systemd ", PATIENCE).unwrap();
        let init = line.rsplit(' ').next().unwrap().to_owned();
        // Until then this process is the script, in this host's root directory.
        wait_for("systemd", || {
            fs::read_link(format!("/proc/{init}/exe")).is_ok_and(|exe| exe.ends_with("systemd"))
        });
        let system = System { init, _child: child };
        // Units of this host may fail there, and do no harm: `degraded`.
        wait_for("the system", || {
            let state = system.output("systemctl is-system-running --wait").stdout;
            state == b"running\n" || state == b"degraded\n"
        });
        system
    }

    /// Runs a line of shell there.
    fn output(&self, line: &str) -> Output {
        let namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"];
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init]).args(namespaces).args(["--", "sh", "-c", line]);
        command.output().unwrap()
    }

    /// What a line of shell prints, which is to succeed.
    fn run(&self, line: &str) -> String {
        let output = self.output(line);
        assert!(output.status.success(), "{line}: {output:?}\n{}", self.log());
        text(output).trim().to_owned()
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&self.output("journalctl --no-pager").stdout).into_owned()
    }

    /// Messages of the service at this priority and worse.
    fn messages(&self, priority: &str) -> String {
        self.run(&format!("journalctl --unit sidestep-dns --output cat --priority {priority}"))
    }

    /// Waits until the server says so.
    fn wait_for_message(&self, priority: &str, message: &str) {
        wait_for(message, || self.messages(priority).contains(message));
    }

    /// The address that the server answers with.
    fn localhost(&self) -> String {
        self.run("dig @127.0.0.1 -p 5300 +short +tries=1 localhost A")
    }

    fn server(&self) -> String {
        self.run("systemctl show --property MainPID --value sidestep-dns")
    }

    /// A line of the server's status, which is the same for each of its threads: proc_pid_status(5).
    fn server_status(&self, name: &str) -> String {
        let status = self.run(&format!("cat /proc/{}/task/*/status", self.server()));
        let lines = status.lines().filter_map(|line| line.strip_prefix(&format!("{name}:")));
        let mut lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let first = lines.next().unwrap();
        lines.for_each(|other| assert_eq!(first, other, "{name}"));
        first
    }

    /// Checks that the server is user `sidestep` and has these capabilities, and no others at all.
    fn assert_privileges(&self, capabilities: u64) {
        let (user, group) = (self.run("id --user sidestep"), self.run("id --group sidestep"));
        assert_eq!(self.server_status("Uid"), [user.as_str(); 4].join(" "));
        assert_eq!(self.server_status("Gid"), [group.as_str(); 4].join(" "));
        assert_eq!(self.server_status("Groups"), self.run("id --groups sidestep"));
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(self.server_status(set), format!("{capabilities:016x}"), "{set}");
        }
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(self.server_status(set), format!("{:016x}", 0), "{set}");
        }
        assert_eq!(self.server_status("NoNewPrivs"), "1");
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_services_run_under_systemd() {
    if !is_root() {
        return;
    }
    let system = System::boot();
    let verified = system.output(
        "systemd-analyze verify sidestep-dns.service sidestep-broker.service sidestep-run@nginx.service",
    );
    assert!(verified.status.success() && verified.stderr.is_empty(), "{verified:?}");
    system.run("ip link add veth0 type veth peer name veth1 && ip address add 10.9.0.1/24 dev veth0");
    system.run("ip link set veth0 up && ip link set veth1 up");

    assert_dns_on_kernel_sockets(&system);
    assert_upgrade(&system);
    assert_reload_as_the_user(&system);
    assert_dns_on_an_interface(&system);
    assert_no_start_without_the_user(&system);
    assert_nginx_by_run(&system);
    assert_removal(&system);
}

/// As the package configures it. The start returns when it serves.
fn assert_dns_on_kernel_sockets(system: &System) {
    system.run("systemctl start sidestep-dns");
    assert_eq!(system.localhost(), "127.0.0.1");
    system.assert_privileges(0);
    system.wait_for_message(INFO, "sidestep dns: ready: 1 zone");
    assert!(system.messages(INFO).contains("runs as user sidestep with no privileges"), "{}", system.log());
    assert!(!system.messages(ERROR).contains("ready"), "{}", system.log());
    assert!(system.run("sidestep dns stats").contains("dns_queries_udp 1"));
}

/// An upgrade restarts the server, but not into a configuration that it would refuse.
fn assert_upgrade(system: &System) {
    let install = || {
        let output = system.output("dpkg --force-depends --install /package.deb");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let old = system.server();
    system.run("echo nonsense >>/etc/sidestep/dns.toml");
    assert!(install().contains("sidestep-dns goes on as the old version"));
    assert_eq!((system.server(), system.localhost()), (old.clone(), "127.0.0.1".to_owned()));
    system.run("sed -i '$d' /etc/sidestep/dns.toml");
    install();
    let is_another = || !["0", old.as_str()].contains(&system.server().as_str());
    wait_for("the new server", || is_another() && system.localhost() == "127.0.0.1");
}

/// It does not become a server with root's privileges instead.
fn assert_no_start_without_the_user(system: &System) {
    system.run("cp /etc/passwd /passwd && sed -i /^sidestep:/d /etc/passwd");
    assert!(!system.output("systemctl start sidestep-dns").status.success());
    system.wait_for_message(ERROR, "user: there is no user sidestep");
    system.run("cp /passwd /etc/passwd && systemctl stop sidestep-dns");
}

/// Nothing that would start again is left.
fn assert_removal(system: &System) {
    system.run("systemctl enable sidestep-dns sidestep-run@nginx && systemctl start sidestep-run@nginx");
    system.run("dpkg --remove sidestep");
    let links = system.run("find /etc/systemd/system -name 'sidestep-*'");
    assert_eq!(links, "", "{}", system.log());
    assert!(!system.output("pgrep --exact sidestep").status.success());
}

fn assert_reload_as_the_user(system: &System) {
    system.run(
        "sed -i s/127.0.0.1/127.0.0.2/ /etc/sidestep/zones/localhost.zone && systemctl reload sidestep-dns",
    );
    wait_for("the new address", || system.localhost() == "127.0.0.2");
    // A file that has not changed is not read again.
    system.run("sed -i s/127.0.0.2/127.0.0.3/ /etc/sidestep/zones/localhost.zone");
    system.run("chmod 600 /etc/sidestep/zones/localhost.zone && systemctl reload sidestep-dns");
    system.wait_for_message(ERROR, "zones/localhost.zone: user sidestep is not allowed to read it");
    assert_eq!(system.localhost(), "127.0.0.2");
    system.run("chmod 644 /etc/sidestep/zones/localhost.zone && systemctl stop sidestep-dns");
    assert_eq!(system.run("systemctl show --property Result --value sidestep-dns"), "success");
}

fn assert_dns_on_an_interface(system: &System) {
    system.run(
        "sed -i 's/^#device = .*/device = \"veth0\"/' /etc/sidestep/dns.toml && systemctl start sidestep-dns",
    );
    system.assert_privileges(FOR_AN_INTERFACE);
    assert!(system.run("ip link show veth0").contains("prog/xdp"));
    assert!(system.messages(INFO).contains("on 10.9.0.1:53 "), "{}", system.log());
    system.run("systemctl stop sidestep-dns");
    assert_eq!(system.run("systemctl show --property Result --value sidestep-dns"), "success");
}

/// By the configuration of the package.
fn assert_nginx_by_run(system: &System) {
    system.run("systemctl start sidestep-run@nginx");
    wait_for("nginx", || system.output("curl --silent --fail http://127.0.0.1/").status.success());
    let is_accelerated = || {
        let status = system.run("sidestep status");
        status.lines().any(|line| line.contains("0.0.0.0:80 ") && line.ends_with(" accelerated"))
    };
    wait_for("acceleration", is_accelerated);
    system.run("systemctl stop sidestep-run@nginx");
    assert_eq!(system.run("systemctl show --property Result --value sidestep-run@nginx"), "success");
}
