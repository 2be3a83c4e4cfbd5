//! The data of records as text, by the same table as the reader's.

use std::fmt::{self, Display, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use dns_wire::{Name, NameBuf, Rtype};

use super::bitmap::types_in;
use super::encoding::{Encoding, encode};
use super::error::FileId;
use super::field::RdataReader;
use super::lexer::Lexer;
use super::mnemonic::{self, CERTIFICATE_TYPES, DSYNC_SCHEMES};
use super::number::calendar;
use super::schema::{Field, schema};
use super::{loc, svcb};

/// The data of a record as zone files have it.
pub fn rdata_text(rtype: Rtype, rdata: &[u8]) -> String {
    RdataPrinter::default().print(rtype, rdata).to_owned()
}

/// Prints the data of one record after the other, and keeps its memory between them.
#[derive(Debug)]
pub struct RdataPrinter {
    text: String,
    /// What the reader makes of the text.
    again: Vec<u8>,
    name: NameBuf,
}

impl Default for RdataPrinter {
    fn default() -> RdataPrinter {
        RdataPrinter { text: String::new(), again: Vec::new(), name: NameBuf::root() }
    }
}

impl RdataPrinter {
    /// The data in the text format of its type. Where the type has none, or its text would not be read back as the same octets, it is in the
    /// generic form (RFC 3597, 5). All of it is printable ASCII, whatever the data has.
    pub fn print(&mut self, rtype: Rtype, rdata: &[u8]) -> &str {
        self.text.clear();
        let printed = schema(rtype).and_then(|fields| print_fields(fields, rdata, &mut self.text));
        if printed.is_none() || !self.is_read_back(rtype, rdata) {
            self.text.clear();
            print_generic(rdata, &mut self.text);
        }
        &self.text
    }

    fn is_read_back(&mut self, rtype: Rtype, rdata: &[u8]) -> bool {
        self.again.clear();
        let mut lexer = Lexer::new(self.text.as_bytes(), FileId::default());
        let origin = Some(Name::ROOT);
        let mut reader =
            RdataReader { lexer: &mut lexer, origin, out: &mut self.again, name: &mut self.name };
        reader.read(rtype).is_ok() && self.again == rdata
    }
}

/// `\# LENGTH HEX`.
fn print_generic(rdata: &[u8], text: &mut String) {
    let mut words = Words { text };
    words.push("\\#");
    words.push(rdata.len());
    words.encoded(Encoding::Base16, rdata);
}

fn print_fields(fields: &[Field], rdata: &[u8], text: &mut String) -> Option<()> {
    let (mut words, mut octets) = (Words { text }, Octets(rdata));
    fields.iter().try_for_each(|field| words.field(*field, &mut octets))?;
    octets.0.is_empty().then_some(())
}

/// What is left of the data.
pub(super) struct Octets<'r>(pub(super) &'r [u8]);

impl<'r> Octets<'r> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'r [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn rest(&mut self) -> &'r [u8] {
        std::mem::take(&mut self.0)
    }

    /// As many octets as the first one says.
    pub(super) fn counted(&mut self) -> Option<&'r [u8]> {
        let count = self.u8()?;
        self.take(count.into())
    }

    /// A number of up to eight octets.
    fn number(&mut self, octets: usize) -> Option<u64> {
        Some(self.take(octets)?.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.number(1).map(|number| number as u8)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.number(2).map(|number| number as u16)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.number(4).map(|number| number as u32)
    }

    fn name(&mut self) -> Option<Name<'r>> {
        let (name, rest) = Name::split_from(self.0).ok()?;
        self.0 = rest;
        Some(name)
    }

    pub(super) fn ipv4(&mut self) -> Option<Ipv4Addr> {
        self.u32().map(Ipv4Addr::from)
    }

    pub(super) fn ipv6(&mut self) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from(*self.take(16)?.first_chunk::<16>()?))
    }
}

/// Words with a blank between them.
pub(super) struct Words<'t> {
    text: &'t mut String,
}

