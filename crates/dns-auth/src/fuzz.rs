//! One entry for fuzzers, and the strict parser of answers that fuzzers and tests use.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use dns_wire::header::{HEADER_LEN, flag};
use dns_wire::{Name, NameBuf, Rcode, Rtype};
use dns_zone::text::{Files, Limits, Record as ZoneRecord, TextFile, read_zone};
use dns_zone::{Zone, ZoneBuilder};

use crate::compile::compile;
use crate::due::{Due, due};
use crate::table::Tables;
use crate::{Catalog, Counters, Outcome, Responder, ServedZone, Settings, Transport};

/// Answers `data` over UDP and TCP, from compiled answers and from the tree, and checks what every answer has to be.
///
/// # Panics
/// If an answer is wrong: that is what fuzzers look for.
pub fn fuzz_message(data: &[u8]) {
    const DIRT: &[u8] = b"\0\0\0\0\0\x01\0\0\0\0\0\0\x01x\x01d\x07example\0\0\x01\0\x01";
    if data.len() > 65_535 {
        return;
    }
    let [compiled, tree] = catalogs();
    let settings = Arc::new(Settings {
        version: Some("fuzzed".to_owned()),
        nsid: Some(vec![b'n'; 200]),
        ..Settings::default()
    });
    let new = || Responder::new(Arc::clone(&settings), Arc::new(Counters::default()));
    for transport in [Transport::Udp, Transport::Tcp] {
        let limit = if transport == Transport::Udp { usize::from(settings.udp_payload_max) } else { 65_535 };
        let answer = respond(&mut new(), compiled, data, transport);
        // What a responder answered before must leave no trace.
        let mut used = new();
        respond(&mut used, tree, DIRT, transport);
        assert_eq!(answer, respond(&mut used, tree, data, transport), "table and tree differ");
        check_is_due(data, answer.as_deref());
        answer.iter().for_each(|answer| check_reply(data, answer, limit));
    }
}

/// Checks that `data` gets the kind of answer that it is due.
fn check_is_due(data: &[u8], answer: Option<&[u8]>) {
    let due = due(data);
    let Some(answer) = answer else {
        return assert_eq!(due, Due::Nothing, "dropped without reason");
    };
    let rcode = Reply::read(answer).expect("an answer is a message").rcode();
    let is = |wanted: Rcode| rcode == wanted as u16;
    match due {
        Due::Nothing => panic!("an answer to what is no query"),
        Due::NotImp => assert!(is(Rcode::NotImp), "code {rcode} for an unknown opcode"),
        Due::FormErr => assert!(is(Rcode::FormErr), "code {rcode} for a malformed message"),
        Due::BadVers => assert!(is(Rcode::BadVers), "code {rcode} for an unknown version of EDNS"),
        Due::Answer => assert!(!is(Rcode::FormErr) && !is(Rcode::BadVers), "code {rcode} for a query"),
    }
}

/// The answer to one message, if there is one.
fn respond(
    responder: &mut Responder,
    catalog: &Catalog,
    query: &[u8],
    transport: Transport,
) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_535];
    buffer[..query.len()].copy_from_slice(query);
    match responder.respond(catalog, &mut buffer, query.len(), transport, [192, 0, 2, 1].into()) {
        Outcome::Reply(len) => Some(buffer[..len].to_vec()),
        Outcome::Drop(_) => None,
    }
}

/// Checks what holds for every answer, whatever it says.
///
/// # Panics
/// If `answer` cannot be an answer to `query`.
pub fn check_reply(query: &[u8], answer: &[u8], limit: usize) {
    assert!(answer.len() <= limit, "{} octets of {limit}", answer.len());
    let reply = Reply::read(answer).expect("an answer is a message");
    let asked = u16::from_be_bytes([query[2], query[3]]);
    assert_eq!(answer[..2], query[..2], "the ID");
    let kept = flag::OPCODE | flag::RD | flag::CD;
    assert_eq!(reply.flags & kept, asked & kept, "flags that are copied");
    assert_eq!(
        reply.flags & !(kept | flag::QR | flag::AA | flag::TC | 0xf),
        0,
        "flags that mean nothing here"
    );
    assert_ne!(reply.flags & flag::QR, 0, "QR");
    assert!(Rcode::ALL.iter().any(|rcode| *rcode as u16 == reply.rcode()), "code {}", reply.rcode());
    if reply.question.is_empty() {
        let records = reply.sections.iter().flatten().count();
        assert_eq!(records, 0, "without a question there is nothing else, but for OPT");
    } else {
        assert!(query[HEADER_LEN..].starts_with(&reply.question), "the question, in its own spelling");
        let class = *reply.question.last_chunk::<2>().expect("a question has a class");
        let mut records = reply.sections.iter().flatten();
        assert!(records.all(|record| record.class == u16::from_be_bytes(class)), "the question's class");
    }
    if reply.opt.is_none() {
        assert!(limit == 65_535 || answer.len() <= 512, "{} octets without EDNS", answer.len());
    }
    assert!(limit < 65_535 || reply.flags & flag::TC == 0, "TC over TCP");
}

