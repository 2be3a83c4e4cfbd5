//! NOTIFY to secondaries (RFC 1996): sent when a zone has changed, and again until it is answered or hopeless. It has the new SOA with it (3.7), and
//! the signature that the secondary's address is configured with (RFC 8945).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dns_message::{Message, NOTIFY, add_to_count, push_record, question_message};
use dns_transfer::Key;
use dns_transfer::tsig::sign_request;
use dns_wire::header::flag as header_flag;
use dns_wire::{Class, NameBuf, Rcode, ReceivedRcode, Rtype};
use dns_zone::Zone;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};

use super::peer::Peer;
use super::source::{Source, Sources};
use super::transfers::{random_number, unix_time};

/// A server that is to hear of a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) origin: NameBuf,
    pub(crate) peer: Peer,
}

/// What a target is to hear.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    target: Target,
    /// TTL and data of the zone's SOA.
    soa: (u32, Arc<[u8]>),
    /// The key that the target's peer names.
    key: Option<Arc<Key>>,
}

impl Announcement {
    /// That `target` has to look for this version.
    pub(crate) fn new(target: Target, zone: &Zone, key: Option<Arc<Key>>) -> Announcement {
        let soa = zone.soa();
        let rdata = soa.records().next().unwrap_or_default().into();
        Announcement { target, soa: (soa.ttl(), rdata), key }
    }

    /// The message, not signed yet.
    fn message(&self, id: u16) -> Vec<u8> {
        let origin = self.target.origin.as_name();
        let mut message = question_message(id, NOTIFY | header_flag::AA, origin, Rtype::SOA);
        let (ttl, rdata) = &self.soa;
        push_record(&mut message, origin, Rtype::SOA, Class::IN, *ttl, rdata);
        add_to_count(&mut message, 0, 1);
        message
    }
}

/// For how many seconds answers are waited for after each sending; about a minute together (RFC 1996, 3.6).
const ROUNDS: [u64; 5] = [2, 4, 8, 16, 32];
/// After how many seconds of silence the log names a peer to which zones that change have more and more to say.
const SILENCE_S: u64 = 62;
/// Messages that are sent before answers are looked for again: a burst of zones must not fill the buffer of the socket with answers.
const BURST: usize = 64;
/// Messages that are read before others have a turn: anybody may send to the socket.
const READ_MAX: usize = 256;
/// How soon a socket without room is tried again.
const NO_ROOM: Duration = Duration::from_millis(10);
const WAKE: Token = Token(0);

/// Tells targets of changes, all of them from one thread with one socket for each address that notices leave from. The thread begins when there is something to
/// say for the first time.
#[derive(Default)]
pub(crate) struct Notifier {
    outbox: Arc<Mutex<Outbox>>,
    waker: Option<Waker>,
    sources: Sources,
}

impl Notifier {
    /// One whose notices leave from there.
    pub(crate) fn new(sources: Sources) -> Notifier {
        Notifier { sources, ..Notifier::default() }
    }

    /// Leaves announcements for the thread, and does not wait for it.
    pub(crate) fn start(&mut self, announcements: Vec<Announcement>) {
        if announcements.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut outbox = lock(&self.outbox);
        announcements.into_iter().for_each(|announcement| outbox.announce(announcement, now));
        drop(outbox);
        if let Err(error) = self.wake() {
            log::error!("no NOTIFY is sent: {error}");
        }
    }

    /// Wakes the thread, and starts it before if it is not there.
    fn wake(&mut self) -> io::Result<()> {
        if let Some(waker) = &self.waker {
            return waker.wake();
        }
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let ways = Way::all(&self.sources);
        let sender = Sender { outbox: Arc::clone(&self.outbox), poll, sources: self.sources, ways };
        std::thread::Builder::new().name("notify".to_owned()).spawn(move || sender.run())?;
        self.waker = Some(waker);
        Ok(())
    }
}

fn lock(outbox: &Mutex<Outbox>) -> MutexGuard<'_, Outbox> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What targets have yet to hear, each one thing at a time: a zone may change faster than a server answers that is down.
#[derive(Debug, Default)]
struct Outbox {
    pending: BTreeMap<Target, Pending>,
}

