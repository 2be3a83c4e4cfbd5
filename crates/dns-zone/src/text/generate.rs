//! `$GENERATE`: many records from one line, as BIND defined it.

use std::fmt::Write;

use super::error::{Parsed, Position, Problem};
use super::lexer::{Lexer, Token};
use super::number::decimal;
use super::reader::Reader;
use super::{Files, Receiver};

/// The longest text that one template may become: more than any record needs.
const EXPANDED_LEN_MAX: usize = 4 * 65535;
/// The widest number.
const WIDTH_MAX: u64 = 255;

impl<F: Files + ?Sized, R: Receiver> Reader<'_, F, R> {
    /// `$GENERATE start-stop[/step] owner [ttl] [class] type data`.
    ///
    /// In owner and data `$` is the number, `${offset,width,base}` the number in another form, `\$` a dollar sign.
    /// Data with blanks may be in quotes as a whole. All records are at the place of the directive, and the owner of the
    /// records that follow is the one from before it.
    pub(super) fn generate(&mut self, lexer: &mut Lexer<'_>, position: Position) -> Parsed<()> {
        const RANGE: &str = "a range as start-stop or start-stop/step";
        let range_token = lexer.require_word(RANGE)?;
        let range = range_token.expect(Range::parse(range_token.text), RANGE)?;
        let owner_token = lexer.require_word("an owner")?;
        let head = self.head(lexer, None)?;
        let data = data_template(lexer)?;

        let asked = self.generated_count.saturating_add(range.count());
        if asked > self.limits.generated_records_max {
            let max = self.limits.generated_records_max;
            return range_token.fault(Problem::TooManyGenerated { asked, max });
        }
        self.generated_count = asked;

        let owner_before = self.owner.clone();
        let (mut owner_text, mut data_text) = (Vec::new(), Vec::new());
        let made = range.numbers().try_for_each(|number| {
            expand(owner_token.text, number, &mut owner_text)
                .and_then(|()| expand(&data, number, &mut data_text))
                .or_else(|reason| position.fault(Problem::Template(reason)))?;
            self.set_owner(&Token { text: &owner_text, quoted: false, escaped: true, position })?;
            self.record(&mut Lexer::generated(&data_text, position), head, position)?;
            self.generated_octets += self.rdata.len() as u64;
            match self.limits.generated_octets_max {
                max if self.generated_octets > max => position.fault(Problem::TooMuchGenerated(max)),
                _ => Ok(()),
            }
        });
        self.owner = owner_before;
        self.forget_owner_check();
        made
    }
}

/// The rest of the entry as one text: the content of a quoted string that is alone, else all tokens.
fn data_template(lexer: &mut Lexer<'_>) -> Parsed<Vec<u8>> {
    let first = lexer.require("the data of a record")?;
    let mut template = Vec::new();
    let mut next = lexer.token()?;
    if next.is_none() {
        template.extend_from_slice(first.text);
        return Ok(template);
    }
    push_token(&first, &mut template);
    while let Some(token) = next {
        template.push(b' ');
        push_token(&token, &mut template);
        next = lexer.token()?;
    }
    Ok(template)
}

fn push_token(token: &Token<'_>, template: &mut Vec<u8>) {
    let quote: &[u8] = if token.quoted { b"\"" } else { b"" };
    template.extend_from_slice(quote);
    template.extend_from_slice(token.text);
    template.extend_from_slice(quote);
}

/// The numbers of one directive.
struct Range {
    start: u64,
    stop: u64,
    step: u64,
}

impl Range {
    fn parse(text: &[u8]) -> Option<Range> {
        let number = |text: &[u8]| decimal(text, i32::MAX as u64);
        let (bounds, step) = match text.iter().position(|&octet| octet == b'/') {
            Some(slash) => (&text[..slash], number(&text[slash + 1..])?),
            None => (text, 1),
        };
        let hyphen = bounds.iter().position(|&octet| octet == b'-')?;
        let (start, stop) = (number(&bounds[..hyphen])?, number(&bounds[hyphen + 1..])?);
        (start <= stop && step > 0).then_some(Range { start, stop, step })
    }

    fn count(&self) -> u64 {
        (self.stop - self.start) / self.step + 1
    }

