//! One module, sessions with its tokens, and the keys that were found there. All of it belongs to one thread.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::AuthPin;
use ring::digest;

use crate::{KeyUri, PublicKey, TokenError};

/// What a key signs before it signs anything else.
const PROBE: &[u8] = b"a key signs what its public key verifies";

/// One module.
pub(crate) struct Module {
    path: PathBuf,
    /// The library, once it has begun.
    library: Option<Pkcs11>,
    sessions: HashMap<Slot, Session>,
    /// Private keys that have shown to be those of these public keys.
    keys: HashMap<(KeyUri, Vec<u8>), (Slot, ObjectHandle)>,
    /// For each token, by its serial number, the digest of the PIN that it has refused.
    refused: HashMap<String, Vec<u8>>,
}

impl Module {
    /// The module at a path, which is loaded when it is first used.
    pub(crate) fn new(path: PathBuf) -> Module {
        Module {
            path,
            library: None,
            sessions: HashMap::new(),
            keys: HashMap::new(),
            refused: HashMap::new(),
        }
    }

    /// The library: one that could not be loaded may have come.
    fn library(&mut self) -> Result<&Pkcs11, TokenError> {
        if self.library.is_none() {
            let failed =
                |error: Error| TokenError::Module { module: self.path.clone(), error: error.to_string() };
            let library = Pkcs11::new(&self.path).map_err(failed)?;
            library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)).map_err(failed)?;
            self.library = Some(library);
        }
        Ok(self.library.as_ref().expect("it was put there"))
    }

    /// Ends the library, so that its next use begins it anew: some, as SoftHSM, look for tokens then alone. No session is in use, as all calls
    /// come one after the other, and those that are open are opened again when they are needed.
    pub(crate) fn end(&mut self) {
        self.forget();
        if let Some(library) = self.library.take() {
            // One that has not ended says so when it is to begin.
            let _ = library.finalize();
        }
    }

    /// The public key of a name.
    pub(crate) fn public_key(&mut self, uri: &KeyUri) -> Result<PublicKey, TokenError> {
        let slot = self.open(uri)?;
        let mut keys = self.find(slot, uri).inspect_err(|_| self.forget())?;
        match keys.len() {
            1 => Ok(keys.remove(0).1),
            count => Err(TokenError::Ambiguous(count)),
        }
    }

    /// A signature by the key of a name that has this public key, whatever others have its name.
    pub(crate) fn sign(
        &mut self,
        uri: &KeyUri,
        public: &PublicKey,
        octets: &[u8],
    ) -> Result<Vec<u8>, TokenError> {
        let (slot, key) = self.key(uri, public)?;
        let session = self.sessions.get(&slot).ok_or(TokenError::NoKey)?;
        sign(session, key, public, octets).inspect_err(|_| self.forget())
    }

    /// Ends all sessions: a token that was away has other ones, and other handles.
    fn forget(&mut self) {
        self.keys.clear();
        self.sessions.clear();
    }

    fn key(&mut self, uri: &KeyUri, public: &PublicKey) -> Result<(Slot, ObjectHandle), TokenError> {
        let place = (uri.clone(), public.octets.clone());
        if let Some(key) = self.keys.get(&place) {
            return Ok(*key);
        }
        let found = self.find_signing(uri, public).inspect_err(|_| self.forget())?;
        self.keys.insert(place, found);
        Ok(found)
    }

    fn find_signing(&mut self, uri: &KeyUri, public: &PublicKey) -> Result<(Slot, ObjectHandle), TokenError> {
        let slot = self.open(uri)?;
        for (key, own) in self.find(slot, uri)? {
            let session = self.sessions.get(&slot).ok_or(TokenError::NoKey)?;
            // What lies beside a private key may be the public key of another one.
            if own == *public && public.verifies(PROBE, &sign(session, key, public, PROBE)?) {
                return Ok((slot, key));
            }
        }
        Err(TokenError::OtherKey)
    }

    /// Opens a session with the token, and logs in.
    fn open(&mut self, uri: &KeyUri) -> Result<Slot, TokenError> {
        let (slot, token) = self.token(uri)?;
        if !self.sessions.contains_key(&slot) {
            let session = self.library()?.open_ro_session(slot).map_err(told)?;
            if token.login_required() {
                self.log_in(&session, &token, uri)?;
            }
            self.sessions.insert(slot, session);
        }
        Ok(slot)
    }

    fn token(&mut self, uri: &KeyUri) -> Result<(Slot, TokenInfo), TokenError> {
        let is_named =
            |named: &Option<String>, own: &str| named.as_ref().is_none_or(|name| name == own.trim_end());
        let library = self.library()?;
        for slot in library.get_slots_with_token().map_err(told)? {
            let Ok(token) = library.get_token_info(slot) else { continue };
            if is_named(&uri.token, token.label()) && is_named(&uri.serial, token.serial_number()) {
                return Ok((slot, token));
            }
        }
        Err(TokenError::NoToken(uri.module.clone()))
    }

    /// Tries each PIN once: a token locks itself after some wrong ones.
    fn log_in(&mut self, session: &Session, token: &TokenInfo, uri: &KeyUri) -> Result<(), TokenError> {
        let path = uri.pin_source.as_ref().ok_or(TokenError::NoPin)?;
        let text = fs::read_to_string(path);
        let unread =
            |error: std::io::Error| TokenError::PinSource { path: path.clone(), error: error.to_string() };
        let pin = text.map_err(unread)?.trim_end_matches(['\r', '\n']).to_owned();
        let digest = digest::digest(&digest::SHA256, pin.as_bytes()).as_ref().to_vec();
        let serial = token.serial_number().to_owned();
        if self.refused.get(&serial) == Some(&digest) {
            return Err(TokenError::WrongPin);
        }
        if token.user_pin_locked() {
            return Err(TokenError::AlmostLocked("is locked"));
        }
        // After a restart nobody knows which PIN it was that the token has refused.
        if token.user_pin_final_try() {
            return Err(TokenError::AlmostLocked("locks itself at the next wrong PIN"));
        }
        match session.login(UserType::User, Some(&AuthPin::from(pin))) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => {
                self.refused.remove(&serial);
                Ok(())
            }
            Err(Error::Pkcs11(RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange, _)) => {
                self.refused.insert(serial, digest);
                Err(TokenError::WrongPin)
            }
            Err(Error::Pkcs11(RvError::PinLocked, _)) => Err(TokenError::AlmostLocked("is locked")),
            Err(error) => Err(TokenError::LogIn(told(error).to_string())),
        }
    }

    /// The private keys of a name that have a public key beside them, with that.
    fn find(&self, slot: Slot, uri: &KeyUri) -> Result<Vec<(ObjectHandle, PublicKey)>, TokenError> {
        const KEYS_MAX: usize = 16;
        let session = self.sessions.get(&slot).ok_or(TokenError::NoKey)?;
        let named = |class| {
            let label = uri.object.as_ref().map(|name| Attribute::Label(name.clone().into_bytes()));
            let id = uri.id.clone().map(Attribute::Id);
            [Attribute::Class(class)].into_iter().chain(label).chain(id).collect::<Vec<_>>()
        };
        let private = session.find_objects(&named(ObjectClass::PRIVATE_KEY)).map_err(told)?;
        let (mut keys, mut is_unusable) = (Vec::new(), false);
        for key in private.into_iter().take(KEYS_MAX) {
            let id = id_of(session, key)?;
            let mut wanted = named(ObjectClass::PUBLIC_KEY);
            if uri.id.is_none() {
                wanted.extend(id.filter(|id| !id.is_empty()).map(Attribute::Id));
            }
            for public in session.find_objects(&wanted).map_err(told)?.into_iter().take(KEYS_MAX) {
                match public_of(session, public)? {
                    Some(public) => keys.push((key, public)),
                    None => is_unusable = true,
                }
            }
        }
        match keys.is_empty() {
            true if is_unusable => Err(TokenError::Algorithm),
            true => Err(TokenError::NoKey),
            false => Ok(keys),
        }
    }
}

