//! Two hosts, the path between them, their applications, and time.

mod verdict;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::net::application::Application;
use crate::net::host::Host;
use crate::net::link::{Link, LinkSettings, Passage};
use crate::net::observer::Observer;
use crate::net::random::Random;
use crate::net::sight::describe;
use crate::net::too_big::too_big;
use crate::net::traffic::{Connection, Opening};
use crate::net::violation::{Broken, Violation, require};

/// Which host: 0 or 1. Link 0 leads from host 0 to host 1.
pub type Place = usize;

/// Something that changes while the simulation runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The link from a host does something else from now on.
    Link(Place, Box<LinkSettings>),
    /// A host's clock steps forward, and its timers find out late.
    ClockJump(Place, Duration),
    /// A host's connections go on in another stack; the first one gets their packets for so long yet.
    Move(Place, Duration),
}

/// What is going to happen at some time.
#[derive(Debug)]
enum Event {
    Arrival(Place, Vec<u8>),
    Wake(Place, usize),
    Open(usize),
    Change(Change),
}

/// One host with what uses it.
#[derive(Debug)]
struct Seat {
    host: Box<dyn Host>,
    /// By how much its clock is ahead of the simulation's.
    ahead: Duration,
    mtu: u16,
    /// By the numbers of the host's sockets; `None` for an unwanted one.
    applications: Vec<Option<Application>>,
}

/// Two hosts and all around them.
#[derive(Debug)]
pub struct Simulation {
    seats: [Seat; 2],
    links: [Link; 2],
    connections: Vec<Connection>,
    queue: BTreeMap<(Instant, u64), Event>,
    events: u64,
    started: Instant,
    now: Instant,
    observer: Observer,
    random: Random,
    /// Times in a row that something happened without time passing.
    at_this_instant: u32,
    trace: bool,
}

/// Events at one instant that mean that time stands still.
const EVENTS_PER_INSTANT: u32 = 20_000;

impl Simulation {
    /// Both `hosts` with the MTUs of their links, connected by `links`; `ahead` is how far their clocks are ahead.
    pub fn new(
        hosts: [(Box<dyn Host>, u16, Duration); 2],
        links: [LinkSettings; 2],
        now: Instant,
        seed: u64,
    ) -> Simulation {
        let mut random = Random::new(seed);
        let seats = hosts.map(|(host, mtu, ahead)| Seat { host, ahead, mtu, applications: Vec::new() });
        Simulation {
            seats,
            links: links.map(|settings| Link::new(settings, random.fork())),
            connections: Vec::new(),
            queue: BTreeMap::new(),
            events: 0,
            started: now,
            now,
            observer: Observer::default(),
            random,
            at_this_instant: 0,
            trace: std::env::var_os("SIMNET_TRACE").is_some(),
        }
    }

    /// Has host 1 listen on `local`.
    pub fn listen(&mut self, local: SocketAddr) {
        self.seats[1].host.listen(local);
    }

    /// Adds a connection that host 0 begins.
    pub fn add(&mut self, connection: Connection) {
        let number = self.connections.len();
        let (client, server) = (connection.client, connection.server);
        self.observer.expect(client, server, connection.content(0));
        self.observer.expect(server, client, connection.content(1));
        self.schedule(self.started + connection.begins, Event::Open(number));
        self.connections.push(connection);
    }

    /// Adds something that changes `after` the start.
    pub fn change(&mut self, after: Duration, change: Change) {
        self.schedule(self.started + after, Event::Change(change));
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - self.started
    }

    /// Lets time pass until all that is to come has come, or `limit` since the start is over.
    pub fn run(&mut self, limit: Duration) -> Result<(), Violation> {
        self.run_until(limit).map_err(|broken| self.violation(broken))
    }

    fn run_until(&mut self, limit: Duration) -> Result<(), Broken> {
        let end = self.started + limit;
        for place in [0, 1] {
            self.turn(place)?;
        }
        while let Some(next) = self.next_instant() {
            if next > end {
                self.now = end;
                return Ok(());
            }
            self.at_this_instant = if next > self.now { 0 } else { self.at_this_instant + 1 };
            require!(self.at_this_instant < EVENTS_PER_INSTANT, "time stands still");
            self.now = self.now.max(next);
            self.step()?;
        }
        Ok(())
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }

    /// When the next event or timer is due.
    fn next_instant(&mut self) -> Option<Instant> {
        let event = self.queue.first_key_value().map(|((at, _), _)| *at);
        let timers = [0, 1].map(|place| self.timer(place));
        timers.into_iter().flatten().chain(event).min()
    }

    fn timer(&mut self, place: Place) -> Option<Instant> {
        let now = self.clock(place);
        let seat = &mut self.seats[place];
        let at = seat.host.poll_timeout(now)?;
        Some(Instant::from_nanos(at.since(Instant::ZERO + seat.ahead).as_nanos()))
    }

    /// What the host's clock shows.
    fn clock(&self, place: Place) -> Instant {
        self.now + self.seats[place].ahead
    }

