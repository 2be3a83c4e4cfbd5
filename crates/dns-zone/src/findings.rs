//! What in a zone is served as it stands, and works badly.

use std::collections::BTreeSet;
use std::fmt;

use dns_wire::{LabelStarts, Name, NameBuf, Rtype};

use crate::builder::target_offset;
use crate::tree::{Node, Zone};

mod digests;
mod signatures;

pub use signatures::SignatureFault;

/// One thing that works badly. Its text says what it is, what comes of it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name at which it is.
    pub owner: NameBuf,
    /// What it is.
    pub kind: FindingKind,
}

/// What can work badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// The origin has no NS record.
    NoServers,
    /// A server below the cut that it serves has no address in this zone.
    MissingGlue(NameBuf),
    /// A record names a host of this zone that has no address.
    NoAddress(Rtype, NameBuf),
    /// A record names an alias (RFC 2181, 10.3).
    Alias(Rtype, NameBuf),
    /// NS records beside a DNAME record below the apex (RFC 6672, 2.3).
    ServersAndDname,
    /// There are records below this DNAME record, such as those of that name (RFC 6672, 2.4).
    BelowDname(NameBuf),
    /// NS records at a wildcard (RFC 4592, 4.2).
    WildcardServers,
    /// A record's digest has another length than the function that it names makes.
    DigestLength {
        /// Of the record.
        rtype: Rtype,
        /// Octets of its digest.
        len: usize,
        /// Octets that it should have.
        expected: usize,
    },
    /// The zone has signatures, and no records that deny.
    NoDenial,
    /// Signatures of this set, and of so many sets altogether, are not as validators want them. This is the first.
    Signatures(SignatureFault, Rtype, usize),
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FindingKind::NoServers => f.write_str(
                "there is no NS record at the origin, so resolvers do not find this zone: add those that its parent has",
            ),
            FindingKind::MissingGlue(host) => write!(
                f,
                "the name server {host} is below this delegation and has no address here, so resolvers cannot reach it: add its A \
                 or AAAA record"
            ),
            FindingKind::NoAddress(rtype, host) => write!(
                f,
                "the {rtype} record names {host}, which has no address, so nobody can reach it: add an A or AAAA record, or name \
                 another host"
            ),
            FindingKind::Alias(rtype, host) => write!(
                f,
                "the {rtype} record names {host}, which is an alias; RFC 2181, 10.3 forbids that, and some resolvers do not follow \
                 it: name the host that the alias leads to"
            ),
            FindingKind::ServersAndDname => f.write_str(
                "there are NS records beside a DNAME record, which RFC 6672, 2.3 forbids below the origin: Knot, for one, refuses to transfer the \
                 whole zone: keep one of the two",
            ),
            FindingKind::BelowDname(name) => write!(
                f,
                "there are records below this DNAME record, such as those of {name}, which RFC 6672, 2.4 forbids: they are never answered, and \
                 Knot and NSD refuse the whole zone for them: remove them"
            ),
            FindingKind::WildcardServers => f.write_str(
                "there are NS records at a wildcard, which means nothing that servers agree on (RFC 4592, 4.2): BIND refuses to load or transfer \
                 the whole zone: delegate each name that is meant",
            ),
            FindingKind::DigestLength { rtype, len, expected } => write!(
                f,
                "the {rtype} record has a digest of {len} octets, and its type of digest has {expected}: it matches nothing, and some secondaries \
                 refuse the whole zone for it: copy it anew"
            ),
            FindingKind::NoDenial => f.write_str(
                "the zone has signatures, and no NSEC records and no NSEC3 records that its NSEC3PARAM names, with at most 500 iterations, so \
                 validators refuse every denial: sign the zone anew",
            ),
            FindingKind::Signatures(fault, rtype, count) => {
                let others = match count - 1 {
                    0 => String::new(),
                    1 => ", as has one other set".to_owned(),
                    others => format!(", as have {others} other sets"),
                };
                match fault {
                    SignatureFault::Missing => write!(
                        f,
                        "the {rtype} set has no signature{others}, though the zone is signed, so validators refuse it: sign the zone anew"
                    ),
                    SignatureFault::Expired => write!(
                        f,
                        "the {rtype} set has no signature that is still valid{others}, so validators refuse it: sign the zone anew"
                    ),
                    SignatureFault::Early => write!(
                        f,
                        "the {rtype} set has a signature that is not valid yet{others}, so validators refuse it: look at the signer's clock"
                    ),
                    SignatureFault::ExpiresSoon => write!(
                        f,
                        "the {rtype} set has a signature that expires within three days{others}: sign the zone anew before that"
                    ),
                }
            }
        }
    }
}

