//! [`Lab`]: two namespaces and the wire between them, or a third one in the middle of it.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cores::keep_on;
use crate::{Child, LabError, generator_core, registry, server_core};

/// The veth pair's end in the server's namespace.
pub const SERVER_INTERFACE: &str = "veth-s";
/// The veth pair's end in the client's namespace.
pub const CLIENT_INTERFACE: &str = "veth-c";
/// Where both ends' addresses are.
const NETWORK_V4: &str = "10.53.0.0/24";
const NETWORK_V6: &str = "fd53::/64";
/// The server's address, /24.
pub const SERVER_V4: &str = "10.53.0.1";
/// The server's address, /64.
pub const SERVER_V6: &str = "fd53::1";
/// The client's address, /24.
pub const CLIENT_V4: &str = "10.53.0.2";
/// The client's address, /64.
pub const CLIENT_V6: &str = "fd53::2";

/// The box's ends of the wires to the server and to the client, in a laboratory that has a box.
pub const BOX_INTERFACES: [&str; 2] = ["veth-bs", "veth-bc"];

/// One of the namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where servers run: [`SERVER_INTERFACE`], core 1.
    Server,
    /// Where clients and generators run: [`CLIENT_INTERFACE`], core 0.
    Client,
    /// Between the two, in a laboratory that has a box: [`BOX_INTERFACES`], core 0.
    Box,
}

/// Two network namespaces with a veth pair between them. Dropping it removes all of it, processes included.
#[derive(Debug)]
pub struct Lab {
    server: String,
    client: String,
    middle: Option<String>,
    queues: u32,
}

impl Lab {
    /// A laboratory whose interfaces have one queue.
    pub fn new() -> Result<Lab, LabError> {
        Lab::with_queues(1)
    }

    /// A laboratory whose interfaces have `queues` queues at both ends; veth takes no XDP program if the ends differ.
    pub fn with_queues(queues: u32) -> Result<Lab, LabError> {
        Lab::make(queues, false)
    }

    /// The same for figures of TCP: the kernel uses CUBIC, its default, whatever this machine's setting is, so figures can be compared.
    /// Tests that examine sockets closely do not use it: for an accepted connection the setting overrides its listener's options.
    pub fn for_figures() -> Result<Lab, LabError> {
        let lab = Lab::new()?;
        lab.choose_congestion_control(Side::Server, SERVER_INTERFACE, SERVER_V4);
        lab.choose_congestion_control(Side::Client, CLIENT_INTERFACE, CLIENT_V4);
        Ok(lab)
    }

    /// A laboratory with a third namespace, in which a program has to forward packets between the wires to the server and to the
    /// client, with so many queues. Nothing on these wires is larger than an MTU, all checksums are complete, and neighbour entries are
    /// permanent.
    pub fn with_box(queues: u32) -> Result<Lab, LabError> {
        let lab = Lab::make(queues, true)?;
        let ends = [
            (Side::Server, SERVER_INTERFACE),
            (Side::Client, CLIENT_INTERFACE),
            (Side::Box, BOX_INTERFACES[0]),
            (Side::Box, BOX_INTERFACES[1]),
        ];
        for (side, interface) in ends {
            let off = ["-K", interface, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            lab.run_in(side, "ethtool", &off)?;
        }
        for (side, interface, neighbours, of, at) in [
            (Side::Server, SERVER_INTERFACE, [CLIENT_V4, CLIENT_V6], Side::Client, CLIENT_INTERFACE),
            (Side::Client, CLIENT_INTERFACE, [SERVER_V4, SERVER_V6], Side::Server, SERVER_INTERFACE),
        ] {
            let mac = lab.hardware_address(of, at)?;
            for neighbour in neighbours {
                lab.ip(
                    side,
                    &format!("neigh replace {neighbour} lladdr {mac} dev {interface} nud permanent"),
                )?;
            }
        }
        Ok(lab)
    }

    fn make(queues: u32, with_box: bool) -> Result<Lab, LabError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        registry::prepare();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side| registry::namespace_name(number, side);
        let middle = with_box.then(|| name("box"));
        let lab = Lab { server: name("srv"), client: name("cli"), middle, queues };
        for name in lab.namespaces() {
            registry::add_namespace(name);
            run(Command::new("ip").args(["netns", "add", name]))?;
        }
        lab.connect()?;
        lab.keep_flows_on_their_queues();
        Ok(lab)
    }

