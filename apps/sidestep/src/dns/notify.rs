//! NOTIFY to secondaries (RFC 1996): sent when a zone has changed, and again until it is answered or hopeless.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dns_message::{Message, NOTIFY, question_message};
use dns_wire::header::flag as header_flag;
use dns_wire::{NameBuf, Rtype};

use super::transfers::random_number;

/// A server that is to hear of a zone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) origin: NameBuf,
    pub(crate) address: SocketAddr,
}

/// For how many seconds answers are waited for after each sending; about a minute together (RFC 1996, 3.6).
const ROUNDS: [u64; 5] = [2, 4, 8, 16, 32];

/// Tells targets, each once at a time: a zone may change faster than a server answers that is down.
#[derive(Clone, Default)]
pub(crate) struct Notifier {
    /// Targets that have not answered yet, and whether their zone has changed since they were told.
    under_way: Arc<Mutex<BTreeMap<Target, bool>>>,
}

impl Notifier {
    /// Tells `targets` on a thread of its own; those that are being told will be told again.
    pub(crate) fn start(&self, mut targets: Vec<Target>) {
        targets.retain(|target| self.begin(target));
        if targets.is_empty() {
            return;
        }
        let (notifier, all) = (self.clone(), targets.clone());
        let tell = move || {
            for target in tell(targets, &ROUNDS.map(Duration::from_secs), &|target| notifier.end(target)) {
                log::warn!("zone {}: {} does not answer NOTIFY", target.origin, target.address);
                notifier.end(&target);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("notify".to_owned()).spawn(tell) {
            log::error!("no NOTIFY is sent: {error}");
            self.under_way().retain(|target, _| !all.contains(target));
        }
    }

    /// Whether nobody tells this target now.
    fn begin(&self, target: &Target) -> bool {
        let mut under_way = self.under_way();
        let again = under_way.get_mut(target).map(|again| *again = true);
        if again.is_none() {
            under_way.insert(target.clone(), false);
        }
        again.is_none()
    }

    /// A target has answered, or never will.
    fn end(&self, target: &Target) {
        let again = self.under_way().remove(target);
        if again == Some(true) {
            self.start(vec![target.clone()]);
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<Target, bool>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A target that has not answered, and the ID of its message.
struct Pending {
    target: Target,
    id: u16,
}

/// Tells all targets, again after each of `rounds`; returns those that did not answer. The others go to `on_answer` at once.
fn tell(targets: Vec<Target>, rounds: &[Duration], on_answer: &dyn Fn(&Target)) -> Vec<Target> {
    let (v4, v6): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| target.address.is_ipv4());
    let mut silent = Vec::new();
    for (any, targets) in [
        (SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), v4),
        (SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), v6),
    ] {
        let new = |target| Pending { target, id: random_number() as u16 };
        let mut pending: Vec<Pending> = targets.into_iter().map(new).collect();
        if let Err(error) = tell_family(any, &mut pending, rounds, on_answer) {
            log::warn!("sending NOTIFY: {error}");
        }
        silent.extend(pending.into_iter().map(|pending| pending.target));
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
        for Pending { target, id } in &*pending {
            let flags = NOTIFY | header_flag::AA;
            let message = question_message(*id, flags, target.origin.as_name(), Rtype::SOA);
            let _ = socket.send_to(&message, target.address); // One that cannot be sent is sent again.
        }
        let until = Instant::now() + *round;
        while !pending.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            let mut answer = [0; 512];
            // An error is silence, or an ICMP error about one of the targets.
            let Ok((len, from)) = socket.recv_from(&mut answer) else { continue };
            let answered = pending.extract_if(.., |pending| is_answer(&answer[..len], from, pending));
            answered.for_each(|pending| on_answer(&pending.target));
        }
    }
    Ok(())
}

/// Whether a message answers this one, with whatever code: the server has heard of it.
fn is_answer(answer: &[u8], from: SocketAddr, pending: &Pending) -> bool {
    let Ok(message) = Message::parse(answer) else { return false };
    let wanted = header_flag::QR | NOTIFY;
    let is_ours = message.id() == pending.id && from == pending.target.address;
    if !is_ours || message.flags() & (header_flag::QR | header_flag::OPCODE) != wanted {
        return false;
    }
    let rcode = message.flags() & 0xf;
    if rcode != 0 {
        log::warn!("zone {}: {from} answers NOTIFY with code {rcode}", pending.target.origin);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_sent_again_until_it_is_answered() {
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = Target {
            origin: NameBuf::from_text(b"example.", None).unwrap(),
            address: secondary.local_addr().unwrap(),
        };
        let hear = move || {
            let mut octets = [0; 512];
            let (first, _) = secondary.recv_from(&mut octets).unwrap();
            let (second, from) = secondary.recv_from(&mut octets).unwrap();
            assert_eq!((first, second, octets[2]), (12 + 9 + 4, first, 0x24));
            octets[2] |= 0x80;
            secondary.send_to(&octets[..second], from).unwrap();
        };
        let hearing = std::thread::spawn(hear);
        let rounds = [Duration::from_millis(10), Duration::from_secs(60)];
        assert_eq!(tell(vec![target], &rounds, &|_| {}), []);
        hearing.join().unwrap();
    }

    #[test]
    fn a_target_is_told_once_at_a_time_and_again_if_its_zone_has_changed_meanwhile() {
        let secondary = UdpSocket::bind("127.0.0.1:0").unwrap();
        secondary.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let target = Target { origin: NameBuf::root(), address: secondary.local_addr().unwrap() };
        let notifier = Notifier::default();
        (0..100).for_each(|_| notifier.start(vec![target.clone()]));
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
        let target = Target { origin: NameBuf::root(), address: deaf.local_addr().unwrap() };
        assert_eq!(tell(vec![target.clone()], &[Duration::from_millis(1); 2], &|_| panic!()), [target]);
    }
}