/// An announcement without an answer so far.
#[derive(Debug)]
struct Pending {
    announcement: Announcement,
    /// What takes its place when it is answered, or is to be sent again: the zone has changed since it was sent.
    newer: Option<Announcement>,
    id: u16,
    /// The time in its signature: what is sent again has the same one, as its answer may be one to the message before.
    signed_at: u64,
    /// How often this target was sent this, without an answer.
    sent: usize,
    /// Since when it has not answered, whatever it was sent; and whether the log has said so.
    silent_since: Instant,
    is_told_of: bool,
    /// When to send again, or to give up.
    next: Instant,
    /// What is wrong with the last answer that came, so that it does not count.
    complaint: Option<String>,
}

impl Outbox {
    /// Has a target hear of a version. It takes the place of an older one that the target has not answered yet, as soon as that has had its first time for
    /// an answer: the target may be there again.
    fn announce(&mut self, announcement: Announcement, now: Instant) {
        match self.pending.entry(announcement.target.clone()) {
            Entry::Occupied(mut pending) => pending.get_mut().supersede(announcement, now),
            Entry::Vacant(place) => drop(place.insert(Pending::new(announcement, now))),
        }
    }

    /// When something is due next.
    fn deadline(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.next).min()
    }

    /// What is to be sent at `now` to those addresses that are meant; some of it, if that is much.
    fn take_due(
        &mut self,
        is_meant: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) -> VecDeque<(SocketAddr, Vec<u8>)> {
        let is_due = |pending: &&mut Pending| {
            let address = pending.announcement.target.peer.address;
            let has_more = pending.sent < ROUNDS.len() || pending.newer.is_some();
            pending.next <= now && has_more && is_meant(address.ip())
        };
        self.pending.values_mut().filter(is_due).take(BURST).map(|pending| pending.send(now)).collect()
    }

    /// Gives up what nobody has answered by `now`.
    fn take_hopeless(&mut self, now: Instant) -> Vec<Pending> {
        let is_over = |pending: &Pending| {
            pending.next <= now && pending.sent == ROUNDS.len() && pending.newer.is_none()
        };
        let over = self.pending.iter().filter(|(_, pending)| is_over(pending));
        let over: Vec<Target> = over.map(|(target, _)| target.clone()).collect();
        over.iter().filter_map(|target| self.end(target, now)).collect()
    }

    /// Takes a message that may be an answer.
    fn on_message(&mut self, message: &[u8], from: SocketAddr, now: Instant) {
        let answered = self.pending.iter_mut().filter_map(|(target, pending)| {
            let is_answered = pending.is_answered(message, from);
            is_answered.then(|| target.clone())
        });
        let answered: Vec<Target> = answered.collect();
        answered.iter().for_each(|target| drop(self.end(target, now)));
    }

    /// A target has answered, or never will: it is sent what is newer, if something is.
    fn end(&mut self, target: &Target, now: Instant) -> Option<Pending> {
        let mut ended = self.pending.remove(target)?;
        if let Some(newer) = ended.newer.take() {
            self.announce(newer, now);
        }
        Some(ended)
    }
}

/// The thread that sends.
struct Sender {
    outbox: Arc<Mutex<Outbox>>,
    poll: Poll,
    sources: Sources,
    ways: Vec<Way>,
}

/// What leaves from one address, all of it to one family: one that cannot be reached does not hold up the other.
struct Way {
    source: Source,
    token: Token,
    /// Open while there is something to say.
    socket: Option<UdpSocket>,
    /// What the socket has no room for yet.
    unsent: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Whether the socket may have more to read, of which no event tells again.
    has_more: bool,
    /// Whether there could be no socket, and the log has said so.
    has_failed: bool,
}