impl Words<'_> {
    pub(super) fn push(&mut self, word: impl Display) {
        self.separate();
        write!(self.text, "{word}").expect("a string takes everything");
    }

    fn separate(&mut self) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
    }

    /// Octets in an encoding; nothing if there are none.
    fn encoded(&mut self, encoding: Encoding, octets: &[u8]) {
        if !octets.is_empty() {
            self.separate();
            encode(encoding, octets, self.text);
        }
    }

    fn quoted(&mut self, octets: &[u8]) {
        self.push(Quoted(octets));
    }

    fn field(&mut self, field: Field, octets: &mut Octets<'_>) -> Option<()> {
        match field {
            Field::U8 | Field::Algorithm => self.push(octets.u8()?),
            Field::U16 => self.push(octets.u16()?),
            Field::U32 | Field::Duration => self.push(octets.u32()?),
            Field::U64 => self.push(octets.number(8)?),
            Field::Time => self.push(calendar(octets.u32()?)),
            Field::Name => self.push(octets.name()?),
            Field::Ipv4 => self.push(octets.ipv4()?),
            Field::Ipv6 => self.push(octets.ipv6()?),
            Field::String => self.quoted(octets.counted()?),
            Field::StringOrNone | Field::Strings => {
                while !octets.0.is_empty() {
                    self.quoted(octets.counted()?);
                }
            }
            Field::Tag => self.push(std::str::from_utf8(octets.counted()?).ok()?),
            Field::Text | Field::SomeText => self.quoted(octets.rest()),
            Field::Base64 | Field::Base64OrNone => self.encoded(Encoding::Base64, octets.rest()),
            Field::Base64OrHyphen => self.encoded_or_hyphen(Encoding::Base64, octets.rest()),
            Field::Hex => self.encoded(Encoding::Base16, octets.rest()),
            Field::Salt => self.encoded_or_hyphen(Encoding::Base16, octets.counted()?),
            Field::HashedOwner => self.encoded(Encoding::Base32Hex, octets.counted()?),
            Field::Bitmap => types_in(octets.rest()).for_each(|rtype| self.push(rtype)),
            Field::OldBitmap => self.row_of_bits(octets.rest(), |number| Rtype(number).to_string()),
            Field::Type => self.push(Rtype(octets.u16()?)),
            Field::CertificateType => self.push(mnemonic::word(CERTIFICATE_TYPES, octets.u16()?)),
            Field::DsyncScheme => self.push(mnemonic::word(DSYNC_SCHEMES, octets.u8()?.into())),
            Field::Nsap => {
                self.push("0x");
                encode(Encoding::Base16, octets.rest(), self.text);
            }
            Field::Atma => self.atma(octets)?,
            Field::Eui(length) => self.groups(octets.take(length)?, 1, '-'),
            Field::Ilnp64 => self.groups(octets.take(8)?, 2, ':'),
            Field::A6 => self.a6(octets)?,
            Field::Loc => loc::print(self, octets)?,
            Field::Apl => self.prefixes(octets)?,
            Field::Wks => {
                self.push(octets.ipv4()?);
                self.push(octets.u8()?);
                self.row_of_bits(octets.rest(), |port| port.to_string());
            }
            Field::Ipseckey => {
                self.push(octets.u8()?);
                let (gateway_type, algorithm) = (octets.u8()?, octets.u8()?);
                self.push(gateway_type);
                self.push(algorithm);
                self.gateway(gateway_type, octets)?;
                self.encoded(Encoding::Base64, octets.rest());
            }
            Field::Amtrelay => {
                self.push(octets.u8()?);
                let (discovery, relay_type) = octets.u8().map(|octet| (octet >> 7, octet & 0x7f))?;
                self.push(discovery);
                self.push(relay_type);
                self.gateway(relay_type, octets)?;
            }
            Field::Hip => self.hip(octets)?,
            Field::SvcParams => svcb::print(self, octets)?,
        }
        Some(())
    }

    fn encoded_or_hyphen(&mut self, encoding: Encoding, octets: &[u8]) {
        match octets {
            [] => self.push("-"),
            octets => self.encoded(encoding, octets),
        }
    }

    /// The numbers of the bits that are set, in words.
    fn row_of_bits(&mut self, octets: &[u8], word: impl Fn(u16) -> String) {
        let is_set = |number: &u16| octets[usize::from(number / 8)] & (0x80 >> (number % 8)) != 0;
        let count = u16::try_from(octets.len() * 8).unwrap_or(u16::MAX);
        (0..count).filter(is_set).for_each(|number| self.push(word(number)));
    }

    /// Hex digits of so many octets at a time.
    fn groups(&mut self, octets: &[u8], octets_per_group: usize, between: char) {
        let digits = |group: &[u8]| group.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
        let groups: Vec<String> = octets.chunks(octets_per_group).map(digits).collect();
        self.push(groups.join(&between.to_string()));
    }

    fn atma(&mut self, octets: &mut Octets<'_>) -> Option<()> {
        match octets.u8()? {
            0 => self.encoded(Encoding::Base16, octets.rest()),
            _ => self.push(format_args!("+{}", std::str::from_utf8(octets.rest()).ok()?)),
        }
        Some(())
    }

    fn a6(&mut self, octets: &mut Octets<'_>) -> Option<()> {
        let prefix_bits = octets.u8()?;
        self.push(prefix_bits);
        let mut address = [0; 16];
        let suffix = octets.take(usize::from(128u8.checked_sub(prefix_bits)?).div_ceil(8))?;
        if !suffix.is_empty() {
            address[16 - suffix.len()..].copy_from_slice(suffix);
            self.push(Ipv6Addr::from(address));
        }
        if prefix_bits > 0 {
            self.push(octets.name()?);
        }
        Some(())
    }

    /// RFC 3123, 5.
    fn prefixes(&mut self, octets: &mut Octets<'_>) -> Option<()> {
        while !octets.0.is_empty() {
            let (family, bits, length) = (octets.u16()?, octets.u8()?, octets.u8()?);
            let negation = if length & 0x80 == 0 { "" } else { "!" };
            let mut address = [0; 16];
            let given = octets.take(usize::from(length & 0x7f))?;
            address.get_mut(..given.len())?.copy_from_slice(given);
            match family {
                1 => {
                    let [a, b, c, d, ..] = address;
                    self.push(format_args!("{negation}1:{}/{bits}", Ipv4Addr::new(a, b, c, d)));
                }
                _ => self.push(format_args!("{negation}{family}:{}/{bits}", Ipv6Addr::from(address))),
            }
        }
        Some(())
    }

    fn gateway(&mut self, gateway_type: u8, octets: &mut Octets<'_>) -> Option<()> {
        match gateway_type {
            0 => self.push("."),
            1 => self.push(octets.ipv4()?),
            2 => self.push(octets.ipv6()?),
            _ => self.push(octets.name()?),
        }
        Some(())
    }

    /// RFC 8005, 5 and 6.
    fn hip(&mut self, octets: &mut Octets<'_>) -> Option<()> {
        let (tag_length, algorithm, key_length) = (octets.u8()?, octets.u8()?, octets.u16()?);
        self.push(algorithm);
        self.encoded(Encoding::Base16, octets.take(tag_length.into())?);
        self.encoded(Encoding::Base64, octets.take(key_length.into())?);
        while !octets.0.is_empty() {
            self.push(octets.name()?);
        }
        Some(())
    }
}

/// A string in quotes, with the escapes that it needs (RFC 1035, 5.1).
pub(super) struct Quoted<'o>(pub(super) &'o [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for &octet in self.0 {
            match octet {
                b'"' | b'\\' => write!(f, "\\{}", char::from(octet))?,
                b' '..=b'~' => f.write_char(char::from(octet))?,
                _ => write!(f, "\\{octet:03}")?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
#[path = "print_tests.rs"]
mod tests;
