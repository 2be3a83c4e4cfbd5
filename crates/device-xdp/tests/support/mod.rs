//! Two network namespaces of our own with a veth pair between them; nothing leaves them.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// `10.77.0.1` and `fd77::1` on `vs` in the server's namespace, `.2` and `::2` on `vc` in the client's. Both namespaces
/// go on drop.
pub(crate) struct Lab {
    server: String,
    client: String,
}

/// A fresh laboratory with `queues` queues at both ends; `None`, and a line saying so, without the privileges.
pub(crate) fn lab(queues: u32) -> Option<Lab> {
    if !::lab::require_root_and_xdp() {
        return None;
    }
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let lab = Lab { server: format!("sidestep-s-{id}"), client: format!("sidestep-c-{id}") };
    run("ip", &["netns", "add", &lab.server]);
    run("ip", &["netns", "add", &lab.client]);
    lab.connect(queues);
    Some(lab)
}

impl Lab {
    /// Makes the veth pair, also a second time after its deletion.
    pub(crate) fn connect(&self, queues: u32) {
        let q = queues.to_string();
        let numbers = ["numtxqueues", &q, "numrxqueues", &q];
        let ends = [
            &["link", "add", "vs", "netns", &self.server][..],
            &numbers,
            &["type", "veth", "peer", "name", "vc", "netns", &self.client],
            &numbers,
        ];
        run("ip", &ends.concat());
        self.ip_server("link set lo up");
        self.ip_server("address add 10.77.0.1/24 dev vs");
        self.ip_server("address add fd77::1/64 dev vs nodad");
        self.ip_server("link set vs up");
        self.ip_client("address add 10.77.0.2/24 dev vc");
        self.ip_client("address add fd77::2/64 dev vc nodad");
        self.ip_client("link set vc up");
        self.wait_for_neighbours();
    }

    /// A link takes a moment to come up, and the first ARP and NDP requests may be lost in it.
    fn wait_for_neighbours(&self) {
        for server in ["10.77.0.1", "fd77::1"] {
            // Until one comes back.
            run(
                "ip",
                &["netns", "exec", &self.client, "ping", "-q", "-c", "1", "-w", "60", "-i", "0.2", server],
            );
        }
    }

    /// `ip` in the server's namespace; panics if it fails.
    pub(crate) fn ip_server(&self, arguments: &str) -> String {
        let words: Vec<&str> = ["-n", &self.server].into_iter().chain(arguments.split(' ')).collect();
        text(run("ip", &words))
    }

    /// `ip` in the client's namespace; panics if it fails.
    pub(crate) fn ip_client(&self, arguments: &str) -> String {
        let words: Vec<&str> = ["-n", &self.client].into_iter().chain(arguments.split(' ')).collect();
        text(run("ip", &words))
    }

    /// Any command in the server's namespace, with /sys of that namespace.
    pub(crate) fn command_in_server(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server, program]);
        command
    }

    /// Any command in the client's namespace; panics if it fails.
    pub(crate) fn run_in_client(&self, command: &str) {
        let words: Vec<&str> =
            ["netns", "exec", &self.client].into_iter().chain(command.split(' ')).collect();
        run("ip", &words);
    }

    /// Moves the calling thread into the server's namespace.
    pub(crate) fn enter_server(&self) {
        enter(&self.server);
    }

    /// Runs `action` on a thread in the client's namespace.
    pub(crate) fn in_client<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let task = scope.spawn(|| {
                enter(&self.client);
                action()
            });
            task.join().expect("the client's part of the test passes")
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

fn enter(name: &str) {
    let namespace = File::open(format!("/run/netns/{name}")).expect("the namespace was made by ip");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("root may enter its own namespaces");
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().expect("iproute2 is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {errors}", arguments.join(" "));
    output
}

fn text(output: Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