    /// Does one thing that is due.
    fn step(&mut self) -> Result<(), Broken> {
        let due = self.queue.first_entry().filter(|entry| entry.key().0 <= self.now);
        if let Some(event) = due.map(|entry| entry.remove()) {
            return self.on_event(event);
        }
        for place in [0, 1] {
            if self.timer(place).is_some_and(|at| at <= self.now) {
                let now = self.clock(place);
                self.seats[place].host.on_timeout(now);
                self.turn(place)?;
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Arrival(place, packet) => {
                let now = self.clock(place);
                self.note(place, "arrives", &packet);
                self.observer.on_delivered(&packet);
                self.seats[place].host.on_packet(&packet, now);
                self.turn(place)
            }
            Event::Wake(place, number) => {
                self.run_application(place, number)?;
                self.turn(place)
            }
            Event::Open(number) => self.open(number),
            Event::Change(Change::Link(place, settings)) => {
                self.links[place].set(*settings);
                Ok(())
            }
            Event::Change(Change::ClockJump(place, by)) => {
                self.seats[place].ahead += by;
                Ok(())
            }
            Event::Change(Change::Move(place, late)) => {
                let now = self.clock(place);
                self.say(place, "moves its connections");
                self.seats[place].host.move_connections(late, now);
                self.turn(place)
            }
        }
    }

    fn open(&mut self, number: usize) -> Result<(), Broken> {
        let connection = self.connections[number].clone();
        self.connect(0, number, &connection)?;
        if connection.opening == Opening::Simultaneous {
            self.connect(1, number, &connection)?;
        }
        Ok(())
    }

    fn connect(&mut self, place: Place, number: usize, connection: &Connection) -> Result<(), Broken> {
        let now = self.clock(place);
        let (local, remote) = connection.ends(place);
        let mut first = vec![0; if place == 0 { connection.early_octets() } else { 0 }];
        connection.content(place).fill(0, &mut first);
        let (socket, taken) = self.seats[place].host.connect(local, remote, &first, now);
        let application =
            connection.application(place, number, socket, taken as u64, now, self.random.fork());
        self.seats[place].applications.resize_with(socket.0 + 1, || None);
        self.seats[place].applications[socket.0] = Some(application);
        self.run_application(place, socket.0)?;
        self.turn(place)
    }

    /// Lets a host, and what is woken on it, do what follows from what happened, until nothing does.
    fn turn(&mut self, place: Place) -> Result<(), Broken> {
        loop {
            self.accept(place)?;
            let now = self.clock(place);
            while let Some(socket) = self.seats[place].host.poll_woken(now) {
                self.run_application(place, socket.0)?;
            }
            if !self.transmit(place)? {
                break;
            }
        }
        let now = self.clock(place);
        self.seats[place].host.check(now)
    }

    fn accept(&mut self, place: Place) -> Result<(), Broken> {
        let now = self.clock(place);
        while let Some((socket, remote)) = self.seats[place].host.accept(now) {
            let found = self.connections.iter().position(|connection| connection.client == remote);
            let Some(number) = found else {
                return Err(Broken(format!("{remote} is connected and never began to")));
            };
            if self.ends(number)[place].is_some() {
                require!(self.connections[number].may_repeat, "connection {number} is accepted twice");
                self.seats[place].host.abort(socket, now);
                continue;
            }
            let random = self.random.fork();
            let application = self.connections[number].application(place, number, socket, 0, now, random);
            self.seats[place].applications.resize_with(socket.0 + 1, || None);
            self.seats[place].applications[socket.0] = Some(application);
            self.run_application(place, socket.0)?;
        }
        Ok(())
    }

    fn run_application(&mut self, place: Place, number: usize) -> Result<(), Broken> {
        let now = self.clock(place);
        let seat = &mut self.seats[place];
        let Some(application) = seat.applications.get_mut(number).and_then(Option::as_mut) else {
            return Ok(());
        };
        application.run(seat.host.as_mut(), now)?;
        if let Some(at) = application.poll_wake() {
            let at = Instant::from_nanos(at.since(Instant::ZERO + seat.ahead).as_nanos());
            self.schedule(at, Event::Wake(place, number));
        }
        Ok(())
    }

    /// Sends all that a host has to send; whether there was anything.
    fn transmit(&mut self, place: Place) -> Result<bool, Broken> {
        let now = self.clock(place);
        let mut room = [0; 1 << 14];
        let mut packets = 0;
        while let Some(len) = self.seats[place].host.poll_transmit(now, &mut room) {
            self.note(place, "sends", &room[..len]);
            self.observer.on_sent(&room[..len], self.seats[place].mtu, self.seats[place].host.is_ours())?;
            self.pass(place, room[..len].to_vec());
            packets += 1;
            require!(packets < EVENTS_PER_INSTANT, "a host sends without end");
        }
        Ok(packets > 0)
    }

    fn pass(&mut self, place: Place, packet: Vec<u8>) {
        let mtu = self.links[place].settings().mtu;
        let copy = (packet.len() > usize::from(mtu)).then(|| packet.clone());
        match self.links[place].pass(packet, self.now) {
            Passage::Arrives(arrivals) => {
                for (at, packet) in arrivals {
                    self.schedule(at, Event::Arrival(1 - place, packet));
                }
            }
            Passage::Lost(why) => self.say(place, &format!("  {why}")),
            Passage::TooBig(at) => {
                self.say(place, &format!("  too big for {mtu}"));
                if let Some(error) = copy.and_then(|packet| too_big(&packet, mtu)) {
                    self.schedule(at, Event::Arrival(place, error));
                }
            }
        }
    }

    fn note(&self, place: Place, verb: &str, packet: &[u8]) {
        if self.trace {
            self.say(place, &format!("{verb} {}", describe(packet)));
        }
    }

    fn say(&self, place: Place, text: &str) {
        if self.trace {
            println!("{:>14.6} host {place} {text}", self.elapsed().as_secs_f64());
        }
    }
}
