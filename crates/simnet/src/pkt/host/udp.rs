//! UDP sockets of the stack under test.

use std::net::SocketAddr;

use clock::Instant;
use stack::Hop;
use stack::udp::{
    UdpBind, UdpBindError, UdpConnectError, UdpError, UdpId, UdpOptions, UdpRecvError, UdpSend, UdpSendError,
};

use super::{Host, LINK, OptionValue, OptionsError, Readiness};
use crate::pkt::errno::Errno;
use crate::pkt::symbols as sym;

impl Host {
    pub(crate) fn udp_bind(
        &mut self,
        local: SocketAddr,
        options: UdpOptions,
        reuse_port: bool,
    ) -> Result<UdpId, Errno> {
        let dual_stack = local.is_ipv6() && local.ip().is_unspecified();
        let bind = UdpBind { options, reuse_port, dual_stack, ..UdpBind::new(local) };
        self.stack.udp_bind(&bind).map_err(|error| match error {
            UdpBindError::InUse => Errno::EADDRINUSE,
            UdpBindError::Invalid => Errno::EINVAL,
            UdpBindError::TooMany => Errno::ENOBUFS,
        })
    }

    pub(crate) fn udp_connect(
        &mut self,
        id: UdpId,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        let hop = Hop { link: LINK, ..Hop::default() };
        self.stack.udp_connect(id, local.ip(), remote, hop).map_err(connect_errno)
    }

    pub(crate) fn udp_disconnect(&mut self, id: UdpId) -> Result<(), Errno> {
        self.stack.udp_disconnect(id).map_err(connect_errno)
    }

    /// Sends one datagram, to `remote` or to the connected peer.
    pub(crate) fn udp_send(
        &mut self,
        id: UdpId,
        (local, remote): (SocketAddr, Option<SocketAddr>),
        data: &[u8],
        now: Instant,
    ) -> Result<(), Errno> {
        let hop = remote.map(|_| Hop { link: LINK, ..Hop::default() });
        let send = UdpSend { to: remote, from: Some(local.ip()), hop, ..UdpSend::default() };
        self.stack.udp_send_to(id, &send, data, now).map_err(|error| match error {
            UdpSendError::Closed => Errno::EBADF,
            UdpSendError::NotConnected => Errno::EDESTADDRREQ,
            UdpSendError::NoHop => Errno::ENETUNREACH,
            UdpSendError::Source => Errno::EADDRNOTAVAIL,
            UdpSendError::Destination | UdpSendError::Segments => Errno::EINVAL,
            UdpSendError::AddressFamily => Errno::EAFNOSUPPORT,
            UdpSendError::TooLong { .. } => Errno::EMSGSIZE,
            UdpSendError::WouldBlock => Errno::EAGAIN,
            UdpSendError::NoMemory => Errno::ENOBUFS,
            UdpSendError::Failed(error) => udp_errno(error),
        })
    }

    /// Copies the oldest datagram; returns how much was copied, and how much there was.
    pub(crate) fn udp_receive(
        &mut self,
        id: UdpId,
        out: &mut [u8],
        peeks: bool,
    ) -> Result<(usize, usize), Errno> {
        let result = match peeks {
            true => self.stack.udp_peek_from(id, out),
            false => self.stack.udp_recv_from(id, out),
        };
        result.map(|received| (received.len, received.full_len)).map_err(|error| match error {
            UdpRecvError::Closed => Errno::EBADF,
            UdpRecvError::WouldBlock => Errno::EAGAIN,
            UdpRecvError::Failed(error) => udp_errno(error),
        })
    }

    pub(crate) fn udp_close(&mut self, id: UdpId) {
        self.stack.udp_close(id);
    }

    pub(crate) fn udp_readiness(&self, id: UdpId) -> Readiness {
        self.stack.udp_readiness(id).unwrap_or_default()
    }

    pub(crate) fn udp_take_error(&mut self, id: UdpId) -> Option<Errno> {
        self.stack.udp_take_error(id).map(udp_errno)
    }

    /// Octets of the oldest datagram, and octets that wait to be sent.
    pub(crate) fn udp_queued(&self, id: UdpId) -> (usize, usize) {
        self.stack.udp_queued(id).unwrap_or_default()
    }

