//! Transaction signatures (RFC 8945): shared keys, signing and checking of messages and of sequences of them.
//!
//! The digests are `ring`'s. Time is the seconds since 1970 that the caller gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use dns_wire::{Class, Name, NameBuf, Rtype};
use ring::hmac;

use dns_message::{Malformed, Message, add_to_count, push_record};

/// Seconds by which clocks may differ (RFC 8945, 10).
pub const FUDGE: u16 = 300;
/// Messages of a sequence that may follow each other without a signature (RFC 8945, 5.3.1).
const UNSIGNED_MAX: u32 = 99;

/// How messages are signed with a key (RFC 8945, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// hmac-sha1: for old peers only.
    Sha1,
    /// hmac-sha256.
    Sha256,
    /// hmac-sha384.
    Sha384,
    /// hmac-sha512.
    Sha512,
}

impl Algorithm {
    const ALL: [Algorithm; 4] = [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];

    /// The algorithm of this name, such as `hmac-sha256`.
    pub fn from_text(text: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.text().eq_ignore_ascii_case(text))
    }

    const fn text(self) -> &'static str {
        match self {
            Algorithm::Sha1 => "hmac-sha1",
            Algorithm::Sha256 => "hmac-sha256",
            Algorithm::Sha384 => "hmac-sha384",
            Algorithm::Sha512 => "hmac-sha512",
        }
    }

    fn name(self) -> NameBuf {
        NameBuf::from_text(self.text().as_bytes(), Some(Name::ROOT)).expect("each is a label")
    }

    const fn ring(self) -> hmac::Algorithm {
        match self {
            Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Algorithm::Sha256 => hmac::HMAC_SHA256,
            Algorithm::Sha384 => hmac::HMAC_SHA384,
            Algorithm::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn mac_len(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha384 => 48,
            Algorithm::Sha512 => 64,
        }
    }
}

/// A key that two servers share.
pub struct Key {
    /// In lower case.
    name: NameBuf,
    algorithm: Algorithm,
    secret: hmac::Key,
}

impl Key {
    /// A key of this name.
    pub fn new(name: Name<'_>, algorithm: Algorithm, secret: &[u8]) -> Key {
        let mut name = NameBuf::from(name);
        name.make_lowercase();
        Key { name, algorithm, secret: hmac::Key::new(algorithm.ring(), secret) }
    }

    /// Its name.
    pub fn name(&self) -> Name<'_> {
        self.name.as_name()
    }

    /// Octets of the TSIG record of a signed message.
    fn record_len(&self) -> usize {
        self.name.as_name().len() + 10 + self.algorithm.name().as_name().len() + 16 + self.algorithm.mac_len()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.name) // Never the secret.
    }
}

/// Keys by their names.
#[derive(Clone, Debug, Default)]
pub struct Keys(BTreeMap<NameBuf, Arc<Key>>);

impl Keys {
    /// Adds a key; one of its name is replaced.
    pub fn insert(&mut self, key: Key) {
        self.0.insert(key.name.clone(), Arc::new(key));
    }

    /// The key of this name.
    pub fn get(&self, name: Name<'_>) -> Option<&Arc<Key>> {
        self.0.get(&NameBuf::from(name))
    }

    /// These keys, and `newer` ones, which replace those of their names.
    #[must_use]
    pub fn with(&self, newer: &Keys) -> Keys {
        let all = self.0.iter().chain(&newer.0);
        Keys(all.map(|(name, key)| (name.clone(), Arc::clone(key))).collect())
    }
}

/// What is wrong with a signature: the ERROR of a TSIG record (RFC 8945, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum TsigError {
    /// The signature is not that of the message.
    #[error("the signature is wrong (BADSIG)")]
    BadSig = 16,
    /// The key is not known, or is of another algorithm.
    #[error("the key is not known (BADKEY)")]
    BadKey = 17,
    /// Clocks differ by more than the fudge.
    #[error("the signature's time differs too much from ours (BADTIME)")]
    BadTime = 18,
}

/// Why a signed message is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The message, or its TSIG record.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The signature.
    #[error(transparent)]
    Tsig(#[from] TsigError),
    /// No signature where one has to be.
    #[error("the message is not signed")]
    Unsigned,
    /// The peer refuses our signature with this ERROR.
    #[error("the peer refuses our signature: {}", refusal(*.0))]
    Refused(u16),
}

