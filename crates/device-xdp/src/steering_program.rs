//! The steering program on one interface: loaded, attached, and told what to take.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, include_bytes_aligned};
use steering::Claim;

use crate::claim_key::{ClaimKey, PortBit};
use crate::netdev::Interface;
use crate::{AttachMode, XdpError, syscalls};

/// Compiled from `bpf/steer.bpf.c` by the build script.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// Length of `enum outcome` in `bpf/steer.bpf.c`.
const OUTCOMES: usize = 9;

/// How the program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringOptions {
    /// Attach in generic mode at once, for drivers whose native XDP misbehaves. Costs a copy per packet, and zero-copy.
    pub force_generic: bool,
}

/// The steering program, attached to one interface for as long as this value lives, and no longer: the kernel detaches
/// it when the process ends, however it ends.
pub struct SteeringProgram {
    interface: Interface,
    mode: AttachMode,
    claims: Claims,
    xsks: XskMap<MapData>,
    outcomes: PerCpuArray<MapData, [u64; OUTCOMES]>,
    /// Queues that the interface had when the program was last given to the driver.
    covered_queues: u16,
    object: Ebpf,
    link: OwnedFd,
}

impl SteeringProgram {
    /// Loads the program and attaches it to `interface` of the calling thread's network namespace: in driver mode, else
    /// in generic mode. Claims nothing yet.
    pub fn attach(interface: &str, options: SteeringOptions) -> Result<SteeringProgram, XdpError> {
        let interface = Interface::open(interface)?;
        syscalls::raise_memlock_limit();
        let mut object = Ebpf::load(OBJECT).map_err(|error| load_error(&error))?;
        let covered_queues = interface.queue_pairs();
        let (link, mode) = attach_program(load_program(&mut object)?, &interface, options)?;
        Ok(SteeringProgram {
            claims: Claims::new(typed(&mut object, "claims")?, typed(&mut object, "ports")?),
            xsks: typed(&mut object, "xsks")?,
            outcomes: typed(&mut object, "outcomes")?,
            interface,
            mode,
            covered_queues,
            object,
            link,
        })
    }

    /// Takes exactly these claims from the kernel, from the next packet on.
    ///
    /// At no point is a packet taken that neither the old nor the new set claims, or one missed that both claim. After
    /// an error some of the changes are made; calling again makes the rest.
    pub fn set_claims(&mut self, claims: &BTreeSet<Claim>) -> Result<(), XdpError> {
        self.claims.change_to(claims)
    }

    /// The claims in force.
    pub fn claims(&self) -> &BTreeSet<Claim> {
        &self.claims.current
    }

    /// Has claimed packets of receive queue `queue` delivered to the AF_XDP socket `xsk`, bound to that queue, until the
    /// socket is closed.
    pub fn register_queue(&mut self, queue: u16, xsk: BorrowedFd<'_>) -> Result<(), XdpError> {
        if queue >= self.covered_queues {
            self.cover_new_queues()?;
        }
        self.xsks.set(u32::from(queue), xsk.as_raw_fd(), 0).map_err(map_error("xsks"))
    }

    /// veth runs a program on the queues only that it had when the program was attached (seen with Linux 6.18). A fresh
    /// copy, on the same maps, makes it look again.
    fn cover_new_queues(&mut self) -> Result<(), XdpError> {
        let covered_queues = self.interface.queue_pairs();
        let program = program(&mut self.object)?;
        program.unload().map_err(|error| load_error(&error))?; // The link still holds the old copy.
        program.load().map_err(|error| load_error(&error))?;
        let program = program.fd().map_err(|error| load_error(&error))?;
        syscalls::update_link(self.link.as_fd(), program.as_fd())
            .map_err(XdpError::system("BPF_LINK_UPDATE"))?;
        self.covered_queues = covered_queues;
        Ok(())
    }

    /// Where in the kernel the program runs.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Name of the interface when it was attached.
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    /// Index of the interface: a later interface of the same name has another.
    pub fn interface_index(&self) -> u32 {
        self.interface.index
    }

    pub(crate) fn netdev(&self) -> &Interface {
        &self.interface
    }