    /// Keeps a flow on its queue, as a NIC does by addresses and ports. On a veth the sender chooses the queue by a hash, and Linux
    /// changes the hash when a segment times out.
    fn keep_flows_on_their_queues(&self) {
        // Kernels before 5.18 have no such setting.
        let _ = self.inside(Side::Client, || std::fs::write("/proc/sys/net/core/txrehash", "0"));
    }

    /// Sets up the wire: both interfaces with their addresses, up. Also used again after [`Lab::disconnect`].
    pub fn connect(&self) -> Result<(), LabError> {
        let Lab { client, queues, .. } = self;
        let numbers = format!("numtxqueues {queues} numrxqueues {queues}");
        let wire = |end: &str, other: &str, there: &str| {
            format!("link add {end} {numbers} type veth peer name {other} netns {there} {numbers}")
        };
        match &self.middle {
            None => self.ip(Side::Server, &wire(SERVER_INTERFACE, CLIENT_INTERFACE, client)).map(drop)?,
            Some(middle) => {
                self.ip(Side::Server, &wire(SERVER_INTERFACE, BOX_INTERFACES[0], middle))?;
                self.ip(Side::Client, &wire(CLIENT_INTERFACE, BOX_INTERFACES[1], middle))?;
                for interface in BOX_INTERFACES {
                    // Without an address of its own the box sends nothing of its own.
                    self.ip(Side::Box, &format!("link set {interface} addrgenmode none up"))?;
                }
            }
        }
        let ends = [
            (Side::Server, SERVER_INTERFACE, SERVER_V4, SERVER_V6),
            (Side::Client, CLIENT_INTERFACE, CLIENT_V4, CLIENT_V6),
        ];
        for (side, interface, v4, v6) in ends {
            self.ip(side, "link set lo up")?;
            self.ip(side, &format!("address add {v4}/24 dev {interface}"))?;
            // No duplicate address detection, so that the address works at once.
            self.ip(side, &format!("address add {v6}/64 dev {interface} nodad"))?;
            self.ip(side, &format!("link set {interface} up"))?;
            self.receive_on_own_core(side, interface)?;
        }
        Ok(())
    }

    /// What arrives at an interface is worked on by the core of its side, as if it had come by a NIC. A veth has the sender's core do it.
    fn receive_on_own_core(&self, side: Side, interface: &str) -> Result<(), LabError> {
        if std::env::var_os("SIDESTEP_LAB_STEER").is_none() {
            return Ok(());
        }
        let mask = format!("{:x}", 1_u64 << core_of(side));
        for queue in 0..self.queues {
            let file = format!("/sys/class/net/{interface}/queues/rx-{queue}/rps_cpus");
            self.run_in(side, "sh", &["-c", &format!("echo {mask} >{file}")])?;
        }
        Ok(())
    }

    /// Makes the kernel use CUBIC for connections between the ends. The routes say so, because a namespace's default may only be an
    /// algorithm that the machine allows to everybody.
    fn choose_congestion_control(&self, side: Side, interface: &str, v4: &str) {
        for route in [format!("{NETWORK_V4} src {v4} scope link"), format!("{NETWORK_V6} metric 256")] {
            // A kernel without CUBIC keeps its own.
            let _ =
                self.ip(side, &format!("route change {route} dev {interface} proto kernel congctl cubic"));
        }
    }

    /// Deletes the server's interface, and the one at the other end of its wire.
    pub fn disconnect(&self) -> Result<(), LabError> {
        self.ip(Side::Server, &format!("link delete {SERVER_INTERFACE}")).map(drop)
    }

    /// `ip` with the words of `arguments` in a namespace; returns what it prints.
    pub fn ip(&self, side: Side, arguments: &str) -> Result<String, LabError> {
        let words = ["-n", self.namespace(side)].into_iter().chain(arguments.split_whitespace());
        run(Command::new("ip").args(words))
    }

    /// The process ids in a namespace, one a line.
    pub fn pids(&self, side: Side) -> Result<String, LabError> {
        run(Command::new("ip").args(["netns", "pids", self.namespace(side)]))
    }

    /// Runs a command to its end, on its side's core; returns what it prints.
    pub fn run_in(&self, side: Side, program: &str, arguments: &[&str]) -> Result<String, LabError> {
        run(self.command(side, program).args(arguments))
    }

    /// Starts a command on its side's core.
    pub fn spawn_in(&self, side: Side, program: &str, arguments: &[&str]) -> Result<Child, LabError> {
        Child::spawn(program, self.command(side, program).args(arguments))
    }

