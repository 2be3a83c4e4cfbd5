//! What kind of answer a message is due, read apart from `dns-wire`, which it judges: for fuzzers and tests.

/// A kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// None at all: half a header, or a response.
    Nothing,
    /// NOTIMP: an opcode other than QUERY.
    NotImp,
    /// FORMERR: not one whole question with whole records behind it, or a question for a type that is never data.
    FormErr,
    /// BADVERS: an EDNS version that nobody knows.
    BadVers,
    /// Whatever the zones say.
    Answer,
}

const OPT: u16 = 41;
/// Types of which there is never data: OPT, NXNAME (RFC 9824), TKEY (RFC 2930), TSIG (RFC 8945).
const NEVER_DATA: [u16; 4] = [OPT, 128, 249, 250];
const IN: u16 = 1;
const LABEL_MAX: u8 = 63;
const NAME_MAX: usize = 255;

/// The answer that RFC 1035, 4.1, RFC 6891, 6.1 and RFC 9619 want for `message`.
pub(crate) fn due(message: &[u8]) -> Due {
    let Some(header) = message.first_chunk::<12>() else { return Due::Nothing };
    if header[2] >> 7 != 0 {
        return Due::Nothing;
    }
    if header[2] >> 3 & 0xf != 0 {
        return Due::NotImp;
    }
    match read(message) {
        None => Due::FormErr,
        Some(Query { version: 1.., .. }) => Due::BadVers,
        Some(Query { qtype, qclass: IN, .. }) if NEVER_DATA.contains(&qtype) => Due::FormErr,
        Some(_) => Due::Answer,
    }
}

struct Query {
    qtype: u16,
    qclass: u16,
    /// Of EDNS; 0 without.
    version: u8,
}

/// Reads a query; `None` if it is malformed.
fn read(message: &[u8]) -> Option<Query> {
    let mut cursor = Cursor { rest: message };
    cursor.skip(4)?;
    let [questions, answers, authorities, additionals] = [(); 4].map(|()| cursor.number());
    if questions? != 1 {
        return None;
    }
    cursor.name(false)?;
    let (qtype, qclass) = (cursor.number()?, cursor.number()?);
    for _ in 0..u32::from(answers?) + u32::from(authorities?) {
        cursor.record()?;
    }
    let mut version = None;
    for _ in 0..additionals? {
        let record = cursor.record()?;
        if record.rtype == OPT {
            let options_are_whole = Cursor { rest: record.data }.options().is_some();
            if version.is_some() || !record.is_of_root || !options_are_whole {
                return None;
            }
            version = Some(record.version);
        }
    }
    cursor.rest.is_empty().then(|| Query { qtype, qclass, version: version.unwrap_or(0) })
}

struct Record<'m> {
    is_of_root: bool,
    rtype: u16,
    /// The second octet of the TTL, as OPT uses it.
    version: u8,
    data: &'m [u8],
}

struct Cursor<'m> {
    rest: &'m [u8],
}

impl<'m> Cursor<'m> {
    fn skip(&mut self, len: usize) -> Option<&'m [u8]> {
        let (skipped, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(skipped)
    }

    fn number(&mut self) -> Option<u16> {
        self.skip(2).map(|octets| u16::from(octets[0]) << 8 | u16::from(octets[1]))
    }

    /// Skips a name; its octets. A pointer ends it where it may stand, wherever it leads.
    fn name(&mut self, may_point: bool) -> Option<usize> {
        let mut len = 0;
        loop {
            let label = *self.skip(1)?.first()?;
            len += 1;
            match label {
                0 => break,
                1..=LABEL_MAX => {
                    self.skip(label.into())?;
                    len += usize::from(label);
                    // There has to be room for what ends it.
                    (len < NAME_MAX).then_some(())?;
                }
                0xc0.. if may_point => {
                    self.skip(1)?;
                    return Some(len + 1);
                }
                _ => return None,
            }
        }
        Some(len)
    }

    fn record(&mut self) -> Option<Record<'m>> {
        let is_of_root = self.name(true)? == 1;
        let rtype = self.number()?;
        self.skip(2)?;
        let ttl = self.skip(4)?;
        let len = self.number()?;
        Some(Record { is_of_root, rtype, version: ttl[1], data: self.skip(len.into())? })
    }

    /// Skips options to the end.
    fn options(&mut self) -> Option<()> {
        while !self.rest.is_empty() {
            self.skip(2)?;
            let len = self.number()?;
            self.skip(len.into())?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flags: u8, counts: [u8; 4], tail: &[u8]) -> Vec<u8> {
        let counts = counts.into_iter().flat_map(|count| [0, count]);
        [1, 2, flags, 0]
            .into_iter()
            .chain(counts)
            .chain(b"\x01a\0\0\x01\0\x01".iter().chain(tail).copied())
            .collect()
    }

    #[test]
    fn each_kind_is_told() {
        let opt = |version| [0, 0, 41, 4, 0, 0, version, 0, 0, 0, 0];
        assert_eq!(due(&message(0, [1, 0, 0, 0], b"")), Due::Answer);
        assert_eq!(due(&message(0x80, [1, 0, 0, 0], b"")), Due::Nothing);
        let mut for_nxname = message(0, [1, 0, 0, 0], b"");
        for_nxname[16] = 128;
        assert_eq!(due(&for_nxname), Due::FormErr);
        assert_eq!(due(&[0; 11]), Due::Nothing);
        assert_eq!(due(&message(0x08, [9; 4], b"")), Due::NotImp);
        assert_eq!(due(&message(0, [2, 0, 0, 0], b"")), Due::FormErr);
        assert_eq!(due(&message(0, [1, 0, 0, 0], b"x")), Due::FormErr);
        assert_eq!(due(&message(0, [1, 0, 0, 1], &opt(0))), Due::Answer);
        assert_eq!(due(&message(0, [1, 0, 0, 1], &opt(1))), Due::BadVers);
        assert_eq!(due(&message(0, [1, 0, 0, 2], &[opt(0), opt(0)].concat())), Due::FormErr);
    }
}
