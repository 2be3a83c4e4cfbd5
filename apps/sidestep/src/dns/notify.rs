//! NOTIFY to secondaries (RFC 1996): sent when a zone has changed, and again until it is answered or hopeless.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use dns_message::{Message, NOTIFY, question_message};
use dns_wire::header::flag as header_flag;
use dns_wire::{NameBuf, Rtype};

use super::transfers::random_number;

/// A server that is to hear of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) origin: NameBuf,
    pub(crate) address: SocketAddr,
}

/// For how many seconds answers are waited for after each sending; about a minute together (RFC 1996, 3.6).
const ROUNDS: [u64; 5] = [2, 4, 8, 16, 32];

/// Tells `targets` on a thread of its own.
pub(crate) fn start(targets: Vec<Target>) {
    if targets.is_empty() {
        return;
    }
    let tell = move || {
        for target in tell(targets, &ROUNDS.map(Duration::from_secs)) {
            log::warn!("zone {}: {} does not answer NOTIFY", target.origin, target.address);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("notify".to_owned()).spawn(tell) {
        log::error!("no NOTIFY is sent: {error}");
    }
}

/// A target that has not answered, and the ID of its message.
struct Pending {
    target: Target,
    id: u16,
}

/// Tells all targets, again after each of `rounds`; returns those that did not answer.
fn tell(targets: Vec<Target>, rounds: &[Duration]) -> Vec<Target> {
    let (v4, v6): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| target.address.is_ipv4());
    let mut silent = Vec::new();
    for (any, targets) in [
        (SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), v4),
        (SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), v6),
    ] {
        let new = |target| Pending { target, id: random_number() as u16 };
        let mut pending: Vec<Pending> = targets.into_iter().map(new).collect();
        if let Err(error) = tell_family(any, &mut pending, rounds) {
            log::warn!("sending NOTIFY: {error}");
        }
        silent.extend(pending.into_iter().map(|pending| pending.target));
    }
    silent
}

fn tell_family(any: SocketAddr, pending: &mut Vec<Pending>, rounds: &[Duration]) -> io::Result<()> {
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
            pending.retain(|pending| !is_answer(&answer[..len], from, pending));
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
        assert_eq!(tell(vec![target], &rounds), []);
        hearing.join().unwrap();
    }

    #[test]
    fn one_that_does_not_answer_is_named() {
        let deaf = UdpSocket::bind("[::1]:0").unwrap();
        let target = Target { origin: NameBuf::root(), address: deaf.local_addr().unwrap() };
        assert_eq!(tell(vec![target.clone()], &[Duration::from_millis(1); 2]), [target]);
    }
}