/// What an ERROR of TSIG says to whoever has sent the signature (RFC 8945, 5.3.2).
fn refusal(error: u16) -> String {
    match error {
        16 => "BADSIG, the secrets differ".to_owned(),
        17 => "BADKEY, it does not know the key, or has another algorithm for it".to_owned(),
        18 => "BADTIME, the clocks differ".to_owned(),
        other => format!("error {other}"),
    }
}

/// A TSIG record as it came.
#[derive(Clone, Debug)]
struct Tsig {
    /// Where the record starts in its message.
    start: usize,
    key: NameBuf,
    algorithm: NameBuf,
    time: u64,
    fudge: u16,
    mac: Vec<u8>,
    original_id: u16,
    error: u16,
    other: Vec<u8>,
}

impl Tsig {
    /// The TSIG record at the end of a message; `None` if there is none. Elsewhere it is malformed (RFC 8945, 5.2).
    fn find(octets: &[u8]) -> Result<Option<Tsig>, Malformed> {
        let mut message = Message::parse(octets)?;
        let count: u32 = message.counts().map(u32::from).iter().sum();
        let mut found = None;
        for _ in 0..count {
            if found.is_some() {
                return Err(Malformed);
            }
            let start = message.position();
            let record = message.next_update_record()?;
            if record.rtype == Rtype::TSIG {
                found = Some(Tsig::read(start, record.owner, &record.rdata).ok_or(Malformed)?);
            }
        }
        if message.is_at_end() && (found.is_none() || message.counts()[2] != 0) {
            Ok(found)
        } else {
            Err(Malformed)
        }
    }

    fn read(start: usize, mut key: NameBuf, rdata: &[u8]) -> Option<Tsig> {
        let (name, rest) = Name::split_from(rdata).ok()?;
        let (time, rest) = rest.split_first_chunk::<6>()?;
        let (fudge, rest) = read_u16(rest)?;
        let (mac_len, rest) = read_u16(rest)?;
        let (mac, rest) = rest.split_at_checked(usize::from(mac_len))?;
        let (original_id, rest) = read_u16(rest)?;
        let (error, rest) = read_u16(rest)?;
        let (other_len, other) = read_u16(rest)?;
        let mut algorithm = NameBuf::from(name);
        algorithm.make_lowercase();
        key.make_lowercase();
        let time = time.iter().fold(0, |time, octet| time << 8 | u64::from(*octet));
        let (mac, other) = (mac.to_vec(), (other.len() == usize::from(other_len)).then(|| other.to_vec())?);
        Some(Tsig { start, key, algorithm, time, fudge, mac, original_id, error, other })
    }

    /// The variables that are signed beside the message (RFC 8945, 4.3.3); of later messages of a sequence, the timers only.
    fn digest_variables(&self, context: &mut hmac::Context, timers_only: bool) {
        let time_and_fudge = [&self.time.to_be_bytes()[2..], &self.fudge.to_be_bytes()].concat();
        if timers_only {
            return context.update(&time_and_fudge);
        }
        context.update(self.key.as_name().as_bytes());
        context.update(&[0, 255, 0, 0, 0, 0]); // Class ANY, TTL 0.
        context.update(self.algorithm.as_name().as_bytes());
        context.update(&time_and_fudge);
        context.update(&self.error.to_be_bytes());
        context.update(&(self.other.len() as u16).to_be_bytes()); // It came, or comes, in a message.
        context.update(&self.other);
    }

    /// Whether `key` made this signature over what `context` has digested; it may be truncated (RFC 8945, 5.2.2.1).
    fn check(&self, key: &Key, context: hmac::Context) -> Result<(), VerifyError> {
        let full = key.algorithm.mac_len();
        if self.mac.len() > full || self.mac.len() < (full / 2).max(10) {
            return Err(Malformed.into());
        }
        let tag = context.sign();
        let pairs = tag.as_ref().iter().zip(&self.mac);
        // All octets are looked at, so that time says nothing about where they differ.
        let difference = pairs.fold(0, |difference, (left, right)| difference | (left ^ right));
        if difference == 0 { Ok(()) } else { Err(TsigError::BadSig.into()) }
    }

    fn is_in_time(&self, now: u64) -> bool {
        self.time.abs_diff(now) <= u64::from(self.fudge)
    }

