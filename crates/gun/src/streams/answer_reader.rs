//! Answers of HTTP/1.1 in a stream of octets, however it is cut (RFC 9112).

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

/// Octets of a head at most, and of the line of a chunk's size.
const HEAD_MAX: usize = 64 * 1024;
const CHUNK_LINE_MAX: u32 = 4096;
/// Fields of a head at most.
const FIELDS_MAX: usize = 128;

/// Reads answers one after the other. Bodies are counted and not kept.
#[derive(Debug, Default)]
pub(crate) struct AnswerReader {
    state: State,
    /// The beginning of a head whose end has not come yet.
    held: Vec<u8>,
    answer: Answer,
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Octets of head and body.
    pub(crate) octets: u64,
    /// The server closes the connection behind it.
    pub(crate) is_last: bool,
}

/// What came is no answer of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotHttp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many octets of the body are to come.
    Body(u64),
    /// The line of a chunk's size: what it said so far.
    ChunkSize {
        size: u64,
        digits: u32,
        line: u32,
        is_in_extension: bool,
    },
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    /// Fields behind the last chunk: octets of this line, and of all.
    Trailers {
        line: u32,
        all: u32,
    },
    /// The body ends with the connection.
    UntilClose,
}

impl State {
    fn chunk_size() -> State {
        State::ChunkSize { size: 0, digits: 0, line: 0, is_in_extension: false }
    }
}

impl AnswerReader {
    /// Reads from the front of `octets`: how many belong to this answer, and the answer if it is whole. `is_to_head`: the request was HEAD,
    /// whose answers have no body.
    pub(crate) fn read(
        &mut self,
        octets: &[u8],
        is_to_head: bool,
    ) -> Result<(usize, Option<Answer>), NotHttp> {
        let mut used = 0;
        loop {
            let rest = &octets[used..];
            if rest.is_empty() {
                return Ok((used, None));
            }
            let (taken, is_whole) = match self.state {
                State::Head => self.read_head(rest, is_to_head)?,
                State::Body(left) => self.skip(rest, left, State::Body),
                State::Chunk(0) => (self.go_on(State::ChunkEnd), false),
                State::Chunk(left) => (self.skip(rest, left, State::Chunk).0, false),
                State::ChunkSize { .. } => self.read_size(rest[0])?,
                State::ChunkEnd => self.read_chunk_end(rest[0])?,
                State::Trailers { .. } => self.read_trailers(rest[0])?,
                State::UntilClose => (rest.len(), false),
            };
            used += taken;
            self.answer.octets += taken as u64;
            if is_whole {
                return Ok((used, Some(self.finish())));
            }
        }
    }

    /// The connection is closed: the answer that ends with that.
    pub(crate) fn close(&mut self) -> Option<Answer> {
        (self.state == State::UntilClose).then(|| self.finish())
    }

    fn finish(&mut self) -> Answer {
        self.state = State::Head;
        std::mem::take(&mut self.answer)
    }

    fn go_on(&mut self, state: State) -> usize {
        self.state = state;
        0
    }

    fn skip(&mut self, rest: &[u8], left: u64, state: fn(u64) -> State) -> (usize, bool) {
        let taken = left.min(rest.len() as u64);
        self.state = state(left - taken);
        (taken as usize, taken == left)
    }

    fn read_head(&mut self, rest: &[u8], is_to_head: bool) -> Result<(usize, bool), NotHttp> {
        if self.held.is_empty() {
            return match parse_head(rest, is_to_head)? {
                Some(head) => Ok((head.len, self.take_head(&head))),
                None => self.hold(rest),
            };
        }
        let before = self.held.len();
        self.held.extend_from_slice(&rest[..rest.len().min(HEAD_MAX)]);
        match parse_head(&self.held, is_to_head)? {
            Some(head) => {
                self.held.clear();
                Ok((head.len - before, self.take_head(&head)))
            }
            None if self.held.len() > HEAD_MAX => Err(NotHttp),
            None => Ok((self.held.len() - before, false)),
        }
    }

    fn hold(&mut self, rest: &[u8]) -> Result<(usize, bool), NotHttp> {
        if rest.len() > HEAD_MAX {
            return Err(NotHttp);
        }
        self.held.extend_from_slice(rest);
        Ok((rest.len(), false))
    }

