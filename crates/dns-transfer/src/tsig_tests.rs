//! Signatures, checked by the `domain` crate as peer and against each other.

use std::str::FromStr;

use domain::base::message::Message as PeerMessage;
use domain::base::message_builder::MessageBuilder;
use domain::rdata::tsig::Time48;
use domain::tsig;

use super::*;
use dns_message::question_message;

const NOW: u64 = 1_700_000_000;
const SECRET: &[u8] = b"a secret of thirty-two octets...";

const PAIRS: [(Algorithm, tsig::Algorithm); 4] = [
    (Algorithm::Sha1, tsig::Algorithm::Sha1),
    (Algorithm::Sha256, tsig::Algorithm::Sha256),
    (Algorithm::Sha384, tsig::Algorithm::Sha384),
    (Algorithm::Sha512, tsig::Algorithm::Sha512),
];

fn name(text: &str) -> NameBuf {
    NameBuf::from_text(text.as_bytes(), None).unwrap()
}

fn key(algorithm: Algorithm) -> Key {
    Key::new(name("Transfer.Key.").as_name(), algorithm, SECRET)
}

fn keys(algorithm: Algorithm) -> Keys {
    let mut keys = Keys::default();
    keys.insert(key(algorithm));
    keys
}

fn peer_key(algorithm: tsig::Algorithm) -> Arc<tsig::Key> {
    let name = tsig::KeyName::from_str("transfer.key").unwrap();
    Arc::new(tsig::Key::new(algorithm, SECRET, name, None, None).unwrap())
}

fn axfr() -> Vec<u8> {
    question_message(0x4711, 0, name("example.").as_name(), Rtype::AXFR)
}

fn signed(now: u64) -> Vec<u8> {
    let mut request = axfr();
    sign_request(&mut request, &Arc::new(key(Algorithm::Sha256)), now);
    request
}

/// The answer's messages, each with another number of octets.
fn answers() -> impl Iterator<Item = Vec<u8>> {
    (0..4u16).map(|number| {
        let mut answer = axfr();
        answer[2] = 0x84;
        (0..number).for_each(|_| {
            push_record(&mut answer, name("example.").as_name(), Rtype::A, Class::IN, 60, &[192, 0, 2, 1]);
            add_to_count(&mut answer, 0, 1);
        });
        answer
    })
}

#[test]
fn a_peer_accepts_every_message_of_a_sequence_that_is_signed_here() {
    for (ours, theirs) in PAIRS {
        let mut builder = MessageBuilder::from_target(Vec::new()).unwrap().additional();
        let time = Time48::from_u64(NOW);
        let mut sequence = tsig::ClientSequence::request(peer_key(theirs), &mut builder, time).unwrap();
        let mut request = builder.finish();
        let outcome = verify_request(&mut request, &keys(ours), NOW).unwrap();
        let RequestSignature::Right(mut signer) = outcome else { panic!("{ours:?}: {outcome:?}") };
        for mut answer in answers() {
            let (plain, room) = (answer.clone(), signer.record_len());
            signer.sign(&mut answer, NOW);
            assert_eq!(answer.len(), plain.len() + room);
            let mut answer = PeerMessage::from_octets(answer).unwrap();
            answer.header_mut().set_id(request_id(&request));
            sequence.answer(&mut answer, time).unwrap();
        }
        sequence.done().unwrap();
    }
}

fn request_id(request: &[u8]) -> u16 {
    u16::from_be_bytes([request[0], request[1]])
}

#[test]
fn every_message_of_a_sequence_that_a_peer_signed_is_accepted_here() {
    for (ours, theirs) in PAIRS {
        let mut request = axfr();
        let mut verifier = sign_request(&mut request, &Arc::new(key(ours)), NOW);
        let mut request = PeerMessage::from_octets(request).unwrap();
        let time = Time48::from_u64(NOW);
        let mut sequence =
            tsig::ServerSequence::request(&peer_key(theirs), &mut request, time).unwrap().unwrap();
        for _ in 0..3 {
            let mut answer = MessageBuilder::from_target(Vec::new()).unwrap().additional();
            sequence.answer(&mut answer, time).unwrap();
            let mut answer = answer.finish();
            verifier.verify(&mut answer, NOW).unwrap();
            assert_eq!(answer.len(), 12, "the signature is taken off");
            assert!(verifier.is_complete());
        }
    }
}

#[test]
fn a_request_that_was_changed_on_the_way_is_badsig_and_one_of_another_key_badkey() {
    let mut changed = signed(NOW);
    changed[13] ^= 1;
    let outcome = verify_request(&mut changed, &keys(Algorithm::Sha256), NOW).unwrap();
    assert!(matches!(outcome, RequestSignature::Wrong(TsigError::BadSig, _)), "{outcome:?}");
    for keys in [Keys::default(), keys(Algorithm::Sha512)] {
        let outcome = verify_request(&mut signed(NOW), &keys, NOW).unwrap();
        assert!(matches!(outcome, RequestSignature::Wrong(TsigError::BadKey, _)), "{outcome:?}");
    }
}

