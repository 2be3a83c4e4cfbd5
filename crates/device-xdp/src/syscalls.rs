//! One small safe function per system call. See xsk's kernel page, Documentation/networking/af_xdp.rst, and the manual
//! page that each function names.

mod bpf;

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use frame::Region;

pub(crate) use bpf::{
    attach_to_ingress, attach_xdp, detach_link, new_lru_hash, open_pinned, pin, program_time, update_link,
};

/// `SOL_XDP` option of Linux 6.17: most frames that one sendto moves in copy mode, 32 before.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// A fresh AF_XDP socket, see socket(2).
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    owned(fd)
}

/// Registers `region` as the socket's umem (af_xdp.rst, "XDP_UMEM_REG setsockopt").
///
/// # Safety
/// The kernel writes into slots whose numbers it is given through the fill ring: nobody else may hold those. The
/// region must stay mapped until the call returns; after that the kernel keeps the pages itself.
pub(crate) unsafe fn register_umem(fd: BorrowedFd<'_>, region: &Region, slot_size: u32) -> io::Result<()> {
    let umem = libc::xdp_umem_reg {
        addr: region.start().as_ptr() as u64,
        len: region.len() as u64,
        chunk_size: slot_size,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &umem)
}

/// A ring of an AF_XDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingKind {
    Fill,
    Completion,
    Rx,
    Tx,
}

impl RingKind {
    fn option(self) -> libc::c_int {
        match self {
            RingKind::Fill => libc::XDP_UMEM_FILL_RING,
            RingKind::Completion => libc::XDP_UMEM_COMPLETION_RING,
            RingKind::Rx => libc::XDP_RX_RING,
            RingKind::Tx => libc::XDP_TX_RING,
        }
    }

    fn page_offset(self) -> libc::off_t {
        match self {
            RingKind::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t,
            RingKind::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t,
            RingKind::Rx => libc::XDP_PGOFF_RX_RING,
            RingKind::Tx => libc::XDP_PGOFF_TX_RING,
        }
    }
}

/// Gives a ring of the socket `entries` entries, a power of two.
pub(crate) fn set_ring_size(fd: BorrowedFd<'_>, ring: RingKind, entries: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_XDP, ring.option(), &entries)
}

/// Where the fields of each ring lie in its mapping (af_xdp.rst, "XDP_MMAP_OFFSETS getsockopt").
pub(crate) fn ring_offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    get_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
}

/// The kernel's own counts for one socket (af_xdp.rst, "XDP_STATISTICS getsockopt").
pub(crate) fn statistics(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    get_option(fd, libc::SOL_XDP, libc::XDP_STATISTICS)
}

/// Whether the socket was bound in zero-copy mode (af_xdp.rst, "XDP_OPTIONS getsockopt").
pub(crate) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let options: libc::xdp_options = get_option(fd, libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Lets one sendto move `frames` frames in copy mode. Kernels before 6.17 refuse, and move 32.
pub(crate) fn set_tx_budget(fd: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &frames)
}

/// Has the queue's NAPI driven from our system calls instead of interrupts (socket(7), SO_BUSY_POLL; napi.rst).
pub(crate) fn set_busy_poll(fd: BorrowedFd<'_>, micros: u32, budget: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1u32)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &micros)?;
    set_option(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget)
}

/// How a socket is bound to its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BindMode<'a> {
    /// The kernel falls back to copy mode where the driver has no zero-copy mode: see `is_zero_copy`.
    ZeroCopyIfPossible,
    /// `chains`: packets may come in several frames.
    Copy { chains: bool },
    /// Like the socket that has the umem; the mode is that socket's.
    Shared(BorrowedFd<'a>),
}

/// Binds the socket to one queue of one interface (af_xdp.rst, "XDP_SHARED_UMEM", "XDP_COPY and XDP_ZEROCOPY").
pub(crate) fn bind(fd: BorrowedFd<'_>, interface: u32, queue: u32, mode: BindMode<'_>) -> io::Result<()> {
    let (flags, shared) = match mode {
        BindMode::ZeroCopyIfPossible => (libc::XDP_USE_NEED_WAKEUP, 0),
        BindMode::Copy { chains } => {
            let chains = if chains { libc::XDP_USE_SG } else { 0 };
            (libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | chains, 0)
        }
        BindMode::Shared(first) => (libc::XDP_SHARED_UMEM, first.as_raw_fd() as u32),
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared,
    };
    let size = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a whole sockaddr_xdp of `size` octets and outlives the call.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) }).map(drop)
}

/// Tells the kernel to look at the transmit ring, see sendto(2) and af_xdp.rst, "XDP_USE_NEED_WAKEUP bind flag".
pub(crate) fn wake_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    checked(sent as libc::c_int).map(drop)
}