    /// What became of the interface's packets since the program was attached.
    pub fn counters(&self) -> Result<SteeringCounters, XdpError> {
        let per_cpu = self.outcomes.get(&0, 0).map_err(map_error("outcomes"))?;
        let sum = |outcome: usize| per_cpu.iter().map(|counts| counts[outcome]).sum();
        Ok(SteeringCounters {
            redirected: sum(0),
            passed_not_ip: sum(1),
            passed_fragment_or_options: sum(2),
            passed_other_protocol: sum(3),
            passed_unclaimed_port: sum(4),
            passed_unclaimed_address: sum(5),
            passed_no_socket: sum(6),
            passed_truncated: sum(7),
            passed_too_long: sum(8),
        })
    }
}

impl Drop for SteeringProgram {
    /// Closing the link would do, if it were the only descriptor of it: a child between fork and exec has another.
    fn drop(&mut self) {
        // Fails only if the interface is gone, and the program with it.
        let _ = syscalls::detach_link(self.link.as_fd());
    }
}

/// Packets by what the steering program did with them. All but the first went to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringCounters {
    /// Given to an AF_XDP socket, which may still have dropped them: see the device's counters.
    pub redirected: u64,
    /// Neither IPv4 nor IPv6, or behind more than two tags.
    pub passed_not_ip: u64,
    /// An IPv4 fragment or a packet with IPv4 options.
    pub passed_fragment_or_options: u64,
    /// Neither UDP nor TCP, or behind an IPv6 extension header.
    pub passed_other_protocol: u64,
    /// No claim has this port.
    pub passed_unclaimed_port: u64,
    /// A claim has this port, but on another address or behind other tags.
    pub passed_unclaimed_address: u64,
    /// Claimed, but no socket serves the receive queue.
    pub passed_no_socket: u64,
    /// Shorter than its headers.
    pub passed_truncated: u64,
    /// Longer than the largest frame holds.
    pub passed_too_long: u64,
}

impl SteeringCounters {
    /// Name and value of each count, in a stable order.
    pub fn named(&self) -> [(&'static str, u64); OUTCOMES] {
        [
            ("redirected", self.redirected),
            ("passed_not_ip", self.passed_not_ip),
            ("passed_fragment_or_options", self.passed_fragment_or_options),
            ("passed_other_protocol", self.passed_other_protocol),
            ("passed_unclaimed_port", self.passed_unclaimed_port),
            ("passed_unclaimed_address", self.passed_unclaimed_address),
            ("passed_no_socket", self.passed_no_socket),
            ("passed_truncated", self.passed_truncated),
            ("passed_too_long", self.passed_too_long),
        ]
    }
}

/// The maps `claims` and `ports`, and what they hold.
struct Claims {
    claims: HashMap<MapData, ClaimKey, u8>,
    ports: Array<MapData, u64>,
    current: BTreeSet<Claim>,
    /// How many claims have each port.
    port_users: BTreeMap<PortBit, usize>,
}

impl Claims {
    fn new(claims: HashMap<MapData, ClaimKey, u8>, ports: Array<MapData, u64>) -> Claims {
        Claims { claims, ports, current: BTreeSet::new(), port_users: BTreeMap::new() }
    }

    fn change_to(&mut self, wanted: &BTreeSet<Claim>) -> Result<(), XdpError> {
        let gone: Vec<Claim> = self.current.difference(wanted).copied().collect();
        let new: Vec<Claim> = wanted.difference(&self.current).copied().collect();
        gone.into_iter().try_for_each(|claim| self.remove(claim))?;
        new.into_iter().try_for_each(|claim| self.add(claim))
    }

    /// The port's bit only says that it is worth looking; the claim itself decides. So order does not matter.
    fn add(&mut self, claim: Claim) -> Result<(), XdpError> {
        let bit = PortBit::of(&claim);
        if !self.port_users.contains_key(&bit) {
            self.write_port(bit, true)?;
        }
        self.claims.insert(ClaimKey::from(claim), 1, 0).map_err(map_error("claims"))?;
        *self.port_users.entry(bit).or_default() += 1;
        self.current.insert(claim);
        Ok(())
    }

