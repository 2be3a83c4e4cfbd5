//! A host that runs the `smoltcp` crate, written by others: what it understands of the RFCs is independent of what we do.

use std::collections::VecDeque;
use std::net::SocketAddr;

use clock::{Duration, Instant};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{RecvError, Socket, SocketBuffer, State};
use smoltcp::time;
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};

use super::host::{Host, Io, SocketNumber};
use super::smoltcp_wire::Wire;
use super::violation::Broken;

/// How a host with smoltcp is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoltcpSettings {
    /// MTU of its interface.
    pub mtu: u16,
    /// Octets of each socket's receive buffer.
    pub receive_buffer: usize,
    /// Octets of each socket's send buffer.
    pub send_buffer: usize,
    /// Delay of acknowledgements.
    pub ack_delay: Option<Duration>,
    /// Nagle's rule.
    pub nagle: bool,
    /// How long its connections bear silence.
    pub gives_up_after: Option<Duration>,
    /// Seeds its port and sequence numbers.
    pub seed: u64,
}

/// Connections that may be about to open at once.
const LISTENING: usize = 32;

/// An [`Interface`] with sockets as a [`Host`].
pub struct SmoltcpHost {
    settings: SmoltcpSettings,
    interface: Interface,
    wire: Wire,
    set: SocketSet<'static>,
    listening: Vec<SocketHandle>,
    local: Option<IpEndpoint>,
    sockets: Vec<SocketHandle>,
    /// By socket: what was not read when it came to TIME-WAIT, at whose end smoltcp forgets it.
    unread: Vec<Option<VecDeque<u8>>>,
    accepted: VecDeque<SocketNumber>,
    woken: VecDeque<SocketNumber>,
    /// Something changed since the interface was last polled.
    stirred: bool,
}

impl SmoltcpHost {
    /// A host with `address` on a network that has all addresses of its kind.
    pub fn new(settings: SmoltcpSettings, address: std::net::IpAddr, now: Instant) -> SmoltcpHost {
        let mtu = settings.mtu.into();
        let mut wire = Wire::new(mtu);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = settings.seed;
        let mut interface = Interface::new(config, &mut wire, moment(now));
        let prefix_len = if address.is_ipv4() { 24 } else { 64 };
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(address.into(), prefix_len)).expect("it is the only one");
        });
        SmoltcpHost {
            settings,
            interface,
            wire,
            set: SocketSet::new(Vec::new()),
            listening: Vec::new(),
            local: None,
            sockets: Vec::new(),
            unread: Vec::new(),
            accepted: VecDeque::new(),
            woken: VecDeque::new(),
            stirred: true,
        }
    }

    fn new_socket(&mut self) -> SocketHandle {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut socket = Socket::new(buffer(self.settings.receive_buffer), buffer(self.settings.send_buffer));
        socket.set_nagle_enabled(self.settings.nagle);
        socket.set_ack_delay(
            self.settings.ack_delay.map(|delay| time::Duration::from_micros(delay.as_micros())),
        );
        let give_up = self.settings.gives_up_after;
        socket.set_timeout(give_up.map(|span| time::Duration::from_micros(span.as_micros())));
        self.set.add(socket)
    }

    fn socket(&mut self, number: SocketNumber) -> &mut Socket<'static> {
        self.set.get_mut(self.sockets[number.0])
    }

    fn replenish_listeners(&mut self) {
        let Some(local) = self.local else {
            return;
        };
        while self.listening.len() < LISTENING {
            let handle = self.new_socket();
            self.set.get_mut::<Socket<'_>>(handle).listen(local).expect("the port is not zero");
            self.listening.push(handle);
        }
    }

    /// Moves sockets whose handshake is complete to those that wait to be accepted.
    fn sort_listeners(&mut self) {
        let mut at = 0;
        while at < self.listening.len() {
            let handle = self.listening[at];
            let state = self.set.get::<Socket<'_>>(handle).state();
            if matches!(state, State::Listen | State::SynReceived) {
                at += 1;
                continue;
            }
            self.listening.remove(at);
            let number = self.number(handle);
            self.accepted.push_back(number);
        }
        self.replenish_listeners();
    }

    fn number(&mut self, handle: SocketHandle) -> SocketNumber {
        self.sockets.push(handle);
        self.unread.push(None);
        SocketNumber(self.sockets.len() - 1)
    }

    /// Takes what is not read out of sockets in TIME-WAIT.
    fn save_unread(&mut self) {
        for (handle, unread) in self.sockets.iter().zip(&mut self.unread) {
            let socket: &mut Socket<'_> = self.set.get_mut(*handle);
            if socket.state() == State::TimeWait && unread.is_none() {
                let mut octets = vec![0; socket.recv_queue()];
                let count = socket.recv_slice(&mut octets).unwrap_or_default();
                octets.truncate(count);
                *unread = Some(octets.into());
            }
        }
    }

    fn poll(&mut self, now: Instant) {
        if !std::mem::take(&mut self.stirred) {
            return;
        }
        let result = self.interface.poll(moment(now), &mut self.wire, &mut self.set);
        if result == PollResult::SocketStateChanged {
            self.woken = (0..self.sockets.len()).map(SocketNumber).collect();
            self.sort_listeners();
            self.save_unread();
        }
    }
}

