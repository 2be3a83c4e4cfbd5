//! A host that runs our stack.

use std::net::SocketAddr;
use std::sync::Arc;

use clock::Instant;
use stack::tcp::{RecvError, SendError, Shutdown, State};
use stack::{
    Arrival, Config, Connect, ConnectionId, Hop, Link, LinkId, ListenerId, Socket, Stack, TcpOptions,
};

use super::host::{Host, Io, SocketNumber};
use super::sight::Sight;
use super::violation::{Broken, require};

/// How a host of ours is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct OurSettings {
    /// Settings of its stack.
    pub config: Config,
    /// Options of its sockets; the first connection has the first, and so on, and the last is for all others.
    pub options: Vec<TcpOptions>,
    /// MTU of its interface.
    pub mtu: u16,
    /// Keys its hashes and sequence numbers.
    pub secret: u64,
}

impl OurSettings {
    /// Sequence number and timestamp with which a connection from `local` to `remote` would begin at `now`: found by trying.
    pub fn first_numbers(&self, local: SocketAddr, remote: SocketAddr, now: Instant) -> (u32, u32) {
        let config = Config { timestamps: true, ..self.config.clone() };
        let mut host = OurHost::new(&OurSettings { config, ..self.clone() }, now);
        host.connect(local, remote, b"", now);
        let mut room = [0; 1 << 14];
        let len = host.poll_transmit(now, &mut room).expect("the SYN is due");
        let sight = Sight::of(&room[..len]).expect("our packets are valid");
        (sight.seq, sight.timestamp.expect("timestamps are on"))
    }
}

/// [`Stack`] as a [`Host`].
#[derive(Debug)]
pub struct OurHost {
    stack: Stack,
    options: Vec<Arc<TcpOptions>>,
    listener: Option<ListenerId>,
    sockets: Vec<ConnectionId>,
}

impl OurHost {
    /// A host without sockets.
    pub fn new(settings: &OurSettings, now: Instant) -> OurHost {
        let mut stack = Stack::new(settings.config.clone(), expand(settings.secret), now);
        stack.set_link(LinkId(0), Link { mtu: settings.mtu, ..Link::default() }, now);
        let options = settings.options.iter().cloned().map(Arc::new).collect();
        OurHost { stack, options, listener: None, sockets: Vec::new() }
    }

    /// The stack itself.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    fn options(&self, number: usize) -> Arc<TcpOptions> {
        let last = self.options.len().saturating_sub(1);
        self.options.get(number.min(last)).cloned().unwrap_or_default()
    }

    fn add(&mut self, id: ConnectionId) -> SocketNumber {
        let number = self.sockets.len();
        self.sockets.push(id);
        self.stack.set_token(id, number as u64);
        SocketNumber(number)
    }

    /// Whether something is outstanding on a connection that only a timer brings on if the peer stays silent.
    fn has_unfinished_work(&self, id: ConnectionId, now: Instant) -> bool {
        let over = matches!(self.stack.state(id), Some(State::Closed | State::TimeWait));
        !over && self.stack.info(id, now).is_some_and(|info| info.unacked > 0 || info.notsent_bytes > 0)
    }
}

/// 32 octets out of one number.
fn expand(secret: u64) -> [u8; 32] {
    let mut octets = [0; 32];
    super::content::Content::new(secret).fill(0, &mut octets);
    octets
}

impl Host for OurHost {
    fn on_packet(&mut self, packet: &[u8], now: Instant) {
        // Why a packet was not for the host is counted there; here only its effects matter.
        let _ = self.stack.on_packet(packet, &Arrival::default(), now);
    }

    fn on_timeout(&mut self, now: Instant) {
        self.stack.on_timeout(now);
    }

    fn poll_timeout(&mut self, _now: Instant) -> Option<Instant> {
        self.stack.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: &mut [u8]) -> Option<usize> {
        self.stack.poll_transmit(now, room).map(|transmit| transmit.len)
    }

    fn poll_woken(&mut self, _now: Instant) -> Option<SocketNumber> {
        while let Some(event) = self.stack.poll_event() {
            if let Socket::Connection(_) = event.socket {
                return Some(SocketNumber(event.token as usize));
            }
        }
        None
    }