    /// Whether the answer ends with its head.
    fn take_head(&mut self, head: &Head) -> bool {
        if head.is_interim() {
            return false;
        }
        (self.answer.status, self.answer.is_last) = (head.status, head.is_last);
        self.state = head.body;
        head.body == State::Body(0)
    }

    /// RFC 9112, 7.1: hexadecimal digits, perhaps an extension, a line end.
    fn read_size(&mut self, octet: u8) -> Result<(usize, bool), NotHttp> {
        let State::ChunkSize { size, digits, line, is_in_extension } = self.state else {
            return Err(NotHttp);
        };
        let line = line + 1;
        self.state = match octet {
            _ if line > CHUNK_LINE_MAX => return Err(NotHttp),
            b'\n' if digits == 0 => return Err(NotHttp),
            b'\n' if size == 0 => State::Trailers { line: 0, all: 0 },
            b'\n' => State::Chunk(size),
            b';' | b' ' | b'\t' | b'\r' if digits > 0 => {
                State::ChunkSize { size, digits, line, is_in_extension: true }
            }
            _ if is_in_extension => State::ChunkSize { size, digits, line, is_in_extension },
            octet => {
                let digit = char::from(octet).to_digit(16).ok_or(NotHttp)?;
                let size =
                    size.checked_mul(16).and_then(|size| size.checked_add(digit.into())).ok_or(NotHttp)?;
                State::ChunkSize { size, digits: digits + 1, line, is_in_extension }
            }
        };
        Ok((1, false))
    }

    fn read_chunk_end(&mut self, octet: u8) -> Result<(usize, bool), NotHttp> {
        match octet {
            b'\r' => {}
            b'\n' => self.state = State::chunk_size(),
            _ => return Err(NotHttp),
        }
        Ok((1, false))
    }

    fn read_trailers(&mut self, octet: u8) -> Result<(usize, bool), NotHttp> {
        let State::Trailers { line, all } = self.state else { return Err(NotHttp) };
        if all as usize > HEAD_MAX {
            return Err(NotHttp);
        }
        match octet {
            b'\n' if line == 0 => return Ok((1, true)),
            b'\n' => self.state = State::Trailers { line: 0, all: all + 1 },
            b'\r' => {}
            _ => self.state = State::Trailers { line: line + 1, all: all + 1 },
        }
        Ok((1, false))
    }
}

struct Head {
    len: usize,
    status: u16,
    is_last: bool,
    body: State,
}

impl Head {
    /// An answer that another one follows (RFC 9110, 15.2).
    fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }
}

/// `None` if its end has not come.
fn parse_head(octets: &[u8], is_to_head: bool) -> Result<Option<Head>, NotHttp> {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
    let mut response = Response::new(&mut []);
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut response, octets, &mut fields);
    let len = match parsed.map_err(|_| NotHttp)? {
        Status::Complete(len) => len,
        Status::Partial => return Ok(None),
    };
    let status = response.code.ok_or(NotHttp)?;
    if status == 101 {
        return Err(NotHttp); // Nobody asked for another protocol.
    }
    let framing = Framing::read(response.headers, response.version == Some(0))?;
    let has_no_body = is_to_head || status == 204 || status == 304 || status < 200; // RFC 9112, 6.3.
    let body = if has_no_body { State::Body(0) } else { framing.body };
    let is_last = framing.is_last || body == State::UntilClose;
    Ok(Some(Head { len, status, is_last, body }))
}

struct Framing {
    body: State,
    is_last: bool,
}

impl Framing {
    /// RFC 9112, 6.3 and 9.3.
    fn read(fields: &[Header<'_>], is_old: bool) -> Result<Framing, NotHttp> {
        let (mut length, mut coding, mut is_last) = (None, None, is_old);
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let own = read_length(field.value)?;
                if length.is_some_and(|other| other != own) {
                    return Err(NotHttp);
                }
                length = Some(own);
            } else if is("transfer-encoding") {
                coding =
                    words(field.value).last().map(|word| word.eq_ignore_ascii_case(b"chunked")).or(coding);
            } else if is("connection") {
                for word in words(field.value) {
                    is_last = match word {
                        word if word.eq_ignore_ascii_case(b"close") => true,
                        word if is_old && word.eq_ignore_ascii_case(b"keep-alive") => false,
                        _ => is_last,
                    };
                }
            }
        }
        let body = match (coding, length) {
            (Some(true), _) => State::chunk_size(),
            (Some(false), _) | (None, None) => State::UntilClose,
            (None, Some(length)) => State::Body(length),
        };
        Ok(Framing { body, is_last })
    }
}