/// smoltcp counts microseconds.
fn moment(now: Instant) -> time::Instant {
    time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}

impl Host for SmoltcpHost {
    fn on_packet(&mut self, packet: &[u8], _now: Instant) {
        self.wire.arrived.push_back(packet.to_vec());
        self.stirred = true;
    }

    fn on_timeout(&mut self, now: Instant) {
        self.stirred = true;
        self.poll(now);
    }

    fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let at = self.interface.poll_at(moment(now), &self.set)?;
        Some(Instant::from_nanos(at.total_micros().max(0) as u64 * 1000).max(now))
    }

    fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<usize> {
        self.poll(now);
        let packet = self.wire.leaving.pop_front()?;
        room[..packet.len()].copy_from_slice(&packet);
        Some(packet.len())
    }

    fn poll_woken(&mut self, now: Instant) -> Option<SocketNumber> {
        self.poll(now);
        self.woken.pop_front()
    }

    fn listen(&mut self, local: SocketAddr) {
        self.local = Some(local.into());
        self.replenish_listeners();
    }

    fn accept(&mut self, now: Instant) -> Option<(SocketNumber, SocketAddr)> {
        self.poll(now);
        while let Some(number) = self.accepted.pop_front() {
            if let Some(remote) = self.socket(number).remote_endpoint() {
                return Some((number, SocketAddr::new(remote.addr.into(), remote.port)));
            }
        }
        None
    }

    fn connect(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        _data: &[u8],
        _now: Instant,
    ) -> (SocketNumber, usize) {
        let handle = self.new_socket();
        let (local, remote): (IpEndpoint, IpEndpoint) = (local.into(), remote.into());
        let socket: &mut Socket<'_> = self.set.get_mut(handle);
        socket.connect(self.interface.context(), remote, local).expect("the ports are not zero");
        self.stirred = true;
        (self.number(handle), 0)
    }

    fn send(&mut self, socket: SocketNumber, data: &[u8], _now: Instant) -> Io {
        let socket = self.socket(socket);
        if matches!(socket.state(), State::SynSent | State::SynReceived) {
            return Io::Blocked;
        }
        match socket.send_slice(data) {
            Ok(0) => Io::Blocked,
            Ok(count) => {
                self.stirred = true;
                Io::Moved(count)
            }
            Err(_) => Io::Failed(format!("sending in {}", socket.state())),
        }
    }

    fn recv(&mut self, socket: SocketNumber, room: &mut [u8], _now: Instant) -> Io {
        if let Some(unread) = &mut self.unread[socket.0] {
            let count = unread.len().min(room.len());
            room.iter_mut().zip(unread.drain(..count)).for_each(|(to, from)| *to = from);
            return if count > 0 { Io::Moved(count) } else { Io::End };
        }
        let socket = self.socket(socket);
        if matches!(socket.state(), State::SynSent | State::SynReceived) {
            return Io::Blocked;
        }
        match socket.recv_slice(room) {
            Ok(0) => Io::Blocked,
            Ok(count) => {
                self.stirred = true;
                Io::Moved(count)
            }
            Err(RecvError::Finished) => Io::End,
            Err(RecvError::InvalidState) => Io::Failed(format!("receiving in {}", socket.state())),
        }
    }

    fn finish(&mut self, socket: SocketNumber, now: Instant) -> bool {
        let early = self.socket(socket).state() == State::SynSent;
        if !early {
            self.close(socket, now);
        }
        !early
    }

    fn close(&mut self, socket: SocketNumber, _now: Instant) {
        self.socket(socket).close();
        self.stirred = true;
    }

    fn abort(&mut self, socket: SocketNumber, _now: Instant) {
        self.socket(socket).abort();
        self.stirred = true;
    }

    fn check(&mut self, _now: Instant) -> Result<(), Broken> {
        Ok(())
    }

    fn check_empty(&mut self) -> Result<(), Broken> {
        Ok(())
    }

    /// smoltcp 0.12 stops its retransmission timer by ACKs that do not acknowledge everything, and does not probe a closed
    /// window.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let has_work = |handle: &SocketHandle| {
            let socket: &Socket<'_> = self.set.get(*handle);
            let fin_is_out = matches!(socket.state(), State::FinWait1 | State::Closing | State::LastAck);
            socket.send_queue() > 0 || fin_is_out
        };
        self.sockets.iter().any(has_work) && self.poll_timeout(now).is_none()
    }

    fn is_ours(&self) -> bool {
        false
    }

    fn describe(&mut self, _now: Instant) -> String {
        let state = |handle: &SocketHandle| self.set.get::<Socket<'_>>(*handle).state().to_string();
        let states: Vec<String> = self.sockets.iter().map(state).collect();
        format!("a host with smoltcp: {}\n", states.join(", "))
    }
}

impl std::fmt::Debug for SmoltcpHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SmoltcpHost").field("settings", &self.settings).finish_non_exhaustive()
    }
}
