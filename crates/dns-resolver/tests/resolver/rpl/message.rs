//! Messages of scenarios: records as text, octets, and back. It shares no code with the resolver's own reader and writer.

use std::fmt;
use std::io;
use std::path::Path;

use dns_wire::{Class, Name, NameBuf, Rtype};
use dns_zone::text::{Files, Limits, TextFile, read_zone};

/// A record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) owner: NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) ttl: u32,
    pub(crate) rdata: Vec<u8>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex: String = self.rdata.iter().map(|octet| format!("{octet:02x}")).collect();
        write!(f, "{} {} {} {hex}", self.owner, self.ttl, self.rtype)
    }
}

/// A message as a scenario sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: u16,
    /// Upper-case words: QR, AA, TC, RD, RA, AD, CD, DO.
    pub(crate) flags: Vec<String>,
    pub(crate) rcode: u16,
    pub(crate) question: Option<(NameBuf, Rtype)>,
    pub(crate) sections: [Vec<Record>; 3],
    pub(crate) has_edns: bool,
    pub(crate) ede: Option<u16>,
}

const FLAGS: [(&str, u16); 7] = [
    ("QR", 0x8000),
    ("AA", 0x0400),
    ("TC", 0x0200),
    ("RD", 0x0100),
    ("RA", 0x0080),
    ("AD", 0x0020),
    ("CD", 0x0010),
];

pub(crate) const RCODES: [(&str, u16); 8] = [
    ("NOERROR", 0),
    ("FORMERR", 1),
    ("SERVFAIL", 2),
    ("NXDOMAIN", 3),
    ("NOTIMPL", 4),
    ("REFUSED", 5),
    ("YXDOMAIN", 6),
    ("BADVERS", 16),
];

pub(crate) fn name(text: &str) -> NameBuf {
    let root = NameBuf::root();
    NameBuf::from_text(text.as_bytes(), Some(root.as_name()))
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

struct OneText(String);

impl Files for OneText {
    fn open(&mut self, _path: &Path) -> io::Result<TextFile> {
        Ok(TextFile::from(self.0.clone().into_bytes()))
    }
}

/// A line of a zone file as a record. The owner is absolute, the TTL 3600 if none is given.
pub(crate) fn record(line: &str) -> Record {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_ahead_of_type = |word: &&str| *word == "IN" || word.bytes().all(|octet| octet.is_ascii_digit());
    let at = 1 + words.iter().skip(1).take_while(|word| is_ahead_of_type(word)).count();
    if words.get(at) == Some(&"SOA") {
        return soa(&words, at);
    }
    let text = format!("$ORIGIN .\n$TTL 3600\n. IN SOA . . 0 0 0 0 0\n{line}\n");
    let mut records = Vec::new();
    let root = NameBuf::root();
    let read = read_zone(
        &mut OneText(text),
        Path::new("a.zone"),
        Some(root.as_name()),
        &Limits::default(),
        |record| {
            records.push(Record {
                owner: record.owner.into(),
                rtype: record.rtype,
                ttl: record.ttl,
                rdata: record.rdata.to_vec(),
            });
            Ok::<(), String>(())
        },
    );
    read.unwrap_or_else(|errors| panic!("{line}: {errors}"));
    records.pop().unwrap_or_else(|| panic!("{line}: no record"))
}

fn soa(words: &[&str], at: usize) -> Record {
    let ttl = words[1..at].iter().find_map(|word| word.parse().ok()).unwrap_or(3600);
    let mut rdata = Vec::new();
    for text in &words[at + 1..at + 3] {
        rdata.extend_from_slice(name(text).as_name().as_bytes());
    }
    for word in &words[at + 3..at + 8] {
        rdata.extend_from_slice(&word.parse::<u32>().expect("a number in an SOA").to_be_bytes());
    }
    Record { owner: name(words[0]), rtype: Rtype::SOA, ttl, rdata }
}

impl Message {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Writes it without compression.
    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let mut flags = self.rcode & 0xf;
        flags |= FLAGS.iter().filter(|(word, _)| self.has(word)).map(|(_, bit)| bit).sum::<u16>();
        let counts = [
            u16::from(self.question.is_some()),
            self.sections[0].len() as u16,
            self.sections[1].len() as u16,
            self.sections[2].len() as u16 + u16::from(self.has_edns),
        ];
        let words = [self.id, flags].into_iter().chain(counts);
        let mut octets: Vec<u8> = words.flat_map(u16::to_be_bytes).collect();
        if let Some((name, rtype)) = &self.question {
            octets.extend_from_slice(name.as_name().as_bytes());
            octets.extend_from_slice(&rtype.0.to_be_bytes());
            octets.extend_from_slice(&Class::IN.0.to_be_bytes());
        }
        for record in self.sections.iter().flatten() {
            octets.extend_from_slice(record.owner.as_name().as_bytes());
            octets.extend_from_slice(&record.rtype.0.to_be_bytes());
            octets.extend_from_slice(&Class::IN.0.to_be_bytes());
            octets.extend_from_slice(&record.ttl.to_be_bytes());
            octets.extend_from_slice(&(record.rdata.len() as u16).to_be_bytes());
            octets.extend_from_slice(&record.rdata);
        }
        if self.has_edns {
            let dnssec_ok = if self.has("DO") { 0x80 } else { 0 };
            octets.extend_from_slice(&[0, 0, 41, 4, 208, (self.rcode >> 4) as u8, 0, dnssec_ok, 0, 0, 0]);
        }
        octets
    }

    /// Reads a message of the resolver.
    pub(crate) fn from_octets(octets: &[u8]) -> Message {
        let mut reader = Reader { octets, at: 0 };
        let mut words = [0; 6];
        words.iter_mut().for_each(|word| *word = reader.u16());
        let flags = FLAGS.iter().filter(|(_, bit)| words[1] & bit != 0).map(|(word, _)| (*word).to_owned());
        let mut message =
            Message { id: words[0], flags: flags.collect(), rcode: words[1] & 0xf, ..Message::default() };
        if words[2] == 1 {
            message.question = Some((reader.name(), Rtype(reader.u16())));
            reader.u16();
        }
        for (section, count) in words[3..].iter().enumerate() {
            for _ in 0..*count {
                reader.record(&mut message, section);
            }
        }
        assert_eq!(reader.at, octets.len(), "nothing follows the last record");
        message
    }
}

struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn u16(&mut self) -> u16 {
        self.at += 2;
        u16::from_be_bytes([self.octets[self.at - 2], self.octets[self.at - 1]])
    }

    fn name(&mut self) -> NameBuf {
        let (mut wire, mut at, mut end) = (Vec::new(), self.at, None);
        loop {
            let len = usize::from(self.octets[at]);
            if len >= 0xc0 {
                end.get_or_insert(at + 2);
                at = (len & 0x3f) << 8 | usize::from(self.octets[at + 1]);
                continue;
            }
            wire.extend_from_slice(&self.octets[at..at + 1 + len]);
            at += 1 + len;
            if len == 0 {
                break;
            }
        }
        self.at = end.unwrap_or(at);
        Name::from_wire(&wire).expect("the resolver writes names").into()
    }

    fn record(&mut self, message: &mut Message, section: usize) {
        let owner = self.name();
        let (rtype, class) = (Rtype(self.u16()), self.u16());
        let ttl = u32::from(self.u16()) << 16 | u32::from(self.u16());
        let len = usize::from(self.u16());
        let end = self.at + len;
        if rtype == Rtype::OPT {
            message.has_edns = true;
            message.rcode |= ((ttl >> 24) as u16) << 4;
            if ttl & 0x8000 != 0 {
                message.flags.push("DO".to_owned());
            }
            if len >= 6 && self.octets[self.at..self.at + 2] == [0, 15] {
                message.ede = Some(u16::from_be_bytes([self.octets[self.at + 4], self.octets[self.at + 5]]));
            }
            self.at = end;
            return;
        }
        assert_eq!(class, 1, "class IN");
        let rdata = self.rdata(rtype, end);
        assert_eq!(self.at, end, "the length of {owner} {rtype}");
        message.sections[section].push(Record { owner, rtype, ttl, rdata });
    }

    /// Data with its names decompressed: those types that the scenarios use.
    fn rdata(&mut self, rtype: Rtype, end: usize) -> Vec<u8> {
        let mut rdata = Vec::new();
        let (ahead, names) = match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME => (0, 1),
            Rtype::SOA => (0, 2),
            Rtype::MX => (2, 1),
            _ => (0, 0),
        };
        rdata.extend_from_slice(&self.octets[self.at..self.at + ahead]);
        self.at += ahead;
        for _ in 0..names {
            rdata.extend_from_slice(self.name().as_name().as_bytes());
        }
        rdata.extend_from_slice(&self.octets[self.at..end]);
        self.at = end;
        rdata
    }
}
