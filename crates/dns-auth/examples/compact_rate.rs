//! How many names that do not exist one core denies in a second with compact denial, by algorithm: `cargo run --release -p dns-auth --example compact_rate`.
//!
//! Questions and answers are whole messages; there is no network, and no budget holds signatures back.

use std::sync::Arc;
use std::time::Instant;

use clock::Duration;
use dns_auth::compile::compile;
use dns_auth::{Catalog, OnlineSet, Outcome, Responder, SignOnline, Transport};
use dns_sign::{Algorithm, DenialBy, Key, KeyFiles, KeySet, Lifetimes, OnlineKeys, Role, Signer, Times};
use dns_wire::{NameBuf, Rtype};
use dns_zone::ZoneBuilder;

const NOW: u64 = 1_800_000_000;
const QUESTIONS: u64 = 20_000;

#[derive(Debug)]
struct Online(OnlineKeys);

impl SignOnline for Online {
    fn id(&self) -> u64 {
        1
    }

    fn cost(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn sign(&self, set: &OnlineSet<'_>) -> Option<Vec<Vec<u8>>> {
        self.0.sign(set.owner, set.rtype, set.ttl, set.records, NOW)
    }
}

fn catalog(algorithm: Algorithm) -> Catalog {
    let origin = NameBuf::from_text(b"example.", None).expect("it is a name");
    let origin = origin.as_name();
    let files = KeyFiles::generate_by(algorithm, origin, Role::KeySigning, Times::default());
    let files = files.expect("there is randomness");
    let keys = KeySet::new(vec![Key::read(origin, &files.public, &files.private).expect("it was just made")]);
    let active = keys.at(NOW).expect("the key signs");
    let mut source = ZoneBuilder::new(origin, 1);
    source
        .add(origin, 60, Rtype::SOA, &[&[0, 0][..], &[0, 0, 0, 60].repeat(5)].concat())
        .expect("it is the SOA");
    let source = source.finish().expect("it has a SOA");
    let signer = Signer::new(origin, &active, NOW, Lifetimes::default(), DenialBy::Compact);
    let zone = compile(signer.sign(&source, 1, 1).expect("the key signs"));
    zone.sign_online_by(Arc::new(Online(OnlineKeys::new(origin, &active).expect("the key is here"))));
    Catalog::new([Arc::new(zone)], 1)
}

/// A question with DO for a name that was not asked for before.
fn question(number: u64) -> Vec<u8> {
    let name = format!("{number:010}");
    let head = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 10];
    let tail = b"\x07example\0\0\x01\0\x01\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    [&head[..], name.as_bytes(), tail].concat()
}

fn main() {
    for algorithm in [Algorithm::EcdsaP256Sha256, Algorithm::EcdsaP384Sha384, Algorithm::Ed25519] {
        let (catalog, mut buffer) = (catalog(algorithm), vec![0; 4096]);
        let mut responder = Responder::new(Arc::default(), Arc::default());
        let mut octets = 0;
        let began = Instant::now();
        for number in 0..QUESTIONS {
            responder.set_time(clock::Instant::ZERO + Duration::from_millis(number));
            let question = question(number);
            buffer[..question.len()].copy_from_slice(&question);
            let client = [192, 0, 2, 1].into();
            let outcome = responder.respond(&catalog, &mut buffer, question.len(), Transport::Tcp, client);
            let Outcome::Reply(len) = outcome else { panic!("each question gets an answer") };
            assert_eq!(buffer[9], 4, "SOA and NSEC, with signatures");
            octets = len;
        }
        let rate = QUESTIONS as f64 / began.elapsed().as_secs_f64();
        println!("{:<16} {rate:>8.0} denials a second, {octets} octets each", algorithm.name());
    }
}
