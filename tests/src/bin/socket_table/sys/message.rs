//! sendmsg(2), recvmsg(2) and those of many messages.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use libc::{c_int, mmsghdr, msghdr, socklen_t, timespec};

use super::transfer::{vectors_of, vectors_of_mut};
use super::{FULL, Name, Result, checked, length};

/// One control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    /// `SOL_` and the like.
    pub(crate) level: i32,
    /// `SCM_`, `IP_` and the like.
    pub(crate) kind: i32,
    /// What follows the header.
    pub(crate) data: Vec<u8>,
}

impl Control {
    /// A control message that is an int.
    pub(crate) fn int(level: i32, kind: i32, value: i32) -> Control {
        Control { level, kind, data: value.to_ne_bytes().to_vec() }
    }

    /// The int in front.
    pub(crate) fn as_int(&self) -> Option<i32> {
        Some(i32::from_ne_bytes(self.data.get(..4)?.try_into().ok()?))
    }
}

/// Length of `struct cmsghdr`, a multiple of its alignment.
const HEADER: usize = size_of::<libc::cmsghdr>();

fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

/// Control messages as sendmsg(2) takes them.
pub(crate) fn control_octets(messages: &[Control]) -> Vec<u8> {
    let mut octets = Vec::new();
    for message in messages {
        octets.extend((HEADER + message.data.len()).to_ne_bytes());
        octets.extend(message.level.to_ne_bytes());
        octets.extend(message.kind.to_ne_bytes());
        octets.extend(&message.data);
        octets.resize(aligned(octets.len()), 0);
    }
    octets
}

/// What [`control_octets`] makes, read.
fn parse_control(mut octets: &[u8]) -> Vec<Control> {
    let mut messages = Vec::new();
    while octets.len() >= HEADER {
        let int = |at: usize| i32::from_ne_bytes(octets[at..at + 4].try_into().expect("four octets"));
        let len = usize::from_ne_bytes(octets[..8].try_into().expect("eight octets"));
        let end = len.clamp(HEADER, octets.len());
        messages.push(Control { level: int(8), kind: int(12), data: octets[HEADER..end].to_vec() });
        octets = octets.get(aligned(end)..).unwrap_or_default();
    }
    messages
}

/// What recvmsg(2) gave.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The result, which may be more than there was room for.
    pub(crate) len: usize,
    /// The octets that came.
    pub(crate) octets: Vec<u8>,
    /// Who sent it; empty if the system wrote no name.
    pub(crate) name: Name,
    /// What came with it.
    pub(crate) control: Vec<Control>,
    /// `MSG_` flags.
    pub(crate) flags: c_int,
}

impl Message {
    /// The Internet address of who sent it.
    pub(crate) fn from(&self) -> Option<SocketAddr> {
        self.name.address()
    }

    /// The first control message of that kind.
    pub(crate) fn control(&self, level: i32, kind: i32) -> Option<&Control> {
        self.control.iter().find(|control| control.level == level && control.kind == kind)
    }
}

/// Buffers of one message to receive, which stay where they are while the system writes.
struct Room {
    buffers: Vec<Vec<u8>>,
    vectors: Vec<libc::iovec>,
    name: Vec<u8>,
    control: Vec<u64>,
}

impl Room {
    fn new(rooms: &[usize], control: usize) -> Room {
        let mut buffers: Vec<Vec<u8>> = rooms.iter().map(|&room| vec![0; room]).collect();
        let vectors = vectors_of_mut(&mut buffers);
        Room { buffers, vectors, name: vec![0; FULL], control: vec![0; control.div_ceil(8)] }
    }

    fn header(&mut self, control: usize) -> msghdr {
        let mut header = empty_header();
        header.msg_name = self.name.as_mut_ptr().cast();
        header.msg_namelen = FULL as socklen_t;
        header.msg_iov = self.vectors.as_mut_ptr();
        header.msg_iovlen = self.vectors.len();
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = control;
        header
    }

    fn message(self, header: &msghdr, len: usize) -> Message {
        let mut octets = self.buffers.concat();
        octets.truncate(len);
        let control: Vec<u8> = self.control.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let control = parse_control(&control[..header.msg_controllen.min(control.len())]);
        let name_len = header.msg_namelen as usize;
        let name = Name { octets: self.name[..name_len.min(FULL)].to_vec(), len: name_len };
        Message { len, octets, name, control, flags: header.msg_flags }
    }
}

fn empty_header() -> msghdr {
    // SAFETY: null pointers and zero lengths are a valid msghdr.
    unsafe { std::mem::zeroed() }
}

/// recvmsg(2) into buffers of these lengths, with `control` octets for control messages.
pub(crate) fn recvmsg(fd: RawFd, rooms: &[usize], control: usize, flags: c_int) -> Result<Message> {
    let mut room = Room::new(rooms, control);
    let mut header = room.header(control);
    // SAFETY: the header's pointers are those of `room`, which lives on.
    let len = length(unsafe { libc::recvmsg(fd, &mut header, flags) })?;
    Ok(room.message(&header, len))
}

