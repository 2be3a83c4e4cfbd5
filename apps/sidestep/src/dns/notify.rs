//! NOTIFY to secondaries (RFC 1996): sent when a zone has changed, and again until it is answered or hopeless. It has the new SOA with it (3.7), and
//! the signature that the secondary's address is configured with (RFC 8945).

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dns_message::{Message, NOTIFY, add_to_count, push_record, question_message};
use dns_transfer::Key;
use dns_transfer::tsig::sign_request;
use dns_wire::header::flag as header_flag;
use dns_wire::{Class, NameBuf, Rcode, ReceivedRcode, Rtype};
use dns_zone::Zone;

use super::peer::Peer;
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

/// Tells targets, each once at a time: a zone may change faster than a server answers that is down.
#[derive(Clone, Default)]
pub(crate) struct Notifier {
    /// Targets that have not answered yet, and what they are to hear next, if their zone has changed since they were told.
    under_way: Arc<Mutex<BTreeMap<Target, Option<Announcement>>>>,
}

impl Notifier {
    /// Sends these on a thread of its own; targets that are being told will be told again.
    pub(crate) fn start(&self, mut announcements: Vec<Announcement>) {
        announcements.retain(|announcement| self.begin(announcement));
        if announcements.is_empty() {
            return;
        }
        let all: Vec<Target> = announcements.iter().map(|one| one.target.clone()).collect();
        let notifier = self.clone();
        let rounds = ROUNDS.map(Duration::from_secs);
        let tell = move || {
            for pending in tell(announcements, &rounds, &|target| notifier.end(target)) {
                let Target { origin, peer } = &pending.announcement.target;
                match &pending.complaint {
                    Some(complaint) => {
                        log::warn!("zone {origin}: {} answers NOTIFY: {complaint}", peer.address)
                    }
                    None => log::warn!("zone {origin}: {} does not answer NOTIFY", peer.address),
                }
                notifier.end(&pending.announcement.target);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("notify".to_owned()).spawn(tell) {
            log::error!("no NOTIFY is sent: {error}");
            self.under_way().retain(|target, _| !all.contains(target));
        }
    }

    /// Whether nobody tells this target now.
    fn begin(&self, announcement: &Announcement) -> bool {
        let mut under_way = self.under_way();
        let again = under_way.get_mut(&announcement.target);
        let is_new = again.is_none();
        match again {
            Some(again) => *again = Some(announcement.clone()),
            None => drop(under_way.insert(announcement.target.clone(), None)),
        }
        is_new
    }

    /// A target has answered, or never will.
    fn end(&self, target: &Target) {
        let again = self.under_way().remove(target);
        self.start(again.flatten().into_iter().collect());
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<Target, Option<Announcement>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An announcement without an answer so far.
struct Pending {
    announcement: Announcement,
    id: u16,
    /// The time in its signature: what is sent again has the same one, as its answer may be one to the message before.
    signed_at: u64,
    /// What is wrong with the last answer that came, so that it does not count.
    complaint: Option<String>,
}

/// Sends all announcements, again after each of `rounds`; returns those without an answer. The targets of the others go to `on_answer` at once.
fn tell(announcements: Vec<Announcement>, rounds: &[Duration], on_answer: &dyn Fn(&Target)) -> Vec<Pending> {
    let (v4, v6): (Vec<_>, Vec<_>) =
        announcements.into_iter().partition(|one| one.target.peer.address.is_ipv4());
    let mut silent = Vec::new();
    for (any, announcements) in [
        (SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), v4),
        (SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), v6),
    ] {
        let new = |announcement| Pending {
            announcement,
            id: random_number() as u16,
            signed_at: unix_time(),
            complaint: None,
        };
        let mut pending: Vec<Pending> = announcements.into_iter().map(new).collect();
        if let Err(error) = tell_family(any, &mut pending, rounds, on_answer) {
            log::warn!("sending NOTIFY: {error}");
        }
        silent.extend(pending);
    }
    silent
}

fn tell_family(
    any: SocketAddr,
    pending: &mut Vec<Pending>,
    rounds: &[Duration],
    on_answer: &dyn Fn(&Target),
) -> io::Result<()> {
    if pending.is_empty() {
        return Ok(());
    }
    let socket = UdpSocket::bind(any)?;
    for round in rounds {
        for one in &*pending {
            let mut message = one.announcement.message(one.id);
            if let Some(key) = &one.announcement.key {
                sign_request(&mut message, key, one.signed_at);
            }
            let _ = socket.send_to(&message, one.announcement.target.peer.address); // One that cannot be sent is sent again.
        }
        let until = Instant::now() + *round;
        while !pending.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            let mut answer = [0; 1024];
            // An error is silence, or an ICMP error about one of the targets.
            let Ok((len, from)) = socket.recv_from(&mut answer) else { continue };
            let answered = pending.extract_if(.., |pending| pending.is_answered(&answer[..len], from));
            answered.for_each(|pending| on_answer(&pending.announcement.target));
        }
    }
    Ok(())
}

impl Pending {
    /// Whether a message is the answer, with whatever code: the server has heard of it. One that is not signed as it has to be does not count.
    fn is_answered(&mut self, answer: &[u8], from: SocketAddr) -> bool {
        let Ok(message) = Message::parse(answer) else { return false };
        let wanted = header_flag::QR | NOTIFY;
        let Target { origin, peer } = &self.announcement.target;
        let is_ours = message.id() == self.id && from == peer.address;
        if !is_ours || message.flags() & (header_flag::QR | header_flag::OPCODE) != wanted {
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

    #[test]
    fn a_peer_with_a_key_gets_a_signature_and_has_to_sign_its_answer() {
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = NameBuf::from_text(b"transfer.key.", None).unwrap();
        let key = Arc::new(Key::new(name.as_name(), Algorithm::Sha256, b"secret"));
        let announcement = announcement("example.", secondary.local_addr().unwrap(), Some(&key));
        let mut keys = Keys::default();
        keys.insert(Key::new(name.as_name(), Algorithm::Sha256, b"secret"));
        let answer = move |is_signed: bool| {
            let mut octets = [0; 512];
            let (len, from) = secondary.recv_from(&mut octets).unwrap();
            let mut message = octets[..len].to_vec();
            let RequestSignature::Right(mut signer) =
                verify_request(&mut message, &keys, unix_time()).unwrap()
            else {
                panic!("it is not signed");
            };
            message[2] |= 0x80;
            if is_signed {
                signer.sign(&mut message, unix_time());
            }
            secondary.send_to(&message, from).unwrap();
        };
        let hearing = std::thread::spawn(move || {
            answer(false);
            answer(true);
        });
        let rounds = [Duration::from_millis(100), Duration::from_secs(60)];
        assert_eq!(tell(vec![announcement], &rounds, &|_| {}).len(), 0);
        hearing.join().unwrap();
    }

    #[test]
    fn a_notice_is_sent_again_until_it_is_answered() {
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        let announcement = announcement("example.", secondary.local_addr().unwrap(), None);
        let hear = move || {
            let mut octets = [0; 512];
            let (first, _) = secondary.recv_from(&mut octets).unwrap();
            let (second, from) = secondary.recv_from(&mut octets).unwrap();
            assert_eq!((second, octets[2]), (first, 0x24));
            let mut message = Message::parse(&octets[..second]).unwrap();
            assert_eq!(message.counts(), [1, 0, 0]);
            let soa = message.next_record().unwrap();
            assert_eq!((soa.rtype, serial_of(&soa.rdata)), (Rtype::SOA, Some(7)), "RFC 1996, 3.7");
            octets[2] |= 0x80;
            secondary.send_to(&octets[..second], from).unwrap();
        };
        let hearing = std::thread::spawn(hear);
        let rounds = [Duration::from_millis(10), Duration::from_secs(60)];
        assert_eq!(tell(vec![announcement], &rounds, &|_| {}).len(), 0);
        hearing.join().unwrap();
    }

    #[test]
    fn a_target_is_told_once_at_a_time_and_again_if_its_zone_has_changed_meanwhile() {
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        secondary.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let announcement = announcement(".", secondary.local_addr().unwrap(), None);
        let notifier = Notifier::default();
        (0..100).for_each(|_| notifier.start(vec![announcement.clone()]));
        let answer = || {
            let mut octets = [0; 512];
            let (len, from) = secondary.recv_from(&mut octets).unwrap();
            octets[2] |= 0x80;
            secondary.send_to(&octets[..len], from).unwrap();
            from
        };
        let (first, second) = (answer(), answer());
        assert_ne!(first, second, "another thread, which begins when the first one has its answer");
        while !notifier.under_way().is_empty() {
            std::thread::yield_now();
        }
        secondary.set_nonblocking(true).unwrap();
        assert!(secondary.recv_from(&mut [0; 512]).is_err(), "a hundred changes are told twice");
    }

    #[test]
    fn one_that_does_not_answer_is_named() {
        let deaf = UdpSocket::bind("[::1]:0").unwrap();
        let announcement = announcement(".", deaf.local_addr().unwrap(), None);
        let silent = tell(vec![announcement.clone()], &[Duration::from_millis(1); 2], &|_| panic!());
        assert_eq!(silent.len(), 1);
        assert_eq!((&silent[0].announcement.target, &silent[0].complaint), (&announcement.target, &None));
    }
}
