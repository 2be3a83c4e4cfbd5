//! Requests and their answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::event::{event, raise_all};
use super::without_broker::Line;
use super::{Client, ClientError, PATIENCE, PATIENCE_IN_PASSING, Ticket};
use crate::protocol::{Answer, FromBroker, News, Refusal, Request, ToBroker, decode, encode};
use crate::transfer::{Arrival, Internal, discard, send};

/// Requests that wait until the broker reads again, if the kernel has no room for more.
const UNSENT_MAX: usize = 1 << 14;

/// A message from the broker with what came beside it.
pub(super) struct Arrived<M> {
    pub(super) message: M,
    pub(super) fds: Vec<OwnedFd>,
}

/// What is to be done when an answer comes for which nobody waits any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// Nothing.
    Forget,
    /// The claim is released: what it was for is the kernel's.
    Release,
    /// Queues that were granted before it are not ours.
    GaveBack,
}

/// A request for whose answer nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unawaited {
    /// When that began.
    since: Instant,
    late: Late,
}

impl Unawaited {
    pub(super) fn new(request: &Request) -> Unawaited {
        Unawaited { since: Instant::now(), late: late(request) }
    }
}

impl Client {
    /// Says what needs no answer; the broker does it when it can. Only descriptors, which cannot be kept here, wait for room, and not for a
    /// broker that is behind.
    pub(super) fn tell(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        if self.is_behind()? || fds.is_empty() {
            return self.say(request, fds).map(drop);
        }
        let id = self.send(request, fds, Instant::now() + PATIENCE)?;
        self.unawaited.insert(id, Unawaited::new(request));
        Ok(())
    }

    /// Waits until the broker has answered what nobody waited for; an error if it refused any of it.
    pub fn settle(&mut self) -> Result<(), ClientError> {
        let deadline = Instant::now() + PATIENCE;
        while !self.unawaited.is_empty() {
            if !self.receive()? && (self.is_left_alone() || !self.wait_for(PollFlags::IN, deadline)?) {
                return Err(ClientError::TimedOut);
            }
        }
        self.refused.take().map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Asks for what needs no more than to be done: if the broker is behind, it does it when it goes on.
    pub(super) fn ask_for_done(
        &mut self,
        request: Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        if self.is_behind()? {
            return self.say(&request, fds).map(drop);
        }
        match self.ask(request, fds) {
            Ok(Arrived { message: Answer::Done, .. }) | Err(ClientError::TimedOut) => Ok(()),
            Ok(arrived) => Err(unexpected(arrived.message)),
            Err(error) => Err(error),
        }
    }

    /// Whether an answer is overdue.
    pub fn is_behind(&mut self) -> Result<bool, ClientError> {
        if self.given_up || self.is_left_alone() || !self.unawaited.is_empty() {
            while self.receive()? {}
        }
        let is_overdue = self.waits_since().is_some_and(|since| since.elapsed() >= PATIENCE);
        Ok(self.is_left_alone() || self.given_up || is_overdue)
    }

    /// Whether an answer is overdue for who would rather not wait.
    pub fn stands_still(&mut self) -> Result<bool, ClientError> {
        Ok(self.is_behind()?
            || self.waits_since().is_some_and(|since| since.elapsed() >= PATIENCE_IN_PASSING))
    }

    /// The broker has been waited for long enough: nothing is until it says something.
    pub fn give_up_waiting(&mut self) {
        self.given_up = true;
    }

    /// Whether that is so, or it was killed, and no other one is about to take its place.
    pub fn has_given_up(&mut self) -> Result<bool, ClientError> {
        Ok(self.is_behind()? && (self.given_up || self.is_left_alone() && !self.may_be_followed()))
    }

    /// Since when there is a request without an answer for which nobody waits.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.unawaited.first_key_value().map(|(_, oldest)| oldest.since)
    }