fn read_length(value: &[u8]) -> Result<u64, NotHttp> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    number.ok_or(NotHttp)
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of `text` when it comes in pieces of these lengths, the last one again and again.
    fn read_in(text: &[u8], pieces: &[usize], is_to_head: bool) -> Result<Vec<(u16, u64, bool)>, NotHttp> {
        let (mut reader, mut answers, mut at, mut turn) = (AnswerReader::default(), Vec::new(), 0, 0);
        while at < text.len() {
            let piece = pieces[turn.min(pieces.len() - 1)].min(text.len() - at);
            let mut rest = &text[at..at + piece];
            while !rest.is_empty() {
                let (used, answer) = reader.read(rest, is_to_head)?;
                answers.extend(answer.map(|it| (it.status, it.octets, it.is_last)));
                rest = &rest[used..];
            }
            (at, turn) = (at + piece, turn + 1);
        }
        answers.extend(reader.close().map(|it| (it.status, it.octets, it.is_last)));
        Ok(answers)
    }

    /// Whole, cut in two at each place, and octet by octet: all the same.
    fn read(text: &str) -> Result<Vec<(u16, u64, bool)>, NotHttp> {
        let text = text.as_bytes();
        let whole = read_in(text, &[text.len()], false);
        for first in 1..text.len() {
            assert_eq!(read_in(text, &[first, text.len()], false), whole, "cut at {first}");
        }
        assert_eq!(read_in(text, &[1], false), whole, "octet by octet");
        whole
    }

    #[test]
    fn answers_with_a_length_follow_each_other() {
        let one = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let empty = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let expected = vec![(200, one.len() as u64, false), (404, empty.len() as u64, false)];
        assert_eq!(read(&format!("{one}{empty}")), Ok(expected));
    }

    #[test]
    fn chunks_end_with_an_empty_one_and_each_has_its_line_end() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5;a=b\r\nhello\r\nA \r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n";
        let next = "HTTP/1.1 204 No Content\r\n\r\n";
        let expected = vec![(200, text.len() as u64, false), (204, next.len() as u64, false)];
        assert_eq!(read(&format!("{text}{next}")), Ok(expected));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for wrong in ["x\r\n", "\r\n", "5\r\nhello0\r\n\r\n", "11111111111111111\r\n", "5\r\nhelloHTTP/1.1"] {
            assert_eq!(read(&format!("{head}{wrong}")), Err(NotHttp), "{wrong:?}");
        }
    }

    #[test]
    fn without_a_length_a_body_ends_with_the_connection() {
        let text = "HTTP/1.1 200 OK\r\nServer: x\r\n\r\nsome text";
        assert_eq!(read(text), Ok(vec![(200, text.len() as u64, true)]));
        let coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 3\r\n\r\nsome text";
        assert_eq!(read(coded), Ok(vec![(200, coded.len() as u64, true)]));
    }

    #[test]
    fn a_server_says_that_an_answer_is_the_last_one() {
        let last = |head: &str| read(&format!("{head}\r\nContent-Length: 0\r\n\r\n")).map(|all| all[0].2);
        assert_eq!(last("HTTP/1.1 200 OK\r\nConnection: x, Close"), Ok(true));
        assert_eq!(last("HTTP/1.1 200 OK\r\nConnection: keep-alive"), Ok(false));
        assert_eq!(last("HTTP/1.0 200 OK\r\nConnection: keep-alive"), Ok(false));
        assert_eq!(last("HTTP/1.0 200 OK"), Ok(true));
    }

    #[test]
    fn interim_answers_are_no_answers_and_answers_to_head_have_no_body() {
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let text = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{last}");
        assert_eq!(read(&text), Ok(vec![(200, text.len() as u64, false)]));
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n";
        assert_eq!(read_in(head, &[7], true), Ok(vec![(200, head.len() as u64, false)]));
    }

    #[test]
    fn what_is_not_http_is_said_to_be_so() {
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n",
            "\x15\x03\x01\x00\x02\x02\x16",
            "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        ] {
            assert_eq!(read(text), Err(NotHttp), "{text:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(2 * HEAD_MAX));
        for piece in [endless.len(), 4096] {
            assert_eq!(read_in(endless.as_bytes(), &[piece], false), Err(NotHttp));
        }
    }
}
