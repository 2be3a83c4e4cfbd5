//! Asynchronous input and output (aio(7)): each operation is begun, and waited for until it has ended.

use std::os::fd::RawFd;

use libc::{aiocb, c_int};

use super::{Errno, Result, done};

/// aio_read(3) of up to `room` octets. The offset means nothing to a socket.
pub(crate) fn aio_read(fd: RawFd, room: usize, offset: libc::off_t) -> Result<Vec<u8>> {
    let mut octets = vec![0; room];
    let mut operation = operation(fd, &mut octets, libc::LIO_READ);
    operation.aio_offset = offset;
    // SAFETY: the operation has its octets, and both stay until it has ended.
    done(unsafe { libc::aio_read(&raw mut operation) })?;
    let len = end(&mut operation)?;
    octets.truncate(len);
    Ok(octets)
}

/// aio_write(3).
pub(crate) fn aio_write(fd: RawFd, octets: &[u8]) -> Result<usize> {
    let mut octets = octets.to_vec();
    let mut operation = operation(fd, &mut octets, libc::LIO_WRITE);
    // SAFETY: the operation has its octets, and both stay until it has ended.
    done(unsafe { libc::aio_write(&raw mut operation) })?;
    end(&mut operation)
}

/// lio_listio(3) of one write behind a null pointer, which is skipped.
pub(crate) fn aio_write_in_a_list(fd: RawFd, octets: &[u8]) -> Result<usize> {
    let mut octets = octets.to_vec();
    let mut operation = operation(fd, &mut octets, libc::LIO_WRITE);
    let list = [std::ptr::null_mut(), &raw mut operation];
    // SAFETY: the list has two entries, and the operation has its octets; all stay until it has ended.
    done(unsafe { libc::lio_listio(libc::LIO_WAIT, list.as_ptr(), 2, std::ptr::null_mut()) })?;
    end(&mut operation)
}

/// An operation on these octets. Nobody is told when it ends.
fn operation(fd: RawFd, octets: &mut [u8], opcode: c_int) -> aiocb {
    // SAFETY: all zeroes are a value of it: numbers and null pointers.
    let mut operation: aiocb = unsafe { std::mem::zeroed() };
    (operation.aio_fildes, operation.aio_lio_opcode) = (fd, opcode);
    (operation.aio_buf, operation.aio_nbytes) = (octets.as_mut_ptr().cast(), octets.len());
    operation.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    operation
}

/// Waits until it has ended; what came of it.
fn end(operation: &mut aiocb) -> Result<usize> {
    loop {
        // SAFETY: callers have begun it, and keep it.
        match unsafe { libc::aio_error(operation) } {
            0 => break,
            libc::EINPROGRESS => {}
            error => return Err(Errno(error)),
        }
        let list = [&raw const *operation];
        // SAFETY: as above; without a limit of time. If a signal ends it, it is asked again.
        unsafe { libc::aio_suspend(list.as_ptr(), 1, std::ptr::null()) };
    }
    // SAFETY: as above; it has ended, and its result is taken once.
    super::length(unsafe { libc::aio_return(operation) })
}