impl Sender {
    fn run(mut self) {
        let mut events = Events::with_capacity(16);
        loop {
            let _ = self.poll.poll(&mut events, self.timeout()); // An interruption is as good as an event.
            let now = Instant::now();
            for way in &mut self.ways {
                way.receive(|message, from| lock(&self.outbox).on_message(message, from, now));
            }
            let hopeless = lock(&self.outbox).take_hopeless(now);
            hopeless.iter().filter(|pending| !pending.is_told_of).for_each(Pending::complain);
            for way in &mut self.ways {
                if way.unsent.is_empty() {
                    let is_meant = |target| self.sources.to(target) == way.source;
                    way.unsent = lock(&self.outbox).take_due(is_meant, now);
                }
                way.send(&self.poll);
            }
            if lock(&self.outbox).pending.is_empty() {
                self.ways.iter_mut().for_each(Way::close);
            }
        }
    }

    /// How long nothing is due.
    fn timeout(&self) -> Option<Duration> {
        let deadline = lock(&self.outbox).deadline();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if self.ways.iter().any(|way| way.has_more) {
            return Some(Duration::ZERO);
        }
        let has_no_room = self.ways.iter().any(|way| !way.unsent.is_empty());
        if has_no_room { Some(NO_ROOM) } else { left }
    }
}

impl Way {
    fn all(sources: &Sources) -> Vec<Way> {
        let way = |(number, source)| Way {
            source,
            token: Token(WAKE.0 + 1 + number),
            socket: None,
            unsent: VecDeque::new(),
            has_more: false,
            has_failed: false,
        };
        sources.all().into_iter().enumerate().map(way).collect()
    }

    /// Sends what is to be sent, as far as there is room.
    fn send(&mut self, poll: &Poll) {
        if self.unsent.is_empty() {
            return;
        }
        if let Err(error) = self.open(poll) {
            if !std::mem::replace(&mut self.has_failed, true) {
                log::error!("no NOTIFY is sent from {}: {error}", self.source.address());
            }
            return self.unsent.clear(); // It is tried again, as if it were lost.
        }
        self.has_failed = false;
        let Some(socket) = &self.socket else { return };
        while let Some((to, message)) = self.unsent.front() {
            // Anything but a lack of room is about this target, or about one before: what cannot be sent is sent again.
            if socket.send_to(message, *to).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return;
            }
            self.unsent.pop_front();
        }
    }

    fn open(&mut self, poll: &Poll) -> io::Result<()> {
        if self.socket.is_none() {
            let socket = self.source.bind()?;
            socket.set_nonblocking(true)?;
            let mut socket = UdpSocket::from_std(socket);
            poll.registry().register(&mut socket, self.token, Interest::READABLE)?;
            self.socket = Some(socket);
        }
        Ok(())
    }

    /// Nobody is to hear of anything.
    fn close(&mut self) {
        self.socket = None;
        self.has_more = false;
        self.unsent.clear();
    }

    /// Takes what has come, or some of it.
    fn receive(&mut self, mut each: impl FnMut(&[u8], SocketAddr)) {
        let mut octets = [0; 1024];
        let Some(socket) = &self.socket else { return };
        self.has_more = false;
        for _ in 0..READ_MAX {
            let Ok((len, from)) = socket.recv_from(&mut octets) else { return };
            each(&octets[..len], from);
        }
        self.has_more = true;
    }
}

impl Pending {
    fn new(announcement: Announcement, now: Instant) -> Pending {
        let (id, signed_at) = (random_number() as u16, unix_time());
        Pending {
            announcement,
            newer: None,
            id,
            signed_at,
            sent: 0,
            silent_since: now,
            is_told_of: false,
            next: now,
            complaint: None,
        }
    }

    fn supersede(&mut self, newer: Announcement, now: Instant) {
        if let Some(round) = self.sent.checked_sub(1) {
            let sent_at = self.next - Duration::from_secs(ROUNDS[round]);
            self.next = self.next.min(now.max(sent_at + Duration::from_secs(ROUNDS[0])));
        }
        self.newer = Some(newer);
    }

