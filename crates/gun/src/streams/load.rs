//! All connections of a load: which is opened, which takes the next request, what is given up.

use std::collections::{BTreeSet, VecDeque};

use clock::{Duration, Instant};

use super::backlog::Backlog;
use super::conversation::{Asked, Conversation, End, Heard, Times};
use super::dns::DnsStream;
use super::doq::Doq;
use super::fault::Fault;
use super::http1::{Http1, Http1Request};
use super::http2::Http2;
use super::http3::Http3;
use super::quic::Quic;
use super::request::HttpRequest;
use crate::answer::Sample;
use crate::questions::Questions;
use crate::schedule::Schedule;
use crate::summary::Summary;
use crate::tally::Tally;

/// Before a connection is opened in the place of one that failed or that brought no answer.
const PAUSE: Duration = Duration::from_millis(100);
/// So often it looks for what took too long.
const SWEEP_EVERY: Duration = Duration::from_millis(10);

/// What a load is made of.
pub struct Setup {
    /// What is said on its connections.
    pub speech: Speech,
    /// How many connections.
    pub connections: usize,
    /// Requests under way on one connection at most.
    pub pipeline: usize,
    /// Whether connections serve for many requests. If not, each is opened for one.
    pub is_kept: bool,
    /// How long a request waits for a connection, and how long it then waits for its answer.
    pub timeout: Duration,
    /// Answers that take longer from when they were due are not counted as being in time.
    pub within: Duration,
    /// Questions of DNS that earlier loads have asked: this one goes on with the next.
    pub asked: u64,
}

/// What is said on connections.
#[derive(Clone)]
pub enum Speech {
    /// HTTP/1.1.
    Http1(Http1Request),
    /// HTTP/2.
    Http2(HttpRequest),
    /// HTTP/3.
    Http3(Quic, HttpRequest),
    /// DNS over TCP or TLS.
    Dns(Questions),
    /// DNS over HTTPS: these questions as bodies of this request.
    Doh(HttpRequest, Questions),
    /// DNS over QUIC.
    Doq(Quic, Questions),
}

/// When requests are due.
#[derive(Clone, Debug)]
pub enum Pace {
    /// At a fixed rate, whatever the server does.
    Open(Schedule),
    /// As soon as a connection has room, until then.
    Closed(Instant),
}

/// A load over connections. The order of calls, by a driver that has the sockets:
///
/// 1. [`Streams::poll_dial`] says which connection to open; [`Streams::on_open`] or [`Streams::on_failed`] follow.
/// 2. [`Streams::on_octets`] and [`Streams::on_close`] when there is something to be read.
/// 3. [`Streams::turn`] once for all of that, and when [`Streams::next_wake`] has come.
/// 4. [`Streams::poll_changed`] says which connections have octets to be sent ([`Streams::write`]), or are over ([`Streams::is_over`]): then the
///    driver closes the socket and calls [`Streams::on_dropped`].
pub struct Streams {
    speech: Speech,
    pipeline: usize,
    is_kept: bool,
    timeout: Duration,
    within: Duration,
    /// `None` before the load begins.
    pace: Option<Pace>,
    sample: Sample,
    places: Vec<Place>,
    /// Places without a connection: at once, or from then on.
    idle: VecDeque<usize>,
    paused: VecDeque<(Instant, usize)>,
    /// Connections that may have room, in turn.
    ready: VecDeque<usize>,
    changed: VecDeque<usize>,
    /// When connections want to be woken.
    wakes: BTreeSet<(Instant, usize)>,
    backlog: Backlog,
    asked: Asked,
    tally: Tally,
    /// Requests that were due.
    taken: u64,
    next_sweep: Instant,
    looks: Looks,
}

/// How often it looked at its connections while requests were due, and how often all of them were busy.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    all: u32,
    busy: u32,
}

/// Room for one connection.
struct Place {
    state: State,
    /// Its entry in `wakes`.
    wake: Option<Instant>,
    is_ready: bool,
    is_changed: bool,
    /// This connection has brought an answer.
    has_answered: bool,
    /// The next connection waits a little.
    has_failed: bool,
}

enum State {
    Free,
    /// Since then, for a request that was due then.
    Dialling(Instant, Option<Instant>),
    Open(Box<dyn Conversation>),
    /// Something may have to be sent yet.
    Over(Option<Box<dyn Conversation>>),
}

