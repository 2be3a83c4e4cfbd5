//! The words of the command line, in any order, as dig has them.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use dns_client::{Server, Transport, Trust};
use dns_wire::header::flag;
use dns_wire::{Class, NameBuf, Rtype};

use super::answer::{CLIENT_SUBNET, NSID};
use super::question::{Edns, Question};

/// RFC 8484 leaves the path to the server; this is what nearly all have.
const PATH: &str = "/dns-query";
/// What a server may send over UDP: what fits every path (DNS flag day 2020).
const PAYLOAD: u16 = 1232;
/// What is said if nothing else is wanted.
const PLAIN: Edns = Edns { payload: PAYLOAD, dnssec: false, has_cookie: true, options: Vec::new() };
/// For each try.
const PATIENCE: Duration = Duration::from_secs(5);
/// The resolvers of this host.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// AD in a query: the client wants to know whether the data is authentic (RFC 6840, 5.7).
const AD: u16 = 0x0020;

/// What the message about a wrong option says.
const OPTIONS: &str = "+short, +json, +trace, +dnssec, +tcp, +tls, +https[=PATH], +quic, +tls-ca=FILE, +tls-host=NAME, +insecure, \
                       +norecurse, +cd, +noad, +noedns, +nocookie, +bufsize=N, +nsid, +subnet=ADDRESS/LENGTH, +timeout=SECONDS, +ignore";

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Long,
    Short,
    Json,
}

/// What the words say.
#[derive(Clone, Debug)]
pub(super) struct Words {
    server: Option<String>,
    name: NameBuf,
    qtype: Option<Rtype>,
    class: Class,
    flags: u16,
    edns: Edns,
    has_edns: bool,
    path: String,
    certified: Option<String>,
    pub(super) transport: Transport,
    pub(super) trust: Trust,
    pub(super) form: Form,
    pub(super) is_trace: bool,
    /// Whether an answer that is cut is shown as it is.
    pub(super) is_truncation_kept: bool,
    pub(super) patience: Duration,
}

impl Words {
    pub(super) fn read(words: &[String], reverse: Option<IpAddr>) -> anyhow::Result<Words> {
        let mut read = Words {
            server: None,
            name: NameBuf::from(dns_wire::Name::ROOT),
            qtype: None,
            class: Class::IN,
            flags: flag::RD | AD,
            edns: PLAIN,
            has_edns: true,
            path: PATH.to_owned(),
            certified: None,
            transport: Transport::Udp,
            trust: Trust::System,
            form: Form::Long,
            is_trace: false,
            is_truncation_kept: false,
            patience: PATIENCE,
        };
        let mut name = reverse.map(reverse_name);
        for word in words {
            match (word.strip_prefix('@'), word.strip_prefix('+')) {
                (Some(server), _) => read.server = Some(server.to_owned()),
                (_, Some(option)) => read.option(option)?,
                _ => read.plain(word, &mut name)?,
            }
        }
        // As dig has it: no name at all asks for the root's servers.
        let qtype = if reverse.is_some() { Rtype::PTR } else { Rtype::A };
        read.qtype.get_or_insert(if name.is_none() { Rtype::NS } else { qtype });
        let text = name.unwrap_or_else(|| ".".to_owned());
        read.name = NameBuf::from_text(text.as_bytes(), Some(dns_wire::Name::ROOT))
            .map_err(|error| anyhow::anyhow!("{text}: {error}"))?;
        Ok(read)
    }

    /// A name, a type or a class: the first word that is neither type nor class is the name. After it, a word that could be both is a type.
    fn plain(&mut self, word: &str, name: &mut Option<String>) -> anyhow::Result<()> {
        let qtype = Rtype::from_text(word.as_bytes()).filter(|_| self.qtype.is_none());
        match (qtype, Class::from_text(word.as_bytes())) {
            (Some(qtype), _) => self.qtype = Some(qtype),
            (_, Some(class)) => self.class = class,
            _ if name.is_none() => *name = Some(word.to_owned()),
            _ => bail!("{word}: a second name; ask for one at a time"),
        }
        Ok(())
    }

