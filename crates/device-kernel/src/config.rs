//! How to open the sockets.

use std::net::SocketAddr;

/// Largest value of [`Config::payload_max`]: headers and payload lie in one frame below 2^16 octets.
pub const PAYLOAD_MAX: u16 = 65408;

/// How to open [`crate::KernelSockets`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Addresses to serve; `0.0.0.0` and `[::]` stand for all, port 0 for one that the kernel chooses. May be empty.
    pub listen: Vec<SocketAddr>,
    /// Serve only packets that come by this interface (SO_BINDTODEVICE).
    pub interface: Option<String>,
    /// Let other sockets of this user have the same addresses; the kernel spreads clients over them (SO_REUSEPORT). Without it a second
    /// server at an address is told that it is in use.
    pub share_port: bool,
    /// Open addresses that no interface has yet (IP_FREEBIND). Then nothing reports a mistyped address.
    pub free_bind: bool,
    /// Octets of receive buffer per socket (SO_RCVBUF), which absorbs bursts. Without CAP_NET_ADMIN the kernel silently limits it to
    /// `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// Octets of send buffer per socket (SO_SNDBUF), limited by `net.core.wmem_max` in the same way.
    pub send_buffer: usize,
    /// Microseconds for which the kernel polls the card before a receive call gives up (SO_BUSY_POLL); 0 for none.
    /// Trades processor time for latency, and only has an effect with drivers that support it.
    pub busy_poll_us: u32,
    /// Octets of the largest request and reply, up to [`PAYLOAD_MAX`]. Longer requests are dropped and counted.
    pub payload_max: u16,
    /// Number of frames: those that wait to be sent, the 64 for receiving, and those that the engine holds.
    pub frames: usize,
}

impl Default for Config {
    /// No address; buffers of 4 MiB; payloads up to 4096 octets; 512 frames, 2.1 MB.
    fn default() -> Config {
        Config {
            listen: Vec::new(),
            interface: None,
            share_port: true,
            free_bind: false,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            busy_poll_us: 0,
            payload_max: 4096,
            frames: 512,
        }
    }
}
