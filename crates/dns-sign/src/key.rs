//! Keys, in the two files that `dnssec-keygen` of BIND writes for each.
//!
//! `Kexample.+013+12345.key` has the DNSKEY record, `Kexample.+013+12345.private` the secret and the times of the key: `Publish: 20261124120000`
//! and so on, in UTC. The number in the middle is the algorithm's, the last one is the key tag (RFC 4034, appendix B).

use std::fmt::{self, Write};
use std::sync::Arc;

use dns_wire::{Name, Rtype};
use domain::base::iana::SecurityAlgorithm;
use domain::base::name::Name as DomainName;
use domain::base::{Record, ToName, Ttl};
use domain::crypto::sign::{FromBytesError, GenerateParams, KeyPair, SecretKeyBytes, SignRaw, generate};
use domain::dnssec::common::{display_as_bind, parse_from_bind};
use domain::rdata::Dnskey;
use domain::utils::base64;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ring::digest;

/// Numbers of digests in DS records (IANA's registry of them).
const DS_SHA1: u8 = 1;
const DS_SHA256: u8 = 2;
const DS_SHA384: u8 = 4;

/// The library makes no signatures with shorter keys.
const RSA_BITS_MIN: usize = 2048;

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The public half is no DNSKEY record.
    #[error("the .key file does not have one line `NAME [TTL] IN DNSKEY FLAGS 3 ALGORITHM KEY`")]
    Public,
    /// It is a key of another zone.
    #[error("the key is for another zone")]
    OtherZone,
    /// The secret half is no such file, or of an algorithm that we cannot sign with.
    #[error("the .private file is malformed, or of an algorithm that we cannot sign with")]
    Private,
    /// The halves do not belong together, or are of an algorithm that the library does not have.
    #[error("the .key and .private files are not of one key, or of an algorithm that we cannot sign with")]
    Pair,
    /// An RSA key that the library does not sign with.
    #[error(
        "an RSA key of {bits} bits: the shortest that we sign with has {RSA_BITS_MIN}, as of dnssec-keygen -b {RSA_BITS_MIN}"
    )]
    Short {
        /// The length of its modulus.
        bits: usize,
    },
    /// A time that is none.
    #[error("the .private file has a time that is not written YYYYMMDDHHMMSS")]
    Time,
    /// The system gave no randomness.
    #[error("the system has no randomness for a key")]
    Generate,
}

/// An algorithm for which keys can be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The one that RFC 8624 recommends.
    #[default]
    EcdsaP256Sha256,
    /// The same on a longer curve.
    EcdsaP384Sha384,
    /// Edwards curves (RFC 8080).
    Ed25519,
}

impl Algorithm {
    const ALL: [Algorithm; 3] = [Algorithm::EcdsaP256Sha256, Algorithm::EcdsaP384Sha384, Algorithm::Ed25519];

    /// The one of this mnemonic.
    pub fn of_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The one of this number; `None` if no keys of it can be drawn.
    pub fn of_number(number: u8) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.number() == number)
    }

    /// Its number (IANA's registry of DNSSEC algorithms).
    pub fn number(self) -> u8 {
        match self {
            Algorithm::EcdsaP256Sha256 => 13,
            Algorithm::EcdsaP384Sha384 => 14,
            Algorithm::Ed25519 => 15,
        }
    }

    /// Its mnemonic.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::EcdsaP256Sha256 => "ECDSAP256SHA256",
            Algorithm::EcdsaP384Sha384 => "ECDSAP384SHA384",
            Algorithm::Ed25519 => "ED25519",
        }
    }

    fn parameters(self) -> GenerateParams {
        match self {
            Algorithm::EcdsaP256Sha256 => GenerateParams::EcdsaP256Sha256,
            Algorithm::EcdsaP384Sha384 => GenerateParams::EcdsaP384Sha384,
            Algorithm::Ed25519 => GenerateParams::Ed25519,
        }
    }
}

/// What a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The keys, and all else if there is no zone-signing key of its algorithm: the flags ZONE and SEP (RFC 4034, 2.1.1).
    KeySigning,
    /// All but the keys.
    ZoneSigning,
}

impl Role {
    fn flags(self) -> u16 {
        match self {
            Role::KeySigning => 257,
            Role::ZoneSigning => 256,
        }
    }
}

