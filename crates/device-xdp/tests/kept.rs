//! A steering program that outlives its process, and who takes it over. Needs root and AF_XDP; skipped otherwise.

#[allow(dead_code)]
mod crafted;
#[allow(dead_code)]
mod packet_socket;
#[allow(dead_code)]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use device_xdp::{Flow, QueueOwner, SteeringOptions, SteeringProgram, XdpDevice, XdpOptions};
use steering::{Claim, ClaimTerms, LocalAddress, Marks, QueueSet, Transport, VlanTags};

use crafted::{ACK, TCP, ipv4, tcp};
use packet_socket::PacketSocket;
use support::{Lab, lab};

const MARKS: Marks = Marks { table: 2, epoch: 5 };
const OPTIONS: SteeringOptions = SteeringOptions { mode: None, kernel_flows: 16 };
const OWNER: QueueOwner = QueueOwner { secret: [7, 8], user: 1000 };

/// A BPF file system of our own.
struct Mount(lab::Directory);

impl Mount {
    fn new() -> Mount {
        let directory = lab::Directory::new().unwrap();
        run("mount", &["-t", "bpf", "bpf"], directory.path());
        Mount(directory)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// But for what the kernel puts into each.
    fn is_empty(&self) -> bool {
        let mut entries = std::fs::read_dir(self.0.path()).unwrap().flatten();
        entries.all(|entry| entry.file_name().to_string_lossy().ends_with(".debug"))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[], self.0.path());
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    assert!(Command::new(program).args(arguments).arg(path).status().unwrap().success(), "{program}");
}

fn claim() -> Claim {
    let local = LocalAddress { address: "10.77.0.1".parse().unwrap(), vlan: VlanTags::default() };
    Claim { transport: Transport::Tcp, local, port: 80 }
}

fn terms() -> ClaimTerms {
    let queues = QueueSet::from_iter([0]);
    ClaimTerms { queues, listening: queues, kernel_new: false, kernel_some: true, marks: MARKS }
}

/// Sends a segment from this port of the client to the claimed one, and waits until it is counted as `outcome`.
fn await_outcome(lab: &Lab, program: &SteeringProgram, from: u16, outcome: &str) {
    let count = || {
        let named = program.counters().unwrap().named().into_iter();
        named.filter(|(name, _)| *name == outcome).map(|(_, count)| count).sum::<u64>()
    };
    let before = count();
    lab.in_client(|| PacketSocket::open("vc").send(&ipv4(TCP, &tcp(from, 80, ACK, 10))));
    let deadline = Instant::now() + Duration::from_secs(60);
    while count() == before {
        assert!(Instant::now() < deadline, "a segment from port {from} is not {outcome}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_takes_a_kept_program_over_has_its_claims_flows_sockets_and_owners() {
    let Some(lab) = lab(1) else { return };
    let mount = Mount::new();
    let (before, after) = (mount.at("before"), mount.at("after"));
    let [local, remote] = ["10.77.0.1:80", "10.77.0.2:4001"].map(|end| end.parse().unwrap());
    let flow = Flow { transport: Transport::Tcp, local, remote };
    lab.enter_server();
    let mut killed = SteeringProgram::attach_kept("vs", OPTIONS, &before).unwrap();
    killed.put_claim(claim(), terms()).unwrap();
    killed.add_kernel_flow(flow, MARKS).unwrap();
    let lent = XdpDevice::lend(&mut killed, &[0], &XdpOptions::default()).unwrap();
    killed.set_owner(0, Some(OWNER)).unwrap();
    let device = XdpDevice::adopt(lent.layout, lent.memory, lent.sockets).unwrap();
    let mode = killed.mode();
    std::mem::forget(killed); // As if by SIGKILL: nothing is undone.

    let mut program = SteeringProgram::take_over("vs", OPTIONS, &before).unwrap();
    assert_eq!(program.mode(), mode);
    assert_eq!(program.claims().iter().collect::<Vec<_>>(), [(&claim(), &terms())]);
    assert_eq!(program.owners().unwrap(), [(0, OWNER)]);
    assert!(program.is_kernel_flow(flow, MARKS).unwrap());
    await_outcome(&lab, &program, 4000, "redirected");
    await_outcome(&lab, &program, 4001, "passed_kernel_flow");
    program.remove_claim(claim()).unwrap();
    await_outcome(&lab, &program, 4000, "passed_unclaimed_port");

    program.rename_kept(&after).unwrap();
    assert!(!before.exists() && after.exists());
    program.set_owner(0, None).unwrap();
    assert_eq!(program.owners().unwrap(), []);
    drop((program, device));
    assert!(mount.is_empty(), "who ends in order leaves nothing");
    assert!(!lab.ip_server("link show vs").contains("xdp"));
}

#[test]
fn what_nobody_takes_over_can_be_removed() {
    let Some(lab) = lab(1) else { return };
    let mount = Mount::new();
    lab.enter_server();
    std::mem::forget(SteeringProgram::attach_kept("vs", OPTIONS, &mount.at("kept")).unwrap());
    assert!(lab.ip_server("link show vs").contains("xdp"));
    SteeringProgram::remove_kept(&mount.at("kept")).unwrap();
    assert!(mount.is_empty() && !lab.ip_server("link show vs").contains("xdp"));
}

#[test]
fn what_cannot_be_attached_leaves_nothing() {
    let Some(lab) = lab(1) else { return };
    let mount = Mount::new();
    lab.enter_server();
    let _other = SteeringProgram::attach("vs", OPTIONS).unwrap();
    assert!(SteeringProgram::attach_kept("vs", OPTIONS, &mount.at("kept")).is_err());
    assert!(mount.is_empty());
}
