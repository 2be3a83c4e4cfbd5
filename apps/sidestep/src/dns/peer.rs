//! Other servers, as `primaries` and `notify` name them: where one is, and the key that it shares with this one.

use std::fmt;
use std::net::SocketAddr;

use anyhow::bail;
use dns_transfer::Keys;
use dns_wire::NameBuf;

use super::config::{parse_address, parse_domain};

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The name of the key that signs what is sent there.
    pub(crate) key: Option<NameBuf>,
}

/// In the form that [`peers`] reads, with the port.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.key.as_ref().map_or(Ok(()), |key| write!(f, " key {key}"))
    }
}

/// Reads `ADDRESS` or `ADDRESS key NAME`; an address may have a port.
pub(crate) fn peers(
    option: &'static str,
    texts: &[String],
    port: u16,
    keys: &Keys,
) -> anyhow::Result<Vec<Peer>> {
    texts.iter().map(|text| peer(option, text, port, keys)).collect()
}

fn peer(option: &'static str, text: &str, port: u16, keys: &Keys) -> anyhow::Result<Peer> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (address, key) = match words[..] {
        [address] => (address, None),
        [address, "key", name] => (address, Some(known_key(option, name, keys)?)),
        _ => bail!(
            "{option}: {text:?} is neither an address, such as 192.0.2.1, nor one with the name of a [[key]], such as \"192.0.2.1 key NAME\""
        ),
    };
    Ok(Peer { address: parse_address(option, address, port)?, key })
}

/// The name of a key, which has to be there.
pub(crate) fn known_key(option: &'static str, text: &str, keys: &Keys) -> anyhow::Result<NameBuf> {
    let name = parse_domain(option, text)?;
    if keys.get(name.as_name()).is_none() {
        bail!("{option}: there is no [[key]] of the name {name}");
    }
    Ok(name)
}
