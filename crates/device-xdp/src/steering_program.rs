//! The steering program on one interface: loading, attaching, claims.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{Array, MapData, XskMap};
use aya::programs::Xdp;
use clock::{Duration, Instant};
use steering::{Claim, ClaimTerms, Marks};

use crate::claims::Claims;
use crate::counters::{Outcomes, SteeringCounters};
use crate::error::{absent_is_fine, map_error};
use crate::kernel_flows::{Flow, KernelFlows, Table, is_absent};
use crate::loading::{attach_program, load, load_error, load_program, open_object, program, typed};
use crate::netdev::Interface;
use crate::owners::{Owners, QueueOwner};
use crate::sharing::{self, Sharing};
use crate::{AttachMode, XdpError, syscalls};

/// How the program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringOptions {
    /// Where in the kernel the program is to run. `None`: in the driver if that can be, else in generic mode, which rules out zero-copy.
    pub mode: Option<AttachMode>,
    /// How many flows that are the kernel's under a claim can be noted in each of the [`Marks::TABLES`] (0: none are). A table is made when
    /// there is something to note in it, and takes some 100 octets of locked memory for each flow that it has room for. When there are more,
    /// those forgotten break off that were quiet for longest. Each queue that is shared has such a table, too, for connections whose sharer is not
    /// the one that their hash chooses.
    pub kernel_flows: u32,
}

/// Counts changes of what a kept program's maps mean. One of another number cannot be taken over.
pub const KEPT_LAYOUT: u16 = 4;

/// The steering program, attached to one interface for as long as this value lives, and no longer: the kernel detaches
/// it when the process ends, however it ends, unless it is kept.
pub struct SteeringProgram {
    interface: Interface,
    mode: AttachMode,
    claims: Claims,
    kernel_flows: KernelFlows,
    misdirected: Table,
    xsks: XskMap<MapData>,
    sharing: Sharing,
    reopening: Array<MapData, u64>,
    outcomes: Outcomes,
    owners: Owners,
    /// Queues that the interface had when the program was last given to the driver.
    covered_queues: u16,
    object: Ebpf,
    link: OwnedFd,
    /// What keeps it.
    directory: Option<PathBuf>,
    is_left: bool,
}

impl SteeringProgram {
    /// Loads the program and attaches it to `interface` of the calling thread's network namespace: in driver mode, else
    /// in generic mode. Claims nothing yet.
    pub fn attach(interface: &str, options: SteeringOptions) -> Result<SteeringProgram, XdpError> {
        let interface = Interface::open(interface)?;
        let mut object = open_object(None)?;
        let (link, mode) = attach_program(&mut object, &interface, options)?;
        SteeringProgram::assemble(object, interface, mode, link, options, None)
    }

    /// The same, kept: if this process is killed, the program stays attached, with its claims, sockets and owners. What keeps it has names
    /// in a directory of a BPF file system, which is made. Dropping this value still detaches the program, and removes the directory.
    pub fn attach_kept(
        interface: &str,
        options: SteeringOptions,
        directory: &Path,
    ) -> Result<SteeringProgram, XdpError> {
        let attach = || {
            let interface = Interface::open(interface)?;
            DirBuilder::new().mode(0o700).create(directory).map_err(XdpError::system("mkdir"))?;
            let mut object = open_object(Some(directory))?;
            let (link, mode) = attach_program(&mut object, &interface, options)?;
            syscalls::pin(link.as_fd(), &link_in(directory)?).map_err(XdpError::system("BPF_OBJ_PIN"))?;
            SteeringProgram::assemble(object, interface, mode, link, options, Some(directory.to_owned()))
        };
        attach().inspect_err(|_| drop(fs::remove_dir_all(directory))) // What is not there need not go.
    }

    /// Takes over a kept program whose process was killed, with all that it has: [`SteeringProgram::claims`],
    /// [`SteeringProgram::owners`], sockets and flows. No packet is lost: the interface gets this version of the program on the same maps.
    ///
    /// After an error the program is as it was.
    pub fn take_over(
        interface: &str,
        options: SteeringOptions,
        directory: &Path,
    ) -> Result<SteeringProgram, XdpError> {
        let interface = Interface::open(interface)?;
        let link = open_link(directory)?;
        let mode = interface.xdp_mode().map_err(XdpError::system("looking at the interface's program"))?;
        let mode =
            mode.ok_or_else(|| XdpError::system("the interface's program")(io::ErrorKind::NotFound.into()))?;
        let mut object = open_object(Some(directory))?;
        update(&link, load_program(&mut object, mode)?)?;
        SteeringProgram::assemble(object, interface, mode, link, options, Some(directory.to_owned()))
    }

