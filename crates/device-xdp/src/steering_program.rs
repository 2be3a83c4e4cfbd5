//! The steering program on one interface: loading, attaching, claims.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use aya::maps::{Array, Map, MapData, MapError, XskMap};
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use clock::Duration;
use steering::{Claim, ClaimTerms, Transport};

use crate::claims::Claims;
use crate::counters::{Outcomes, SteeringCounters};
use crate::error::{absent_is_fine, causes, chain, map_error};
use crate::kernel_flows::KernelFlows;
use crate::netdev::Interface;
use crate::{AttachMode, XdpError, syscalls};

/// Compiled from `bpf/steer.bpf.c` by the build script.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// How long it is tried to load the program while the kernel is made to stop: programs lose patience with a broker after some seconds.
const LOADING_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// How the program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringOptions {
    /// Attach in generic mode at once, for drivers whose native XDP misbehaves. Costs a copy per packet, and rules out zero-copy.
    pub force_generic: bool,
    /// How many flows that are the kernel's under a claim can be noted, some 100 octets of locked memory each (0: none are).
    /// When there are more, those forgotten break off that were quiet for longest.
    pub kernel_flows: u32,
}

/// The steering program, attached to one interface for as long as this value lives, and no longer: the kernel detaches
/// it when the process ends, however it ends, unless it is pinned.
pub struct SteeringProgram {
    interface: Interface,
    mode: AttachMode,
    claims: Claims,
    kernel_flows: KernelFlows,
    xsks: XskMap<MapData>,
    reopening: Array<MapData, u64>,
    outcomes: Outcomes,
    /// Queues that the interface had when the program was last given to the driver.
    covered_queues: u16,
    object: Ebpf,
    link: OwnedFd,
    /// Where the link is pinned.
    pin: Option<PathBuf>,
}

impl SteeringProgram {
    /// Loads the program and attaches it to `interface` of the calling thread's network namespace: in driver mode, else
    /// in generic mode. Claims nothing yet.
    pub fn attach(interface: &str, options: SteeringOptions) -> Result<SteeringProgram, XdpError> {
        let interface = Interface::open(interface)?;
        syscalls::raise_memlock_limit();
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("kernel_flows", options.kernel_flows.max(1)); // The kernel makes no empty map.
        let mut object = loader.load(OBJECT).map_err(|error| load_error(&error))?;
        let covered_queues = interface.queue_pairs();
        let (link, mode) = attach_program(load_program(&mut object)?, &interface, options)?;
        Ok(SteeringProgram {
            claims: Claims::new(typed(&mut object, "claims")?, typed(&mut object, "ports")?),
            kernel_flows: KernelFlows(typed(&mut object, "kernel_flows")?),
            xsks: typed(&mut object, "xsks")?,
            reopening: typed(&mut object, "reopening")?,
            outcomes: typed(&mut object, "outcomes")?,
            interface,
            mode,
            covered_queues,
            object,
            link,
            pin: None,
        })
    }

    /// Has the program stay attached, with its claims and sockets, if this process is killed: under a name in a BPF file system, until
    /// [`SteeringProgram::detach_pinned`]. Dropping this value still detaches it.
    pub fn pin(&mut self, path: &Path) -> Result<(), XdpError> {
        syscalls::pin(self.link.as_fd(), &terminated(path)?).map_err(XdpError::system("BPF_OBJ_PIN"))?;
        self.pin = Some(path.to_owned());
        Ok(())
    }

    /// Detaches a program that a process left which was killed, and removes its name.
    pub fn detach_pinned(path: &Path) -> Result<(), XdpError> {
        let link = syscalls::open_pinned(&terminated(path)?).map_err(XdpError::system("BPF_OBJ_GET"))?;
        let _ = syscalls::detach_link(link.as_fd()); // Fails only if the interface is gone, and the program with it.
        std::fs::remove_file(path).map_err(XdpError::system("unlink"))
    }

    /// Takes exactly these claims from the kernel, all of each, from the next packet on.
    ///
    /// At no point is a packet taken that neither the old nor the new set claims, or one missed that both claim. After
    /// an error some of the changes are made; calling again makes the rest.
    pub fn set_claims(&mut self, claims: &BTreeSet<Claim>) -> Result<(), XdpError> {
        self.claims.change_to(claims)
    }