    /// Appends the record to `message`.
    fn push(&self, message: &mut Vec<u8>) {
        let rdata = [
            self.algorithm.as_name().as_bytes(),
            &self.time.to_be_bytes()[2..],
            &self.fudge.to_be_bytes(),
            &(self.mac.len() as u16).to_be_bytes(),
            &self.mac,
            &self.original_id.to_be_bytes(),
            &self.error.to_be_bytes(),
            &(self.other.len() as u16).to_be_bytes(),
            &self.other,
        ]
        .concat();
        push_record(message, self.key.as_name(), Rtype::TSIG, Class::ANY, 0, &rdata);
        add_to_count(message, 2, 1);
    }
}

fn id_of(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[0], message[1]])
}

fn read_u16(octets: &[u8]) -> Option<(u16, &[u8])> {
    octets.split_first_chunk::<2>().map(|(value, rest)| (u16::from_be_bytes(*value), rest))
}

/// Digests a message as it was before it was signed.
fn digest_message(context: &mut hmac::Context, octets: &[u8], tsig: Option<&Tsig>) {
    let Some(tsig) = tsig else { return context.update(octets) };
    let mut header: [u8; 12] = *octets.first_chunk().expect("a message that was read has a header");
    header[..2].copy_from_slice(&tsig.original_id.to_be_bytes());
    add_to_count(&mut header, 2, -1);
    context.update(&header);
    context.update(&octets[12..tsig.start]);
}

/// Digests the signature that comes before in a sequence.
fn digest_prior(context: &mut hmac::Context, mac: &[u8]) {
    context.update(&(mac.len() as u16).to_be_bytes()); // At most 64 octets.
    context.update(mac);
}

/// Takes the TSIG record off a message. Its ID stays that of the header, which a forwarder may have changed: whoever answers says that one.
fn strip(message: &mut Vec<u8>, tsig: &Tsig) {
    message.truncate(tsig.start);
    add_to_count(message, 2, -1);
}

/// What a request's signature comes to.
#[derive(Debug)]
pub enum RequestSignature {
    /// There is none.
    None,
    /// It is right. The answer is signed by this.
    Right(Signer),
    /// It is wrong: this goes into the answer, whose code is NOTAUTH.
    Wrong(TsigError, Box<ErrorSigner>),
}

/// Checks the signature of a request, and takes it off (RFC 8945, 5.2).
///
/// # Errors
/// The message, or its TSIG record, is malformed: FORMERR.
pub fn verify_request(message: &mut Vec<u8>, keys: &Keys, now: u64) -> Result<RequestSignature, Malformed> {
    let Some(tsig) = Tsig::find(message)? else { return Ok(RequestSignature::None) };
    let octets = std::mem::take(message);
    let key = keys.0.get(&tsig.key).filter(|key| key.algorithm.name() == tsig.algorithm);
    let outcome = key.ok_or(VerifyError::Tsig(TsigError::BadKey)).and_then(|key| {
        let mut context = hmac::Context::with_key(&key.secret);
        digest_message(&mut context, &octets, Some(&tsig));
        tsig.digest_variables(&mut context, false);
        tsig.check(key, context)?;
        if tsig.is_in_time(now) { Ok(key) } else { Err(TsigError::BadTime.into()) }
    });
    *message = octets;
    strip(message, &tsig);
    match outcome {
        Ok(key) => Ok(RequestSignature::Right(Signer::answering(key, tsig.mac))),
        Err(VerifyError::Tsig(error)) => {
            let key = key.filter(|_| error == TsigError::BadTime).cloned();
            Ok(RequestSignature::Wrong(error, Box::new(ErrorSigner { key, tsig, error })))
        }
        Err(_) => Err(Malformed),
    }
}

/// Says in an answer what was wrong with a request's signature (RFC 8945, 5.3.2).
#[derive(Debug)]
pub struct ErrorSigner {
    /// Signs; only a request whose time alone is wrong gets a signed answer.
    key: Option<Arc<Key>>,
    tsig: Tsig,
    error: TsigError,
}

impl ErrorSigner {
    /// Appends the TSIG record.
    ///
    /// # Panics
    /// If `message` is shorter than a header.
    pub fn sign(self, message: &mut Vec<u8>, now: u64) {
        let request_mac = self.tsig.mac;
        let other =
            if self.error == TsigError::BadTime { now.to_be_bytes()[2..].to_vec() } else { Vec::new() };
        // A BADTIME answer has the client's time, so that the client accepts it.
        let (error, original_id) = (self.error as u16, id_of(message));
        let mut tsig = Tsig { error, original_id, mac: Vec::new(), other, ..self.tsig };
        if let Some(key) = self.key {
            let mut context = hmac::Context::with_key(&key.secret);
            digest_prior(&mut context, &request_mac);
            context.update(message);
            tsig.digest_variables(&mut context, false);
            tsig.mac = context.sign().as_ref().to_vec();
        }
        tsig.push(message);
    }
}