    fn assemble(
        mut object: Ebpf,
        interface: Interface,
        mode: AttachMode,
        link: OwnedFd,
        options: SteeringOptions,
        directory: Option<PathBuf>,
    ) -> Result<SteeringProgram, XdpError> {
        Ok(SteeringProgram {
            claims: Claims::read(typed(&mut object, "claims")?, typed(&mut object, "ports")?)?,
            kernel_flows: KernelFlows::read(typed(&mut object, "kernel_flows")?, options)?,
            misdirected: typed(&mut object, "misdirected")?,
            xsks: typed(&mut object, "xsks")?,
            sharing: Sharing::read(
                typed(&mut object, "sharers")?,
                typed(&mut object, "shared_flows")?,
                options,
            )?,
            reopening: typed(&mut object, "reopening")?,
            outcomes: typed(&mut object, "outcomes")?,
            owners: Owners(typed(&mut object, "owners")?),
            covered_queues: interface.queue_pairs()?,
            interface,
            mode,
            object,
            link,
            directory,
            is_left: false,
        })
    }

    /// Whether it goes on if this process is killed.
    pub fn is_kept(&self) -> bool {
        self.directory.is_some()
    }

    /// Gives the directory that keeps the program another name in the same place.
    pub fn rename_kept(&mut self, directory: &Path) -> Result<(), XdpError> {
        if let Some(old) = self.directory.as_deref().filter(|old| *old != directory) {
            fs::rename(old, directory).map_err(XdpError::system("rename"))?;
            self.directory = Some(directory.to_owned());
        }
        Ok(())
    }

    /// Whether a directory keeps a program on this interface. If not, its process was killed before there was one, or it is detached.
    pub fn is_kept_in(directory: &Path, interface: &str) -> bool {
        let has_none = Interface::open(interface).is_ok_and(|it| matches!(it.xdp_mode(), Ok(None)));
        directory.join("link").exists() && !has_none
    }

    /// Dropping this value changes nothing from now on: a kept program goes on, as if this process were killed.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Detaches a kept program whose process was killed, and removes what keeps it.
    pub fn remove_kept(directory: &Path) -> Result<(), XdpError> {
        if let Ok(link) = open_link(directory) {
            let _ = syscalls::detach_link(link.as_fd()); // Fails only if the interface is gone, and the program with it.
        }
        fs::remove_dir_all(directory).map_err(XdpError::system("removing a directory of a BPF file system"))
    }

    /// Notes who has a queue, for who takes the program over.
    pub fn set_owner(&mut self, queue: u16, owner: Option<QueueOwner>) -> Result<(), XdpError> {
        self.owners.set(queue, owner)
    }

    /// Who has which queue.
    pub fn owners(&self) -> Result<Vec<(u16, QueueOwner)>, XdpError> {
        self.owners.all()
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
        self.kernel_flows.prepare(&terms)?;
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

    /// Notes a flow as the kernel's: under a claim of [`ClaimTerms::kernel_some`], while it has these marks, its packets, and ICMP
    /// errors about it, pass.
    /// [`SteeringOptions::kernel_flows`] says how many there can be.
    pub fn add_kernel_flow(&mut self, flow: Flow, marks: Marks) -> Result<(), XdpError> {
        self.kernel_flows.add(flow, marks)
    }

    /// Notes a flow as one that a socket is to get which does not serve its queue yet: under a claim of
    /// [`ClaimTerms::kernel_some`], while it has these marks, its packets are dropped until one does. Whoever sent them
    /// sends them again, and the kernel, which does not know the connection, does not reset it. A flow that is noted as the
    /// kernel's by the same marks stays so: then this returns false.
    pub fn add_awaited_flow(&mut self, flow: Flow, marks: Marks) -> Result<bool, XdpError> {
        self.kernel_flows.add_awaited(flow, marks)
    }

    /// Forgets a flow of the kernel's, if it was noted in this table.
    pub fn remove_kernel_flow(&mut self, flow: Flow, table: u16) -> Result<(), XdpError> {
        self.kernel_flows.remove(flow, table)
    }

    /// Whether a flow is noted as the kernel's, while claims have these marks, by [`SteeringProgram::add_kernel_flow`] or as it began.
    pub fn is_kernel_flow(&self, flow: Flow, marks: Marks) -> Result<bool, XdpError> {
        self.kernel_flows.contains(flow, marks)
    }

    /// Whether a segment of this connection, which is not the kernel's, came by a queue on which its claim does not hold, since this was asked
    /// last. The program remembers the latest such connections.
    pub fn take_misdirected(&mut self, flow: Flow) -> Result<bool, XdpError> {
        match self.misdirected.remove(&flow.key()) {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(map_error("misdirected")(error)),
        }
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
        self.cover(queue)?;
        self.xsks.set(u32::from(queue), xsk.as_raw_fd(), 0).map_err(map_error("xsks"))
    }

    /// Ends what [`SteeringProgram::register_queue`] began, though somebody may have the socket open. Queues without are no error.
    pub fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        absent_is_fine(self.xsks.unset(u32::from(queue))).map_err(map_error("xsks"))
    }

