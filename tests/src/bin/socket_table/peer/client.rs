//! [`Peer`]: a check's end of a conversation.

use std::cell::Cell;
use std::fmt::Arguments;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use libc::{SOCK_DGRAM, SOCK_STREAM};

use crate::scene::SOON_MS;
use crate::sys::{Errno, Result};

/// A socket of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// A conversation with the peer.
pub(crate) struct Peer {
    stream: BufReader<UnixStream>,
    domain: i32,
    later_ms: Cell<Option<u32>>,
}

/// A datagram that the peer got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// Its octets.
    pub(crate) octets: Vec<u8>,
    /// The port that it came from.
    pub(crate) port: u16,
    /// TOS or traffic class, with the ECN bits.
    pub(crate) tos: i32,
    /// TTL or hop limit.
    pub(crate) ttl: i32,
    /// The address that it came from.
    pub(crate) from: IpAddr,
}

/// More than any command takes.
const PATIENCE: Duration = Duration::from_secs(30);

impl Peer {
    /// Begins a conversation with the peer at `path` about connections between `there`, the peer, and `here`.
    pub(crate) fn new(path: &Path, there: IpAddr, here: IpAddr) -> Result<Peer> {
        let stream = UnixStream::connect(path).map_err(errno_of)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(errno_of)?;
        let domain = if there.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut peer = Peer { stream: BufReader::new(stream), domain, later_ms: Cell::new(None) };
        peer.ask(format_args!("hello {there} {here}"))?;
        Ok(peer)
    }