    fn option(&mut self, option: &str) -> anyhow::Result<()> {
        let (key, value) = option.split_once('=').map_or((option, None), |(key, value)| (key, Some(value)));
        match (key, value) {
            ("short", None) => self.form = Form::Short,
            ("json", None) => self.form = Form::Json,
            ("trace", None) => self.is_trace = true,
            ("tcp" | "vc", None) => self.transport = Transport::Tcp,
            ("tls", None) => self.transport = Transport::Tls,
            ("quic", None) => self.transport = Transport::Quic,
            ("https", path) => {
                self.transport = Transport::Https;
                self.path =
                    path.map_or_else(|| PATH.to_owned(), |path| format!("/{}", path.trim_start_matches('/')));
            }
            ("tls-ca", Some(file)) => self.trust = Trust::File(PathBuf::from(file)),
            ("tls-host" | "tls-hostname", Some(name)) => self.certified = Some(name.to_owned()),
            ("insecure", None) => self.trust = Trust::Anybody,
            ("norecurse" | "norec" | "nordflag", None) => self.flags &= !flag::RD,
            ("cd" | "cdflag", None) => self.flags |= flag::CD,
            ("noad" | "noadflag", None) => self.flags &= !AD,
            ("ignore", None) => self.is_truncation_kept = true,
            ("timeout", Some(seconds)) => {
                self.patience = Duration::from_secs(number(key, seconds, 1..=3600)?)
            }
            ("noedns", None) => self.has_edns = false,
            _ => return self.edns_option(key, value),
        }
        Ok(())
    }

    fn edns_option(&mut self, key: &str, value: Option<&str>) -> anyhow::Result<()> {
        let edns = &mut self.edns;
        match (key, value) {
            ("dnssec" | "do", None) => edns.dnssec = true,
            ("bufsize", Some(octets)) => edns.payload = number(key, octets, 512..=65535)? as u16,
            ("nocookie", None) => edns.has_cookie = false,
            ("nsid", None) => edns.options.push((NSID, Vec::new())),
            ("subnet", Some(prefix)) => edns.options.push((CLIENT_SUBNET, subnet(prefix)?)),
            _ => bail!("+{key}: no such option, or not with such a value; there are {OPTIONS}"),
        }
        Ok(())
    }

    pub(super) fn question(&self) -> Question {
        Question {
            name: self.name.clone(),
            qtype: self.qtype.unwrap_or(Rtype::A),
            class: self.class,
            flags: self.flags,
            edns: self.has_edns.then(|| self.edns.clone()),
        }
    }

    /// Whom to ask: `@SERVER`, or the first resolver of this host.
    pub(super) fn server(&self, port: Option<u16>) -> anyhow::Result<Server> {
        let port = port.unwrap_or_else(|| self.transport.port());
        let named = match &self.server {
            Some(server) => server.clone(),
            None => first_resolver()?.to_string(),
        };
        let (address, name) = match IpAddr::from_str(named.trim_matches(['[', ']'])) {
            Ok(address) => (SocketAddr::new(address, port), None),
            Err(_) => (look_up(&named, port)?, Some(named)),
        };
        Ok(Server { address, name: self.certified.clone().or(name), path: self.path.clone() })
    }
}

fn look_up(name: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let mut addresses = (name, port).to_socket_addrs().with_context(|| format!("@{name}"))?;
    addresses.next().with_context(|| format!("@{name}: it has no address"))
}

/// The first `nameserver` of resolv.conf(5).
fn first_resolver() -> anyhow::Result<IpAddr> {
    let text = std::fs::read_to_string(RESOLV_CONF).with_context(|| format!("reading {RESOLV_CONF}"))?;
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let first = servers.filter_map(|words| words.trim().parse().ok()).next();
    first.with_context(|| format!("{RESOLV_CONF} names no server: say @SERVER"))
}

fn number(key: &str, text: &str, range: std::ops::RangeInclusive<u64>) -> anyhow::Result<u64> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.with_context(|| {
        format!("+{key}={text}: expected a number from {} to {}", range.start(), range.end())
    })
}