#[test]
fn clocks_may_differ_by_the_fudge_and_a_badtime_answer_is_signed_and_has_our_time() {
    let keys = keys(Algorithm::Sha256);
    for now in [NOW - 300, NOW + 300] {
        assert!(matches!(verify_request(&mut signed(NOW), &keys, now), Ok(RequestSignature::Right(_))));
    }
    let late = NOW + 301;
    let outcome = verify_request(&mut signed(NOW), &keys, late).unwrap();
    let RequestSignature::Wrong(TsigError::BadTime, signer) = outcome else { panic!("{outcome:?}") };
    let mut answer = axfr();
    answer[0] = 0x22; // A forwarder has given the request another ID, which its answer has, too.
    signer.sign(&mut answer, late);
    let tsig = Tsig::find(&answer).unwrap().unwrap();
    assert_eq!((tsig.error, tsig.time, tsig.mac.len()), (18, NOW, 32));
    assert_eq!(tsig.original_id, 0x2211, "what was signed");
    assert_eq!(tsig.other, late.to_be_bytes()[2..]);
}

#[test]
fn an_answer_to_a_wrong_signature_has_no_signature_of_ours() {
    let outcome = verify_request(&mut signed(NOW), &Keys::default(), NOW).unwrap();
    let RequestSignature::Wrong(_, signer) = outcome else { panic!("{outcome:?}") };
    let mut answer = axfr();
    signer.sign(&mut answer, NOW);
    let tsig = Tsig::find(&answer).unwrap().unwrap();
    assert_eq!((tsig.error, tsig.mac.len(), tsig.other.len()), (17, 0, 0));
}

/// The signed request with its signature cut to `len` octets.
fn truncated(len: usize) -> Vec<u8> {
    let mut request = signed(NOW);
    let mut tsig = Tsig::find(&request).unwrap().unwrap();
    strip(&mut request, &tsig);
    tsig.mac.truncate(len);
    tsig.push(&mut request);
    request
}

#[test]
fn a_truncated_signature_is_accepted_down_to_half_of_its_length() {
    let keys = keys(Algorithm::Sha256);
    for len in [31, 16] {
        assert!(matches!(verify_request(&mut truncated(len), &keys, NOW), Ok(RequestSignature::Right(_))));
    }
    for len in [15, 1, 0] {
        assert_eq!(verify_request(&mut truncated(len), &keys, NOW).err(), Some(Malformed), "{len}");
    }
}

#[test]
fn a_signature_anywhere_but_at_the_end_is_malformed() {
    let mut request = signed(NOW);
    push_record(&mut request, Name::ROOT, Rtype::A, Class::IN, 0, &[192, 0, 2, 1]);
    add_to_count(&mut request, 2, 1);
    assert_eq!(verify_request(&mut request, &keys(Algorithm::Sha256), NOW).err(), Some(Malformed));
    for len in 12..signed(NOW).len() {
        let mut cut = signed(NOW)[..len].to_vec();
        assert!(verify_request(&mut cut, &keys(Algorithm::Sha256), NOW).is_err(), "{len}");
    }
}

#[test]
fn some_messages_of_a_sequence_may_be_unsigned_and_the_first_and_last_may_not() {
    let mut request = axfr();
    let mut verifier = sign_request(&mut request, &Arc::new(key(Algorithm::Sha256)), NOW);
    let outcome = verify_request(&mut request, &keys(Algorithm::Sha256), NOW).unwrap();
    let RequestSignature::Right(mut signer) = outcome else { panic!("{outcome:?}") };
    let mut answers = answers();
    let mut first = answers.next().unwrap();
    let mut unsigned = axfr();
    signer.sign(&mut first, NOW);
    assert_eq!(verifier.verify(&mut first, NOW), Ok(()));
    assert!(verifier.is_complete());
    for _ in 0..UNSIGNED_MAX {
        assert_eq!(verifier.verify(&mut unsigned, NOW), Ok(()));
    }
    assert!(!verifier.is_complete());
    assert_eq!(verifier.verify(&mut unsigned, NOW), Err(VerifyError::Unsigned));
    let mut verifier = sign_request(&mut axfr(), &Arc::new(key(Algorithm::Sha256)), NOW);
    assert_eq!(verifier.verify(&mut axfr(), NOW), Err(VerifyError::Unsigned));
}

#[test]
fn an_answer_that_refuses_our_signature_says_why() {
    let mut request = axfr();
    let mut verifier = sign_request(&mut request, &Arc::new(key(Algorithm::Sha256)), NOW);
    let outcome = verify_request(&mut request, &Keys::default(), NOW).unwrap();
    let RequestSignature::Wrong(_, signer) = outcome else { panic!("{outcome:?}") };
    let mut answer = axfr();
    signer.sign(&mut answer, NOW);
    assert_eq!(verifier.verify(&mut answer, NOW), Err(VerifyError::Refused(17)));
}
