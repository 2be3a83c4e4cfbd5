//! Links of programs, and names in a BPF file system.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::{io, ptr};

use super::{checked, owned};

/// What BPF_LINK_CREATE reads of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches an XDP program to an interface for as long as the returned link is open, see bpf(2), BPF_LINK_CREATE.
///
/// Never replaces a program: EBUSY or EEXIST if there is one. `flags` are XDP_FLAGS_DRV_MODE or XDP_FLAGS_SKB_MODE.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    const BPF_XDP: u32 = 37;
    create_link(&LinkCreate { program: program.as_raw_fd() as u32, interface, attach_type: BPF_XDP, flags })
}

/// The same for a program of traffic control, which sees what the interface receives behind those that are there (Linux 6.6).
pub(crate) fn attach_to_ingress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    const BPF_TCX_INGRESS: u32 = 46;
    let program = program.as_raw_fd() as u32;
    create_link(&LinkCreate { program, interface, attach_type: BPF_TCX_INGRESS, flags: 0 })
}

fn create_link(attr: &LinkCreate) -> io::Result<OwnedFd> {
    const BPF_LINK_CREATE: libc::c_int = 28;
    let size = mem::size_of_val(attr) as libc::c_uint;
    // SAFETY: `attr` has the layout that the command reads, is `size` octets long and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, ptr::from_ref(attr), size) };
    owned(fd as libc::c_int)
}

/// What BPF_LINK_UPDATE reads of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
struct LinkUpdate {
    link: u32,
    new_program: u32,
    flags: u32,
    old_program: u32,
}

/// Has a link run `program` instead of the program that it ran, without a gap, see bpf(2), BPF_LINK_UPDATE.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    const BPF_LINK_UPDATE: libc::c_int = 29;
    let (link, new_program) = (link.as_raw_fd() as u32, program.as_raw_fd() as u32);
    let attr = LinkUpdate { link, new_program, flags: 0, old_program: 0 };
    let size = mem::size_of_val(&attr) as libc::c_uint;
    // SAFETY: as for `create_link`.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_UPDATE, &raw const attr, size) };
    checked(result as libc::c_int).map(drop)
}

/// Detaches a link's program now, even if other processes have the link open, see bpf(2), BPF_LINK_DETACH.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    const BPF_LINK_DETACH: libc::c_int = 34;
    let link_fd = link.as_raw_fd() as u32;
    let size = mem::size_of_val(&link_fd) as libc::c_uint;
    // SAFETY: the command reads one u32, the link's descriptor; `link_fd` outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_DETACH, &raw const link_fd, size) };
    checked(result as libc::c_int).map(drop)
}

/// What BPF_MAP_CREATE reads of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// A fresh map of so many entries that forgets those that were not looked up for longest, see bpf(2), BPF_MAP_CREATE. Sizes of keys and values
/// are in octets.
pub(crate) fn new_lru_hash(key: u32, value: u32, entries: u32) -> io::Result<OwnedFd> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    const BPF_MAP_TYPE_LRU_HASH: u32 = 9;
    let attr = MapCreate { kind: BPF_MAP_TYPE_LRU_HASH, key, value, entries, flags: 0 };
    let size = mem::size_of_val(&attr) as libc::c_uint;
    // SAFETY: as for `create_link`.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw const attr, size) };
    owned(fd as libc::c_int)
}

/// What BPF_OBJ_PIN and BPF_OBJ_GET read of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
struct Pin {
    path: u64,
    object: u32,
    flags: u32,
}

/// Keeps a link, and the program and maps behind it, under a name in a BPF file system until that is removed, see bpf(2), BPF_OBJ_PIN.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &std::ffi::CStr) -> io::Result<()> {
    const BPF_OBJ_PIN: libc::c_int = 6;
    bpf_at(BPF_OBJ_PIN, path, object.as_raw_fd() as u32).map(drop)
}

/// Opens what is kept under that name, see bpf(2), BPF_OBJ_GET.
pub(crate) fn open_pinned(path: &std::ffi::CStr) -> io::Result<OwnedFd> {
    const BPF_OBJ_GET: libc::c_int = 7;
    owned(bpf_at(BPF_OBJ_GET, path, 0)?)
}

fn bpf_at(command: libc::c_int, path: &std::ffi::CStr, object: u32) -> io::Result<libc::c_int> {
    let attr = Pin { path: path.as_ptr() as u64, object, flags: 0 };
    let size = mem::size_of_val(&attr) as libc::c_uint;
    // SAFETY: `attr` has the layout that both commands read, is `size` octets long and outlives the call, as does the terminated
    // string that it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attr, size) };
    checked(result as libc::c_int)
}

/// The clock of `bpf_ktime_get_ns`, in nanoseconds: CLOCK_MONOTONIC.
pub(crate) fn program_time() -> u64 {
    // SAFETY: a `timespec` is integers, for which zeroes are a value.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` outlives the call. There is this clock on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, ptr::from_mut(&mut time)) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 // Neither is negative.
}