/// Tells the kernel to look at the fill ring, and to poll the queue where busy polling is set, see recvfrom(2).
pub(crate) fn wake_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address.
    let received = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    checked(received as libc::c_int).map(drop)
}

/// A packet socket that asks for no packets, see packet(7).
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    owned(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })
}

/// Has a socket drop all that arrives, for ever, see SO_ATTACH_FILTER and SO_LOCK_FILTER in socket(7).
pub(crate) fn refuse_all_packets(fd: BorrowedFd<'_>) -> io::Result<()> {
    const RETURN_CONSTANT: u16 = 0x06; // BPF_RET | BPF_K: take that many octets.
    let mut nothing = libc::sock_filter { code: RETURN_CONSTANT, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1u32)
}

/// Each packet that is sent has a [`VirtioNetHeader`] in front, see PACKET_VNET_HDR in packet(7).
pub(crate) fn use_virtio_headers(fd: BorrowedFd<'_>) -> io::Result<()> {
    const PACKET_VNET_HDR: libc::c_int = 15;
    set_option(fd, libc::SOL_PACKET, PACKET_VNET_HDR, &1u32)
}

/// Whether packets go to the driver past traffic control, see PACKET_QDISC_BYPASS in packet(7).
pub(crate) fn set_queueing_bypassed(fd: BorrowedFd<'_>, bypassed: bool) -> io::Result<()> {
    const PACKET_QDISC_BYPASS: libc::c_int = 20;
    set_option(fd, libc::SOL_PACKET, PACKET_QDISC_BYPASS, &u32::from(bypassed))
}

/// Lets so many octets wait to be sent, whatever the system's limit, see SO_SNDBUFFORCE in socket(7).
pub(crate) fn force_send_buffer(fd: BorrowedFd<'_>, octets: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &octets)
}

/// Sends by one interface from now on, see packet(7).
pub(crate) fn bind_packet_socket(fd: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = interface as libc::c_int;
    let size = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a whole sockaddr_ll of `size` octets and outlives the call.
    checked(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) }).map(drop)
}

/// `struct virtio_net_hdr`, in the machine's byte order (linux/virtio_net.h).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct VirtioNetHeader {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    /// Octets of all headers of the packet.
    pub(crate) header_len: u16,
    /// Octets of payload in each segment.
    pub(crate) gso_size: u16,
    /// Where the sum begins, and behind that where it is put.
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

impl VirtioNetHeader {
    pub(crate) fn as_octets(&self) -> &[u8] {
        // SAFETY: a `repr(C)` structure of integers without padding: two octets and four aligned 16-bit numbers.
        unsafe { std::slice::from_raw_parts(ptr::from_ref(self).cast(), mem::size_of::<Self>()) }
    }
}

/// Sends one packet that lies in pieces, without waiting, see sendmsg(2). The system call itself: the C library's function is a
/// cancellation point.
pub(crate) fn send_pieces(fd: BorrowedFd<'_>, pieces: &[io::IoSlice<'_>]) -> io::Result<()> {
    // SAFETY: all zeroes is a valid msghdr: no name, no control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `IoSlice` has the layout of an iovec, and its octets outlive the call, which only reads them.
    let sent = unsafe { libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), &raw const message, flags) };
    checked(sent as libc::c_int).map(drop)
}

/// Memory shared with the kernel; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range; it offers no access to the memory by itself.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map_ring`, is unmapped once, and rings hold the mapping while they use it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Maps the first `len` octets of a ring, see mmap(2).
pub(crate) fn map_ring(fd: BorrowedFd<'_>, ring: RingKind, len: usize) -> io::Result<Mapping> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let start =
        unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), ring.page_offset()) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never maps page zero");
    let mapping = Mapping { start, len };
    // A child of fork(2) would be a second user of a ring that has room for one.
    // SAFETY: the range was mapped just now, and the advice changes nothing in it (madvise(2)).
    unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, libc::MADV_DONTFORK) };
    Ok(mapping)
}

/// Locks one octet of a file for this descriptor and its copies, in whatever process, until all of them and all mappings made by them are
/// closed: see F_OFD_SETLK in fcntl(2). Fails with EAGAIN if others have it.
pub(crate) fn lock_octet(fd: BorrowedFd<'_>, octet: u64) -> io::Result<()> {
    let lock = octet_lock(octet);
    // SAFETY: `lock` is a whole flock that outlives the call.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    checked(result).map(drop)
}

/// Whether another open file description has locked the octet, see F_OFD_GETLK in fcntl(2).
pub(crate) fn is_octet_locked(fd: BorrowedFd<'_>, octet: u64) -> io::Result<bool> {
    let mut lock = octet_lock(octet);
    // SAFETY: `lock` is a whole flock that outlives the call; the kernel writes within it.
    checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) })?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