    /// Has packets of `queue` that are claimed for queue `number`, below 64, delivered to this socket. It shares the queue with others: claims
    /// name their numbers, and mean no queue. Of several that have claimed the same, a hash of the flow chooses one.
    pub(crate) fn register_sharer(
        &mut self,
        queue: u16,
        number: u16,
        xsk: BorrowedFd<'_>,
    ) -> Result<(), XdpError> {
        self.cover(queue)?;
        self.sharing.add(&mut self.xsks, queue, number, xsk)
    }

    /// Ends what `register_sharer` began.
    pub(crate) fn remove_sharer(&mut self, queue: u16, number: u16) -> Result<(), XdpError> {
        self.sharing.remove(&mut self.xsks, queue, number)
    }

    /// Ends the delivery to a process that shares a queue, whoever lent it; false if none of this number does.
    pub fn forget_sharer(&mut self, number: u16) -> Result<bool, XdpError> {
        let Some(queue) = self.sharing.queue_of(number) else { return Ok(false) };
        self.remove_sharer(queue, number)?;
        Ok(true)
    }

    /// A connection is no longer that process's which had it, of those that share a queue: the next packet chooses among those who have claimed
    /// it then.
    pub fn forget_shared_flow(&mut self, flow: Flow) -> Result<(), XdpError> {
        self.sharing.forget_flow(flow)
    }

    /// Newcomers among those who share a queue are none any more when they have been there for five minutes: connections of which nothing is noted may be
    /// theirs, too. To be called every second or so.
    pub fn settle_sharers(&mut self, now: Instant) -> Result<(), XdpError> {
        self.sharing.settle(now)
    }

    /// Whether processes share this queue.
    pub fn is_shared(&self, queue: u16) -> bool {
        self.sharing.is_shared(queue)
    }

    /// Whether the process that shares a queue by this number has ended, if there was one. Of use only where this process has no copy
    /// of its socket: where another one lent it.
    pub fn has_ended(&mut self, number: u16) -> Option<bool> {
        self.sharing.queue_of(number)?;
        sharing::is_closed(&mut self.xsks, number).ok()
    }

    /// Makes sure that the program runs on this queue.
    fn cover(&mut self, queue: u16) -> Result<(), XdpError> {
        if queue >= self.covered_queues {
            self.cover_new_queues()?;
        }
        Ok(())
    }

    /// veth runs a program on the queues only that it had when the program was attached (seen with Linux 6.18). A fresh
    /// copy, on the same maps, makes it look again.
    fn cover_new_queues(&mut self) -> Result<(), XdpError> {
        let covered_queues = self.interface.queue_pairs()?;
        let program = program(&mut self.object, self.mode)?;
        program.unload().map_err(|error| load_error(&error))?; // The link still holds the old copy.
        load(|| program.load())?;
        update(&self.link, program)?;
        self.covered_queues = covered_queues;
        Ok(())
    }

    /// Where in the kernel the program runs.
    pub fn mode(&self) -> AttachMode {
        self.mode
    }

    /// Whether several datagrams may come as one packet, which nothing tells from a long one: packets are taken as the kernel's stack would get them,
    /// and a peer on the same host may leave cutting them to that (UDP_SEGMENT).
    pub fn merges_datagrams(&self) -> bool {
        self.mode == AttachMode::Generic && self.interface.is_veth()
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
        if self.is_left {
            return;
        }
        // Fails only if the interface is gone, and the program with it.
        let _ = syscalls::detach_link(self.link.as_fd());
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory); // Somebody else may have.
        }
    }
}

/// Has the link run this program instead of the one that it runs.
fn update(link: &OwnedFd, program: &Xdp) -> Result<(), XdpError> {
    let program = program.fd().map_err(|error| load_error(&error))?;
    syscalls::update_link(link.as_fd(), program.as_fd()).map_err(XdpError::system("BPF_LINK_UPDATE"))
}

/// The link of a kept program.
fn open_link(directory: &Path) -> Result<OwnedFd, XdpError> {
    syscalls::open_pinned(&link_in(directory)?).map_err(XdpError::system("BPF_OBJ_GET"))
}

/// Its name, as system calls want it.
fn link_in(directory: &Path) -> Result<CString, XdpError> {
    CString::new(directory.join("link").into_os_string().into_vec())
        .map_err(|error| XdpError::system("a path")(error.into()))
}