fn id_of(session: &Session, key: ObjectHandle) -> Result<Option<Vec<u8>>, TokenError> {
    let attributes = session.get_attributes(key, &[AttributeType::Id]).map_err(told)?;
    Ok(attributes.into_iter().find_map(|attribute| match attribute {
        Attribute::Id(id) => Some(id),
        _ => None,
    }))
}

/// `None` if we cannot use it.
fn public_of(session: &Session, key: ObjectHandle) -> Result<Option<PublicKey>, TokenError> {
    let wanted = [
        AttributeType::KeyType,
        AttributeType::EcParams,
        AttributeType::EcPoint,
        AttributeType::Modulus,
        AttributeType::PublicExponent,
    ];
    let (mut kind, mut octets) = (None, HashMap::new());
    for attribute in session.get_attributes(key, &wanted).map_err(told)? {
        match attribute {
            Attribute::KeyType(own) => kind = Some(own),
            Attribute::EcParams(own) => drop(octets.insert("parameters", own)),
            Attribute::EcPoint(own) => drop(octets.insert("point", own)),
            Attribute::Modulus(own) => drop(octets.insert("modulus", own)),
            Attribute::PublicExponent(own) => drop(octets.insert("exponent", own)),
            _ => {}
        }
    }
    let pair = |one, other| Some((octets.get(one)?, octets.get(other)?));
    Ok(match kind {
        Some(KeyType::EC) => {
            pair("parameters", "point").and_then(|(curve, point)| PublicKey::on_curve(curve, point))
        }
        Some(KeyType::RSA) => pair("modulus", "exponent").and_then(|(n, e)| PublicKey::of_rsa(n, e)),
        _ => None,
    })
}

fn sign(
    session: &Session,
    key: ObjectHandle,
    public: &PublicKey,
    octets: &[u8],
) -> Result<Vec<u8>, TokenError> {
    let hashed = |algorithm| {
        let digest = digest::digest(algorithm, octets);
        session.sign(&Mechanism::Ecdsa, key, digest.as_ref()).map_err(told)
    };
    match public.algorithm {
        PublicKey::ECDSAP256SHA256 => hashed(&digest::SHA256),
        PublicKey::ECDSAP384SHA384 => hashed(&digest::SHA384),
        PublicKey::RSASHA256 => session.sign(&Mechanism::Sha256RsaPkcs, key, octets).map_err(told),
        _ => Err(TokenError::Algorithm),
    }
}

fn told(error: Error) -> TokenError {
    match error {
        // The library explains it in paragraphs.
        Error::Pkcs11(error, function) => TokenError::Pkcs11(format!("{function:?}: {error:?}")),
        error => TokenError::Pkcs11(error.to_string()),
    }
}