/// Everything that works badly in `zone`: hosts and digests in the order of names, then signatures. `now` is in seconds since 1970, of which signatures know the lower
/// 32 bits.
pub fn findings(zone: &Zone, now: u32) -> impl Iterator<Item = Finding> {
    let no_servers =
        zone.apex().rrset(Rtype::NS).is_none().then(|| finding(zone.apex(), FindingKind::NoServers));
    // What lies below a boundary is for others to answer, or for nobody.
    let nodes = zone.nodes().filter(|node| !node.is_occluded());
    let of_hosts = nodes.flat_map(move |node| {
        let odd = odd_set_at(zone, node).map(|kind| finding(node, kind));
        odd.into_iter().chain(of_node(zone, node)).chain(digests::at_node(node))
    });
    no_servers.into_iter().chain(of_hosts).chain(below_dnames(zone)).chain(signatures::of_zone(zone, now))
}

/// DNAME records below which there are others.
fn below_dnames(zone: &Zone) -> impl Iterator<Item = Finding> {
    // Hashes of names are no names of hosts, and those of a zone with a DNAME record at its apex are below that.
    let has_records =
        |node: &Node<'_>| node.rrsets().any(|rrset| !matches!(rrset.rtype(), Rtype::NSEC3 | Rtype::RRSIG));
    let mut told = BTreeSet::new();
    zone.nodes().filter(|node| node.is_occluded()).filter(has_records).filter_map(move |node| {
        let dname = node.topmost_boundary().filter(|boundary| !boundary.is_cut())?;
        let name = Name::from_wire(node.name()).expect("the tree holds valid names");
        told.insert(dname.id()).then(|| finding(dname, FindingKind::BelowDname(NameBuf::from(name))))
    })
}

/// A set at a name that secondaries of other makes refuse the whole zone for.
pub fn odd_set(zone: &Zone, name: Name<'_>) -> Option<FindingKind> {
    odd_set_at(zone, zone.find(name.as_bytes())?)
}

fn odd_set_at(zone: &Zone, node: Node<'_>) -> Option<FindingKind> {
    node.rrset(Rtype::NS)?;
    let name = Name::from_wire(node.name()).expect("the tree holds valid names");
    if node.rrset(Rtype::DNAME).is_some() && name != zone.origin() {
        return Some(FindingKind::ServersAndDname);
    }
    name.is_wildcard().then_some(FindingKind::WildcardServers)
}

fn of_node<'a>(zone: &'a Zone, node: Node<'a>) -> impl Iterator<Item = Finding> + 'a {
    let kinds = [Rtype::NS, Rtype::MX, Rtype::SRV];
    let rrsets = kinds.into_iter().filter_map(move |rtype| node.rrset(rtype));
    rrsets.flat_map(move |rrset| {
        let at = target_offset(rrset.rtype()).expect("the three types name a host");
        let hosts = rrset.records().filter_map(move |rdata| Name::from_wire(&rdata[at..]).ok());
        hosts.filter_map(move |host| Some(finding(node, of_host(zone, node, rrset.rtype(), host)?)))
    })
}

fn finding(node: Node<'_>, kind: FindingKind) -> Finding {
    let owner = Name::from_wire(node.name()).expect("the tree holds valid names");
    Finding { owner: NameBuf::from(owner), kind }
}