impl Streams {
    /// A load without connections.
    pub fn new(setup: Setup, now: Instant) -> Streams {
        let place = || Place {
            state: State::Free,
            wake: None,
            is_ready: false,
            is_changed: false,
            has_answered: false,
            has_failed: false,
        };
        let questions = match &setup.speech {
            Speech::Dns(questions) | Speech::Doh(_, questions) | Speech::Doq(_, questions) => {
                Some(questions.clone())
            }
            Speech::Http1(_) | Speech::Http2(_) | Speech::Http3(..) => None,
        };
        Streams {
            speech: setup.speech,
            pipeline: setup.pipeline.max(1),
            is_kept: setup.is_kept,
            timeout: setup.timeout,
            within: setup.within,
            pace: None,
            sample: Sample::of_any(),
            places: std::iter::repeat_with(place).take(setup.connections).collect(),
            idle: (0..setup.connections).collect(),
            paused: VecDeque::new(),
            ready: VecDeque::new(),
            changed: VecDeque::new(),
            wakes: BTreeSet::new(),
            backlog: Backlog::default(),
            asked: Asked { questions, number: setup.asked },
            tally: Tally::new(now),
            taken: 0,
            next_sweep: now,
            looks: Looks::default(),
        }
    }

    /// Requests are due from now on.
    pub fn begin(&mut self, pace: Pace, now: Instant) {
        let schedule = match &pace {
            Pace::Open(schedule) => Some(schedule),
            Pace::Closed(_) => None,
        };
        self.sample = schedule.map_or(Sample::of_any(), |schedule| Sample::of_rate(schedule.rate()));
        self.tally.begin(now, schedule, self.within);
        self.pace = Some(pace);
    }

    /// Nothing is due from now on. What was due before is still sent.
    pub fn end_load(&mut self, now: Instant) {
        self.take_due(now);
        self.pace = Some(Pace::Closed(now));
    }

    /// What is counted so far.
    pub fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Questions of DNS that were asked, with those of earlier loads.
    pub fn asked(&self) -> u64 {
        self.asked.number
    }

    /// Whether connections are being opened.
    pub fn is_dialling(&self) -> bool {
        self.places.iter().any(Place::is_dialling)
    }

    /// Whether requests wait, for a connection or for an answer.
    pub fn has_requests(&self) -> bool {
        !self.backlog.is_empty() || self.places.iter().any(|place| place.requests() > 0)
    }

    /// When a turn is due, although nothing came.
    pub fn next_wake(&self) -> Instant {
        let wake = self.wakes.first().map(|(at, _)| *at);
        [self.next_due(), wake].into_iter().flatten().fold(self.next_sweep, Instant::min)
    }

    fn next_due(&self) -> Option<Instant> {
        match &self.pace {
            Some(Pace::Open(schedule)) => schedule.next_due(),
            Some(Pace::Closed(_)) | None => None,
        }
    }

    /// Takes what is due, and gives it to connections with room; gives up what took too long.
    pub fn turn(&mut self, now: Instant) {
        self.take_due(now);
        self.wake(now);
        let is_sweep_due = now >= self.next_sweep;
        if is_sweep_due {
            self.next_sweep = now + SWEEP_EVERY;
            self.sweep(now);
        }
        self.dispatch(now);
        if is_sweep_due && self.next_due().is_some() {
            self.looks.all += 1;
            self.looks.busy += u32::from(self.is_full());
        }
    }

    /// Whether requests wait because each connection has as many as it may have.
    fn is_full(&self) -> bool {
        self.backlog.len() > self.idle.len() && self.places.iter().all(Place::is_used)
    }

    /// Wakes the connections that wanted to be woken by now.
    fn wake(&mut self, now: Instant) {
        let later = self.wakes.split_off(&(now + Duration::from_nanos(1), 0));
        for (_, number) in std::mem::replace(&mut self.wakes, later) {
            self.places[number].wake = None;
            self.converse(number, now, |conversation, heard| conversation.on_wake(heard));
        }
    }

    fn take_due(&mut self, now: Instant) {
        let Some(Pace::Open(schedule)) = &mut self.pace else { return };
        while let Some(due) = schedule.take(now) {
            self.taken += 1;
            self.tally.on_taken(due, now);
            self.backlog.push(due);
        }
    }

    /// The next request that was due, if there is one.
    fn next_request(&mut self, now: Instant) -> Option<Instant> {
        let waiting = self.backlog.pop();
        let is_due = matches!(self.pace, Some(Pace::Closed(until)) if now < until);
        if waiting.is_none() && is_due {
            self.taken += 1;
            self.tally.on_taken(now, now);
            return Some(now);
        }
        waiting
    }

    fn dispatch(&mut self, now: Instant) {
        while let Some(&number) = self.ready.front() {
            if self.places[number].room() == 0 {
                self.ready.pop_front();
                self.places[number].is_ready = false;
                continue;
            }
            let Some(due) = self.next_request(now) else { return };
            self.begin_on(number, due, now);
            self.ready.rotate_left(1); // The next request is the next connection's.
        }
    }

