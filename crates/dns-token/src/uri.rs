//! URIs of keys (RFC 7512).

use std::fmt::{self, Write};
use std::path::PathBuf;

use thiserror::Error;

/// Which private key of which token, by which module, with which PIN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyUri {
    /// The name of the token.
    pub(crate) token: Option<String>,
    /// Its serial number.
    pub(crate) serial: Option<String>,
    /// The name of the key.
    pub(crate) object: Option<String>,
    /// Its identifier.
    pub(crate) id: Option<Vec<u8>>,
    /// The library of the token's maker.
    pub(crate) module: PathBuf,
    /// A file with the PIN.
    pub(crate) pin_source: Option<PathBuf>,
}

/// Why a text is no URI of a key that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UriError {
    /// It begins with something else.
    #[error("it does not begin with pkcs11:")]
    Scheme,
    /// A part is no `name=value`, or its percent signs are wrong.
    #[error("{0:?} is no name=value with its special characters written as %XX")]
    Form(String),
    /// A part that we do not know, so it may mean another key (RFC 7512, 2.3).
    #[error(
        "{0:?} is not known here: token, serial, object, id and type=private are, then module-path and pin-source"
    )]
    Unknown(String),
    /// A part that is there twice.
    #[error("{0} is there twice")]
    Twice(String),
    /// A part that has to be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The PIN itself.
    #[error("a PIN in a configuration is read by others: write it into a file, and name that by pin-source")]
    PinValue,
}

impl KeyUri {
    /// Reads `pkcs11:token=...;object=...?module-path=...&pin-source=...`.
    ///
    /// # Errors
    /// It is malformed, or does not say which key is meant.
    pub fn parse(text: &str) -> Result<KeyUri, UriError> {
        let rest = text.strip_prefix("pkcs11:").ok_or(UriError::Scheme)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parts = Parts::default();
        path.split(';').try_for_each(|part| parts.add(part, &["token", "serial", "object", "id", "type"]))?;
        query.split('&').try_for_each(|part| parts.add(part, &["module-path", "pin-source"]))?;
        if let Some(kind) = parts.text("type")?.filter(|kind| kind != "private") {
            return Err(UriError::Unknown(format!("type={kind}")));
        }
        let uri = KeyUri {
            token: parts.text("token")?,
            serial: parts.text("serial")?,
            object: parts.text("object")?,
            id: parts.take("id"),
            module: parts.text("module-path")?.ok_or(UriError::Missing("module-path"))?.into(),
            pin_source: parts
                .text("pin-source")?
                .map(|text| text.strip_prefix("file:").unwrap_or(&text).into()),
        };
        if uri.token.is_none() && uri.serial.is_none() {
            return Err(UriError::Missing("token"));
        }
        if uri.object.is_none() && uri.id.is_none() {
            return Err(UriError::Missing("object"));
        }
        Ok(uri)
    }

    /// The same key as another URI names it, by the module and the PIN of this one: those may move while the key stays.
    ///
    /// # Errors
    /// See [`UriError`].
    pub fn with_path_of(&self, text: &str) -> Result<KeyUri, UriError> {
        let path = text.split_once('?').map_or(text, |(path, _)| path);
        let named = KeyUri::parse(&format!("{path}?module-path=/"))?;
        Ok(KeyUri { module: self.module.clone(), pin_source: self.pin_source.clone(), ..named })
    }

    /// What names the key alone: module and PIN are left out.
    pub fn path(&self) -> String {
        let texts = [("token", &self.token), ("serial", &self.serial), ("object", &self.object)];
        let texts = texts.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.as_bytes())));
        let all = texts.chain(self.id.as_ref().map(|id| ("id", &**id)));
        let parts: Vec<String> = all.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        format!("pkcs11:{}", parts.join(";"))
    }
}

/// In the form that [`KeyUri::path`] has: without what only this machine knows.
impl fmt::Display for KeyUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

#[derive(Default)]
struct Parts(Vec<(String, Vec<u8>)>);

impl Parts {
    fn add(&mut self, part: &str, known: &[&str]) -> Result<(), UriError> {
        if part.is_empty() {
            return Ok(());
        }
        let form = || UriError::Form(part.to_owned());
        let (name, value) = part.split_once('=').ok_or_else(form)?;
        if name == "pin-value" {
            return Err(UriError::PinValue);
        }
        if !known.contains(&name) {
            return Err(UriError::Unknown(name.to_owned()));
        }
        if self.0.iter().any(|(other, _)| other == name) {
            return Err(UriError::Twice(name.to_owned()));
        }
        self.0.push((name.to_owned(), decode(value).ok_or_else(form)?));
        Ok(())
    }

    fn take(&self, name: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    }

    fn text(&self, name: &str) -> Result<Option<String>, UriError> {
        let text = |value| String::from_utf8(value).map_err(|_| UriError::Form(name.to_owned()));
        self.take(name).map(text).transpose()
    }
}

/// Percent signs to octets (RFC 3986, 2.1).
fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut octets, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            octets.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        octets.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)?);
        rest = &rest[2..];
    }
    Some(octets)
}

fn encode(octets: &[u8]) -> String {
    let mut text = String::new();
    for octet in octets {
        if octet.is_ascii_alphanumeric() || b"-._~".contains(octet) {
            text.push(char::from(*octet));
        } else {
            write!(text, "%{octet:02X}").expect("a string takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_key_its_module_and_the_file_of_its_pin() {
        let text = "pkcs11:token=My%20token;object=ksk;id=%01%ff;type=private?module-path=/lib/p11.so&pin-source=file:/etc/pin";
        let uri = KeyUri::parse(text).unwrap();
        let expected = KeyUri {
            token: Some("My token".to_owned()),
            serial: None,
            object: Some("ksk".to_owned()),
            id: Some(vec![1, 255]),
            module: "/lib/p11.so".into(),
            pin_source: Some("/etc/pin".into()),
        };
        assert_eq!(uri, expected);
        assert_eq!(uri.path(), "pkcs11:token=My%20token;object=ksk;id=%01%FF");
        assert_eq!(uri.with_path_of(&uri.path()), Ok(uri.clone()));
        let moved = KeyUri { module: "/other".into(), pin_source: None, ..expected.clone() };
        assert_eq!(moved.with_path_of(text), Ok(moved), "a key file may have them from elsewhere");
    }

    #[test]
    fn what_may_mean_another_key_is_refused() {
        let error = |text: &str| KeyUri::parse(text).unwrap_err();
        assert_eq!(error("http:token=a"), UriError::Scheme);
        assert_eq!(error("pkcs11:token=a;object=b"), UriError::Missing("module-path"));
        assert_eq!(error("pkcs11:object=b?module-path=/m"), UriError::Missing("token"));
        assert_eq!(error("pkcs11:token=a?module-path=/m"), UriError::Missing("object"));
        assert_eq!(error("pkcs11:token=a;token=b?module-path=/m"), UriError::Twice("token".to_owned()));
        assert_eq!(error("pkcs11:token=a;object=b;x=1?module-path=/m"), UriError::Unknown("x".to_owned()));
        assert_eq!(error("pkcs11:token=a;object=b?module-path=/m&pin-value=1"), UriError::PinValue);
        for bad in ["token", "token=%", "token=%4", "token=%+1", "token=%ff;object=b"] {
            let text = format!("pkcs11:{bad}?module-path=/m");
            assert!(matches!(error(&text), UriError::Form(_)), "{text}");
        }
        let public = "pkcs11:token=a;object=b;type=public?module-path=/m";
        assert_eq!(error(public), UriError::Unknown("type=public".to_owned()));
    }
}
