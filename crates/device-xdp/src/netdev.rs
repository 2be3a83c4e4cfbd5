//! Facts about an interface that netlink does not report.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::loading::{STEERING, has_chains};
use crate::syscalls;
use crate::{AttachMode, XdpError};

/// An interface of the calling thread's network namespace.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    query: OwnedFd,
}

impl Interface {
    pub(crate) fn open(name: &str) -> Result<Interface, XdpError> {
        let absent = || XdpError::NoSuchInterface { interface: name.to_owned() };
        let c_name = CString::new(name).map_err(|_| absent())?;
        let index = syscalls::interface_index(&c_name).map_err(|error| match is_of_resources(&error) {
            true => XdpError::system("if_nametoindex")(error), // It opens a socket.
            false => absent(),
        })?;
        let query = syscalls::query_socket().map_err(XdpError::system("socket"))?;
        Ok(Interface { name: name.to_owned(), index, query })
    }

    /// Largest IP packet in octets.
    pub(crate) fn mtu(&self) -> Result<u32, XdpError> {
        syscalls::interface_mtu(self.query.as_fd(), &self.name).map_err(XdpError::system("SIOCGIFMTU"))
    }

    /// No wire is behind the interface, so that its peers may leave transport checksums unfinished: it sits on no bus, as
    /// veth, tun, bridges and their like, or its driver talks to a hypervisor.
    pub(crate) fn is_virtual(&self) -> bool {
        match self.driver() {
            Ok(driver) => driver.bus.is_empty() || ["virtio_net", "vif"].contains(&driver.name.as_str()),
            Err(_) => false,
        }
    }

    /// It is one end of a veth(4).
    pub(crate) fn is_veth(&self) -> bool {
        self.driver().is_ok_and(|driver| driver.name == "veth")
    }

    /// Its driver hands an XDP program down to the interfaces below it, where packets belong to those, and no AF_XDP socket of this one takes
    /// them (`xsk_rcv_check`): a bond, and the synthetic interface of a virtual machine of Azure with accelerated networking.
    pub(crate) fn hands_programs_down(&self) -> bool {
        self.driver().is_ok_and(|driver| ["bonding", "hv_netvsc"].contains(&driver.name.as_str()))
    }

    /// Queues in use now that both receive and transmit; at least one.
    pub(crate) fn queue_pairs(&self) -> Result<u16, XdpError> {
        let queues = match self.channels().or_else(|_| self.queue_folders()) {
            Ok(queues) => queues,
            Err(error) if is_of_resources(&error) => {
                return Err(XdpError::system("reading /sys/class/net")(error));
            }
            Err(_) => 1,
        };
        Ok(u16::try_from(queues.max(1)).unwrap_or(u16::MAX))
    }

    /// How the XDP program on the interface is attached, if there is one.
    pub(crate) fn xdp_mode(&self) -> io::Result<Option<AttachMode>> {
        Ok(self.xdp()?.into_iter().find_map(|xdp| match xdp {
            LinkXdp::DrvProgId(id) if id != 0 => Some(AttachMode::Native),
            LinkXdp::SkbProgId(id) if id != 0 => Some(AttachMode::Generic),
            _ => None,
        }))
    }

    fn xdp(&self) -> io::Result<Vec<LinkXdp>> {
        let xdp = self.link_attributes()?.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Xdp(xdp) => Some(xdp),
            _ => None,
        });
        Ok(xdp.unwrap_or_default())
    }

    /// The XDP program on the interface, if there is one.
    pub(crate) fn xdp_program(&self) -> io::Result<Option<u32>> {
        Ok(self.xdp()?.into_iter().find_map(|xdp| match xdp {
            LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) if id != 0 => Some(id),
            _ => None,
        }))
    }

    fn driver(&self) -> io::Result<Driver> {
        let mut info = DriverInfo { command: 3, ..DriverInfo::default() };
        // SAFETY: `DriverInfo` is what ETHTOOL_GDRVINFO (3) fills in; octets and integers only.
        unsafe { syscalls::ethtool(self.query.as_fd(), &self.name, &mut info)? };
        Ok(Driver { name: text(&info.driver), bus: text(&info.bus) })
    }

    fn channels(&self) -> io::Result<u32> {
        let mut channels = Channels { command: 0x3c, ..Channels::default() };
        // SAFETY: `Channels` is what ETHTOOL_GCHANNELS (0x3c) fills in; integers only.
        unsafe { syscalls::ethtool(self.query.as_fd(), &self.name, &mut channels)? };
        Ok(channels.rx.min(channels.tx) + channels.combined)
    }

    /// For drivers that know no channels. Sees the namespace that /sys was mounted in.
    fn queue_folders(&self) -> io::Result<u32> {
        let entries = fs::read_dir(format!("/sys/class/net/{}/queues", self.name))?;
        let is_rx = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("rx-");
        Ok(entries.flatten().filter(is_rx).count() as u32)
    }

    /// RTM_GETLINK, see rtnetlink(7).
    fn link_attributes(&self) -> io::Result<Vec<LinkAttribute>> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        let mut link = LinkMessage::default();
        link.header.index = self.index;
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetLink(link));
        request.header.flags = NLM_F_REQUEST;
        request.finalize();
        let mut octets = vec![0; request.buffer_len()];
        request.serialize(&mut octets);
        socket.send_to(&octets, &SocketAddr::new(0, 0), 0)?;
        let (answer, _) = socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(link.attributes),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Ok(Vec::new()),
        }
    }
}