    fn begin_on(&mut self, number: usize, due: Instant, begun: Instant) {
        let State::Open(conversation) = &mut self.places[number].state else { return };
        conversation.begin(Times { due, begun }, &mut self.asked);
        self.tally.on_begun(due, begun);
        self.note_wake(number);
        self.mark_changed(number);
    }

    fn mark_changed(&mut self, number: usize) {
        if !std::mem::replace(&mut self.places[number].is_changed, true) {
            self.changed.push_back(number);
        }
    }

    fn mark_ready(&mut self, number: usize) {
        let place = &mut self.places[number];
        if place.room() > 0 && !std::mem::replace(&mut place.is_ready, true) {
            self.ready.push_back(number);
        }
    }

    fn sweep(&mut self, now: Instant) {
        self.backlog.expire(now, self.timeout);
        for number in 0..self.places.len() {
            self.sweep_place(number, now);
        }
    }

    fn sweep_place(&mut self, number: usize, now: Instant) {
        if matches!(self.places[number].state, State::Dialling(since, _) if since + self.timeout <= now) {
            return self.end(number, End::By(Fault::NotConnected), now);
        }
        let Some(limit) = now.as_nanos().checked_sub(self.timeout.as_nanos()).map(Instant::from_nanos) else {
            return;
        };
        self.converse(number, now, |conversation, heard| conversation.expire(limit, heard));
    }

    /// The next connection to be opened, if one is to be.
    pub fn poll_dial(&mut self, now: Instant) -> Option<usize> {
        while let Some((_, number)) = self.paused.front().copied().filter(|(until, _)| *until <= now) {
            self.paused.pop_front();
            self.idle.push_back(number);
        }
        if self.idle.is_empty() || self.is_over_soon(now) {
            return None;
        }
        let request = if self.is_kept { None } else { Some(self.next_request(now)?) };
        let number = self.idle.pop_front()?;
        self.places[number].state = State::Dialling(now, request);
        Some(number)
    }

    /// Whether no request will need another connection.
    fn is_over_soon(&self, now: Instant) -> bool {
        let has_more = match &self.pace {
            None => true,
            Some(Pace::Open(schedule)) => schedule.next_due().is_some(),
            Some(Pace::Closed(until)) => now < *until,
        };
        !has_more && self.backlog.is_empty()
    }

    /// A connection is open, with everything that has to be agreed on before the first request.
    pub fn on_open(&mut self, number: usize, now: Instant) {
        let State::Dialling(_, request) = self.places[number].state else { return };
        let Some(conversation) = self.conversation(now) else {
            return self.end(number, End::By(Fault::NotConnected), now);
        };
        self.places[number].state = State::Open(conversation);
        if let Some(due) = request {
            self.begin_on(number, due, now);
        }
        self.mark_ready(number);
        self.mark_changed(number);
    }

    /// What is spoken on a new connection; `None` if it cannot be.
    fn conversation(&self, now: Instant) -> Option<Box<dyn Conversation>> {
        Some(match &self.speech {
            Speech::Http1(request) => Box::new(Http1::new(request.clone(), self.pipeline, self.is_kept)),
            Speech::Http2(request) | Speech::Doh(request, _) => {
                Box::new(Http2::new(request.clone(), self.pipeline, self.is_kept))
            }
            Speech::Http3(quic, request) => {
                Box::new(Http3::new(quic, request.clone(), self.pipeline, self.is_kept, now)?)
            }
            Speech::Dns(_) => Box::new(DnsStream::new(self.pipeline)),
            Speech::Doq(quic, _) => Box::new(Doq::new(quic, self.pipeline, now)?),
        })
    }

    /// There is no connection, or it failed.
    pub fn on_failed(&mut self, number: usize, fault: Fault, now: Instant) {
        self.end(number, End::By(fault), now);
    }

    /// Octets have come.
    pub fn on_octets(&mut self, number: usize, octets: &[u8], now: Instant) {
        self.converse(number, now, |conversation, heard| conversation.on_octets(octets, heard));
    }

    /// The server has closed its side.
    pub fn on_close(&mut self, number: usize, now: Instant) {
        // Some servers refuse so those that are too many.
        let was_for_nothing = !self.places[number].has_answered && self.places[number].requests() == 0;
        self.converse(number, now, |conversation, heard| {
            let end = conversation.on_close(heard);
            Some(if was_for_nothing && end == End::InOrder { End::By(Fault::ClosedEarly) } else { end })
        });
    }