/// Where a key is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not come.
    Waiting,
    /// It is in the DNSKEY set, and does not sign.
    Published,
    /// It signs.
    Signing,
    /// It signs, and is not in the DNSKEY set: not yet, or not any more (RFC 6781, 4.1.4).
    SigningUnpublished,
    /// It is in the DNSKEY set, and signs no more.
    Retired,
    /// It has left the DNSKEY set.
    Removed,
}

/// When a key comes and goes, in seconds since 1970. One that is not given has long come, or never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When it was made.
    pub created: Option<u64>,
    /// When it comes into the DNSKEY set.
    pub publish: Option<u64>,
    /// When it begins to sign.
    pub activate: Option<u64>,
    /// When it ends to sign.
    pub inactive: Option<u64>,
    /// When it leaves the DNSKEY set.
    pub delete: Option<u64>,
    /// When its CDS and CDNSKEY records come, by which the parent learns of it (RFC 7344). Without it they do not.
    pub sync_publish: Option<u64>,
    /// When those go.
    pub sync_delete: Option<u64>,
}

impl Times {
    /// Each with its word in a file, in the order in which BIND's tools write them.
    fn fields(&mut self) -> [(&'static str, &mut Option<u64>); 7] {
        [
            ("Created", &mut self.created),
            ("Publish", &mut self.publish),
            ("Activate", &mut self.activate),
            ("Inactive", &mut self.inactive),
            ("Delete", &mut self.delete),
            ("SyncPublish", &mut self.sync_publish),
            ("SyncDelete", &mut self.sync_delete),
        ]
    }

    fn read(private: &str) -> Result<Times, KeyError> {
        let mut times = Times::default();
        for line in private.lines() {
            let Some((word, time)) = line.split_once(':') else { continue };
            if let Some((_, place)) = times.fields().into_iter().find(|(name, _)| *name == word.trim()) {
                *place = Some(read_time(time.trim()).ok_or(KeyError::Time)?);
            }
        }
        Ok(times)
    }

    /// The text of a `.private` file with these times in place of those that it has.
    pub fn written_into(&self, private: &str) -> String {
        let word_of = |line: &str| line.split_once(':').map(|(word, _)| word.trim().to_owned());
        let is_time = |line: &&str| {
            word_of(line).is_some_and(|word| Times::default().fields().iter().any(|(name, _)| *name == word))
        };
        let kept = private.lines().filter(|line| !is_time(line)).map(|line| format!("{line}\n"));
        kept.chain([self.to_string()]).collect()
    }

    /// What happens next, and when.
    pub fn next(&self, now: u64) -> Option<(&'static str, u64)> {
        let mut times = Times { created: None, ..*self };
        let to_come = times.fields().into_iter().filter_map(|(word, time)| Some((word, (*time)?)));
        to_come.filter(|(_, time)| *time > now).min_by_key(|(_, time)| *time)
    }

    /// What the key does.
    ///
    /// A key signs without being in the DNSKEY set if its times say so: it is activated before it is published, or deleted before it is
    /// inactive.
    pub fn state(&self, now: u64) -> State {
        let is_past = |time: Option<u64>| time.is_some_and(|time| time <= now);
        let is_to_come = |time: Option<u64>| time.is_some_and(|time| time > now);
        match () {
            () if is_past(self.delete) && is_to_come(self.inactive) => State::SigningUnpublished,
            () if is_past(self.delete) => State::Removed,
            () if is_to_come(self.publish) && is_past(self.activate) && !is_past(self.inactive) => {
                State::SigningUnpublished
            }
            () if is_to_come(self.publish) => State::Waiting,
            () if is_past(self.inactive) => State::Retired,
            () if is_to_come(self.activate) => State::Published,
            () => State::Signing,
        }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = *self;
        times.fields().iter().try_for_each(|(word, time)| match time {
            Some(time) => writeln!(f, "{word}: {}", show_time(*time)),
            None => Ok(()),
        })
    }
}

const TIME: &str = "%Y%m%d%H%M%S";

fn read_time(text: &str) -> Option<u64> {
    let time = DateTime::strptime(TIME, text).ok()?.to_zoned(TimeZone::UTC).ok()?;
    u64::try_from(time.timestamp().as_second()).ok()
}

/// A time as YYYYMMDDHHMMSS, in UTC.
fn show_time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime(TIME).to_string()
}