    fn remove(&mut self, claim: Claim) -> Result<(), XdpError> {
        match self.claims.remove(&ClaimKey::from(claim)) {
            Ok(()) | Err(MapError::KeyNotFound) => (),
            Err(error) => return Err(map_error("claims")(error)),
        }
        self.current.remove(&claim);
        let bit = PortBit::of(&claim);
        let users = self.port_users.get_mut(&bit).expect("every claim is counted");
        *users -= 1;
        if *users == 0 {
            self.port_users.remove(&bit);
            self.write_port(bit, false)?;
        }
        Ok(())
    }

    /// We are the map's only writer, so reading and writing back loses nothing.
    fn write_port(&mut self, bit: PortBit, claimed: bool) -> Result<(), XdpError> {
        let word = self.ports.get(&bit.word, 0).map_err(map_error("ports"))?;
        let word = if claimed { word | bit.mask } else { word & !bit.mask };
        self.ports.set(bit.word, word, 0).map_err(map_error("ports"))
    }
}

fn program(object: &mut Ebpf) -> Result<&mut Xdp, XdpError> {
    let program = object.program_mut("sidestep_steer").expect("the object holds the program");
    program.try_into().map_err(|error: aya::programs::ProgramError| load_error(&error))
}

fn load_program(object: &mut Ebpf) -> Result<&Xdp, XdpError> {
    let program = program(object)?;
    program.load().map_err(|error| load_error(&error))?;
    Ok(program)
}

fn attach_program(
    program: &Xdp,
    interface: &Interface,
    options: SteeringOptions,
) -> Result<(OwnedFd, AttachMode), XdpError> {
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let program = program.fd().map_err(|error| load_error(&error))?.as_fd();
    let native = if options.force_generic {
        io::Error::other("not asked for")
    } else {
        match syscalls::attach_xdp(program, interface.index, XDP_FLAGS_DRV_MODE) {
            Ok(link) => return Ok((link, AttachMode::Native)),
            Err(error) => error,
        }
    };
    if is_taken(&native) {
        return Err(program_present(interface));
    }
    match syscalls::attach_xdp(program, interface.index, XDP_FLAGS_SKB_MODE) {
        Ok(link) => Ok((link, AttachMode::Generic)),
        Err(generic) if is_taken(&generic) => Err(program_present(interface)),
        Err(source) if source.raw_os_error() == Some(libc::EPERM) => {
            Err(XdpError::NotPermitted { operation: "attaching an XDP program", source })
        }
        Err(generic) => Err(XdpError::Attach { interface: interface.name.clone(), native, generic }),
    }
}

/// EBUSY: a program in the same mode; EEXIST: one in the other mode.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

fn program_present(interface: &Interface) -> XdpError {
    let id = interface.xdp_program().ok().flatten().unwrap_or(0);
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let program =
        programs.filter(|info| info.id() == id).find_map(|info| info.name_as_str().map(str::to_owned));
    XdpError::ProgramPresent { interface: interface.name.clone(), program: program.unwrap_or_default(), id }
}

fn typed<T: TryFrom<Map, Error = MapError>>(object: &mut Ebpf, name: &'static str) -> Result<T, XdpError> {
    let map = object.take_map(name).expect("the object defines the map");
    T::try_from(map).map_err(map_error(name))
}

fn map_error(map: &'static str) -> impl Fn(MapError) -> XdpError {
    move |error| XdpError::Map { map, reason: chain(&error) }
}

/// Tells "not permitted" from "not possible".
fn load_error(error: &(dyn Error + 'static)) -> XdpError {
    let refused = causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    match refused {
        Some(errno @ (libc::EPERM | libc::EACCES)) if !is_verifier(error) => XdpError::NotPermitted {
            operation: "loading the steering program",
            source: io::Error::from_raw_os_error(errno),
        },
        _ => XdpError::Load(chain(error)),
    }
}

/// The verifier refuses a program with EACCES too, but says why.
fn is_verifier(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| match cause.downcast_ref::<aya::programs::ProgramError>() {
        Some(aya::programs::ProgramError::LoadError { verifier_log, .. }) => {
            !verifier_log.to_string().is_empty()
        }
        _ => false,
    })
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn chain(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