/// Whether descriptors or memory are short, so that the error says nothing about the interface.
fn is_of_resources(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
}

/// Queues, counted from zero, that an interface of this network namespace has now for both directions; at least one.
///
/// A receive queue without a transmit queue of the same number is not counted: the kernel would send nothing from it.
/// What arrives there stays with the kernel.
///
/// # Errors
/// `NoSuchInterface`, or `System` where the kernel does not say.
pub fn queue_pairs(interface: &str) -> Result<u16, XdpError> {
    Interface::open(interface)?.queue_pairs()
}

/// The same, of those by which packets come where XDP runs in this mode. A veth in generic mode receives on queue n - 1 what its peer sends on queue n, and on queue 0
/// what that sends on queue 0 (seen with Linux 6.18): none on the last, if both ends have as many.
///
/// # Errors
/// `NoSuchInterface`, or `System` where the kernel does not say.
pub fn queue_pairs_in(interface: &str, mode: Option<AttachMode>) -> Result<u16, XdpError> {
    let interface = Interface::open(interface)?;
    let queues = interface.queue_pairs()?;
    let lacks_last = mode == Some(AttachMode::Generic) && interface.is_veth();
    Ok(if lacks_last { (queues - 1).max(1) } else { queues })
}

/// Where XDP costs TCP least, on an interface of which it is known: behind the driver on a veth with one queue. In its driver, XDP has the peer's kernel cut
/// all that it sends into single segments, and copies each packet into a page. On several queues it is better all the same, since a veth in generic mode
/// does not use them all ([`queue_pairs_in`]). `None` for others: what the driver can.
///
/// # Errors
/// `NoSuchInterface`, or `System` where the kernel does not say.
pub fn mode_for_streams(interface: &str) -> Result<Option<AttachMode>, XdpError> {
    let interface = Interface::open(interface)?;
    let is_better = has_chains(AttachMode::Generic) && interface.is_veth() && interface.queue_pairs()? == 1;
    Ok(is_better.then_some(AttachMode::Generic))
}

/// An interface's driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name, such as `virtio_net`.
    pub name: String,
    /// Where the device sits, such as `0000:00:03.0`; empty for one that is no hardware.
    pub bus: String,
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentProgram {
    /// Its number.
    pub id: u32,
    /// Where it runs.
    pub attach: AttachMode,
    /// Whether it is the steering program.
    pub is_steering: bool,
}

/// An interface of this network namespace, to look at.
#[derive(Debug)]
pub struct Inspection(Interface);

impl Inspection {
    /// Finds the interface.
    ///
    /// # Errors
    /// `NoSuchInterface`.
    pub fn open(interface: &str) -> Result<Inspection, XdpError> {
        Interface::open(interface).map(Inspection)
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// Its driver, by the driver's own word.
    pub fn driver(&self) -> io::Result<Driver> {
        self.0.driver()
    }

    /// Whether Sidestep attaches its program in generic mode, as the driver would hand it down to the interfaces below: a bond.
    pub fn hands_programs_down(&self) -> bool {
        self.0.hands_programs_down()
    }

    /// The XDP program on it. Without privileges the kernel does not tell whose it is.
    pub fn program(&self) -> io::Result<Option<PresentProgram>> {
        let (Some(id), Some(attach)) = (self.0.xdp_program()?, self.0.xdp_mode()?) else { return Ok(None) };
        let programs = aya::programs::loaded_programs().filter_map(Result::ok);
        let is_steering = programs
            .filter(|info| info.id() == id)
            .any(|info| info.name_as_str().is_some_and(|name| name.starts_with(STEERING)));
        Ok(Some(PresentProgram { id, attach, is_steering }))
    }
}

/// `struct ethtool_drvinfo` (linux/ethtool.h).
#[derive(Default)]
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    _version: [u8; 32],
    _firmware: [u8; 32],
    bus: [u8; 32],
    _expansion_rom: [u8; 32],
    _reserved: [u8; 12],
    _sizes: [u32; 5],
}

/// `struct ethtool_channels` (linux/ethtool.h).
#[derive(Default)]
#[repr(C)]
struct Channels {
    command: u32,
    _max: [u32; 4],
    rx: u32,
    tx: u32,
    _other: u32,
    combined: u32,
}

fn text(octets: &[u8]) -> String {
    let len = octets.iter().position(|&octet| octet == 0).unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..len]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = Interface::open("no-such-if").unwrap_err();
        assert_eq!(error.to_string(), "there is no interface no-such-if");
    }

    #[test]
    fn loopback_has_a_queue_and_no_program() {
        let loopback = Interface::open("lo").unwrap();
        assert_eq!(loopback.queue_pairs().unwrap(), 1);
        assert_eq!(loopback.xdp_program().unwrap(), None);
    }
}