/// A new key, as it is written.
pub struct KeyFiles {
    /// The names of both files, up to the dot.
    pub stem: String,
    /// What is in the `.key` file.
    pub public: String,
    /// What is in the `.private` file, which nobody else is to read.
    pub private: String,
}

impl KeyFiles {
    /// Draws a key of ECDSAP256SHA256, the algorithm that RFC 8624 recommends.
    ///
    /// # Errors
    /// The system gave no randomness.
    pub fn generate(origin: Name<'_>, role: Role, times: Times) -> Result<KeyFiles, KeyError> {
        KeyFiles::generate_by(Algorithm::default(), origin, role, times)
    }

    /// Draws a key of an algorithm.
    ///
    /// # Errors
    /// The system gave no randomness.
    pub fn generate_by(
        algorithm: Algorithm,
        origin: Name<'_>,
        role: Role,
        times: Times,
    ) -> Result<KeyFiles, KeyError> {
        let (secret, public) =
            generate(&algorithm.parameters(), role.flags()).map_err(|_| KeyError::Generate)?;
        let stem = stem(origin, public.algorithm().to_int(), public.key_tag());
        let mut private = String::new();
        let written = secret.format_as_bind(&mut private).and_then(|()| write!(private, "{times}"));
        written.expect("a string takes all");
        let public = public_text(origin, public);
        Ok(KeyFiles { stem, public, private })
    }
}

impl KeyFiles {
    /// Those of a key whose private half is in a token. `label` is its name there, `public_key` what its DNSKEY record has of it.
    ///
    /// # Errors
    /// It is longer than a record.
    pub fn of_token(
        origin: Name<'_>,
        (role, times): (Role, Times),
        (algorithm, public_key): (u8, Vec<u8>),
        label: &str,
    ) -> Result<KeyFiles, KeyError> {
        let algorithm = SecurityAlgorithm::from_int(algorithm);
        let public = Dnskey::new(role.flags(), 3, algorithm, public_key).map_err(|_| KeyError::Public)?;
        let stem = stem(origin, algorithm.to_int(), public.key_tag());
        let name = algorithm.to_mnemonic_str().unwrap_or("?");
        let label = base64::encode_string(&[label.as_bytes(), b"\0"].concat());
        let private = format!(
            "Private-key-format: v1.3\nAlgorithm: {} ({name})\n{LABEL}: {label}\n{times}",
            algorithm.to_int()
        );
        let public = public_text(origin, public);
        Ok(KeyFiles { stem, public, private })
    }
}

/// What is in the `.key` file. `domain` reads no name in which a semicolon stands as itself.
fn public_text(origin: Name<'_>, public: Dnskey<Vec<u8>>) -> String {
    let record = Record::new(DomainName::root_vec(), domain::base::iana::Class::IN, Ttl::ZERO, public);
    let text = display_as_bind(&record).to_string();
    let (_, behind_name) = text.split_once(' ').expect("a record has several fields");
    let name = origin.to_string().replace("\\;", "\\059");
    format!("{name} {behind_name}")
}

pub(crate) fn stem(origin: Name<'_>, algorithm: u8, tag: u16) -> String {
    format!("{}{algorithm:03}+{tag:05}", Key::file_prefix(origin))
}

/// Signs with a private key that is somewhere else.
pub trait RemoteSigner: fmt::Debug + Send + Sync {
    /// The signature of octets by the key; `None` if there is none now. Whoever knows why has said so.
    fn sign(&self, octets: &[u8]) -> Option<Vec<u8>>;
}

/// The private half of a key.
#[derive(Clone, Debug)]
enum Secret {
    /// In the file.
    Here(Arc<KeyPair>),
    /// In a token that the file names.
    Elsewhere {
        /// Its name there.
        label: String,
        /// Signs with it, once it is known how.
        signer: Option<Arc<dyn RemoteSigner>>,
    },
}

/// A key of a zone, both halves.
#[derive(Clone, Debug)]
pub struct Key {
    dnskey: Vec<u8>,
    flags: u16,
    algorithm: u8,
    tag: u16,
    secret: Secret,
    /// When it comes and goes.
    pub times: Times,
}

impl Key {
    /// The start of the names of the files of all keys of a zone.
    pub fn file_prefix(origin: Name<'_>) -> String {
        // A slash in a label does not divide a path.
        format!("K{}+", origin.to_string().to_ascii_lowercase().replace('/', "%2F"))
    }

