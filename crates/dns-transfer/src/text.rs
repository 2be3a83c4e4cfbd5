//! A zone as a zone file, to be read again by a server that starts.

use std::fmt::{self, Write};

use dns_wire::{Name, Rtype};
use dns_zone::text::RdataPrinter;
use dns_zone::{Rrset, Zone};

/// Writes every record, the SOA first.
pub fn write_zone(zone: &Zone, out: &mut impl Write) -> fmt::Result {
    let mut printer = RdataPrinter::default();
    let apex = Name::from_wire(zone.apex().name()).map_err(|_| fmt::Error)?;
    let mut write = |owner: Name<'_>, rrset: Rrset<'_>| {
        let (ttl, rtype) = (rrset.ttl(), rrset.rtype());
        rrset
            .records()
            .try_for_each(|rdata| writeln!(out, "{owner} {ttl} IN {rtype} {}", printer.print(rtype, rdata)))
    };
    write(apex, zone.soa())?;
    for node in zone.nodes() {
        let owner = Name::from_wire(node.name()).map_err(|_| fmt::Error)?;
        node.rrsets()
            .filter(|rrset| rrset.rtype() != Rtype::SOA)
            .try_for_each(|rrset| write(owner, rrset))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use dns_zone::load_zone;
    use dns_zone::text::{Files, Limits, TextFile};

    use super::*;
    use crate::Difference;

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
        assert!(first.contains("\nt.example. 5 IN TXT \"a b\" \"c\"\n"), "{first}");
        assert!(first.contains(" HTTPS 1 . alpn=\"h2\"\n"), "{first}");
        let again = load(&first);
        assert_eq!((text(&again), again.record_count()), (first, zone.record_count()));
    }

    /// Two types of it have no text format.
    #[test]
    fn all_types_are_written_in_their_own_form_and_read_back_as_the_same_octets() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../specs/zones/example.com.zone");
        let source = format!("$ORIGIN example.com.\n{}", std::fs::read_to_string(path).unwrap());
        let zone = load(&source);
        let written = text(&zone);
        assert_eq!(written.matches(" \\# ").count(), 2, "{written}");
        let again = load(&written);
        let difference = Difference::between(&zone, &again, usize::MAX).unwrap();
        assert!(difference.is_nothing(), "{:?}", difference.records().collect::<Vec<_>>());
    }
}