    fn numbers(&self) -> impl Iterator<Item = u64> {
        let (start, step) = (self.start, self.step);
        (0..self.count()).map(move |index| start + index * step)
    }
}

/// How a number is written.
struct Form {
    offset: i64,
    width: usize,
    base: u8,
}

const PLAIN: Form = Form { offset: 0, width: 0, base: b'd' };

/// Replaces `out` by `template` with `number` in its places. Escapes stay escapes.
fn expand(template: &[u8], number: u64, out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.clear();
    let mut rest = template;
    while let Some((&octet, behind)) = rest.split_first() {
        rest = behind;
        match (octet, rest) {
            (b'\\', [escaped, behind @ ..]) => {
                out.extend_from_slice(&[b'\\', *escaped]);
                rest = behind;
            }
            (b'$', [b'$', behind @ ..]) => {
                out.extend_from_slice(b"\\$"); // the older way to write a dollar sign
                rest = behind;
            }
            (b'$', [b'{', behind @ ..]) => {
                let end = behind.iter().position(|&octet| octet == b'}').ok_or("${ without }")?;
                let form = parse_form(&behind[..end])
                    .ok_or("expected ${offset,width,base} with a base of d, o, x, X, n or N")?;
                push_number(number, &form, out)?;
                rest = &behind[end + 1..];
            }
            (b'$', _) => push_number(number, &PLAIN, out)?,
            _ => out.push(octet),
        }
        if out.len() > EXPANDED_LEN_MAX {
            return Err("the text of a generated record is too long");
        }
    }
    Ok(())
}

/// `offset[,width[,base]]`.
fn parse_form(text: &[u8]) -> Option<Form> {
    let mut parts = text.split(|&octet| octet == b',');
    let offset_text = parts.next()?;
    let (sign, digits) = match offset_text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    let offset = sign * decimal(digits, i32::MAX as u64)? as i64;
    let width = parts.next().map_or(Some(0), |width| decimal(width, WIDTH_MAX))? as usize;
    let base = match parts.next() {
        None => b'd',
        Some([base @ (b'd' | b'o' | b'x' | b'X' | b'n' | b'N')]) => *base,
        Some(_) => return None,
    };
    parts.next().is_none().then_some(Form { offset, width, base })
}