    /// The names of its two files, up to the dot.
    pub fn file_stem(&self, origin: Name<'_>) -> String {
        stem(origin, self.algorithm, self.tag)
    }

    /// Reads a key of the zone `origin`.
    ///
    /// # Errors
    /// The files are malformed, or not of one key of this zone.
    pub fn read(origin: Name<'_>, public: &str, private: &str) -> Result<Key, KeyError> {
        let record = parse_from_bind::<Vec<u8>>(&with_class(public)).map_err(|_| KeyError::Public)?;
        let owner = record.owner().to_vec();
        if Name::from_wire(owner.as_slice()) != Ok(origin) {
            return Err(KeyError::OtherZone);
        }
        let public: &Dnskey<Vec<u8>> = record.data();
        let secret = match read_label(private)? {
            Some(label) => Secret::Elsewhere { label, signer: None },
            None => {
                let private = in_full(private, public.algorithm().to_int())?;
                let secret = SecretKeyBytes::parse_from_bind(&private).map_err(|_| KeyError::Private)?;
                let pair = KeyPair::from_bytes(&secret, public).map_err(|error| why_unfit(error, public))?;
                Secret::Here(Arc::new(pair))
            }
        };
        Ok(Key {
            dnskey: dnskey_data(public),
            flags: public.flags(),
            algorithm: public.algorithm().to_int(),
            tag: public.key_tag(),
            secret,
            times: Times::read(private)?,
        })
    }

    /// The data of its DNSKEY record.
    pub fn dnskey(&self) -> &[u8] {
        &self.dnskey
    }

    /// The data of a DS record for it, by SHA-256, which is that of its CDS record, too (RFC 4034, 5.1.4; RFC 7344, 3.1).
    pub fn ds(&self, origin: Name<'_>) -> Vec<u8> {
        self.ds_by(&digest::SHA256, DS_SHA256, origin)
    }

    pub(crate) fn ds_by(
        &self,
        algorithm: &'static digest::Algorithm,
        number: u8,
        origin: Name<'_>,
    ) -> Vec<u8> {
        let mut lower = [0; dns_wire::name::NAME_LEN_MAX];
        let signed = [origin.lowercase(&mut lower).as_bytes(), &self.dnskey].concat();
        let digest = digest::digest(algorithm, &signed);
        [&self.tag.to_be_bytes()[..], &[self.algorithm, number], digest.as_ref()].concat()
    }

    /// Whether a DS record of this data is one of the key, by SHA-1, SHA-256 or SHA-384.
    pub(crate) fn is_named_by(&self, origin: Name<'_>, ds: &[u8]) -> bool {
        let is_by_sha1 = || self.ds_by(&digest::SHA1_FOR_LEGACY_USE_ONLY, DS_SHA1, origin) == ds;
        self.is_trusted_by(origin, ds) || is_by_sha1()
    }

    /// The same by a digest that validators rely on.
    pub(crate) fn is_trusted_by(&self, origin: Name<'_>, ds: &[u8]) -> bool {
        self.ds(origin) == ds || self.ds_by(&digest::SHA384, DS_SHA384, origin) == ds
    }

    /// The key tag (RFC 4034, appendix B).
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// The number of its algorithm.
    pub fn algorithm(&self) -> u8 {
        self.algorithm
    }

    /// The mnemonic of its algorithm.
    pub fn algorithm_name(&self) -> String {
        let known = SecurityAlgorithm::from_int(self.algorithm).to_mnemonic_str();
        known.map_or_else(|| self.algorithm.to_string(), str::to_owned)
    }

    /// What it signs, by its flags.
    pub fn role(&self) -> Role {
        if self.flags & 1 == 1 { Role::KeySigning } else { Role::ZoneSigning }
    }

    /// Signs octets; `None` if the library or the token cannot.
    pub fn sign(&self, octets: &[u8]) -> Option<Vec<u8>> {
        match &self.secret {
            Secret::Here(pair) => pair.sign_raw(octets).ok().map(|signature| signature.as_ref().to_vec()),
            Secret::Elsewhere { signer, .. } => signer.as_ref()?.sign(octets),
        }
    }

    /// The name of the key in a token, if its private half is there.
    pub fn label(&self) -> Option<&str> {
        match &self.secret {
            Secret::Here(_) => None,
            Secret::Elsewhere { label, .. } => Some(label),
        }
    }

