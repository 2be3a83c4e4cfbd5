//! What messages are made of.

use std::fmt;
use std::net::IpAddr;

use device_xdp::{LeftPlaces, LentLayout};
use serde::{Deserialize, Serialize};
use transit::{Established, SocketKind};

/// Number of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(pub u64);

/// A transport that can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// What a shadow is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// TCP: it listens.
    Listener,
    /// TCP: it is bound, and our end of a connection that we make.
    Outgoing,
    /// UDP: it is bound, by bind(2) or connect(2).
    Udp,
}

/// What a client learns at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Interfaces that queues may come from.
    pub interfaces: Vec<Interface>,
    /// How the program is to run.
    pub options: Options,
    /// Proves to the broker that a process was forked from this one, and to the next broker that queues are ours.
    pub key: Key,
    /// Whether queues go on if the broker is killed, so that it is worth waiting for the next one.
    #[serde(default)]
    pub is_kept: bool,
}

/// A random number that the broker gives to each client, and that its children inherit with its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub [u64; 2]);

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Ours, which all messages use: it stays the same when the interface goes and comes back.
    pub link: u16,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Octets of its longest IP packet.
    pub mtu: u16,
    /// Its addresses, and those of VLAN interfaces on it.
    pub addresses: Vec<Address>,
    /// Its queues.
    pub queues: u16,
}

/// An address, and the VLAN identifiers in front of packets to it, outer first, 0 where there is no tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// VLAN identifiers.
    pub vlan: [u16; 2],
}

/// From which addresses packets may come behind certain VLAN tags, and to which they may go back there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// VLAN identifiers, outer first, 0 where there is no tag.
    pub vlan: [u16; 2],
    /// Ranges, first and last address, that do not overlap, in ascending order; those of IPv4 come first.
    pub allowed: Vec<(IpAddr, IpAddr)>,
    /// The addresses to which the way back is the way that such packets come. A broker that does not say it knows of none: the kernel sends then.
    #[serde(default)]
    pub routed: Vec<(IpAddr, IpAddr)>,
}

/// How a program is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Microseconds that a call polls before it sleeps.
    pub spin_us: u32,
    /// Microseconds that packets may gather while it sleeps.
    pub gather_us: u32,
    /// Largest TCP segment to announce and to send; `None` takes what the interface allows.
    #[serde(default)]
    pub mss_clamp: Option<u16>,
    /// Whether to say on stderr what becomes of each socket.
    pub verbose: bool,
    /// Whether it may share queues with programs of other users, and of root, that may, too.
    #[serde(default)]
    pub share: bool,
    /// What is known of the program.
    pub profile: Profile,
}

/// What is known of a program: what of it is worth taking from the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// TCP listeners.
    pub listeners: bool,
    /// TCP connections that it makes.
    pub outgoing: bool,
    /// UDP sockets.
    pub udp: bool,
    /// Connections whose use costs more on the stack than on the kernel move there.
    pub leaves_unsuited: bool,
    /// Why not all.
    pub reason: Option<String>,
}

/// A connection whose octets are in the file beside the message: first received, then not acknowledged, then not sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// All but the octets.
    pub connection: Established,
    /// What the kernel's socket of it is to be.
    pub socket: SocketKind,
    /// Octets received and not read.
    pub received_len: u32,
    /// Octets sent and not acknowledged.
    pub unacked_len: u32,
    /// Octets that were never sent.
    pub unsent_len: u32,
}

/// Queues that become ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Of which interface, as it is now.
    pub interface: Interface,
    /// Their numbers.
    pub queues: Vec<u16>,
    /// Whether these and those that we have are all that the interface has.
    pub all_queues_yours: bool,
    /// Whether they go on if the broker is killed.
    #[serde(default)]
    pub is_kept: bool,
    /// From which addresses peers may open connections.
    pub sources: Vec<Sources>,
    /// How to map what comes beside it.
    pub layout: LentLayout,
}

/// Where a claim takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// On which interface.
    pub link: u16,
    /// To which address.
    pub local: Address,
}

/// A queue that processes share, for the next broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLeft {
    /// Of which interface.
    pub link: u16,
    /// Who has its places.
    pub places: LeftPlaces,
    /// For how many processes it was to be.
    pub places_wanted: u16,
    /// Octets of a frame, if that was said.
    pub frame_size: Option<u16>,
    /// Whether zero-copy mode was tried.
    pub zero_copy: bool,
    /// The user and the group of the processes that may share it, if any may.
    pub identity: Option<(u32, u32)>,
}

/// From which local ports a process may connect that has some of an interface's queues: those from which answers come by these. What
/// `steering::SourcePorts` is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomePorts {
    /// The key of the Toeplitz function.
    pub key: Vec<u8>,
    /// Entries of the indirection table.
    pub entries: u32,
    /// Which of them lead to a queue of ours: bit `n % 64` of number `n / 64` is that of entry `n`.
    pub home: Vec<u64>,
    /// Whether ports are hashed besides addresses.
    pub hashes_ports: bool,
    /// The first and the last of the ports that the kernel gives to sockets whose programs name none.
    pub range: (u16, u16),
    /// Those of them that it does not give, first and last; at most [`HomePorts::RESERVED_MAX`].
    pub reserved: Vec<(u16, u16)>,
}

impl HomePorts {
    /// Ranges of reserved ports at most; with more, connections are the kernel's.
    pub const RESERVED_MAX: usize = 256;
}

/// The way to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The address that packets leave from.
    pub local: IpAddr,
    /// By which interface.
    pub link: u16,
    /// Our hardware address.
    pub source: [u8; 6],
    /// The next hop's.
    pub destination: [u8; 6],
    /// VLAN identifiers in front of packets, outer first, 0 where there is no tag.
    pub vlan: [u16; 2],
    /// Octets of the longest IP packet there.
    pub mtu: u16,
    /// Whether all queues of the interface are ours. If not, answers may arrive at a process that does not know the connection.
    pub all_queues_yours: bool,
    /// If not: from which local ports they come by those that are ours, where the interface says so.
    pub home_ports: Option<HomePorts>,
}