    /// What is sent now, and where to: the newest there is.
    fn send(&mut self, now: Instant) -> (SocketAddr, Vec<u8>) {
        if let Some(newer) = self.newer.take() {
            if !self.is_told_of && now - self.silent_since >= Duration::from_secs(SILENCE_S) {
                self.complain();
                self.is_told_of = true;
            }
            let (silent_since, is_told_of) = (self.silent_since, self.is_told_of);
            *self = Pending { silent_since, is_told_of, ..Pending::new(newer, now) };
        }
        self.next = now + Duration::from_secs(ROUNDS[self.sent]);
        self.sent += 1;
        let mut message = self.announcement.message(self.id);
        if let Some(key) = &self.announcement.key {
            sign_request(&mut message, key, self.signed_at);
        }
        (self.announcement.target.peer.address, message)
    }

    /// Says that nobody has answered.
    fn complain(&self) {
        let Target { origin, peer } = &self.announcement.target;
        match &self.complaint {
            Some(complaint) => log::warn!("zone {origin}: {} answers NOTIFY: {complaint}", peer.address),
            None => log::warn!("zone {origin}: {} does not answer NOTIFY", peer.address),
        }
    }

    /// Whether a message is the answer, with whatever code: the server has heard of it. One that is not signed as it has to be does not count.
    fn is_answered(&mut self, answer: &[u8], from: SocketAddr) -> bool {
        let Target { origin, peer } = &self.announcement.target;
        if from != peer.address || !answer.starts_with(&self.id.to_be_bytes()) {
            return false;
        }
        let Ok(message) = Message::parse(answer) else { return false };
        let wanted = header_flag::QR | NOTIFY;
        if message.flags() & (header_flag::QR | header_flag::OPCODE) != wanted {
            return false;
        }
        // Of ten thousand zones some have the same ID.
        if message.question().is_some_and(|question| question.name != *origin) {
            return false;
        }
        let code = message.flags() & 0xf;
        if let Err(error) = self.verify(answer) {
            let code = (code != 0).then(|| format!(", with {}", ReceivedRcode(code)));
            self.complaint = Some(format!("{error}{}", code.unwrap_or_default()));
            return false;
        }
        match (code, &peer.key) {
            (0, _) => log::debug!("zone {origin}: {from} has heard of the change"),
            (code, None) if code == Rcode::Refused as u16 => log::warn!(
                "zone {origin}: {from} answers NOTIFY with REFUSED: it does not count us among its primaries, or wants a \
                 signature: notify = [\"{} key NAME\"]",
                peer.address
            ),
            (code, _) => log::warn!("zone {origin}: {from} answers NOTIFY with {}", ReceivedRcode(code)),
        }
        true
    }