    /// The public key, as its DNSKEY record has it behind flags, protocol and algorithm.
    pub fn public_key(&self) -> &[u8] {
        self.dnskey.get(4..).unwrap_or_default()
    }

    /// Has a key whose private half is in a token sign by `remote`.
    pub(crate) fn connect(&mut self, remote: Arc<dyn RemoteSigner>) {
        if let Secret::Elsewhere { signer, .. } = &mut self.secret {
            *signer = Some(remote);
        }
    }
}

/// The word of a `.private` file in front of the name that its key has in a token, in base64; BIND has a zero behind the name.
const LABEL: &str = "Label";

fn read_label(private: &str) -> Result<Option<String>, KeyError> {
    let words = private.lines().filter_map(|line| line.split_once(':'));
    let Some((_, text)) = words.into_iter().find(|(word, _)| word.trim() == LABEL) else { return Ok(None) };
    let octets = base64::decode::<Vec<u8>>(text.trim()).map_err(|_| KeyError::Private)?;
    let label = String::from_utf8(octets).map_err(|_| KeyError::Private)?;
    Ok(Some(label.trim_end_matches('\0').to_owned()))
}

/// The text of a `.private` file with the secret of an ECDSA key in its full length: BIND leaves zeros at its front out, as one key of 256 has.
fn in_full(private: &str, algorithm: u8) -> Result<String, KeyError> {
    let len = match algorithm {
        13 => 32,
        14 => 48,
        _ => return Ok(private.to_owned()),
    };
    let line = |line: &str| match line.split_once(':').filter(|(word, _)| word.trim() == "PrivateKey") {
        None => Ok(format!("{line}\n")),
        Some((word, text)) => {
            let octets = base64::decode::<Vec<u8>>(text.trim()).map_err(|_| KeyError::Private)?;
            let zeros = vec![0; usize::saturating_sub(len, octets.len())];
            Ok(format!("{word}: {}\n", base64::encode_string(&[zeros, octets].concat())))
        }
    };
    private.lines().map(line).collect()
}

/// The text of a `.key` file with the class that Knot's `keymgr` leaves out, as a zone file may (RFC 1035, 5.1).
fn with_class(public: &str) -> String {
    let with_class = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|word| *word == "DNSKEY")
            && !line.starts_with(';')
            && !words[..at].contains(&"IN")
        {
            words.insert(at, "IN");
            return format!("{}\n", words.join(" "));
        }
        format!("{line}\n")
    };
    public.lines().map(with_class).collect()
}

/// Why the halves make no key.
fn why_unfit(error: FromBytesError, public: &Dnskey<Vec<u8>>) -> KeyError {
    match (error, rsa_bits(public.public_key())) {
        (FromBytesError::WeakKey, Some(bits)) => KeyError::Short { bits },
        _ => KeyError::Pair,
    }
}

/// The length of the modulus, which stands behind the exponent (RFC 3110, 2).
fn rsa_bits(public_key: &[u8]) -> Option<usize> {
    let (exponent_len, rest) = match *public_key {
        [0, high, low, ref rest @ ..] => (usize::from(u16::from_be_bytes([high, low])), rest),
        [len, ref rest @ ..] => (usize::from(len), rest),
        [] => return None,
    };
    let modulus = rest.get(exponent_len..)?;
    Some(modulus.len() * 8 - modulus.first()?.leading_zeros() as usize)
}

/// RFC 4034, 2.1.
fn dnskey_data(key: &Dnskey<Vec<u8>>) -> Vec<u8> {
    let head = [&key.flags().to_be_bytes()[..], &[key.protocol(), key.algorithm().to_int()]];
    [&head.concat(), key.public_key().as_slice()].concat()
}

