//! Octets in and out, without names and control data.

use std::os::fd::RawFd;

use libc::{c_int, iovec};

use super::{Errno, Result, checked_long, length};

/// read(2) of up to `room` octets.
pub(crate) fn read(fd: RawFd, room: usize) -> Result<Vec<u8>> {
    let mut octets = vec![0; room];
    // SAFETY: the buffer has `room` octets.
    let len = length(unsafe { libc::read(fd, octets.as_mut_ptr().cast(), room) })?;
    octets.truncate(len);
    Ok(octets)
}

/// write(2).
pub(crate) fn write(fd: RawFd, octets: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length are those of a slice.
    length(unsafe { libc::write(fd, octets.as_ptr().cast(), octets.len()) })
}

/// recv(2) into `buffer`; the result may be more than it holds.
pub(crate) fn recv_into(fd: RawFd, buffer: &mut [u8], flags: c_int) -> Result<usize> {
    // SAFETY: pointer and length are those of a slice.
    length(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) })
}

/// recv(2) of up to `len` octets without memory for them.
pub(crate) fn recv_nowhere(fd: RawFd, len: usize, flags: c_int) -> Result<usize> {
    // SAFETY: the kernel checks addresses, and null is none.
    length(unsafe { libc::recv(fd, std::ptr::null_mut(), len, flags) })
}

/// recv(2) of up to `room` octets.
pub(crate) fn recv(fd: RawFd, room: usize, flags: c_int) -> Result<Vec<u8>> {
    let mut octets = vec![0; room];
    let len = recv_into(fd, &mut octets, flags)?;
    octets.truncate(len);
    Ok(octets)
}

/// send(2).
pub(crate) fn send(fd: RawFd, octets: &[u8], flags: c_int) -> Result<usize> {
    // SAFETY: pointer and length are those of a slice.
    length(unsafe { libc::send(fd, octets.as_ptr().cast(), octets.len(), flags) })
}

/// An address that is no memory of the program.
const NOWHERE: usize = 8;

/// recv(2) of `room` octets to an address where no memory is.
pub(crate) fn recv_to_nowhere(fd: RawFd, room: usize) -> Result<usize> {
    // SAFETY: the kernel checks where it writes and says EFAULT; nothing of ours is at that address.
    length(unsafe { libc::recv(fd, NOWHERE as *mut _, room, 0) })
}

/// send(2) of `len` octets from an address where no memory is.
pub(crate) fn send_from_nowhere(fd: RawFd, len: usize) -> Result<usize> {
    // SAFETY: the kernel checks what it reads and says EFAULT; nothing of ours is at that address.
    length(unsafe { libc::send(fd, NOWHERE as *const _, len, 0) })
}

/// readv(2) into buffers of these lengths; gives the octets of each.
pub(crate) fn readv(fd: RawFd, rooms: &[usize]) -> Result<Vec<Vec<u8>>> {
    by_vectors(rooms, |vectors, count| {
        // SAFETY: each vector is a buffer that lives until the call is over.
        unsafe { libc::readv(fd, vectors, count) }
    })
}

/// preadv2(2) at `offset`.
pub(crate) fn preadv2(fd: RawFd, rooms: &[usize], offset: i64, flags: c_int) -> Result<Vec<Vec<u8>>> {
    by_vectors(rooms, |vectors, count| {
        // SAFETY: each vector is a buffer that lives until the call is over.
        unsafe { libc::preadv2(fd, vectors, count, offset, flags) }
    })
}

/// Reads by `call` into buffers of these lengths, and cuts them to what came.
pub(super) fn by_vectors(
    rooms: &[usize],
    call: impl FnOnce(*mut iovec, c_int) -> isize,
) -> Result<Vec<Vec<u8>>> {
    let mut buffers: Vec<Vec<u8>> = rooms.iter().map(|&room| vec![0; room]).collect();
    let mut vectors = vectors_of_mut(&mut buffers);
    let mut left = length(call(vectors.as_mut_ptr(), vectors.len() as c_int))?;
    for buffer in &mut buffers {
        buffer.truncate(left);
        left -= buffer.len();
    }
    Ok(buffers)
}

pub(super) fn vectors_of_mut(buffers: &mut [Vec<u8>]) -> Vec<iovec> {
    let vector = |buffer: &mut Vec<u8>| iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    buffers.iter_mut().map(vector).collect()
}

pub(super) fn vectors_of(buffers: &[&[u8]]) -> Vec<iovec> {
    let vector =
        |buffer: &&[u8]| iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: buffer.len() };
    buffers.iter().map(vector).collect()
}

/// writev(2).
pub(crate) fn writev(fd: RawFd, buffers: &[&[u8]]) -> Result<usize> {
    let vectors = vectors_of(buffers);
    // SAFETY: each vector is a slice that lives until the call is over, and is only read.
    length(unsafe { libc::writev(fd, vectors.as_ptr(), vectors.len() as c_int) })
}

/// pwritev2(2) at `offset`.
pub(crate) fn pwritev2(fd: RawFd, buffers: &[&[u8]], offset: i64, flags: c_int) -> Result<usize> {
    let vectors = vectors_of(buffers);
    // SAFETY: each vector is a slice that lives until the call is over, and is only read.
    length(unsafe { libc::pwritev2(fd, vectors.as_ptr(), vectors.len() as c_int, offset, flags) })
}

/// pread(2) of up to `room` octets.
pub(crate) fn pread(fd: RawFd, room: usize, offset: i64) -> Result<Vec<u8>> {
    let mut octets = vec![0; room];
    // SAFETY: the buffer has `room` octets.
    let len = length(unsafe { libc::pread(fd, octets.as_mut_ptr().cast(), room, offset) })?;
    octets.truncate(len);
    Ok(octets)
}

/// pwrite(2).
pub(crate) fn pwrite(fd: RawFd, octets: &[u8], offset: i64) -> Result<usize> {
    // SAFETY: pointer and length are those of a slice.
    length(unsafe { libc::pwrite(fd, octets.as_ptr().cast(), octets.len(), offset) })
}

/// lseek(2) from the start.
pub(crate) fn lseek(fd: RawFd, offset: i64) -> Result<i64> {
    // SAFETY: no pointers.
    let at = unsafe { libc::lseek(fd, offset, libc::SEEK_SET) };
    if at == -1 { Err(Errno::last()) } else { Ok(at) }
}

/// sendfile(2).
pub(crate) fn sendfile(out: RawFd, file: RawFd, offset: Option<&mut i64>, count: usize) -> Result<usize> {
    let offset = offset.map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: the offset is null or an exclusive reference's.
    length(unsafe { libc::sendfile(out, file, offset, count) })
}

/// splice(2) without offsets.
pub(crate) fn splice(from: RawFd, to: RawFd, count: usize, flags: u32) -> Result<usize> {
    let none = std::ptr::null_mut;
    // SAFETY: offsets may be null.
    length(unsafe { libc::splice(from, none(), to, none(), count, flags) })
}

/// tee(2).
pub(crate) fn tee(from: RawFd, to: RawFd, count: usize) -> Result<usize> {
    // SAFETY: no pointers.
    length(unsafe { libc::tee(from, to, count, 0) })
}

/// copy_file_range(2) without offsets.
pub(crate) fn copy_file_range(from: RawFd, to: RawFd, count: usize) -> Result<usize> {
    let none: *mut i64 = std::ptr::null_mut();
    // SAFETY: offsets may be null.
    let copied = unsafe { libc::syscall(libc::SYS_copy_file_range, from, none, to, none, count, 0) };
    checked_long(copied).map(|copied| copied as usize)
}