    pub(super) fn begin(&mut self, request: Request) -> Result<Ticket, ClientError> {
        if self.is_behind()? && (self.is_left_alone() || matches!(request, Request::Route { .. })) {
            return Err(ClientError::TimedOut);
        }
        let id = self.send(&request, &[], Instant::now() + PATIENCE)?;
        self.open.insert(id, None);
        Ok(Ticket(id))
    }

    /// The same for what can be begun later just as well: it waits for no room, and is [`ClientError::TimedOut`] if there is none.
    pub(super) fn begin_at_once(&mut self, request: Request) -> Result<Ticket, ClientError> {
        let octets = self.number(&request)?;
        if !self.try_send(&octets, &[])? {
            return Err(ClientError::TimedOut);
        }
        self.open.insert(self.last_id, None);
        Ok(Ticket(self.last_id))
    }

    pub(super) fn poll_answer(&mut self, ticket: &Ticket) -> Result<Option<Arrived<Answer>>, ClientError> {
        while self.open.get(&ticket.0).is_some_and(Option::is_none) {
            if !self.receive()? {
                return match self.is_lost(ticket.0) {
                    true => self.take_ahead(ticket.0).map(Some).ok_or_else(|| self.give_up(ticket)),
                    false => Ok(None),
                };
            }
        }
        // A ticket whose answer was taken has none any more.
        self.open.remove(&ticket.0).flatten().map(Some).ok_or(ClientError::OutOfPlace)
    }

    /// Nobody waits any more for an answer that is overdue: the broker is behind until it comes.
    pub fn abandon(&mut self, ticket: &Ticket) {
        if let Some(None) = self.open.remove(&ticket.0) {
            let since = Instant::now().checked_sub(PATIENCE).unwrap_or_else(Instant::now);
            self.unawaited.insert(ticket.0, Unawaited { since, late: Late::Forget });
        }
    }

    /// No answer will come.
    pub(super) fn give_up(&mut self, ticket: &Ticket) -> ClientError {
        self.open.remove(&ticket.0);
        self.ahead.remove(&ticket.0).into_iter().flatten().for_each(discard);
        ClientError::TimedOut
    }