    /// Adds a claim, or changes its terms from one packet to the next.
    pub fn put_claim(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError> {
        self.claims.put(claim, terms)
    }

    /// Removes a claim, if there is one.
    pub fn remove_claim(&mut self, claim: Claim) -> Result<(), XdpError> {
        self.claims.remove(claim)
    }

    /// The claims in force, and their terms.
    pub fn claims(&self) -> &BTreeMap<Claim, ClaimTerms> {
        self.claims.current()
    }

    /// Notes a flow as the kernel's: under a claim of [`ClaimTerms::kernel_some`], while it has this epoch, its packets, and ICMP
    /// errors about it, pass.
    /// [`SteeringOptions::kernel_flows`] says how many there can be.
    pub fn add_kernel_flow(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
        epoch: u32,
    ) -> Result<(), XdpError> {
        self.kernel_flows.add(transport, local, remote, epoch)
    }

    /// Notes a flow as one that a socket is to get which does not serve its queue yet: under a claim of
    /// [`ClaimTerms::kernel_some`], while it has this epoch, below 2^31, its packets are dropped until one does. Whoever sent them
    /// sends them again, and the kernel, which does not know the connection, does not reset it. A flow that is noted as the
    /// kernel's in this epoch stays so: then this returns false.
    pub fn add_awaited_flow(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
        epoch: u32,
    ) -> Result<bool, XdpError> {
        self.kernel_flows.add_awaited(transport, local, remote, epoch)
    }

    /// Forgets a flow of the kernel's, if it was noted.
    pub fn remove_kernel_flow(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), XdpError> {
        self.kernel_flows.remove(transport, local, remote)
    }

    /// Whether a flow is noted as the kernel's, by [`SteeringProgram::add_kernel_flow`] or as it began.
    pub fn is_kernel_flow(
        &self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<bool, XdpError> {
        self.kernel_flows.contains(transport, local, remote)
    }

    /// Says that sockets are being opened anew, for so long at most. Meanwhile claimed TCP on a queue without one is dropped, for its
    /// sender to send it again, instead of being the kernel's, which would reset connections that it does not know.
    pub fn set_reopening(&mut self, max: Duration) -> Result<(), XdpError> {
        let until = if max.is_zero() { 0 } else { syscalls::program_time().saturating_add(max.as_nanos()) };
        self.reopening.set(0, until, 0).map_err(map_error("reopening"))
    }

    /// Has claimed packets of receive queue `queue` delivered to the AF_XDP socket `xsk`, bound to that queue, until the
    /// socket is closed.
    pub fn register_queue(&mut self, queue: u16, xsk: BorrowedFd<'_>) -> Result<(), XdpError> {
        if queue >= self.covered_queues {
            self.cover_new_queues()?;
        }
        self.xsks.set(u32::from(queue), xsk.as_raw_fd(), 0).map_err(map_error("xsks"))
    }

    /// Ends what [`SteeringProgram::register_queue`] began, though somebody may have the socket open. Queues without are no error.
    pub fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        absent_is_fine(self.xsks.unset(u32::from(queue))).map_err(map_error("xsks"))
    }

    /// veth runs a program on the queues only that it had when the program was attached (seen with Linux 6.18). A fresh
    /// copy, on the same maps, makes it look again.
    fn cover_new_queues(&mut self) -> Result<(), XdpError> {
        let covered_queues = self.interface.queue_pairs();
        let program = program(&mut self.object)?;
        program.unload().map_err(|error| load_error(&error))?; // The link still holds the old copy.
        load(program)?;
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
        SteeringCounters::read(&self.outcomes)
    }
}

impl Drop for SteeringProgram {
    /// Closing the link would do, if it were the only descriptor of it: a child between fork and exec has another.
    fn drop(&mut self) {
        // Fails only if the interface is gone, and the program with it.
        let _ = syscalls::detach_link(self.link.as_fd());
        if let Some(pin) = &self.pin {
            let _ = std::fs::remove_file(pin); // Somebody else may have.
        }
    }
}

/// A path as system calls want it.
fn terminated(path: &Path) -> Result<CString, XdpError> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| XdpError::system("a path")(error.into()))
}

fn program(object: &mut Ebpf) -> Result<&mut Xdp, XdpError> {
    let program = object.program_mut("sidestep_steer").expect("the object holds the program");
    program.try_into().map_err(|error: aya::programs::ProgramError| load_error(&error))
}

fn load_program(object: &mut Ebpf) -> Result<&Xdp, XdpError> {
    let program = program(object)?;
    load(program)?;
    Ok(program)
}

/// Has the kernel verify and take the program. Verifying ends with EAGAIN when a signal comes to the thread: signals wait until it is
/// done, lest they come more often than it takes. For others that make the kernel stop it is tried again.
fn load(program: &mut Xdp) -> Result<(), XdpError> {
    let began = Instant::now();
    loop {
        match syscalls::with_signals_blocked(|| program.load()) {
            Err(error) if refusal(&error) == Some(libc::EAGAIN) && began.elapsed() < LOADING_MAX => {}
            outcome => return outcome.map_err(|error| load_error(&error)),
        }
    }
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
    if let Some(present) = program_present(&native, interface) {
        return Err(present);
    }
    match syscalls::attach_xdp(program, interface.index, XDP_FLAGS_SKB_MODE) {
        Ok(link) => Ok((link, AttachMode::Generic)),
        Err(source) if source.raw_os_error() == Some(libc::EPERM) => {
            Err(XdpError::NotPermitted { operation: "attaching an XDP program", source })
        }
        Err(generic) => Err(program_present(&generic, interface).unwrap_or_else(|| XdpError::Attach {
            interface: interface.name.clone(),
            native,
            generic,
        })),
    }
}

/// Whether that is why the interface takes none. EBUSY: a program in the same mode; EEXIST: one in the other mode, or one at an
/// interface above this one, such as its bridge.
fn program_present(refusal: &io::Error, interface: &Interface) -> Option<XdpError> {
    if !matches!(refusal.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) {
        return None;
    }
    let id = match interface.xdp_program() {
        Ok(Some(id)) => id,
        Ok(None) => return None,
        Err(_) => 0,
    };
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let program =
        programs.filter(|info| info.id() == id).find_map(|info| info.name_as_str().map(str::to_owned));
    let (interface, program) = (interface.name.clone(), program.unwrap_or_default());
    Some(XdpError::ProgramPresent { interface, program, id })
}

fn typed<T: TryFrom<Map, Error = MapError>>(object: &mut Ebpf, name: &'static str) -> Result<T, XdpError> {
    let map = object.take_map(name).expect("the object defines the map");
    T::try_from(map).map_err(map_error(name))
}

/// The error number that is the cause of an error, if one is.
fn refusal(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
}

/// Tells "not permitted" from "not possible".
fn load_error(error: &(dyn Error + 'static)) -> XdpError {
    match refusal(error) {
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