fn octet_lock(octet: u64) -> libc::flock {
    // SAFETY: all zeroes is a valid flock, and what F_OFD_SETLK wants of `l_pid`.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = octet as libc::off_t;
    lock.l_len = 1;
    lock
}

/// Version and revision of the running kernel, see uname(2); zeroes if it does not tell.
pub(crate) fn kernel_version() -> (u32, u32) {
    // SAFETY: all zeroes is a valid utsname, and it is writable.
    let name = unsafe {
        let mut name: libc::utsname = mem::zeroed();
        libc::uname(&raw mut name);
        name
    };
    let text = name.release.iter().take_while(|&&octet| octet != 0).map(|&octet| octet as u8 as char);
    let text: String = text.collect();
    let mut numbers = text.split(|octet: char| !octet.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Octets of a page, see sysconf(3).
pub(crate) fn page_size() -> usize {
    // SAFETY: no pointers. Never fails for this name.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Lifts the limit on locked memory as far as allowed, see setrlimit(2): to none with CAP_SYS_RESOURCE, else to what it may be raised to.
/// Kernels before 5.11 count BPF maps against it.
pub(crate) fn raise_memlock_limit() {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `unlimited` outlives the call. A refusal leaves the limit as it was.
    if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &unlimited) } == 0 {
        return;
    }
    let mut limit = unlimited;
    // SAFETY: `limit` outlives both calls. What fails leaves the limit as it was, which may well be enough.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
        }
    }
}

/// The index of an interface, see if_nametoindex(3).
pub(crate) fn interface_index(name: &std::ffi::CStr) -> io::Result<u32> {
    // SAFETY: `name` is a terminated string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The MTU of an interface, see netdevice(7), SIOCGIFMTU.
pub(crate) fn interface_mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = interface_request(name)?;
    // SAFETY: `request` is an ifreq with a terminated name; the kernel writes within it.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut request) })?;
    // SAFETY: SIOCGIFMTU filled this member; every bit pattern is a valid integer anyway.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// Asks an interface's driver by way of SIOCETHTOOL (linux/ethtool.h); `command` starts with its ETHTOOL_ number.
///
/// # Safety
/// `T` is the `repr(C)` structure that the command named in it reads and writes, valid for every bit pattern.
pub(crate) unsafe fn ethtool<T>(socket: BorrowedFd<'_>, name: &str, command: &mut T) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = ptr::from_mut(command).cast();
    // SAFETY: `request` names the interface and points to the command's structure, which the caller vouches for.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) }).map(drop)
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes is a valid ifreq: integers, octets and a null pointer.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (slot, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = octet as libc::c_char;
    }
    Ok(request)
}

/// A socket to ask about interfaces with, see netdevice(7).
pub(crate) fn query_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked.
    owned(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
}

/// Does `act` with all signals of the calling thread blocked, see pthread_sigmask(3). Those for the process go to its other threads
/// meanwhile, or wait.
pub(crate) fn with_signals_blocked<T>(act: impl FnOnce() -> T) -> T {
    /// Puts the mask back, also if `act` panics.
    struct Restore(libc::sigset_t);

    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: the set is one that the function below has filled; a null pointer asks for nothing.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }

    // SAFETY: all zeroes is a valid sigset_t; both are writable, and live across the calls, which fail only for a wrong first argument.
    let _restore = unsafe {
        let (mut all, mut before) = mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        Restore(before)
    };
    act()
}

fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let size = mem::size_of::<T>() as libc::socklen_t;
    let value: *const c_void = ptr::from_ref(value).cast();
    // SAFETY: `value` points to `size` octets that outlive the call; the kernel only reads them (setsockopt(2)).
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, size) }).map(drop)
}

/// `T` is a structure of integers.
fn get_option<T: Copy>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut size = mem::size_of::<T>() as libc::socklen_t;
    let mut value = mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the kernel writes at most `size` octets into `value` (getsockopt(2)).
    checked(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut size) })?;
    // SAFETY: zeroed, then partly or wholly overwritten; any octets make a valid `T`, a structure of integers.
    Ok(unsafe { value.assume_init() })
}

/// Lets the calling thread, and no other one, find no files by their paths any more. For one that is about to end.
pub(crate) fn find_no_files() -> io::Result<()> {
    // SAFETY: no memory is involved; the thread gets a root directory of its own.
    checked(unsafe { libc::unshare(libc::CLONE_FS) })?;
    // SAFETY: the path ends with a zero. Only this thread's root changes.
    checked(unsafe { libc::chroot(c"/proc/self/fdinfo".as_ptr()) })?;
    Ok(())
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    checked(fd)?;
    // SAFETY: the callers pass what a system call that creates a descriptor returned: it is fresh and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