/// What is wrong with a `host` that a record of `owner` names, if this zone can tell.
fn of_host(zone: &Zone, owner: Node<'_>, rtype: Rtype, host: Name<'_>) -> Option<FindingKind> {
    // The root says that there is no such host (RFC 7505, 3; RFC 2782).
    if host.is_root() && rtype != Rtype::NS || !host.ends_with(zone.origin()) {
        return None;
    }
    let encloser = zone.closest_encloser(host.as_bytes(), &LabelStarts::of(host));
    let exact = encloser.name().len() == host.len();
    let has_address = |node: Node<'_>| node.rrset(Rtype::A).or_else(|| node.rrset(Rtype::AAAA)).is_some();
    let is_beyond = |boundary: Node<'_>| boundary.is_cut() || !exact || boundary.id() != encloser.id();
    if let Some(boundary) = encloser.topmost_boundary().filter(|boundary| is_beyond(*boundary)) {
        // The host is the child's, or redirected. The child's servers themselves need glue.
        let needs_glue = rtype == Rtype::NS && boundary.is_cut() && boundary.id() == owner.id();
        let missing = needs_glue && !(exact && has_address(encloser));
        return missing.then(|| FindingKind::MissingGlue(NameBuf::from(host)));
    }
    match if exact { Some(encloser) } else { encloser.wildcard() } {
        Some(node) if node.has_cname() => Some(FindingKind::Alias(rtype, NameBuf::from(host))),
        Some(node) if has_address(node) => None,
        _ => Some(FindingKind::NoAddress(rtype, NameBuf::from(host))),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::*;
    use crate::load_zone;
    use crate::text::{Files, Limits, TextFile};

    struct Only<'t>(&'t str);

    impl Files for Only<'_> {
        fn open(&mut self, _: &Path) -> io::Result<TextFile> {
            Ok(format!("$TTL 60\n@ SOA ns h 1 2 3 4 5\n{}", self.0).into_bytes().into())
        }
    }

    fn found(text: &str) -> Vec<String> {
        let zone = load_zone(&mut Only(text), Path::new("test.zone"), None, &Limits::default(), 1).unwrap();
        let all = findings(&zone, 0).map(|found| {
            let kind = match &found.kind {
                FindingKind::NoServers => "no servers".to_owned(),
                FindingKind::MissingGlue(host) => format!("glue {host}"),
                FindingKind::NoAddress(rtype, host) => format!("address {rtype} {host}"),
                FindingKind::Alias(rtype, host) => format!("alias {rtype} {host}"),
                FindingKind::ServersAndDname => "servers and DNAME".to_owned(),
                FindingKind::BelowDname(name) => format!("above {name}"),
                FindingKind::WildcardServers => "wildcard servers".to_owned(),
                FindingKind::DigestLength { rtype, len, expected } => {
                    format!("digest {rtype} {len} {expected}")
                }
                FindingKind::NoDenial => "no denial".to_owned(),
                FindingKind::Signatures(fault, rtype, _) => format!("{fault:?} {rtype}"),
            };
            format!("{} {kind}", found.owner)
        });
        all.collect()
    }

    #[test]
    fn a_good_zone_has_none() {
        let text = "@ NS ns\n@ NS ns.elsewhere.\n@ MX 1 mail.w\n@ MX 9 host.sub\nns A 192.0.2.1\n*.w AAAA 2001:db8::1\n\
                    sub NS ns.sub\nsub NS ns\nns.sub A 192.0.2.2\nnull MX 0 .\n_x._tcp SRV 0 0 0 .\nd DNAME e\n@ MX 2 a.d\n";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn a_delegation_needs_the_addresses_of_servers_below_it() {
        let text = "@ NS ns\nns A 192.0.2.1\nsub NS ns.sub\nsub NS sub\nsub NS ns.other\nother NS ns\nother NS a.sub\nns.sub TXT x\n";
        assert_eq!(found(text), ["sub.test. glue ns.sub.test.", "sub.test. glue sub.test."]);
    }

    #[test]
    fn hosts_need_addresses_and_are_no_aliases() {
        let text = "@ NS ns\n@ NS nowhere\n@ MX 1 alias\n@ MX 1 empty\nns A 192.0.2.1\nalias CNAME ns\nempty TXT x\n\
                    s SRV 0 0 1 wild.w\n*.w CNAME ns\nsub NS alias\n";
        let expected = [
            "test. address NS nowhere.test.",
            "test. alias MX alias.test.",
            "test. address MX empty.test.",
            "s.test. alias SRV wild.w.test.",
            "sub.test. alias NS alias.test.",
        ];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn digests_have_the_length_that_their_function_makes() {
        let hex = |octets: usize| "AB".repeat(octets);
        let zone = |over: usize| {
            let (sha1, sha256, sha384) = (hex(20 + over), hex(32 + over), hex(48 + over));
            format!(
                "@ NS ns\nns A 192.0.2.1\nsub NS ns\nsub DS 1 13 2 {sha256}\nsub DS 1 13 1 {}\n@ CDS 0 0 0 00\nnew DS 1 13 200 AB\n\
                 s SSHFP 4 1 {sha1}\nt TLSA 3 1 1 {sha256}\nt TLSA 3 1 0 ABCD\n@ ZONEMD 1 1 1 {sha384}\n",
                hex(20)
            )
        };
        assert_eq!(found(&zone(0)), Vec::<String>::new());
        let expected = [
            "test. digest ZONEMD 49 48",
            "s.test. digest SSHFP 21 20",
            "sub.test. digest DS 33 32",
            "t.test. digest TLSA 33 32",
        ];
        let mut all = found(&zone(1));
        all.sort();
        assert_eq!(all, {
            let mut expected = expected.map(str::to_owned).to_vec();
            expected.sort();
            expected
        });
    }

    #[test]
    fn servers_stand_neither_beside_a_dname_below_the_apex_nor_at_a_wildcard() {
        let text = "@ NS ns.elsewhere.\n@ DNAME x.elsewhere.\n";
        assert_eq!(found(text), Vec::<String>::new(), "at the apex a zone has to have them");
        let text = "@ NS ns.elsewhere.\nd NS ns.elsewhere.\nd DNAME x.elsewhere.\n*.w NS ns.elsewhere.\n*.t TXT x\ne DNAME x.elsewhere.\n";
        assert_eq!(found(text), ["d.test. servers and DNAME", "*.w.test. wildcard servers"]);
    }

    #[test]
    fn there_is_nothing_below_a_dname() {
        let text = "@ NS ns.elsewhere.\nd DNAME x.elsewhere.\na.d TXT x\nb.d TXT x\nd.c NS ns.elsewhere.\na.d.c DNAME x.elsewhere.\nb.a.d.c TXT x\n";
        assert_eq!(found(text), ["d.test. above a.d.test."], "what is below a cut is not this zone's");
        let text = "@ NS ns.elsewhere.\n@ DNAME x.elsewhere.\nA.e A 192.0.2.1\n0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 0 0 - 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom\n";
        assert_eq!(found(text), ["test. above A.e.test."]);
    }

    #[test]
    fn a_zone_without_servers_is_not_found() {
        assert_eq!(found("a A 192.0.2.1\n"), ["test. no servers"]);
    }
}