fn push_number(number: u64, form: &Form, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let value = (number as i64).checked_add(form.offset).and_then(|value| u64::try_from(value).ok());
    let value = value.ok_or("an offset of $GENERATE leads below zero")?;
    let width = form.width;
    let mut text = String::new();
    let written = match form.base {
        b'o' => write!(text, "{value:0width$o}"),
        b'x' => write!(text, "{value:0width$x}"),
        b'X' => write!(text, "{value:0width$X}"),
        b'n' | b'N' => {
            push_nibbles(value, width, form.base == b'N', &mut text);
            Ok(())
        }
        _ => write!(text, "{value:0width$}"),
    };
    written.map_err(|_| "a number that cannot be written")?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Hex digits from the last to the first with dots between, as in `ip6.arpa`; the width counts the dots.
fn push_nibbles(mut value: u64, width: usize, is_upper: bool, text: &mut String) {
    let digits: &[u8; 16] = if is_upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    loop {
        text.push(char::from(digits[(value & 0xf) as usize]));
        value >>= 4;
        if value == 0 && text.len() >= width {
            return;
        }
        text.push('.');
        if value == 0 && text.len() >= width {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{SOA, errors, read, records};
    use super::super::{Limits, Problem};

    fn expanded(template: &str, number: u64) -> String {
        let mut out = Vec::new();
        super::expand(template.as_bytes(), number, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_range_makes_a_record_per_number() {
        assert_eq!(
            records("$GENERATE 1-2 host-$ 60 IN A 192.0.2.$\n"),
            ["host-1.example. 60 A c0000201", "host-2.example. 60 A c0000202"]
        );
        assert_eq!(records("$GENERATE 0-10/5 $ A 192.0.2.$").len(), 3);
        assert_eq!(records("$GENERATE 7-7 $ CNAME $.other.")[0], "7.example. 3600 CNAME 0137056f7468657200");
    }

    #[test]
    fn data_with_blanks_may_be_in_quotes_as_a_whole() {
        let expected = ["h1.example. 3600 MX 0000016100"];
        assert_eq!(records("$GENERATE 1-1 h$ MX \"0 a.\""), expected);
        assert_eq!(records("$GENERATE 1-1 h$ MX 0 a."), expected);
        assert_eq!(records("$GENERATE 1-1 h$ TXT \"a $\" b"), ["h1.example. 3600 TXT 036120310162"]);
    }

    #[test]
    fn numbers_have_offset_width_and_base() {
        assert_eq!(
            expanded("a$-${0}-${-3}-${10,5}-${0,0,x}-${0,4,X}-${0,3,o}", 13),
            "a13-13-10-00023-d-000D-015"
        );
        assert_eq!(expanded("\\$$$$", 5), "\\$\\$5");
        assert_eq!(expanded("${0,7,n}", 0x1a), "a.1.0.0");
        assert_eq!(expanded("${0,0,N}", 0xab), "B.A");
        assert_eq!(expanded("${0,2,n}", 1), "1.");
    }

    #[test]
    fn reverse_zones_of_ipv6_have_nibbles() {
        let records = records("$GENERATE 16-16 ${0,7,n}.0 PTR host-$.\n");
        assert_eq!(records, ["0.1.0.0.0.example. 3600 PTR 07686f73742d313600"]);
    }

    #[test]
    fn the_owner_before_is_the_owner_after() {
        let records = records("a A 10.0.0.1\n$GENERATE 1-1 b$ A 10.0.0.2\n A 10.0.0.3");
        assert_eq!(records[2], "a.example. 3600 A 0a000003");
    }

    #[test]
    fn what_cannot_be_followed_is_an_error_at_the_directive() {
        for (text, error) in [
            (
                "$GENERATE 2-1 a A 10.0.0.1",
                "2:11: expected a range as start-stop or start-stop/step, found \"2-1\"",
            ),
            (
                "$GENERATE 1-2/0 a A 10.0.0.1",
                "2:11: expected a range as start-stop or start-stop/step, found \"1-2/0\"",
            ),
            ("$GENERATE 1-2 ${0 A 10.0.0.1", "2:1: ${ without }"),
            ("$GENERATE 1-2 ${-2} A 10.0.0.1", "2:1: an offset of $GENERATE leads below zero"),
            ("$GENERATE 255-300 a A 10.0.0.$", "2:1: expected an IPv4 address, found \"10.0.0.256\""),
            ("$GENERATE 1-2 a A", "2:18: expected the data of a record, found the end of the line"),
        ] {
            assert_eq!(errors(text), [format!("example.zone:{error}")], "{text}");
        }
        assert!(errors("$GENERATE 1-2 ${0,256} A 1.2.3.4")[0].contains("expected ${offset,width,base}"));
        assert!(errors("$GENERATE 1-2 ${0,1,y} A 1.2.3.4")[0].contains("expected ${offset,width,base}"));
    }

    #[test]
    fn a_bomb_makes_nothing() {
        let limits = Limits { generated_records_max: 10, ..Limits::default() };
        let text = format!("{SOA}$GENERATE 1-5 a$ A 10.0.0.$\n$GENERATE 0-2147483647 $ A 10.0.0.1");
        let mut count = 0;
        let errors = read(&[("example.zone", &text)], &limits, |_| count += 1).unwrap_err();
        assert_eq!(errors.errors[0].problem, Problem::TooManyGenerated { asked: 2_147_483_653, max: 10 });
        assert_eq!(count, 6);
        let limits = Limits { generated_octets_max: 3999, ..Limits::default() };
        let text = format!("{SOA}$GENERATE 1-1000 a$ A 10.0.0.1");
        let errors = read(&[("example.zone", &text)], &limits, |_| ()).unwrap_err();
        assert_eq!(
            errors.to_string(),
            "example.zone:2:1: generated records have more than 3999 octets of data"
        );
        let long = format!("$GENERATE 1-2 a TXT \"{}\"", "${0,255}".repeat(2000));
        assert!(super::super::testing::errors(&long)[0].contains("too long"));
    }
}