/// The types by which the parent learns of keys: those sign them that sign the DNSKEY set (RFC 7344, 4.1).
pub(crate) fn is_for_parent(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::CDS | Rtype::CDNSKEY)
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;

    #[derive(Debug)]
    struct Reversing;

    impl RemoteSigner for Reversing {
        fn sign(&self, octets: &[u8]) -> Option<Vec<u8>> {
            Some(octets.iter().rev().copied().collect())
        }
    }

    #[test]
    fn a_key_of_a_token_signs_when_it_is_known_how() {
        let origin = NameBuf::from_text(b"example.org.", None).unwrap();
        let times = Times { activate: Some(1_800_000_000), ..Times::default() };
        let label = "pkcs11:token=a;object=b";
        let key = (Role::ZoneSigning, times);
        let files = KeyFiles::of_token(origin.as_name(), key, (13, vec![7; 64]), label).unwrap();
        let mut key = Key::read(origin.as_name(), &files.public, &files.private).unwrap();
        assert_eq!((key.label(), key.times, key.role()), (Some(label), times, Role::ZoneSigning));
        assert_eq!((key.public_key(), key.algorithm()), (&[7; 64][..], 13));
        assert_eq!(key.sign(b"abc"), None);
        key.connect(Arc::new(Reversing));
        assert_eq!(key.sign(b"abc"), Some(b"cba".to_vec()));
        let other = Times { publish: Some(1_800_000_000), ..times };
        let again = Key::read(origin.as_name(), &files.public, &other.written_into(&files.private)).unwrap();
        assert_eq!((again.label(), again.times), (Some(label), other));
        let broken = files.private.replace("Label: ", "Label: -");
        assert_eq!(Key::read(origin.as_name(), &files.public, &broken).err(), Some(KeyError::Private));
    }

    /// One of 256 keys of `dnssec-keygen` is so: this one was made by it.
    #[test]
    fn a_secret_may_lack_the_zeros_at_its_front() {
        let origin = NameBuf::from_text(b"x.test.", None).unwrap();
        let public = "x.test. IN DNSKEY 257 3 13 LWLsbXvWz7UlrIQ7yTuU9zyxsABX/6v7u9Q8vK0vUs8or9k7HtgZr3Qx jrL0RSjlCckZPkS4yjZyxx/eC+HJmw==\n";
        let private = "Private-key-format: v1.3\nAlgorithm: 13 (ECDSAP256SHA256)\nPrivateKey: mpwbmvNgXVq2r4pFfdZI0IpOERfAU2m9Aw6OM/SsZQ==\n";
        let key = Key::read(origin.as_name(), public, private).unwrap();
        assert_eq!((key.tag(), key.sign(b"abc").map(|signature| signature.len())), (20316, Some(64)));
        let long = private.replace("PrivateKey: ", "PrivateKey: AAAA");
        assert_eq!(Key::read(origin.as_name(), public, &long).err(), Some(KeyError::Private));
    }

    /// Knot's `keymgr` prints no class.
    #[test]
    fn the_length_of_an_rsa_key_is_that_of_its_modulus() {
        let modulus = |first: u8, octets: usize| [vec![first], vec![7; octets - 1]].concat();
        let short = [vec![3, 1, 0, 1], modulus(0x80, 128)].concat();
        let long = [vec![0, 0, 3, 1, 0, 1], modulus(0x40, 256)].concat();
        let cut_off = vec![3, 1, 0];
        assert_eq!([short, long, cut_off].map(|key| rsa_bits(&key)), [Some(1024), Some(2047), None]);
    }

    #[test]
    fn a_key_file_may_lack_its_class() {
        let origin = NameBuf::from_text(b"example.org.", None).unwrap();
        let files = KeyFiles::generate(origin.as_name(), Role::KeySigning, Times::default()).unwrap();
        let read = |public: &str| Key::read(origin.as_name(), public, &files.private).map(|key| key.tag());
        let tag = read(&files.public).unwrap();
        let without = files.public.replace(" IN ", " ");
        assert_ne!(without, files.public);
        assert_eq!(read(&without), Ok(tag));
        assert_eq!(read(&format!("; a DNSKEY of keymgr\n{without}")), Ok(tag));
        assert_eq!(read("example.org. IN A 192.0.2.1\n"), Err(KeyError::Public));
    }

    #[test]
    fn keys_of_zones_with_odd_names_are_read_again() {
        let odd = [r"sp\032ace.", r"semi\;colon.", r"a\\\;b\.c.", r#"q\"uote.\(x\)."#, r"\000\255.", "."];
        for text in odd {
            let origin = NameBuf::from_text(text.as_bytes(), None).unwrap();
            let files = KeyFiles::generate(origin.as_name(), Role::KeySigning, Times::default()).unwrap();
            let key = Key::read(origin.as_name(), &files.public, &files.private);
            assert!(key.is_ok(), "{text}: {key:?} of {}", files.public);
        }
    }
}