    fn converse(
        &mut self,
        number: usize,
        now: Instant,
        event: impl FnOnce(&mut dyn Conversation, &mut Heard<'_>) -> Option<End>,
    ) {
        let place = &mut self.places[number];
        let State::Open(conversation) = &mut place.state else { return };
        let answered = self.tally.counts().answered;
        let questions = self.asked.questions.as_ref();
        let (tally, backlog, sample) = (&mut self.tally, &mut self.backlog, self.sample);
        let mut heard = Heard { now, tally, questions, sample, backlog };
        let end = event(conversation.as_mut(), &mut heard);
        let has_output = conversation.has_output();
        place.has_answered |= self.tally.counts().answered > answered;
        match end {
            Some(end) => self.end(number, end, now),
            None => {
                self.note_wake(number);
                self.mark_ready(number);
                if has_output {
                    self.mark_changed(number);
                }
            }
        }
    }

    /// Notes when a connection wants to be woken.
    fn note_wake(&mut self, number: usize) {
        let place = &mut self.places[number];
        let wake = match &place.state {
            State::Open(conversation) => conversation.next_wake(),
            State::Free | State::Dialling(..) | State::Over(_) => None,
        };
        let before = std::mem::replace(&mut place.wake, wake);
        if before != wake {
            before.map(|at| self.wakes.remove(&(at, number)));
            wake.map(|at| self.wakes.insert((at, number)));
        }
    }

    fn end(&mut self, number: usize, end: End, now: Instant) {
        let place = &mut self.places[number];
        if matches!(place.state, State::Free | State::Over(_)) {
            return;
        }
        if let End::By(fault) = end {
            self.tally.on_fault(fault.name(), place.requests().max(1) as u64);
        }
        place.has_failed = end != End::InOrder || !place.has_answered;
        place.has_answered = false;
        let conversation = match std::mem::replace(&mut place.state, State::Over(None)) {
            State::Open(mut conversation) => conversation.farewell(now).then_some(conversation),
            State::Free | State::Dialling(..) | State::Over(_) => None,
        };
        place.state = State::Over(conversation);
        self.note_wake(number);
        self.mark_changed(number);
    }

    /// The next connection that has something to be sent, or is over.
    pub fn poll_changed(&mut self) -> Option<usize> {
        let number = self.changed.pop_front()?;
        self.places[number].is_changed = false;
        Some(number)
    }

    /// Whether a connection is over: what it has left to say is to be sent, and its socket to be closed.
    pub fn is_over(&self, number: usize) -> bool {
        matches!(self.places[number].state, State::Over(_))
    }

    /// The socket of a connection that is over is closed.
    pub fn on_dropped(&mut self, number: usize, now: Instant) {
        let place = &mut self.places[number];
        if !matches!(place.state, State::Over(_)) {
            return;
        }
        place.state = State::Free;
        if place.has_failed {
            self.paused.push_back((now + PAUSE, number));
        } else {
            self.idle.push_back(number);
        }
    }

    /// Gives what is to be sent to `sink`, which says how much of it it took.
    pub fn write(&mut self, number: usize, sink: &mut dyn FnMut(&[u8]) -> usize) {
        match &mut self.places[number].state {
            State::Open(conversation) => {
                conversation.write(sink);
                self.note_wake(number);
            }
            State::Over(Some(conversation)) => conversation.write(sink),
            State::Free | State::Dialling(..) | State::Over(None) => {}
        }
    }

    /// Whether a connection has something to be sent.
    pub fn has_output(&self, number: usize) -> bool {
        matches!(&self.places[number].state, State::Open(conversation) if conversation.has_output())
    }

    /// Ends all connections.
    pub fn end_all(&mut self, now: Instant) {
        (0..self.places.len()).for_each(|number| self.end(number, End::InOrder, now));
    }

    /// What came of it, of `offered` requests a second (0: as many as there was room for) in `length` of sending.
    pub fn finish(mut self, offered: u32, length: Duration) -> Summary {
        let taken = self.taken;
        let counts = self.tally.counts_mut();
        counts.unsent = taken - counts.sent;
        let lost = taken - counts.answered - counts.mismatched;
        let mut summary = self.tally.summary(offered, length, lost);
        summary.connections_busy = f64::from(self.looks.busy) / f64::from(self.looks.all.max(1));
        summary
    }
}

impl Place {
    fn is_dialling(&self) -> bool {
        match &self.state {
            State::Dialling(..) => true,
            State::Open(conversation) => conversation.is_opening(),
            State::Free | State::Over(_) => false,
        }
    }

    /// Whether it has requests, or is free since its connection ended as it may.
    fn is_used(&self) -> bool {
        match &self.state {
            State::Open(_) | State::Dialling(..) => self.requests() > 0,
            State::Free | State::Over(_) => !self.has_failed,
        }
    }

    fn room(&self) -> usize {
        match &self.state {
            State::Open(conversation) => conversation.room(),
            State::Free | State::Dialling(..) | State::Over(_) => 0,
        }
    }

    /// Those that end with its connection.
    fn requests(&self) -> usize {
        match &self.state {
            State::Open(conversation) => conversation.under_way(),
            State::Dialling(_, request) => usize::from(request.is_some()),
            State::Free | State::Over(_) => 0,
        }
    }
}
