//! Turns C's pointers into types, and refuses what the kernel refuses.
//!
//! The kernel returns `EFAULT` for any address that does not belong to the program. Here that is so for addresses that no program has: null
//! and the rest of the first page, and the kernel's half. Any other wild pointer ends the program: to ask the kernel about each address costs
//! more than the calls themselves (docs/limits.md has figures).

use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use libc::{iovec, sockaddr, socklen_t, timespec};
use posix::Errno;
use posix::calls::SignalMask;

use crate::answer::Asked;

/// The most octets that one call moves, as in the kernel: whole pages below 2 GiB.
const MAX_RW_COUNT: usize = 0x7fff_f000;
/// The most elements of an array of buffers.
pub(crate) const UIO_MAXIOV: usize = 1024;
/// Octets of `sockaddr_storage`: a longer name is refused.
const NAME_LEN_MAX: usize = 128;
/// Arrays of so many buffers are copied without allocating.
const FEW: usize = 8;

pub(crate) const EFAULT: Errno = Errno(libc::EFAULT);
pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);

/// No program has memory below this address: mmap(2) gives none there to who may not.
const LOWEST: usize = 4096;
/// Nor above: the kernel's half, and what is between that and programs with the most bits that an address has.
#[cfg(target_arch = "x86_64")]
const HIGHEST: usize = 1 << 56;
#[cfg(not(target_arch = "x86_64"))]
const HIGHEST: usize = 1 << 55;

/// Whether no program can have `len` octets there.
pub(crate) fn is_bad(address: usize, len: usize) -> bool {
    // The topmost octet is a tag there, which counts for nothing.
    #[cfg(target_arch = "aarch64")]
    let address = address & (usize::MAX >> 8);
    !(LOWEST..HIGHEST).contains(&address) || len > HIGHEST - address
}

/// `len` octets to be read.
///
/// # Safety
/// `address` is bad ([`is_bad`]) or has `len` octets, which nothing changes for as long as the result lives.
pub(crate) unsafe fn bytes<'a>(address: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    match (is_bad(address.addr(), len.min(MAX_RW_COUNT)), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(EFAULT),
        // SAFETY: not bad, and as long as the caller says or shorter.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(address.cast(), len.min(MAX_RW_COUNT)) }),
    }
}

/// `len` octets to be written.
///
/// # Safety
/// `address` is bad ([`is_bad`]) or has `len` octets, which nothing else refers to for as long as the result lives.
pub(crate) unsafe fn bytes_mut<'a>(address: *mut c_void, len: usize) -> Result<&'a mut [u8], Errno> {
    match (is_bad(address.addr(), len.min(MAX_RW_COUNT)), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(EFAULT),
        // SAFETY: not bad, and as long as the caller says or shorter; what is there is octets, whatever they are.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts_mut(address.cast(), len.min(MAX_RW_COUNT)) }),
    }
}

/// What `address` points to.
///
/// # Safety
/// `address` is bad ([`is_bad`]) or points to a `T` that nothing changes for as long as the result lives.
pub(crate) unsafe fn at<'a, T>(address: *const T) -> Result<&'a T, Errno> {
    if is_bad(address.addr(), size_of::<T>()) {
        return Err(EFAULT);
    }
    // SAFETY: not bad, and then as the caller says.
    unsafe { address.as_ref() }.ok_or(EFAULT)
}

/// A copy of what `address` points to, however that is aligned.
///
/// # Safety
/// `address` is bad ([`is_bad`]) or points to a `T`.
pub(crate) unsafe fn copy<T: Copy>(address: *const T) -> Result<T, Errno> {
    if is_bad(address.addr(), size_of::<T>()) {
        return Err(EFAULT);
    }
    // SAFETY: not bad, and then as the caller says.
    Ok(unsafe { address.read_unaligned() })
}

/// What `address` points to, to be changed.
///
/// # Safety
/// `address` is bad ([`is_bad`]) or points to a `T` that nothing else refers to for as long as the result lives.
pub(crate) unsafe fn at_mut<'a, T>(address: *mut T) -> Result<&'a mut T, Errno> {
    if is_bad(address.addr(), size_of::<T>()) {
        return Err(EFAULT);
    }
    // SAFETY: not bad, and then as the caller says.
    unsafe { address.as_mut() }.ok_or(EFAULT)
}

/// `count` elements from `address` on.
///
/// # Safety
/// `address` is null or has `count` elements, which nothing else refers to for as long as the result lives.
pub(crate) unsafe fn array_mut<'a, T>(address: *mut T, count: usize) -> Result<&'a mut [T], Errno> {
    match (is_bad(address.addr(), count.saturating_mul(size_of::<T>())), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(EFAULT),
        // SAFETY: not bad, and `count` elements as the caller says.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts_mut(address, count) }),
    }
}

/// A name that a call is given, such as connect(2).
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn name<'a>(address: *const sockaddr, len: socklen_t) -> Result<&'a [u8], Errno> {
    let len = usize::try_from(len as c_int).ok().filter(|len| *len <= NAME_LEN_MAX).ok_or(EINVAL)?;
    // SAFETY: as the caller says.
    unsafe { bytes(address.cast(), len) }
}

/// Room for a name that a call returns, such as accept(2), and for its length: the length says how much room there is, and is overwritten
/// by how long the name is.
pub(crate) struct NameRoom<'a> {
    pub(crate) octets: Option<&'a mut [u8]>,
    len: *mut socklen_t,
}

