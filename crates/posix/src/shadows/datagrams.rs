//! UDP sockets on the stack: those that are claimed, and connected ones that share their port with a claimed socket. To these their peer's
//! datagrams come by the stack, too.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use stack::Hop;
use stack::udp::{UdpBind, UdpId, UdpOptions};

use crate::address::{decode, family, local_of};
use crate::ids::SocketId;
use crate::process::State;
use crate::socket::settings::Settings;
use crate::socket::udp_messages::Asked;
use crate::socket::{Role, Socket};

impl State {
    /// Brings a claimed UDP socket onto the stack.
    pub(crate) fn install_udp(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(id) else { return };
        let Some(local) = local_of(socket.fd()) else { return };
        match peer_of(socket.fd()) {
            Some(remote) => self.install_connected(id, local, remote),
            None => {
                self.install_unconnected(id, local);
                self.divert_to_connected(local.port());
            }
        }
    }

    fn install_unconnected(&mut self, id: SocketId, local: SocketAddr) {
        let Some(socket) = self.sockets.get(id) else { return };
        let dual_stack = socket.domain == libc::AF_INET6 && !crate::shadows::shadow::is_v6_only(socket.fd());
        let bind = UdpBind { dual_stack, reuse_port: true, token: id.to_bits(), ..UdpBind::new(local) };
        let bound = self.queue.stack().map(|stack| stack.udp_bind(&bind));
        let role = self.sockets.get_mut(id).map(|socket| &mut socket.role);
        if let (Some(Role::Udp(udp)), Some(Ok(on_stack))) = (role, bound) {
            udp.on_stack = Some(on_stack);
            self.refresh_udp(id);
        }
    }

    fn install_connected(&mut self, id: SocketId, local: SocketAddr, remote: SocketAddr) {
        let Some(link) = self.queue.runtime.as_ref().and_then(|runtime| runtime.links().next()) else {
            return;
        };
        let Some(stack) = self.queue.stack() else { return };
        let bind = UdpBind { reuse_port: true, token: id.to_bits(), ..UdpBind::new(local) };
        let Ok(on_stack) = stack.udp_bind(&bind) else { return };
        // Nothing leaves by that hop: the way is learned from what comes.
        let hop = Hop { link, ..Hop::default() };
        if stack.udp_connect(on_stack, local.ip(), remote, hop).is_err() {
            return stack.udp_close(on_stack);
        }
        let Some(socket) = self.sockets.get_mut(id) else { return };
        if let Role::Udp(udp) = &mut socket.role {
            udp.on_stack = Some(on_stack);
            udp.peer = Some(remote);
        }
        let flags = syscall::fcntl(socket.fd(), libc::F_GETFL, 0).unwrap_or(0);
        socket.nonblocking = flags & libc::O_NONBLOCK != 0;
        self.refresh_udp(id);
    }

    /// Options of the shadow hold on the stack.
    pub(crate) fn refresh_udp(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let fd = socket.fd();
        let settings = Settings::of_datagrams(fd);
        socket.receive_timeout = settings.receive_timeout();
        socket.send_timeout = settings.send_timeout();
        socket.settings = settings;
        let Role::Udp(udp) = &mut socket.role else { return };
        let Some(on_stack) = udp.on_stack else { return };
        let int = |level, option| crate::socket::udp_messages::udp_int(fd, level, option);
        let is_on = |level, option| int(level, option).is_some_and(|value| value != 0);
        udp.asked = Asked::of_shadow(fd);
        udp.is_sent_by_kernel = udp.asked.times.of_sending || is_on(libc::SOL_UDP, libc::UDP_CORK);
        let default = UdpOptions::default();
        let receive_errors =
            is_on(libc::SOL_IP, libc::IP_RECVERR) || is_on(libc::SOL_IPV6, libc::IPV6_RECVERR);
        let options = UdpOptions {
            receive_buffer: int(libc::SOL_SOCKET, libc::SO_RCVBUF)
                .map_or(default.receive_buffer, |it| it as u32),
            send_buffer: int(libc::SOL_SOCKET, libc::SO_SNDBUF).map_or(default.send_buffer, |it| it as u32),
            segment_len: int(libc::SOL_UDP, libc::UDP_SEGMENT).map_or(0, |it| it as u16),
            receive_coalesced: is_on(libc::SOL_UDP, libc::UDP_GRO),
            receive_errors,
            // The shadow sends, too.
            believe_errors: receive_errors,
            ..default
        };
        if let Some(stack) = self.queue.stack() {
            stack.udp_set_options(on_stack, options);
        }
    }

    /// The shadow of a UDP socket was connected, or disconnected, if that succeeded.
    pub(crate) fn on_udp_connected(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let fd = socket.fd();
        let has_port = local_of(fd).is_some_and(|local| local.port() != 0);
        if let Role::Udp(udp) = &mut socket.role {
            udp.on_connect(has_port && peer_of(fd).is_none());
        }
        self.join_port_on_stack(id);
    }

    /// If a UDP socket shares its port with a claimed one, its peer's datagrams come to it by the stack.
    fn join_port_on_stack(&mut self, id: SocketId) {
        if self.queue.runtime.is_none() {
            return;
        }
        let Some(fd) = self.sockets.get(id).map(|socket| socket.fd()) else { return };
        let Some(port) = local_of(fd).map(|local| local.port()) else { return };
        let claimed = |socket: &Socket| match &socket.role {
            Role::Udp(udp) => udp.on_stack.filter(|_| socket.claim.is_some()),
            _ => None,
        };
        let claimed: Vec<UdpId> = self.sockets.iter().filter_map(|(_, socket)| claimed(socket)).collect();
        let Some(stack) = self.queue.stack() else { return };
        let has_port = |id: &UdpId| stack.udp_endpoints(*id).is_some_and(|(local, _)| local.port() == port);
        let is_shared = claimed.iter().any(has_port);
        if is_shared {
            self.divert(id);
        }
    }

    /// A socket was claimed: of those that share its port the connected ones go first.
    pub(crate) fn divert_to_connected(&mut self, port: u16) {
        let is_meant = |role: &Role| matches!(role, Role::Udp(udp) if udp.on_stack.is_none());
        let others = self.sockets.iter().filter(|(_, socket)| is_meant(&socket.role));
        let sharing = others.filter(|(_, it)| local_of(it.fd()).is_some_and(|local| local.port() == port));
        let ids: Vec<SocketId> = sharing.map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.divert(id));
    }

    /// What the peer of a connected socket sends, comes to it on the stack.
    fn divert(&mut self, id: SocketId) {
        let Some(fd) = self.sockets.get(id).map(|socket| socket.fd()) else { return };
        if let (Some(local), Some(remote)) = (local_of(fd), peer_of(fd)) {
            self.install_connected(id, local, remote);
        }
    }
}

/// The peer of a connected kernel socket.
fn peer_of(fd: RawFd) -> Option<SocketAddr> {
    let mut name = [0; 128];
    let len = syscall::getpeername(fd, &mut name).ok()?;
    let name = name.get(..len)?;
    decode(name, family(name)?).ok()
}