/// Signs a request, or the messages of an answer, each of them.
#[derive(Clone, Debug)]
pub struct Signer {
    key: Arc<Key>,
    /// The signature before: the request's at first. Empty for a request itself.
    prior: Vec<u8>,
    /// Whether a message of the answer was signed.
    has_signed: bool,
}

impl Signer {
    fn answering(key: &Arc<Key>, request_mac: Vec<u8>) -> Signer {
        Signer { key: Arc::clone(key), prior: request_mac, has_signed: false }
    }

    /// The key.
    pub fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Octets by which [`Signer::sign`] lengthens a message.
    pub fn record_len(&self) -> usize {
        self.key.record_len()
    }

    /// Appends a signature to the next message (RFC 8945, 5.3.1).
    ///
    /// # Panics
    /// If `message` is shorter than a header.
    pub fn sign(&mut self, message: &mut Vec<u8>, now: u64) {
        let mut tsig = Tsig {
            start: message.len(),
            key: self.key.name.clone(),
            algorithm: self.key.algorithm.name(),
            time: now,
            fudge: FUDGE,
            mac: Vec::new(),
            original_id: id_of(message),
            error: 0,
            other: Vec::new(),
        };
        let mut context = hmac::Context::with_key(&self.key.secret);
        if !self.prior.is_empty() {
            digest_prior(&mut context, &self.prior);
        }
        context.update(message);
        tsig.digest_variables(&mut context, self.has_signed);
        tsig.mac = context.sign().as_ref().to_vec();
        self.prior.clone_from(&tsig.mac);
        self.has_signed = true;
        tsig.push(message);
    }
}

/// Signs a request, and returns what checks its answer.
pub fn sign_request(message: &mut Vec<u8>, key: &Arc<Key>, now: u64) -> Verifier {
    let mut signer = Signer::answering(key, Vec::new());
    signer.sign(message, now);
    let mut context = hmac::Context::with_key(&key.secret);
    digest_prior(&mut context, &signer.prior);
    Verifier { key: Arc::clone(key), context, has_verified: false, unsigned: 0 }
}

/// Checks the messages of an answer to a signed request.
pub struct Verifier {
    key: Arc<Key>,
    /// Over the signature before, and the messages since.
    context: hmac::Context,
    has_verified: bool,
    unsigned: u32,
}

impl Verifier {
    /// Checks the next message, and takes its signature off. Not every message of a sequence is signed (RFC 8945, 5.3.1); the first
    /// and the last are: see [`Verifier::is_complete`].
    pub fn verify(&mut self, message: &mut Vec<u8>, now: u64) -> Result<(), VerifyError> {
        let Some(tsig) = Tsig::find(message)? else {
            self.unsigned += 1;
            if !self.has_verified || self.unsigned > UNSIGNED_MAX {
                return Err(VerifyError::Unsigned);
            }
            digest_message(&mut self.context, message, None);
            return Ok(());
        };
        if tsig.error != 0 {
            return Err(VerifyError::Refused(tsig.error));
        }
        if tsig.key != self.key.name || tsig.algorithm != self.key.algorithm.name() {
            return Err(TsigError::BadKey.into());
        }
        digest_message(&mut self.context, message, Some(&tsig));
        tsig.digest_variables(&mut self.context, self.has_verified);
        let mut next = hmac::Context::with_key(&self.key.secret);
        digest_prior(&mut next, &tsig.mac);
        let context = std::mem::replace(&mut self.context, next);
        tsig.check(&self.key, context)?;
        if !tsig.is_in_time(now) {
            return Err(TsigError::BadTime.into());
        }
        strip(message, &tsig);
        (self.has_verified, self.unsigned) = (true, 0);
        Ok(())
    }

    /// Whether the last message was signed, as it has to be.
    pub fn is_complete(&self) -> bool {
        self.has_verified && self.unsigned == 0
    }
}

#[cfg(test)]
#[path = "tsig_tests.rs"]
mod tests;