impl NameRoom<'_> {
    /// Room for a name that need not be asked for: without an address the length does not count.
    ///
    /// # Safety
    /// `address` is null, or it has as many octets as `len`, if not null, says, and nothing else refers to either meanwhile.
    pub(crate) unsafe fn optional<'a>(
        address: *mut sockaddr,
        len: *mut socklen_t,
    ) -> Result<NameRoom<'a>, Errno> {
        if address.is_null() {
            return Ok(NameRoom { octets: None, len: std::ptr::null_mut() });
        }
        // SAFETY: as the caller says.
        unsafe { NameRoom::needed(address, len) }
    }

    /// A buffer for a name, as for getsockname(2).
    ///
    /// # Safety
    /// As [`Self::optional`].
    pub(crate) unsafe fn needed<'a>(
        address: *mut sockaddr,
        len: *mut socklen_t,
    ) -> Result<NameRoom<'a>, Errno> {
        // SAFETY: as the caller says.
        let room = usize::try_from(unsafe { *at(len)? } as c_int).map_err(|_| EINVAL)?;
        // SAFETY: as the caller says.
        let octets = unsafe { bytes_mut(address.cast(), room.min(NAME_LEN_MAX))? };
        Ok(NameRoom { octets: Some(octets), len })
    }

    /// Says how long the name is that is there now.
    pub(crate) fn set_len(self, len: usize) {
        if !self.len.is_null() {
            // SAFETY: not null, so it is the program's length, which was read before.
            unsafe { *self.len = len as socklen_t }
        }
    }
}

/// Calls `body` with the buffers that `count` elements from `vectors` on describe, copied: `body` may advance them, the program's stay.
///
/// `too_many` is what more elements than there may be are answered with.
///
/// # Safety
/// `vectors` is null or has `count` elements; each describes octets that nothing else refers to meanwhile.
pub(crate) unsafe fn with_buffers_mut<T>(
    vectors: *const iovec,
    count: usize,
    too_many: Errno,
    body: impl FnOnce(&mut [IoSliceMut<'_>]) -> Asked<T>,
) -> Asked<T> {
    // SAFETY: as the caller says.
    let vectors = unsafe { vector_array(vectors, count, too_many)? };
    // SAFETY: as the caller says.
    let buffer = |vector: &iovec| unsafe { bytes_mut(vector.iov_base, vector.iov_len) }.map(IoSliceMut::new);
    if count > FEW {
        return body(&mut vectors.iter().map(buffer).collect::<Result<Vec<_>, _>>()?);
    }
    let mut few: [IoSliceMut<'_>; FEW] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
    for (to, vector) in few.iter_mut().zip(vectors) {
        *to = buffer(vector)?;
    }
    body(&mut few[..count])
}

/// As [`with_buffers_mut`], for octets to be read.
///
/// # Safety
/// As [`with_buffers_mut`].
pub(crate) unsafe fn with_buffers<T>(
    vectors: *const iovec,
    count: usize,
    too_many: Errno,
    body: impl FnOnce(&[IoSlice<'_>]) -> Asked<T>,
) -> Asked<T> {
    // SAFETY: as the caller says.
    let vectors = unsafe { vector_array(vectors, count, too_many)? };
    // SAFETY: as the caller says.
    let buffer = |vector: &iovec| unsafe { bytes(vector.iov_base, vector.iov_len) }.map(IoSlice::new);
    if count > FEW {
        return body(&vectors.iter().map(buffer).collect::<Result<Vec<_>, _>>()?);
    }
    let mut few = [IoSlice::new(&[]); FEW];
    for (to, vector) in few.iter_mut().zip(vectors) {
        *to = buffer(vector)?;
    }
    body(&few[..count])
}

/// # Safety
/// `vectors` is null or has `count` elements.
unsafe fn vector_array<'a>(
    vectors: *const iovec,
    count: usize,
    too_many: Errno,
) -> Result<&'a [iovec], Errno> {
    if count > UIO_MAXIOV {
        return Err(too_many);
    }
    let vectors: &[iovec] = match (is_bad(vectors.addr(), count * size_of::<iovec>()), count) {
        (_, 0) => &[],
        (true, _) => return Err(EFAULT),
        // SAFETY: not bad, and `count` elements as the caller says.
        (false, count) => unsafe { std::slice::from_raw_parts(vectors, count) },
    };
    if vectors.iter().any(|vector| isize::try_from(vector.iov_len).is_err()) {
        return Err(EINVAL);
    }
    Ok(vectors)
}

/// Milliseconds as poll(2) and epoll_wait(2) have them; negative: for ever.
pub(crate) fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A timeout; null: for ever.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn timeout(time: *const timespec) -> Result<Option<Duration>, Errno> {
    if time.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    let time = unsafe { copy(time)? };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| EINVAL)?;
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|part| *part < 1_000_000_000).ok_or(EINVAL)?;
    Ok(Some(Duration::new(seconds, nanoseconds)))
}

/// A signal mask: of the C library's 1024 bits the kernel knows 64.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn signal_mask(mask: *const libc::sigset_t) -> Result<Option<SignalMask>, Errno> {
    // SAFETY: as the caller says; a mask begins with the kernel's word.
    (!mask.is_null()).then(|| unsafe { copy(mask.cast::<u64>()) }).transpose()
}