/// What is to be sent by sendmsg(2).
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing<'a> {
    /// The octets.
    pub(crate) buffers: Vec<&'a [u8]>,
    /// Where to; none if empty.
    pub(crate) name: Vec<u8>,
    /// Control messages, see [`control_octets`].
    pub(crate) control: Vec<u8>,
}

fn outgoing_header(message: &Outgoing<'_>, vectors: &[libc::iovec]) -> msghdr {
    let mut header = empty_header();
    if !message.name.is_empty() {
        header.msg_name = message.name.as_ptr().cast_mut().cast();
        header.msg_namelen = message.name.len() as socklen_t;
    }
    header.msg_iov = vectors.as_ptr().cast_mut();
    header.msg_iovlen = vectors.len();
    if !message.control.is_empty() {
        header.msg_control = message.control.as_ptr().cast_mut().cast();
        header.msg_controllen = message.control.len();
    }
    header
}

/// sendmsg(2).
pub(crate) fn sendmsg(fd: RawFd, message: &Outgoing<'_>, flags: c_int) -> Result<usize> {
    let vectors = vectors_of(&message.buffers);
    let header = outgoing_header(message, &vectors);
    // SAFETY: the header's pointers are those of `message` and `vectors`, which live on and are only read.
    length(unsafe { libc::sendmsg(fd, &header, flags) })
}

/// sendmmsg(2); gives how many went, and what was said of the length of each.
pub(crate) fn sendmmsg(fd: RawFd, messages: &[Outgoing<'_>], flags: c_int) -> Result<(usize, Vec<u32>)> {
    let vectors: Vec<Vec<_>> = messages.iter().map(|message| vectors_of(&message.buffers)).collect();
    let header = |(message, vectors): (&Outgoing<'_>, &Vec<_>)| outgoing_header(message, vectors);
    let pairs = messages.iter().zip(&vectors);
    let mut headers: Vec<mmsghdr> = pairs.map(|pair| mmsghdr { msg_hdr: header(pair), msg_len: 0 }).collect();
    // SAFETY: the headers' pointers are those of `messages` and `vectors`, which live on and are only read.
    let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), headers.len() as u32, flags as _) };
    let sent = checked(sent)? as usize;
    Ok((sent, headers[..sent].iter().map(|header| header.msg_len).collect()))
}

/// recvmmsg(2) of up to `count` messages of up to `room` octets each.
pub(crate) fn recvmmsg(
    fd: RawFd,
    count: usize,
    room: usize,
    flags: c_int,
    timeout: Option<Duration>,
) -> Result<Vec<Message>> {
    const CONTROL: usize = 256;
    let mut rooms: Vec<Room> = (0..count).map(|_| Room::new(&[room], CONTROL)).collect();
    let header = |room: &mut Room| mmsghdr { msg_hdr: room.header(CONTROL), msg_len: 0 };
    let mut headers: Vec<mmsghdr> = rooms.iter_mut().map(header).collect();
    let mut time = timeout.map(super::event::timespec_of);
    let time = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut::<timespec>);
    // SAFETY: the headers' pointers are those of `rooms`, which live on; the time is null or exclusively ours.
    let came = unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count as u32, flags as _, time) };
    let came = checked(came)? as usize;
    let pairs = rooms.into_iter().zip(&headers).take(came);
    Ok(pairs.map(|(room, header)| room.message(&header.msg_hdr, header.msg_len as usize)).collect())
}

/// sendto(2).
pub(crate) fn sendto(fd: RawFd, octets: &[u8], flags: c_int, name: &[u8]) -> Result<usize> {
    let (at, len) = (octets.as_ptr().cast(), octets.len());
    // SAFETY: pointers and lengths are those of slices.
    length(unsafe { libc::sendto(fd, at, len, flags, name.as_ptr().cast(), name.len() as socklen_t) })
}

/// recvfrom(2) with room for `name_room` octets of address.
pub(crate) fn recvfrom(fd: RawFd, room: usize, flags: c_int, name_room: usize) -> Result<(Vec<u8>, Name)> {
    let (mut octets, mut name) = (vec![0; room], vec![0; FULL]);
    let mut name_len = name_room as socklen_t;
    let (at, name_at) = (octets.as_mut_ptr().cast(), name.as_mut_ptr().cast());
    // SAFETY: the buffers have at least the room that is said.
    let len = length(unsafe { libc::recvfrom(fd, at, room, flags, name_at, &mut name_len) })?;
    octets.truncate(len);
    name.truncate(name_room.min(name_len as usize));
    Ok((octets, Name { octets: name, len: name_len as usize }))
}