    fn ask(&mut self, request: Arguments<'_>) -> Result<Vec<String>> {
        let later = self.later_ms.take().map(|time| format!("later {time} ")).unwrap_or_default();
        let line = format!("{later}{request}\n");
        self.stream.get_mut().write_all(line.as_bytes()).map_err(errno_of)?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).map_err(errno_of)?;
        let mut words = answer.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("ok") => Ok(words.collect()),
            Some("error") => Err(Errno(words.next().and_then(|word| word.parse().ok()).unwrap_or_default())),
            _ => Err(Errno(libc::EBADMSG)),
        }
    }

    fn ask_number(&mut self, request: Arguments<'_>) -> Result<usize> {
        let words = self.ask(request)?;
        words.first().and_then(|word| word.parse().ok()).ok_or(Errno(libc::EBADMSG))
    }

    fn do_it(&mut self, request: Arguments<'_>) -> Result<()> {
        self.ask(request).map(drop)
    }

    /// Has the next command done after that time, by which the conversation goes on; its result is lost.
    pub(crate) fn later(&mut self, ms: u32) -> &mut Peer {
        self.later_ms.set(Some(ms));
        self
    }

    /// socket(2) of this kind, in the family of the conversation.
    pub(crate) fn socket(&mut self, kind: i32) -> Result<Slot> {
        let domain = self.domain;
        self.ask_number(format_args!("socket {domain} {kind}")).map(Slot)
    }

    /// A TCP socket.
    pub(crate) fn tcp(&mut self) -> Result<Slot> {
        self.socket(SOCK_STREAM)
    }

    /// A UDP socket at a port of the peer's address.
    pub(crate) fn udp(&mut self) -> Result<(Slot, u16)> {
        let slot = self.socket(SOCK_DGRAM)?;
        let port = self.bind(slot, 0)?;
        Ok((slot, port))
    }

    /// bind(2) to the peer's address; gives the port.
    pub(crate) fn bind(&mut self, slot: Slot, port: u16) -> Result<u16> {
        self.ask_number(format_args!("bind {} {port}", slot.0)).map(|port| port as u16)
    }

    /// A listener at a port of the peer's address.
    pub(crate) fn tcp_listener(&mut self, backlog: i32) -> Result<(Slot, u16)> {
        let slot = self.tcp()?;
        let port = self.bind(slot, 0)?;
        self.do_it(format_args!("listen {} {backlog}", slot.0))?;
        Ok((slot, port))
    }

    /// accept(2), patiently; gives the port of who connected, too.
    pub(crate) fn accept(&mut self, listener: Slot) -> Result<(Slot, u16)> {
        let words = self.ask(format_args!("accept {}", listener.0))?;
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
        let slot = number(0).ok_or(Errno(libc::EBADMSG))?;
        Ok((Slot(slot), number(1).unwrap_or_default() as u16))
    }

    /// Begins to connect to a port of the program's, without waiting.
    pub(crate) fn connect_start(&mut self, slot: Slot, port: u16) -> Result<()> {
        self.do_it(format_args!("connect_start {} {port}", slot.0))
    }

    /// Waits until what [`Peer::connect_start`] began is done; gives what came of it.
    pub(crate) fn connected(&mut self, slot: Slot) -> Result<()> {
        self.do_it(format_args!("connected {} {SOON_MS}", slot.0))
    }

    /// As [`Peer::connected`], with less patience.
    pub(crate) fn connected_within(&mut self, slot: Slot, ms: u32) -> Result<()> {
        self.do_it(format_args!("connected {} {ms}", slot.0))
    }

    /// Connects to a port of the program's.
    pub(crate) fn connect(&mut self, slot: Slot, port: u16) -> Result<()> {
        self.connect_start(slot, port)?;
        self.connected(slot)
    }

    /// send(2) of all of it.
    pub(crate) fn send(&mut self, slot: Slot, octets: &[u8]) -> Result<()> {
        self.do_it(format_args!("send {} {}", slot.0, hex(octets)))
    }

    /// send(2) of all of it with `MSG_OOB`.
    pub(crate) fn send_urgent(&mut self, slot: Slot, octets: &[u8]) -> Result<()> {
        self.do_it(format_args!("send_urgent {} {}", slot.0, hex(octets)))
    }

    /// Sends `len` octets of the pattern.
    pub(crate) fn send_pattern(&mut self, slot: Slot, len: usize) -> Result<()> {
        self.do_it(format_args!("send_pattern {} {len}", slot.0))
    }

    /// Receives once, patiently, at most `room` octets.
    pub(crate) fn recv(&mut self, slot: Slot, room: usize) -> Result<Vec<u8>> {
        self.recv_within(slot, room, SOON_MS as u32)
    }

    /// As [`Peer::recv`]; `EAGAIN` if nothing comes within `ms`.
    pub(crate) fn recv_within(&mut self, slot: Slot, room: usize, ms: u32) -> Result<Vec<u8>> {
        let words = self.ask(format_args!("recv {} {room} {ms}", slot.0))?;
        Ok(words.first().map(|word| unhex(word)).unwrap_or_default())
    }

    /// Receives until so many octets have come, or the end; gives how many came, and whether they are the pattern.
    pub(crate) fn recv_pattern(&mut self, slot: Slot, len: usize) -> Result<(usize, bool)> {
        let words = self.ask(format_args!("recv_pattern {} {len}", slot.0))?;
        let len = words.first().and_then(|word| word.parse().ok()).ok_or(Errno(libc::EBADMSG))?;
        Ok((len, words.get(1).is_some_and(|word| word == "true")))
    }

    /// Receives so many octets, or to the end, and says nothing of them.
    pub(crate) fn drain(&mut self, slot: Slot, len: usize) -> Result<()> {
        self.do_it(format_args!("recv_pattern {} {len}", slot.0))
    }

    /// Receives from any port, patiently.
    pub(crate) fn recvfrom(&mut self, slot: Slot) -> Result<Datagram> {
        self.recvfrom_within(slot, SOON_MS as u32)
    }

    /// As [`Peer::recvfrom`]; `EAGAIN` if nothing comes within `ms`.
    pub(crate) fn recvfrom_within(&mut self, slot: Slot, ms: u32) -> Result<Datagram> {
        let words = self.ask(format_args!("recvfrom {} {ms}", slot.0))?;
        let [octets, port, tos, ttl, from] = &words[..] else { return Err(Errno(libc::EBADMSG)) };
        let broken = |_| Errno(libc::EBADMSG);
        Ok(Datagram {
            octets: if octets == "-" { Vec::new() } else { unhex(octets) },
            port: port.parse().map_err(broken)?,
            tos: tos.parse().map_err(broken)?,
            ttl: ttl.parse().map_err(broken)?,
            from: from.parse().map_err(|_| Errno(libc::EBADMSG))?,
        })
    }

    /// sendto(2) a port of the program's.
    pub(crate) fn sendto(&mut self, slot: Slot, port: u16, octets: &[u8]) -> Result<()> {
        self.do_it(format_args!("sendto {} {port} {}", slot.0, hex(octets)))
    }

    /// sendto(2) a port of the program's, `len` octets of the pattern.
    pub(crate) fn sendto_pattern(&mut self, slot: Slot, port: u16, len: usize) -> Result<()> {
        self.do_it(format_args!("sendto_pattern {} {port} {len}", slot.0))
    }

    /// Waits until all that was sent, the end too, is acknowledged.
    pub(crate) fn wait_acked(&mut self, slot: Slot) -> Result<()> {
        self.do_it(format_args!("wait_acked {}", slot.0))
    }

    /// shutdown(2).
    pub(crate) fn shutdown(&mut self, slot: Slot, how: i32) -> Result<()> {
        self.do_it(format_args!("shutdown {} {how}", slot.0))
    }

    /// close(2).
    pub(crate) fn close(&mut self, slot: Slot) -> Result<()> {
        self.do_it(format_args!("close {}", slot.0))
    }

    /// Closes with a reset.
    pub(crate) fn reset(&mut self, slot: Slot) -> Result<()> {
        self.do_it(format_args!("reset {}", slot.0))
    }

    /// setsockopt(2) of an int.
    pub(crate) fn set(&mut self, slot: Slot, level: i32, option: i32, value: i32) -> Result<()> {
        self.do_it(format_args!("set {} {level} {option} {value}", slot.0))
    }

    /// Lets nothing that comes reach a socket from now on: its owner goes silent.
    pub(crate) fn deafen(&mut self, slot: Slot) -> Result<()> {
        self.do_it(format_args!("deafen {}", slot.0))
    }

    /// getsockopt(2) of an int.
    pub(crate) fn get(&mut self, slot: Slot, level: i32, option: i32) -> Result<i32> {
        let words = self.ask(format_args!("get {} {level} {option}", slot.0))?;
        words.first().and_then(|word| word.parse().ok()).ok_or(Errno(libc::EBADMSG))
    }

    /// All events of poll(2) as soon as there is one of `wanted`, or an error or hang-up, or when `ms` are over.
    pub(crate) fn events(&mut self, slot: Slot, wanted: i16, ms: u32) -> Result<i16> {
        self.ask_number(format_args!("events {} {wanted} {ms}", slot.0)).map(|events| events as i16)
    }

    /// How many of `count` connections to a port of the program's, begun together, stand within `ms`.
    pub(crate) fn connect_many(&mut self, port: u16, count: usize, ms: u32) -> Result<usize> {
        let domain = self.domain;
        self.ask_number(format_args!("connect_many {domain} {port} {count} {ms}"))
    }

    /// A port of the peer's where a listener's backlog is full.
    pub(crate) fn silent_port(&mut self) -> Result<u16> {
        let domain = self.domain;
        self.ask_number(format_args!("silent_port {domain}")).map(|port| port as u16)
    }

    /// Does nothing but answer.
    pub(crate) fn greet(&mut self) -> Result<()> {
        self.do_it(format_args!("nothing"))
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EPROTO))
}

pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

pub(super) fn unhex(text: &str) -> Vec<u8> {
    let octet = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len() / 2).map(|index| octet(2 * index).unwrap_or_default()).collect()
}