    fn verify(&self, answer: &[u8]) -> Result<(), dns_transfer::tsig::VerifyError> {
        let Some(key) = &self.announcement.key else { return Ok(()) };
        let verifier = sign_request(&mut self.announcement.message(self.id), key, self.signed_at);
        { verifier }.verify(&mut answer.to_vec(), unix_time())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use dns_message::serial_of;
    use dns_transfer::tsig::{RequestSignature, verify_request};
    use dns_transfer::{Algorithm, Keys};
    use dns_zone::ZoneBuilder;

    use super::*;

    /// That a zone has serial 7, for a peer at this address.
    fn announcement(zone: &str, address: SocketAddr, key: Option<&Arc<Key>>) -> Announcement {
        let origin = NameBuf::from_text(zone.as_bytes(), None).unwrap();
        let mut builder = ZoneBuilder::new(origin.as_name(), 1);
        let soa = [&[0, 0][..], &[7u32, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
        builder.add(origin.as_name(), 60, Rtype::SOA, &soa).unwrap();
        let peer = Peer { address, key: key.map(|key| NameBuf::from(key.name())) };
        Announcement::new(Target { origin, peer }, &builder.finish().unwrap(), key.cloned())
    }

    fn secondary(address: &str) -> UdpSocket {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    }

    /// What the outbox has for this family at `now`.
    fn due(outbox: &mut Outbox, is_ipv4: bool, now: Instant) -> Vec<Vec<u8>> {
        outbox
            .take_due(|target| target.is_ipv4() == is_ipv4, now)
            .into_iter()
            .map(|(_, message)| message)
            .collect()
    }

    fn answered(message: &[u8]) -> Vec<u8> {
        [&message[..2], &[message[2] | 0x80], &message[3..]].concat()
    }

    /// Seconds after the outbox has begun.
    fn seconds(began: Instant, count: u64) -> Instant {
        began + Duration::from_secs(count)
    }

    const V4: &str = "192.0.2.1:53";
    const V6: &str = "[2001:db8::1]:53";

    /// An outbox that has one announcement for each address, and when it began.
    fn outbox(addresses: &[&str]) -> (Outbox, Instant) {
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        addresses.iter().for_each(|address| {
            outbox.announce(announcement("example.", address.parse().unwrap(), None), now);
        });
        (outbox, now)
    }

    #[test]
    fn a_peer_with_a_key_gets_a_signature_and_has_to_sign_its_answer() {
        let name = NameBuf::from_text(b"transfer.key.", None).unwrap();
        let key = Arc::new(Key::new(name.as_name(), Algorithm::Sha256, b"secret"));
        let mut keys = Keys::default();
        keys.insert(Key::new(name.as_name(), Algorithm::Sha256, b"secret"));
        let (mut outbox, now) = (Outbox::default(), Instant::now());
        outbox.announce(announcement("example.", V4.parse().unwrap(), Some(&key)), now);
        let mut message = due(&mut outbox, true, now).pop().unwrap();
        let RequestSignature::Right(mut signer) = verify_request(&mut message, &keys, unix_time()).unwrap()
        else {
            panic!("it is not signed");
        };
        let mut answer = answered(&message);
        outbox.on_message(&answer, V4.parse().unwrap(), now);
        let complaint = outbox.pending.values().next().map(|pending| pending.complaint.is_some());
        assert_eq!(complaint, Some(true), "an answer that is not signed does not count");
        signer.sign(&mut answer, unix_time());
        outbox.on_message(&answer, V4.parse().unwrap(), now);
        assert!(outbox.pending.is_empty());
    }

    #[test]
    fn a_notice_is_sent_again_until_it_is_answered() {
        let (mut outbox, began) = outbox(&[V4]);
        let first = due(&mut outbox, true, began);
        assert_eq!(due(&mut outbox, true, seconds(began, 1)).len(), 0);
        assert_eq!((due(&mut outbox, true, seconds(began, 2)), first[0][2]), (first.clone(), 0x24));
        let mut message = Message::parse(&first[0]).unwrap();
        assert_eq!(message.counts(), [1, 0, 0]);
        let soa = message.next_record().unwrap();
        assert_eq!((soa.rtype, serial_of(&soa.rdata)), (Rtype::SOA, Some(7)), "RFC 1996, 3.7");
        outbox.on_message(&answered(&first[0]), V6.parse().unwrap(), began);
        assert_eq!(outbox.pending.len(), 1, "somebody else has answered");
        outbox.on_message(&answered(&first[0]), V4.parse().unwrap(), began);
        assert!(outbox.pending.is_empty() && outbox.deadline().is_none());
    }

    #[test]
    fn a_newer_announcement_takes_the_place_of_an_older_one_after_two_seconds() {
        let (mut outbox, began) = outbox(&[V4]);
        let again = || announcement("example.", V4.parse().unwrap(), None);
        (0..100).for_each(|_| outbox.announce(again(), began));
        let first = due(&mut outbox, true, began);
        assert_eq!(first.len(), 1, "a hundred changes are one message");
        (0..100).for_each(|_| outbox.announce(again(), seconds(began, 1)));
        assert_eq!(due(&mut outbox, true, seconds(began, 1)).len(), 0);
        let second = due(&mut outbox, true, seconds(began, 2));
        assert_ne!(Message::parse(&second[0]).unwrap().id(), Message::parse(&first[0]).unwrap().id());
        outbox.announce(again(), seconds(began, 2));
        outbox.on_message(&answered(&second[0]), V4.parse().unwrap(), seconds(began, 3));
        let third = due(&mut outbox, true, seconds(began, 3));
        assert_eq!(third.len(), 1, "who answers hears at once of what came meanwhile");
        outbox.on_message(&answered(&third[0]), V4.parse().unwrap(), seconds(began, 3));
        assert!(outbox.pending.is_empty());
    }

    #[test]
    fn one_that_does_not_answer_hears_of_a_change_at_once_and_is_given_up_a_minute_after_the_last() {
        let (mut outbox, began) = outbox(&[V4]);
        let (mut times, mut given_up) = (Vec::new(), Vec::new());
        for second in 0..120 {
            let now = seconds(began, second);
            given_up.extend(outbox.take_hopeless(now).iter().map(|_| second));
            times.extend(due(&mut outbox, true, now).iter().map(|_| second));
            if second == 40 {
                outbox.announce(announcement("example.", V4.parse().unwrap(), None), now);
                times.extend(due(&mut outbox, true, now).iter().map(|_| second));
            }
        }
        assert_eq!(times, [0, 2, 6, 14, 30, 40, 42, 46, 54, 70]);
        assert_eq!(given_up, [102]);
    }

    #[test]
    fn one_that_does_not_answer_is_told_of_once_however_often_the_zone_changes() {
        let (mut outbox, began) = outbox(&[V4]);
        let mut told_of = Vec::new();
        for second in 0..200 {
            let now = seconds(began, second);
            outbox.announce(announcement("example.", V4.parse().unwrap(), None), now);
            assert_eq!(outbox.take_hopeless(now).len(), 0);
            let _ = due(&mut outbox, true, now);
            let pending = outbox.pending.values().next().unwrap();
            assert!(pending.sent <= 1 && pending.next <= now + Duration::from_secs(2));
            told_of.extend(pending.is_told_of.then_some(second));
        }
        assert_eq!(told_of[0], SILENCE_S);
    }

    #[test]
    fn an_answer_counts_for_the_zone_that_it_names() {
        let (mut outbox, now) = outbox(&[V4]);
        outbox.announce(announcement("other.", V4.parse().unwrap(), None), now);
        outbox.pending.values_mut().for_each(|pending| pending.id = 1);
        let messages = due(&mut outbox, true, now);
        outbox.on_message(&answered(&messages[0]), V4.parse().unwrap(), now);
        assert_eq!(outbox.pending.len(), 1);
    }

    #[test]
    fn a_burst_leaves_room_for_answers_and_families_do_not_wait_for_each_other() {
        let (mut outbox, now) = outbox(&[V6]);
        for number in 0..100 {
            outbox.announce(announcement(&format!("z{number}."), V4.parse().unwrap(), None), now);
        }
        let counts = [true, false, true, true].map(|is_ipv4| due(&mut outbox, is_ipv4, now).len());
        assert_eq!(counts, [BURST, 1, 100 - BURST, 0]);
    }

    #[test]
    fn a_peer_that_is_silent_holds_up_none_of_another_family_and_one_thread_tells_all() {
        let (deaf, hearing) = (secondary("127.0.0.1:0"), secondary("[::1]:0"));
        let mut notifier = Notifier::default();
        let mut from = Vec::new();
        for _ in 0..3 {
            let peers = [&deaf, &hearing].map(|socket| socket.local_addr().unwrap());
            notifier.start(peers.map(|peer| announcement(".", peer, None)).to_vec());
            let mut octets = [0; 512];
            let (len, at) = hearing.recv_from(&mut octets).expect("it hears before the deaf one is given up");
            hearing.send_to(&answered(&octets[..len]), at).unwrap();
            from.push(at);
            let is_ours = |target: &Target| target.peer.address == peers[1];
            let deadline = Instant::now() + Duration::from_secs(30);
            while lock(&notifier.outbox).pending.keys().any(is_ours) {
                assert!(Instant::now() < deadline, "its answer does not count");
                std::thread::yield_now();
            }
        }
        assert!(from.iter().all(|at| *at == from[0]), "one socket for all: {from:?}");
    }
}