/// An answer, taken apart: names are whole again, wherever they were compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The second word of the header.
    pub flags: u16,
    /// Name, type and class; empty if there was no question.
    pub question: Vec<u8>,
    /// Answer, authority, additional without OPT.
    pub sections: [Vec<Record>; 3],
    /// The OPT record.
    pub opt: Option<Record>,
}

/// A record of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// In wire format, spelled as in the message.
    pub owner: Vec<u8>,
    /// TYPE.
    pub rtype: Rtype,
    /// CLASS.
    pub class: u16,
    /// TTL.
    pub ttl: u32,
    /// RDATA, names not compressed.
    pub rdata: Vec<u8>,
    /// Offset of the first octet behind it.
    pub end: usize,
}

impl Reply {
    /// Reads a whole message and takes nothing that RFC 1035, RFC 3597, 4 and RFC 6891 do not allow in an answer.
    pub fn read(message: &[u8]) -> Result<Reply, &'static str> {
        let mut reader = Reader { message, at: 0 };
        reader.take(2)?;
        let flags = reader.number()?;
        let counts = [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
        let question = match counts[0] {
            0 => Vec::new(),
            1 => [reader.name(false)?, reader.take(4)?.to_vec()].concat(),
            _ => return Err("more than one question"),
        };
        let mut reply = Reply { flags, question, sections: Default::default(), opt: None };
        for (section, count) in counts[1..].iter().enumerate() {
            for _ in 0..*count {
                let record = reader.record()?;
                if record.rtype != Rtype::OPT {
                    reply.sections[section].push(record);
                } else if section != 2 || reply.opt.replace(record).is_some() {
                    return Err("an OPT record too many, or out of place");
                }
            }
        }
        if reader.at == message.len() { Ok(reply) } else { Err("octets behind the last record") }
    }

    /// The response code with its upper bits from the OPT record.
    pub fn rcode(&self) -> u16 {
        let high = self.opt.as_ref().map_or(0, |opt| (opt.ttl >> 24) as u16);
        high << 4 | self.flags & 0xf
    }
}

struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl<'m> Reader<'m> {
    fn take(&mut self, len: usize) -> Result<&'m [u8], &'static str> {
        let taken = self.message.get(self.at..self.at + len).ok_or("cut short")?;
        self.at += len;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, &'static str> {
        self.take(2).map(|octets| u16::from_be_bytes([octets[0], octets[1]]))
    }

    fn record(&mut self) -> Result<Record, &'static str> {
        let owner = self.name(true)?;
        let (rtype, class) = (Rtype(self.number()?), self.number()?);
        let ttl = u32::from(self.number()?) << 16 | u32::from(self.number()?);
        let end = usize::from(self.number()?) + self.at;
        let rdata = self.rdata(rtype, end)?;
        if self.at != end {
            return Err("RDLENGTH is not the length of the data");
        }
        Ok(Record { owner, rtype, class, ttl, rdata, end })
    }

    fn rdata(&mut self, rtype: Rtype, end: usize) -> Result<Vec<u8>, &'static str> {
        let plain_name = |octets| Name::from_wire(octets).map(|name| name.as_bytes().to_vec());
        Ok(match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR => self.name(true)?,
            Rtype::MX => [self.take(2)?.to_vec(), self.name(true)?].concat(),
            Rtype::SOA => [self.name(true)?, self.name(true)?, self.take(20)?.to_vec()].concat(),
            Rtype::DNAME => plain_name(self.take(end - self.at)?).map_err(|_| "a DNAME to no plain name")?,
            _ => self.take(end - self.at)?.to_vec(),
        })
    }

    /// Reads a name; a pointer may lead to an earlier place only, and not into the header.
    fn name(&mut self, compressed: bool) -> Result<Vec<u8>, &'static str> {
        let (mut name, mut at, mut earliest, mut behind) = (Vec::new(), self.at, self.at, None);
        loop {
            match *self.message.get(at).ok_or("a name cut short")? {
                0 => break,
                len @ 1..=63 => {
                    let label = at..at + 1 + usize::from(len);
                    name.extend_from_slice(self.message.get(label.clone()).ok_or("a label cut short")?);
                    at = label.end;
                }
                high @ 0xc0.. if compressed => {
                    let low = *self.message.get(at + 1).ok_or("a pointer cut short")?;
                    behind = behind.or(Some(at + 2));
                    at = usize::from(high & 0x3f) << 8 | usize::from(low);
                    if at >= earliest || at < HEADER_LEN {
                        return Err("a pointer that does not lead backwards");
                    }
                    earliest = at;
                }
                _ => return Err("no label"),
            }
            if name.len() > 254 {
                return Err("a name too long");
            }
        }
        name.push(0);
        self.at = behind.unwrap_or(at + 1);
        Ok(name)
    }
}

