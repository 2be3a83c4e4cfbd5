//! Options that an answer carries beside those of `dns-auth`: they depend on the client or the connection, or are seldom asked for.

use arrayvec::ArrayVec;
use clock::Duration;
use dns_auth::{Catalog, Prepared, ServedZone};
use dns_guard::COOKIE;
use dns_wire::{Edns, Query, Rtype};

use crate::guard::Cookie;

/// Octets of one option of each kind, with codes and lengths.
const OCTETS_MAX: usize = (4 + size_of::<Cookie>()) + (4 + 2) + (4 + 6);

/// Whether a query has the option that asks how long a TCP connection may be idle (RFC 7828).
pub fn asks_for_keepalive(message: &[u8]) -> bool {
    Query::parse(message).is_ok_and(|query| query.edns.is_some_and(|edns| edns.more.keepalive()))
}

/// Whole options, one behind the other.
#[derive(Default)]
pub(crate) struct Extras(ArrayVec<u8, OCTETS_MAX>);

impl Extras {
    /// The options, empty if there are none.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Adds a cookie (RFC 7873, 4), if there is one.
    pub(crate) fn push_cookie(&mut self, cookie: Option<Cookie>) {
        if let Some(cookie) = cookie {
            self.push(COOKIE, &cookie);
        }
    }

    /// Adds the time for which a connection may be idle, in units of 100 ms (RFC 7828, 3.1).
    pub(crate) fn push_keepalive(&mut self, idle: Duration) {
        let tenths = u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX);
        self.push(Edns::KEEPALIVE, &tenths.to_be_bytes());
    }

    /// Adds the version of the zone that answers (RFC 9660, 2), if one does: its number of labels, the type of version, and the serial of its
    /// SOA.
    pub(crate) fn push_zone_version(&mut self, catalog: &Catalog, prepared: &Prepared, message: &[u8]) {
        const SOA_SERIAL: u8 = 0;
        let zone = prepared.query().and_then(|query| answering_zone(catalog, prepared, query, message));
        let Some(serial) = zone.and_then(|zone| zone.tree().ok()).map(|tree| tree.serial().to_be_bytes())
        else {
            return;
        };
        let labels = zone.map_or(0, |zone| zone.origin().label_count()) as u8; // At most 127.
        let [a, b, c, d] = serial;
        self.push(Edns::ZONE_VERSION, &[labels, SOA_SERIAL, a, b, c, d]);
    }

    fn push(&mut self, code: u16, data: &[u8]) {
        let (code, len) = (code.to_be_bytes(), (data.len() as u16).to_be_bytes());
        self.0.extend([&code[..], &len, data].into_iter().flatten().copied());
    }
}

/// The zone of the question's name. The DS records of a zone are its parent's, if that is served.
fn answering_zone<'c>(
    catalog: &'c Catalog,
    prepared: &Prepared,
    query: &Query,
    message: &[u8],
) -> Option<&'c ServedZone> {
    let zone = &**catalog.zone(prepared.zone()?);
    let qname = query.qname(message);
    let is_of_parent = query.qtype == Rtype::DS && zone.origin() == qname;
    let parent = qname.parent().filter(|_| is_of_parent).and_then(|parent| catalog.find(parent));
    Some(parent.unwrap_or(zone))
}

/// Whether a query has an OPT record that asks for something.
#[inline(always)]
pub(crate) fn asks(prepared: &Prepared, wanted: impl Fn(&Edns) -> bool) -> bool {
    prepared.query().is_some_and(|query| query.edns.as_ref().is_some_and(wanted))
}
