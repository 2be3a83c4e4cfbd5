//! Opening AF_XDP sockets: rings, memory, binding, and the entry in the steering program's map. All of this needs
//! privileges; nothing afterwards does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use frame::Region;

use crate::lane::Lane;
use crate::loading::has_chains;
use crate::options::Resolved;
use crate::syscalls::{self, BindMode, RingKind};
use crate::{AttachMode, CopyMode, SteeringProgram, XdpError, XdpOptions};

/// Sockets with rings, and the memory that they share. Not bound yet.
pub(crate) struct Sockets {
    pub(crate) region: Region,
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) options: Resolved,
}

impl Sockets {
    /// Makes `count` sockets for queues of the interface that `program` sits on.
    ///
    /// # Panics
    /// If `count` is zero.
    pub(crate) fn create(
        program: &SteeringProgram,
        count: usize,
        options: &XdpOptions,
    ) -> Result<Sockets, XdpError> {
        assert!(count > 0, "a device has a queue");
        let options = options.resolve(program.netdev())?;
        let octets = count * options.frames_per_queue as usize * usize::from(options.frame_size);
        let region =
            Region::memfd(c"sidestep-umem", octets).map_err(|source| XdpError::Memory { octets, source })?;
        let fds: Vec<OwnedFd> = (0..count).map(|_| create_socket(&options)).collect::<Result<_, _>>()?;
        register(fds[0].as_fd(), &region, options.frame_size)?;
        Ok(Sockets { region, fds, options })
    }
}

/// Binds each socket to its queue, and has `program` deliver to it. Sockets before `done` are bound already; after an error it
/// says how many are.
pub(crate) fn bind(
    program: &mut SteeringProgram,
    queues: &[u16],
    fds: &[BorrowedFd<'_>],
    options: &Resolved,
    done: &mut usize,
) -> Result<(), XdpError> {
    for (place, (&queue, &fd)) in queues.iter().zip(fds).enumerate().skip(*done) {
        let mode = if place == 0 { bind_mode(program, options) } else { BindMode::Shared(fds[0]) };
        let interface = program.netdev();
        syscalls::bind(fd, interface.index, u32::from(queue), mode)
            .map_err(|error| bind_error(&interface.name, queue, error))?;
        *done = place + 1;
    }
    queues.iter().zip(fds).try_for_each(|(&queue, &fd)| program.register_queue(queue, fd))
}

/// How the first socket on some memory is bound.
pub(crate) fn bind_mode(program: &SteeringProgram, options: &Resolved) -> BindMode<'static> {
    let mode = program.mode();
    // No driver fills a umem for the stack's own XDP.
    if options.force_copy || mode == AttachMode::Generic {
        BindMode::Copy { chains: has_chains(mode) }
    } else {
        BindMode::ZeroCopyIfPossible
    }
}

/// The bulk lane of a device in that mode; `None` where it is not wanted, of no use, or cannot be had: everything is sent by the rings then.
pub(crate) fn bulk_lane(program: &SteeringProgram, options: &Resolved, mode: CopyMode) -> Option<Lane> {
    let is_useful = options.bulk_lane && mode == CopyMode::Copy;
    is_useful.then(|| Lane::open(program.netdev().index).ok()).flatten()
}

pub(crate) fn bind_error(interface: &str, queue: u16, source: io::Error) -> XdpError {
    let interface = interface.to_owned();
    match source.raw_os_error() {
        Some(libc::EBUSY) => XdpError::QueueBusy { interface, queue },
        Some(libc::EPERM) => XdpError::NotPermitted { operation: "binding an AF_XDP socket", source },
        _ => XdpError::Bind { interface, queue, source },
    }
}

fn create_socket(options: &Resolved) -> Result<OwnedFd, XdpError> {
    create_socket_with(options, &[RingKind::Fill, RingKind::Completion, RingKind::Rx, RingKind::Tx])
}

/// A socket with these rings.
pub(crate) fn create_socket_with(options: &Resolved, rings: &[RingKind]) -> Result<OwnedFd, XdpError> {
    let socket = syscalls::xdp_socket().map_err(XdpError::system("opening an AF_XDP socket"))?;
    let fd = socket.as_fd();
    for ring in rings {
        set_ring_size(fd, *ring, options.ring_entries)?;
    }
    // Kernels before 6.17 do not know this one, and need more calls.
    let _ = syscalls::set_tx_budget(fd, options.ring_entries);
    if let Some(busy_poll) = options.busy_poll {
        syscalls::set_busy_poll(fd, busy_poll.micros, busy_poll.budget)
            .map_err(XdpError::system("SO_PREFER_BUSY_POLL"))?;
    }
    Ok(socket)
}

/// Makes a ring of a socket, of so many entries.
pub(crate) fn set_ring_size(fd: BorrowedFd<'_>, ring: RingKind, entries: u32) -> Result<(), XdpError> {
    syscalls::set_ring_size(fd, ring, entries).map_err(XdpError::system("making a ring"))
}

/// Registers memory as a socket's umem.
pub(crate) fn register(fd: BorrowedFd<'_>, region: &Region, slot_size: u16) -> Result<(), XdpError> {
    // SAFETY: whoever has a region of this memory makes a `PacketMemory` of it, by which alone the kernel learns of slots; that takes them
    // from everybody else.
    let registered = unsafe { syscalls::register_umem(fd, region, u32::from(slot_size)) };
    registered.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOBUFS | libc::ENOMEM) => XdpError::Memory { octets: region.len(), source },
        _ => XdpError::system("registering the umem")(source),
    })
}
