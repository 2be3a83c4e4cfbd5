//! Requests of HTTP/1.0 and 1.1, as far as a server of one page must understand them (RFC 9112).

/// Longest request line and header fields, in octets.
pub(crate) const HEAD_MAX: usize = 8192;

/// What stands at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The beginning of a request.
    Incomplete,
    /// A whole request, but for its body.
    Request(Request),
    /// No request: to be answered so, and the connection closed.
    Refused(Status),
}

/// A request without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Octets up to the body.
    pub(crate) len: usize,
    /// Octets of the body.
    pub(crate) body: u64,
    pub(crate) method: Method,
    /// The client wants no further request answered.
    pub(crate) close: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Other,
}

/// Codes of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    BadRequest,
    HeadTooLarge,
    NotImplemented,
    VersionNotSupported,
}

/// Looks at the start of `input`.
pub(crate) fn parse(input: &[u8]) -> Parsed {
    // RFC 9112, 2.2: at least one empty line in front of a request is ignored.
    let skipped = if input.starts_with(b"\r\n") { 2 } else { 0 };
    match parse_head(&input[skipped..]) {
        Ok(None) if input.len() > HEAD_MAX => Parsed::Refused(Status::HeadTooLarge),
        Ok(None) => Parsed::Incomplete,
        Ok(Some(request)) if request.len > HEAD_MAX => Parsed::Refused(Status::HeadTooLarge),
        Ok(Some(request)) => Parsed::Request(Request { len: request.len + skipped, ..request }),
        Err(status) => Parsed::Refused(status),
    }
}

fn parse_head(input: &[u8]) -> Result<Option<Request>, Status> {
    let Some((line, mut rest)) = split_line(input)? else { return Ok(None) };
    let (method, minor) = parse_request_line(line)?;
    let mut fields = Fields::default();
    loop {
        let Some((line, behind)) = split_line(rest)? else { return Ok(None) };
        rest = behind;
        if line.is_empty() {
            break;
        }
        fields.add(line)?;
    }
    // RFC 9112, 3.2: a request of HTTP/1.1 names its host, once.
    if fields.hosts > 1 || fields.hosts == 0 && minor > 0 {
        return Err(Status::BadRequest);
    }
    if fields.transfer_encoding {
        return Err(Status::NotImplemented);
    }
    let close = fields.close || minor == 0 && !fields.keep_alive;
    Ok(Some(Request { len: input.len() - rest.len(), body: fields.length.unwrap_or(0), method, close }))
}

/// A line without its end, and what follows it.
type Line<'a> = (&'a [u8], &'a [u8]);

/// The first line; `None` if it has no end yet.
fn split_line(input: &[u8]) -> Result<Option<Line<'_>>, Status> {
    let Some(end) = input.iter().position(|&octet| octet == b'\n') else { return Ok(None) };
    match input[..end].strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, &input[end + 1..]))),
        None => Err(Status::BadRequest),
    }
}

/// `GET /path HTTP/1.1`: the method, and the minor version (RFC 9112, 3).
fn parse_request_line(line: &[u8]) -> Result<(Method, u8), Status> {
    let mut words = line.split(|&octet| octet == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Status::BadRequest);
    };
    if !is_token(method) || target.is_empty() || target.iter().any(|octet| !octet.is_ascii_graphic()) {
        return Err(Status::BadRequest);
    }
    let minor = match version {
        b"HTTP/1.1" => 1,
        b"HTTP/1.0" => 0,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            return Err(Status::VersionNotSupported);
        }
        _ => return Err(Status::BadRequest),
    };
    let method = match method {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        _ => Method::Other,
    };
    Ok((method, minor))
}

/// The header fields that matter here.
#[derive(Default)]
struct Fields {
    hosts: u32,
    length: Option<u64>,
    transfer_encoding: bool,
    close: bool,
    keep_alive: bool,
}

impl Fields {
    /// Reads `Name: value` (RFC 9112, 5).
    fn add(&mut self, line: &[u8]) -> Result<(), Status> {
        let colon = line.iter().position(|&octet| octet == b':').ok_or(Status::BadRequest)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) || value.iter().any(|&octet| octet < b' ' && octet != b'\t' || octet == 0x7f) {
            return Err(Status::BadRequest);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            10 if name.eq_ignore_ascii_case(b"connection") => self.add_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.add_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding = true,
            _ => {}
        }
        Ok(())
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in value.split(|&octet| octet == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// RFC 9112, 6.3: a length that is no number, or that differs from another one, makes the message unreadable.
    fn add_length(&mut self, value: &[u8]) -> Result<(), Status> {
        let digits = value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(value).ok().filter(|_| digits);
        let length = text.and_then(|text| text.parse().ok()).ok_or(Status::BadRequest)?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(Status::BadRequest),
            _ => Ok(()),
        }
    }
}

/// RFC 9110, 5.6.2.
fn is_token(word: &[u8]) -> bool {
    let allowed = |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet);
    !word.is_empty() && word.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Request(request) => request,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn refusal(text: &str) -> Status {
        match parse(text.as_bytes()) {
            Parsed::Refused(status) => status,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[test]
    fn a_request_ends_at_its_empty_line_whatever_follows() {
        let first = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(request(&format!("{first}HEAD / HTTP/1.1\r\n")).len, first.len());
        assert_eq!(request(first).method, Method::Get);
        assert_eq!(request(&format!("\r\n{first}")).len, first.len() + 2);
    }

    #[test]
    fn every_beginning_of_a_request_is_incomplete() {
        let whole = "GET /index.html HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..end]), Parsed::Incomplete, "{end}");
        }
    }

    #[test]
    fn the_connection_lasts_as_version_and_field_say() {
        let cases = [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nconnection: te, close\r\n\r\n", true),
            ("GET / HTTP/1.0\r\n\r\n", true),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false),
        ];
        for (text, close) in cases {
            assert_eq!(request(text).close, close, "{text:?}");
        }
    }

    #[test]
    fn the_length_of_a_body_is_told() {
        assert_eq!(request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 17\r\n\r\n").body, 17);
        let bad = ["x", "-1", "1, 2", "99999999999999999999"];
        for length in bad {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(refusal(&text), Status::BadRequest);
        }
        let twice = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(refusal(twice), Status::BadRequest);
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(refusal(chunked), Status::NotImplemented);
    }

    #[test]
    fn nonsense_is_refused_as_soon_as_its_line_ends() {
        let nonsense = [
            "hello\r\n",
            "GET  / HTTP/1.1\r\n",
            "GET / HTTP/1.1 \r\n",
            "G(T / HTTP/1.1\r\n",
            "GET / HTTP/x.1\r\n",
            "GET / HTTP/1.1\n",
            "GET / HTTP/1.1\r\nno colon\r\n",
            "GET / HTTP/1.1\r\n folded: line\r\n",
            "GET / HTTP/1.1\r\nName : space\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        ];
        for text in nonsense {
            assert_eq!(refusal(text), Status::BadRequest, "{text:?}");
        }
        assert_eq!(refusal("GET / HTTP/2.0\r\n"), Status::VersionNotSupported);
    }

    #[test]
    fn a_head_is_bounded() {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(HEAD_MAX));
        assert_eq!(refusal(&long), Status::HeadTooLarge);
        assert_eq!(refusal(&format!("{long}\r\n\r\n")), Status::HeadTooLarge);
    }
}