    pub(crate) fn udp_endpoints(&self, id: UdpId) -> Option<(SocketAddr, Option<SocketAddr>)> {
        self.stack.udp_endpoints(id)
    }

    pub(crate) fn udp_set_options(&mut self, id: UdpId, options: UdpOptions) {
        self.stack.udp_set_options(id, options);
    }
}

fn connect_errno(error: UdpConnectError) -> Errno {
    match error {
        UdpConnectError::Closed => Errno::EBADF,
        UdpConnectError::AddressFamily => Errno::EAFNOSUPPORT,
        UdpConnectError::Source => Errno::EADDRNOTAVAIL,
        UdpConnectError::Destination => Errno::EINVAL,
        UdpConnectError::InUse => Errno::EADDRINUSE,
        UdpConnectError::TooMany => Errno::ENOBUFS,
    }
}

fn udp_errno(error: UdpError) -> Errno {
    match error {
        UdpError::Refused => Errno::ECONNREFUSED,
        UdpError::HostUnreachable => Errno::EHOSTUNREACH,
        UdpError::NetworkUnreachable => Errno::ENETUNREACH,
        UdpError::ProtocolUnreachable => Errno::ENOPROTOOPT,
        UdpError::Prohibited => Errno::EACCES,
        UdpError::HeaderProblem => Errno::EPROTO,
        UdpError::TooLong { .. } => Errno::EMSGSIZE,
    }
}

/// Sets the option `name` of `level`. `Ok(false)` if it is none of UDP's.
pub(crate) fn set_udp_option(
    options: &mut UdpOptions,
    level: i64,
    name: i64,
    value: &OptionValue,
) -> Result<bool, OptionsError> {
    let OptionValue::Int(value) = *value else { return Ok(false) };
    let octet = || u8::try_from(value).map_err(|_| OptionsError::Errno(Errno::EINVAL));
    match (level, name) {
        (sym::SOL_SOCKET, sym::SO_RCVBUF) => options.receive_buffer = (value.max(0) as u32).saturating_mul(2),
        (sym::SOL_SOCKET, sym::SO_SNDBUF) => options.send_buffer = (value.max(0) as u32).saturating_mul(2),
        (sym::SOL_IP, sym::IP_TTL) | (sym::SOL_IPV6, sym::IPV6_UNICAST_HOPS) => options.hop_limit = octet()?,
        (sym::SOL_IP, sym::IP_TOS) | (sym::SOL_IPV6, sym::IPV6_TCLASS) => options.traffic_class = octet()?,
        (sym::SOL_IP, sym::IP_RECVERR) | (sym::SOL_IPV6, sym::IPV6_RECVERR) => {
            options.receive_errors = value != 0
        }
        (sym::SOL_UDP, sym::UDP_SEGMENT) => options.segment_len = value as u16,
        (sym::SOL_UDP, sym::UDP_GRO) => options.receive_coalesced = value != 0,
        _ => return Ok(false),
    }
    Ok(true)
}

/// The option `name` of `level`; `None` if it is none of UDP's.
pub(crate) fn get_udp_option(options: &UdpOptions, level: i64, name: i64) -> Option<OptionValue> {
    let value = match (level, name) {
        (sym::SOL_SOCKET, sym::SO_RCVBUF) => options.receive_buffer.into(),
        (sym::SOL_SOCKET, sym::SO_SNDBUF) => options.send_buffer.into(),
        (sym::SOL_IP, sym::IP_TTL) | (sym::SOL_IPV6, sym::IPV6_UNICAST_HOPS) => options.hop_limit.into(),
        (sym::SOL_IP, sym::IP_TOS) | (sym::SOL_IPV6, sym::IPV6_TCLASS) => options.traffic_class.into(),
        (sym::SOL_IP, sym::IP_RECVERR) | (sym::SOL_IPV6, sym::IPV6_RECVERR) => options.receive_errors.into(),
        (sym::SOL_UDP, sym::UDP_SEGMENT) => options.segment_len.into(),
        (sym::SOL_UDP, sym::UDP_GRO) => options.receive_coalesced.into(),
        _ => return None,
    };
    Some(OptionValue::Int(value))
}
