//! Judges a machine, an interface and a program: facts in, findings out.
//!
//! Pure: whoever calls [`examine`] has read the facts from the kernel, and carries out the [`Step`]s if the user wants that.
//!
//! | file | what it judges |
//! | --- | --- |
//! | `driver.rs` | XDP in the driver, zero-copy, programs that are there already, link, MTU |
//! | `offloads.rs` | what the NIC does for the kernel, and what is in the way of XDP |
//! | `queues.rs` | queues against cores, rings, receive-side scaling, a port's own queues |
//! | `interrupts.rs` | affinity, irqbalance, coalescing, busy polling |
//! | `interrupt_names.rs` | which interrupts of a device are for received packets |
//! | `memory.rs` | NUMA nodes, huge pages |
//! | `cpu.rs` | cores, frequency governor, mitigations, stolen time |
//! | `kernel.rs` | version, known faults, the BPF compiler and file system |
//! | `limits.rs` | privileges, descriptors, locked memory |
//! | `program.rs` | what `sidestep run` makes of a program |
#![forbid(unsafe_code)]

mod cores;
mod cpu;
mod driver;
mod facts;
mod finding;
mod interrupt_names;
mod interrupts;
mod kernel;
mod limits;
mod memory;
mod offloads;
mod program;
mod queues;
mod setting;
mod shell;

pub use cores::CoreList;
pub use facts::{
    Attached, Bounded, Driver, Facts, Feature, Interface, Interrupt, Known, Limit, Machine, NodeOf, Probe,
    Process, Program, Rss, Service, XdpFeatures,
};
pub use finding::{Command, Finding, Topic, Verdict};
pub use setting::{FlowMatch, Parameter, Setting, Step, Transport};

/// What the user wants to do with the interface, as far as that changes what is good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Servers with `--busy-poll on` or `always`.
    pub busy_poll: bool,
    /// Huge pages of the default size, for DPDK.
    pub huge_pages: Option<u64>,
    /// Ports that are to have queues of their own, and those queues.
    pub ports: Vec<(Transport, u16)>,
    /// The queues of `ports`: a power of two of them.
    pub queues: CoreList,
}

/// Everything that can be said of the facts, by family. Findings about what no fact is there of (no interface, no program) are left out.
pub fn examine(facts: &Facts, wishes: &Wishes) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(interface) = &facts.interface {
        driver::examine(interface, &mut findings);
        offloads::examine(interface, &mut findings);
        queues::examine(interface, facts.machine.as_ref(), wishes, &mut findings);
        interrupts::examine(interface, facts.machine.as_ref(), wishes, &mut findings);
    }
    if let Some(machine) = &facts.machine {
        memory::examine(machine, facts.interface.as_ref(), wishes, &mut findings);
        cpu::examine(machine, &mut findings);
        kernel::examine(machine, facts.interface.as_ref(), &mut findings);
        limits::examine(machine, facts.interface.as_ref(), &mut findings);
    }
    if let Some(program) = &facts.program {
        program::examine(program, &mut findings);
    }
    findings
}

/// All topics that findings have. Their ids do not change: fleets rely on them.
pub fn topics() -> impl Iterator<Item = Topic> {
    let families: [&[Topic]; 9] = [
        &driver::TOPICS,
        &offloads::TOPICS,
        &queues::TOPICS,
        &interrupts::TOPICS,
        &memory::TOPICS,
        &cpu::TOPICS,
        &kernel::TOPICS,
        &limits::TOPICS,
        &program::TOPICS,
    ];
    families.into_iter().flatten().copied()
}
