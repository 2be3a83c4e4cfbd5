//! Where names are in the data of records.

use dns_wire::{Name, Rtype};

/// A part of a record's data.
pub(crate) enum Part {
    Octets(usize),
    String,
    Name,
}

/// The data of the types whose names a sender may compress (RFC 3597, 4; RFC 2535 for SIG and NXT); nothing for others, which are copied.
pub(crate) fn layout(rtype: Rtype) -> &'static [Part] {
    use Part::{Name, Octets, String};
    match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME => &[Name],
        Rtype::MD | Rtype::MF | Rtype::MB | Rtype::MG | Rtype::MR => &[Name],
        Rtype::SOA => &[Name, Name, Octets(20)],
        Rtype::MINFO | Rtype::RP => &[Name, Name],
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX => &[Octets(2), Name],
        Rtype::PX => &[Octets(2), Name, Name],
        Rtype::SRV => &[Octets(6), Name],
        Rtype::NAPTR => &[Octets(4), String, String, String, Name],
        Rtype::SIG => &[Octets(18), Name],
        Rtype::NXT => &[Name],
        _ => &[],
    }
}

/// Whether octets may follow the parts of the layout.
pub(crate) fn has_rest(rtype: Rtype) -> bool {
    layout(rtype).is_empty() || matches!(rtype, Rtype::SIG | Rtype::NXT)
}

/// Turns the names in a record's data into lower case, where the canonical form has them so (RFC 4034, 6.2; RFC 6840, 5.1).
pub fn lowercase_names(rtype: Rtype, rdata: &mut [u8]) {
    let mut rest = rdata;
    for part in layout(rtype) {
        let len = match part {
            Part::Octets(count) => *count,
            Part::String => 1 + rest.first().map_or(0, |len| usize::from(*len)),
            Part::Name => Name::split_from(rest).map_or(0, |(name, _)| name.len()),
        };
        let Some((part_octets, tail)) = rest.split_at_mut_checked(len) else { return };
        if matches!(part, Part::Name) {
            part_octets.make_ascii_lowercase(); // Length octets are below 64 and so never letters.
        }
        rest = tail;
    }
}