    /// Keeps all processes of a namespace on its side's core. They begin there, but some choose cores for their threads themselves: Knot's first
    /// worker goes to core 0, which is the generator's.
    pub(crate) fn keep_on_core(&self, side: Side) -> Result<(), LabError> {
        let pids = self.pids(side)?;
        pids.lines().filter_map(|pid| pid.trim().parse().ok()).for_each(|pid| keep_on(pid, core_of(side)));
        Ok(())
    }

    /// A command that will run in a namespace, on its side's core. The process is the program's own: `ip` and `taskset`
    /// replace themselves.
    pub fn command(&self, side: Side, program: &str) -> Command {
        let core = core_of(side);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace(side), "taskset", "-c", &core.to_string(), program]);
        command
    }

    /// Runs `action` on a thread in a namespace; sockets that it opens stay there.
    ///
    /// # Panics
    ///
    /// If `action` does, or if the namespace is gone.
    pub fn inside<T: Send>(&self, side: Side, action: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.namespace(side));
        let task = || {
            let namespace = File::open(path).expect("the namespace lives as long as its laboratory");
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter its own namespaces");
            action()
        };
        let outcome = thread::scope(|scope| scope.spawn(task).join());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The name of a namespace, for `ip -n`.
    ///
    /// # Panics
    ///
    /// If it is the box's and there is none.
    pub fn namespace(&self, side: Side) -> &str {
        match side {
            Side::Server => &self.server,
            Side::Client => &self.client,
            Side::Box => self.middle.as_deref().expect("this laboratory has a box"),
        }
    }

    /// The hardware address of an interface.
    pub fn hardware_address(&self, side: Side, interface: &str) -> Result<String, LabError> {
        let link = self.ip(side, &format!("-brief link show {interface}"))?;
        // Name, state, address, flags: ip-link(8).
        Ok(link.split_whitespace().nth(2).unwrap_or_default().to_owned())
    }

    fn namespaces(&self) -> impl Iterator<Item = &String> {
        [&self.server, &self.client].into_iter().chain(&self.middle)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.namespaces().for_each(|name| registry::remove_namespace(name));
    }
}

fn core_of(side: Side) -> usize {
    match side {
        Side::Server => server_core(),
        Side::Client | Side::Box => generator_core(),
    }
}

/// Runs a command to its end and returns its stdout. If it fails, its output is the error.
pub(crate) fn run(command: &mut Command) -> Result<String, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| LabError::Start { program, source })?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let command = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(LabError::Command { command, output: format!("{stdout}{stderr}").trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::require_root_and_xdp;

    #[test]
    fn the_ends_reach_each_other_and_all_goes_on_drop() {
        if !require_root_and_xdp() {
            return;
        }
        let lab = Lab::with_queues(2).unwrap();
        for address in [SERVER_V4, SERVER_V6] {
            lab.run_in(Side::Client, "ping", &["-c1", "-w30", address]).unwrap();
        }
        let mut sleeper = lab.spawn_in(Side::Server, "sh", &["-c", "echo inside; exec sleep 100"]).unwrap();
        sleeper.wait_for_line("inside", Duration::from_secs(60)).unwrap(); // Else `ip` may be on its way there still.
        let namespaces = [Side::Server, Side::Client].map(|side| lab.namespace(side).to_owned());
        drop(lab);
        sleeper.wait(Duration::from_secs(60)).unwrap();
        let left = run(Command::new("ip").args(["netns", "list"])).unwrap();
        assert!(namespaces.iter().all(|name| !left.contains(name)), "{left}");
    }

    #[test]
    fn the_wire_can_be_cut_and_laid_again() {
        if !require_root_and_xdp() {
            return;
        }
        let lab = Lab::new().unwrap();
        lab.disconnect().unwrap();
        assert!(lab.ip(Side::Client, "link show veth-c").is_err());
        lab.connect().unwrap();
        lab.run_in(Side::Client, "ping", &["-c1", "-w30", SERVER_V4]).unwrap();
    }

    #[test]
    fn figures_are_taken_with_cubic() {
        if !require_root_and_xdp() {
            return;
        }
        let lab = Lab::for_figures().unwrap();
        for address in [SERVER_V4, SERVER_V6] {
            let address: IpAddr = address.parse().unwrap();
            let listener = lab.inside(Side::Server, || TcpListener::bind((address, 80)).unwrap());
            let client = lab.inside(Side::Client, || TcpStream::connect((address, 80)).unwrap());
            let (server, _) = listener.accept().unwrap();
            for end in [client, server] {
                assert_eq!(rustix::net::sockopt::tcp_congestion(&end).unwrap(), "cubic");
            }
        }
    }
}