    fn listen(&mut self, local: SocketAddr) {
        let options = self.options(0);
        self.listener = self.stack.tcp_listen(local, false, 1024, options).ok();
    }

    fn accept(&mut self, _now: Instant) -> Option<(SocketNumber, SocketAddr)> {
        let id = self.stack.tcp_accept(self.listener?)?;
        let (_, remote) = self.stack.endpoints(id)?;
        Some((self.add(id), remote))
    }

    fn connect(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        data: &[u8],
        now: Instant,
    ) -> (SocketNumber, usize) {
        let options = self.options(self.sockets.len());
        let connect = Connect { local, remote, hop: Hop::default(), options, data };
        let id = self.stack.tcp_connect(&connect, now).expect("the flow is new, and there are few");
        let taken = self.stack.queued(id).map_or(0, |(_, to_send)| to_send);
        (self.add(id), taken)
    }

    fn send(&mut self, socket: SocketNumber, data: &[u8], now: Instant) -> Io {
        match self.stack.send(self.sockets[socket.0], data, now) {
            Ok(count) => Io::Moved(count),
            Err(SendError::WouldBlock | SendError::Connecting) => Io::Blocked,
            Err(SendError::Closed) => Io::End,
            Err(SendError::Failed(error)) => Io::Failed(error.to_string()),
            Err(SendError::NotConnected) => Io::Failed("not connected".to_owned()),
        }
    }

    fn recv(&mut self, socket: SocketNumber, room: &mut [u8], now: Instant) -> Io {
        let id = self.sockets[socket.0];
        match self.stack.recv(id, room, now) {
            Ok(0) => Io::End,
            Ok(count) => Io::Moved(count),
            Err(RecvError::WouldBlock) => Io::Blocked,
            Err(RecvError::Failed(error)) => Io::Failed(error.to_string()),
            // Before it is established there is nothing to read; the wake-up comes with the data.
            Err(RecvError::NotConnected) if self.stack.state(id).is_some() => Io::Blocked,
            Err(RecvError::NotConnected) => Io::Failed("not connected".to_owned()),
        }
    }

    fn finish(&mut self, socket: SocketNumber, now: Instant) -> bool {
        let id = self.sockets[socket.0];
        let early = self.stack.state(id) == Some(State::SynSent);
        if !early {
            self.stack.shutdown(id, Shutdown::Write, now);
        }
        !early
    }

    fn close(&mut self, socket: SocketNumber, now: Instant) {
        self.stack.close(self.sockets[socket.0], now);
    }

    fn abort(&mut self, socket: SocketNumber, now: Instant) {
        self.stack.abort(self.sockets[socket.0], now);
    }

    fn check(&mut self, now: Instant) -> Result<(), Broken> {
        let (used, limit) = self.stack.buffer_memory();
        require!(used <= limit, "buffers hold {used} octets, more than {limit}");
        if self.stack.poll_timeout().is_none() {
            let mut connections = self.stack.connections();
            let waiting = connections.find(|id| self.has_unfinished_work(*id, now));
            require!(waiting.is_none(), "{waiting:?} has something outstanding and no timer");
        }
        Ok(())
    }

    fn check_empty(&mut self) -> Result<(), Broken> {
        let population = self.stack.population();
        require!(population == (0, 0, 0), "connections, half-open and TIME-WAIT are left: {population:?}");
        let (used, _) = self.stack.buffer_memory();
        require!(used == 0, "{used} octets of buffers are left without a connection");
        let timeout = self.stack.poll_timeout();
        require!(timeout.is_none(), "a timer is left without a connection");
        Ok(())
    }

    fn is_stuck(&mut self, _now: Instant) -> bool {
        false // `check` sees to that.
    }

    fn is_ours(&self) -> bool {
        true
    }

    fn describe(&mut self, now: Instant) -> String {
        let mut text = String::from("a host of ours\n");
        for id in self.stack.connections() {
            let (state, info) = (self.stack.state(id), self.stack.info(id, now));
            text += &format!("  {id:?} {state:?} {info:#?}\n");
        }
        let counters = self.stack.counters().named().filter(|(_, value)| *value > 0);
        let counters: Vec<String> = counters.map(|(name, value)| format!("{name}={value}")).collect();
        text + "  " + &counters.join(" ") + "\n"
    }
}