/// The data of the option for a client's network (RFC 7871, 6), as queries have it: scope 0, and no octet more than needed.
fn subnet(text: &str) -> anyhow::Result<Vec<u8>> {
    let wrong = || format!("+subnet={text}: expected ADDRESS/LENGTH");
    let (address, len) = text.split_once('/').with_context(wrong)?;
    let (family, octets) = match address.parse().with_context(wrong)? {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let bits: u8 =
        len.parse().ok().filter(|bits| usize::from(*bits) <= 8 * octets.len()).with_context(wrong)?;
    let mut kept = octets[..usize::from(bits).div_ceil(8)].to_vec();
    if let Some(last) = kept.last_mut().filter(|_| !bits.is_multiple_of(8)) {
        *last &= 0xff << (8 - bits % 8);
    }
    Ok([&[0, family, bits, 0][..], &kept].concat())
}

/// The name whose PTR record names an address (RFC 1035, 3.5; RFC 3596, 2.5).
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|octet| [octet & 0xf, octet >> 4]);
            nibbles.fold(String::new(), |mut name, nibble| {
                let _ = write!(name, "{nibble:x}."); // A string takes everything.
                name
            }) + "ip6.arpa."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> anyhow::Result<Words> {
        Words::read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), None)
    }

    #[test]
    fn words_may_come_in_any_order() {
        for words in [
            "@127.0.0.1 example.com MX +dnssec",
            "+dnssec mx @127.0.0.1 example.com",
            "example.com IN MX @127.0.0.1 +do",
        ] {
            let read = read(words).unwrap();
            let question = read.question();
            assert_eq!(
                (question.name.to_string(), question.qtype),
                ("example.com.".to_owned(), Rtype::MX),
                "{words}"
            );
            assert!(question.edns.unwrap().dnssec);
            assert_eq!(read.server(Some(5300)).unwrap().address, "127.0.0.1:5300".parse().unwrap());
        }
    }

    #[test]
    fn a_name_alone_is_asked_for_its_address_and_no_name_for_the_roots_servers() {
        assert_eq!(read("example.com").unwrap().question().qtype, Rtype::A);
        let root = read("").unwrap().question();
        assert_eq!((root.name.to_string(), root.qtype), (".".to_owned(), Rtype::NS));
    }

    #[test]
    fn the_port_is_the_transports() {
        for (option, port) in
            [("+tcp", 53), ("+tls", 853), ("+quic", 853), ("+https", 443), ("+https=q", 443)]
        {
            let server = read(&format!("@::1 . {option}")).unwrap().server(None).unwrap();
            assert_eq!(server.address.port(), port, "{option}");
            assert_eq!(server.path, if option == "+https=q" { "/q" } else { PATH });
        }
    }

    #[test]
    fn without_edns_there_is_none_wherever_that_is_said() {
        for words in ["+noedns +nocookie .", ". +nocookie +noedns", "+dnssec +noedns"] {
            assert_eq!(read(words).unwrap().question().edns, None, "{words}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, expected) in [
            ("a.example b.example", "b.example: a second name"),
            ("+shrot", "+shrot: no such option"),
            ("+bufsize=1", "+bufsize=1: expected a number from 512 to 65535"),
            ("+subnet=192.0.2.0/33", "expected ADDRESS/LENGTH"),
            ("a..b", "a..b: "),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }

    #[test]
    fn a_network_has_no_octet_and_no_bit_more_than_needed() {
        assert_eq!(subnet("192.0.2.255/25").unwrap(), [0, 1, 25, 0, 192, 0, 2, 128]);
        assert_eq!(subnet("2001:db8::/32").unwrap(), [0, 2, 32, 0, 0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(subnet("0.0.0.0/0").unwrap(), [0, 1, 0, 0]);
    }

    #[test]
    fn addresses_become_names() {
        assert_eq!(reverse_name("192.0.2.1".parse().unwrap()), "1.2.0.192.in-addr.arpa.");
        let name = reverse_name("2001:db8::1".parse().unwrap());
        assert!(name.starts_with("1.0.0.0.") && name.ends_with(".8.b.d.0.1.0.0.2.ip6.arpa."), "{name}");
    }
}
