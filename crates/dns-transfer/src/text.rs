//! A zone as a zone file, to be read again by a server that starts.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use dns_wire::{Name, Rtype};
use dns_zone::Zone;

use dns_message::soa_numbers;

/// Writes every record, the SOA first. Data of many types has the form of RFC 3597, 5, which is octets in base 16.
pub fn write_zone(zone: &Zone, out: &mut impl Write) -> fmt::Result {
    let apex = Name::from_wire(zone.apex().name()).map_err(|_| fmt::Error)?;
    for rdata in zone.soa().records() {
        write_record(out, apex, zone.soa().ttl(), Rtype::SOA, rdata)?;
    }
    for node in zone.nodes() {
        let owner = Name::from_wire(node.name()).map_err(|_| fmt::Error)?;
        for rrset in node.rrsets().filter(|rrset| rrset.rtype() != Rtype::SOA) {
            for rdata in rrset.records() {
                write_record(out, owner, rrset.ttl(), rrset.rtype(), rdata)?;
            }
        }
    }
    Ok(())
}

fn write_record(out: &mut impl Write, owner: Name<'_>, ttl: u32, rtype: Rtype, rdata: &[u8]) -> fmt::Result {
    write!(out, "{owner} {ttl} IN {rtype} ")?;
    match plain(rtype, rdata) {
        Some(text) => out.write_str(&text)?,
        None => {
            write!(out, "\\# {} ", rdata.len())?;
            rdata.iter().try_for_each(|octet| write!(out, "{octet:02x}"))?;
        }
    }
    out.write_char('\n')
}

/// The data in its type's own form, for types that people look for most.
fn plain(rtype: Rtype, rdata: &[u8]) -> Option<String> {
    match rtype {
        Rtype::A => Some(Ipv4Addr::from(*rdata.first_chunk::<4>()?).to_string()),
        Rtype::AAAA => Some(Ipv6Addr::from(*rdata.first_chunk::<16>()?).to_string()),
        Rtype::NS | Rtype::CNAME | Rtype::PTR => Some(Name::from_wire(rdata).ok()?.to_string()),
        Rtype::MX => {
            let (preference, exchange) = rdata.split_first_chunk::<2>()?;
            Some(format!("{} {}", u16::from_be_bytes(*preference), Name::from_wire(exchange).ok()?))
        }
        Rtype::SOA => {
            let (mname, rest) = Name::split_from(rdata).ok()?;
            let (rname, _) = Name::split_from(rest).ok()?;
            let [serial, refresh, retry, expire, minimum] = soa_numbers(rdata)?;
            Some(format!("{mname} {rname} {serial} {refresh} {retry} {expire} {minimum}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use dns_zone::load_zone;
    use dns_zone::text::{Files, Limits, TextFile};

    use super::*;

    struct Only(String);

    impl Files for Only {
        fn open(&mut self, _: &Path) -> io::Result<TextFile> {
            Ok(self.0.clone().into_bytes().into())
        }
    }

    fn load(text: &str) -> Zone {
        let loaded =
            load_zone(&mut Only(text.to_owned()), Path::new("example.zone"), None, &Limits::default(), 1);
        loaded.unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn text(zone: &Zone) -> String {
        let mut text = String::new();
        write_zone(zone, &mut text).unwrap();
        text
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same_zone() {
        let zone = load(
            "@ 60 SOA ns host 1 2 3 4 5\n@ NS ns\n@ MX 10 m\\.ail\nns A 192.0.2.1\nns AAAA 2001:db8::1\nt 5 TXT \"a b\" c\n\
             c CNAME @\n*.w SRV 0 0 53 ns\n_x CAA 0 issue \"ca\"\nu TYPE65280 \\# 2 abcd\ne TYPE65281 \\# 0\nh HTTPS 1 . alpn=h2\n",
        );
        let first = text(&zone);
        assert!(first.starts_with("example. 60 IN SOA ns.example. host.example. 1 2 3 4 5\n"), "{first}");
        let again = load(&first);
        assert_eq!((text(&again), again.record_count()), (first, zone.record_count()));
    }
}