    /// Sends a request and waits for its answer; what else comes meanwhile is kept.
    pub(super) fn ask(
        &mut self,
        request: Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Arrived<Answer>, ClientError> {
        if self.is_behind()? { Err(ClientError::TimedOut) } else { self.ask_within(PATIENCE, &request, fds) }
    }

    pub(super) fn ask_within(
        &mut self,
        patience: Duration,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Arrived<Answer>, ClientError> {
        let began = Instant::now();
        let id = self.put(request, fds, began + patience)?;
        if let Some(answer) = self.answer_until(id, began + patience)? {
            return Ok(answer);
        }
        self.wait_no_more(id, late(request), began);
        Err(ClientError::TimedOut)
    }

    /// Sends a request whose answer is waited for; returns its number.
    pub(super) fn put(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<u64, ClientError> {
        let id = self.send(request, fds, deadline)?;
        self.open.insert(id, None);
        Ok(id)
    }

    /// The answer to a request, if it comes until then; what else comes meanwhile is kept.
    pub(super) fn answer_until(
        &mut self,
        id: u64,
        deadline: Instant,
    ) -> Result<Option<Arrived<Answer>>, ClientError> {
        while self.open.get(&id).is_some_and(Option::is_none) {
            if !self.receive()? && (self.is_lost(id) || !self.wait_for(PollFlags::IN, deadline)?) {
                return Ok(self.take_ahead(id));
            }
        }
        Ok(self.open.remove(&id).flatten())
    }

    /// The socket of a connection that has moved, though the broker has been stopped or killed before it could say so.
    fn take_ahead(&mut self, id: u64) -> Option<Arrived<Answer>> {
        let fds = self.ahead.remove(&id)?;
        self.open.remove(&id);
        Some(Arrived { message: Answer::Moved, fds })
    }

    /// Nobody waits for the answer to a request any more.
    pub(super) fn wait_no_more(&mut self, id: u64, late: Late, since: Instant) {
        self.open.remove(&id);
        if !self.is_lost(id) {
            self.unawaited.insert(id, Unawaited { since, late });
        }
    }

    /// Sends a request without waiting for anything. One that came with descriptors and finds no room is not sent.
    pub(super) fn say(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<u64, ClientError> {
        let octets = self.number(request)?;
        match self.try_send(&octets, fds)? {
            true => {}
            false if self.is_left_alone() => return Ok(self.last_id),
            false if fds.is_empty() && self.unsent.len() < UNSENT_MAX => self.unsent.push_back(octets),
            false => return Err(ClientError::TimedOut),
        }
        self.unawaited.insert(self.last_id, Unawaited::new(request));
        Ok(self.last_id)
    }

    /// Sends if there is room, behind what there was no room for before.
    pub(super) fn try_send(&mut self, octets: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool, ClientError> {
        self.send_unsent()?;
        if self.is_left_alone() || !self.unsent.is_empty() {
            return Ok(false);
        }
        let sent = send(&self.socket, octets, fds);
        self.on_sent(sent)
    }

    /// Whether it was sent. Of a broker that is gone all that it has said is heard first.
    pub(super) fn on_sent(&mut self, outcome: Result<(), Errno>) -> Result<bool, ClientError> {
        match outcome {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::PIPE | Errno::CONNRESET) => {
                while self.receive()? {}
                if self.is_left_alone() { Ok(false) } else { Err(ClientError::Gone) }
            }
            // More descriptors are under way than a user may have, or there is no memory for the message.
            Err(error @ (Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM)) => {
                Err(ClientError::Unmade(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends what there was no room for before.
    pub(super) fn send_unsent(&mut self) -> Result<(), ClientError> {
        while let Some(octets) = self.unsent.front() {
            match send(&self.socket, octets, &[]) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => return Ok(()), // Its end is heard of by who receives.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn number(&mut self, request: &Request) -> Result<Vec<u8>, ClientError> {
        self.last_id += 1;
        Ok(encode(&ToBroker { id: self.last_id, request: request.clone() })?)
    }

    pub(super) fn send(
        &mut self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<u64, ClientError> {
        let octets = self.number(request)?;
        let id = self.last_id;
        while !self.try_send(&octets, fds)? {
            if self.is_left_alone() || !self.wait_for(PollFlags::OUT, deadline)? {
                return Err(ClientError::TimedOut);
            }
        }
        Ok(id)
    }

    /// Takes one message if there is one, and puts it where it belongs.
    pub(super) fn receive(&mut self) -> Result<bool, ClientError> {
        if matches!(self.line, Line::Alone { .. }) {
            self.look_for_broker()?;
            return Ok(false);
        }
        let (message, fds) = match self.inbox.receive(&self.socket, Internal::new)? {
            Arrival::Nothing => return Ok(false),
            Arrival::End => return self.on_end().map(|()| false),
            Arrival::Message(parcel) => (decode::<FromBroker>(parcel.octets), parcel.fds),
        };
        self.given_up = false;
        self.send_unsent()?; // It reads, too.
        let fds = raise_all(fds.into_iter().map(Internal::into_inner), self.fd_floor);
        match message? {
            FromBroker::Answer { id, answer } if self.on_returning(id, &answer)? => {
                fds.into_iter().for_each(discard);
            }
            FromBroker::Answer { id, answer } => {
                let ahead = self.ahead.remove(&id).unwrap_or_default();
                let fds = ahead.into_iter().chain(fds);
                match self.open.get_mut(&id) {
                    Some(place) => *place = Some(Arrived { message: answer, fds: fds.collect() }),
                    None => {
                        fds.for_each(discard);
                        self.on_unawaited(id, &answer)?;
                    }
                }
            }
            FromBroker::Ahead { id } if self.open.contains_key(&id) => {
                self.ahead.insert(id, fds);
            }
            FromBroker::Ahead { .. } => fds.into_iter().for_each(discard),
            FromBroker::News(News::QueueGranted(_)) if self.has_given_back() => {
                fds.into_iter().for_each(discard);
            }
            FromBroker::AheadOfNews(news) => self.ahead_of_news.push((news, fds)),
            FromBroker::News(news) => {
                let is_it = |ahead: &mut (News, Vec<OwnedFd>)| ahead.0 == news;
                let ahead = self.ahead_of_news.extract_if(.., is_it).next();
                let fds = ahead.into_iter().flat_map(|(_, fds)| fds).chain(fds).collect();
                self.note_kept(&news);
                if let News::QueuesLost { link } = &news {
                    self.served.remove(link);
                }
                self.events.extend(event(news, fds)?);
            }
        }
        Ok(true)
    }

    pub(super) fn on_unawaited(&mut self, id: u64, answer: &Answer) -> Result<(), ClientError> {
        if let Answer::Refused(refusal) = answer {
            self.refused.get_or_insert_with(|| refusal.clone());
        }
        match (self.unawaited.remove(&id).map(|it| it.late), answer) {
            (Some(Late::Release), Answer::Claimed { claim, .. }) => {
                self.say(&Request::Release { claims: vec![*claim], drain: false }, &[]).map(drop)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn has_given_back(&self) -> bool {
        self.unawaited.values().any(|it| it.late == Late::GaveBack)
    }

    pub(super) fn wait_for(&self, what: PollFlags, deadline: Instant) -> Result<bool, ClientError> {
        Ok(wait_for(&self.socket, what, deadline)?)
    }
}

/// Waits until a socket is ready for `what`; false when it is too late.
pub(super) fn wait_for(socket: impl AsFd, what: PollFlags, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&socket, what)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// What is to be done about the answer to a request if it comes late.
pub(super) fn late(request: &Request) -> Late {
    match request {
        Request::Claim { again: None, .. } => Late::Release,
        Request::Queues { wanted: false } => Late::GaveBack,
        _ => Late::Forget,
    }
}

/// The answer that is a socket.
pub(super) fn moved(mut arrived: Arrived<Answer>) -> Result<OwnedFd, ClientError> {
    match (arrived.message, arrived.fds.pop()) {
        (Answer::Moved, Some(socket)) => Ok(socket),
        (Answer::Moved, None) => Err(Refusal::Lost("this process has no free descriptor".to_owned()).into()),
        (answer, _) => Err(unexpected(answer)),
    }
}

/// The answer that is a list of what was refused.
pub(super) fn refused_of(arrived: Arrived<Answer>) -> Result<Vec<(usize, Refusal)>, ClientError> {
    match arrived.message {
        Answer::Enqueued { refused } => Ok(refused),
        answer => Err(unexpected(answer)),
    }
}

pub(super) fn unexpected(answer: Answer) -> ClientError {
    match answer {
        Answer::Refused(refusal) => ClientError::Refused(refusal),
        _ => ClientError::OutOfPlace,
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, event};
    use super::*;
    use crate::protocol::ClaimId;

    #[test]
    fn what_came_without_its_descriptor_costs_no_more_than_itself() {
        let without = moved(Arrived { message: Answer::Moved, fds: Vec::new() });
        assert!(without.is_err_and(|error| !error.is_fatal()));
        let ends = "10.0.0.1:80".parse().unwrap();
        let adopt = || News::Adopt { claim: ClaimId(1), local: ends, remote: ends };
        assert!(matches!(event(adopt(), Vec::new()), Ok(None)));
        let stdin = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        assert!(matches!(event(adopt(), vec![stdin()]), Ok(Some(Event::Adopt { .. }))));
        assert!(event(adopt(), vec![stdin(), stdin()]).is_err(), "more than belong to it is nonsense");
    }
}