/// Zones with one of everything, small enough that mutation finds them: compiled, and as trees alone.
fn catalogs() -> &'static [Catalog; 2] {
    static CATALOGS: OnceLock<[Catalog; 2]> = OnceLock::new();
    CATALOGS.get_or_init(|| {
        let catalog = |serve: fn(Zone) -> ServedZone| {
            Catalog::new(ZONES.map(|(origin, text)| Arc::new(serve(zone(origin, text)))), 5)
        };
        [catalog(compile), catalog(|zone| ServedZone::new(zone, Tables::default()))]
    })
}

const ZONES: [(&str, &str); 5] = [
    (
        "example.",
        "@ 300 SOA ns hostmaster 1 2 3 4 60\n@ NS ns\n@ NS ns.sub\n@ MX 10 a\nns A 192.0.2.1\n\
         a A 192.0.2.2\na A 192.0.2.3\na AAAA 2001:db8::2\nc CNAME a\ncc CNAME C\nout CNAME x.other.\n\
         loop CNAME loop\nd DNAME sub2\ndd CNAME x.d\nback DNAME back.back\n*.w TXT \"wild\"\n*.v CNAME c\n\
         sub NS ns.sub\nsub NS ns.z\nns.sub A 192.0.2.4\nchild NS ns.child\nchild DS 1 8 2 00\nns.child A 192.0.2.5\n\
         a.b.ent A 192.0.2.6\n_s._udp SRV 0 0 53 a\n$GENERATE 1-90 big AAAA 2001:db8:1::$\n\
         $GENERATE 1-30 many NS ns$.many\n$GENERATE 1-30 ns$.many A 192.0.2.$\nt TXT a b c\nto-child CNAME www.child\n",
    ),
    ("child.example.", "@ 300 SOA @ @ 1 2 3 4 5\n@ NS ns\nns A 192.0.2.5\nwww CNAME a.example.\n"),
    ("other.", "@ 300 SOA @ @ 1 2 3 4 5\n@ NS @\n@ A 192.0.2.9\n@ DNAME example.\n"),
    ("ed25519-nsec.tld.", include_str!("../../../specs/dns/dnssec/ed25519-nsec.zone")),
    ("optout.tld.", include_str!("../../../specs/dns/dnssec/optout.zone")),
];

/// Every file is this text.
struct Text(&'static str);

impl Files for Text {
    fn open(&mut self, _: &Path) -> io::Result<TextFile> {
        Ok(self.0.as_bytes().to_vec().into())
    }
}

fn zone(origin: &str, text: &'static str) -> Zone {
    let origin = NameBuf::from_text(origin.as_bytes(), None).expect("the origins are names");
    let mut builder = ZoneBuilder::new(origin.as_name(), 7);
    let add = |record: ZoneRecord<'_>| {
        builder.add(record.owner, record.ttl, record.rtype, record.rdata).expect("the records make a zone");
        Ok::<(), Infallible>(())
    };
    read_zone(&mut Text(text), Path::new("zone"), Some(origin.as_name()), &Limits::default(), add)
        .expect("the zones are right");
    builder.finish().expect("the zones have a SOA")
}
