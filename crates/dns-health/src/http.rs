//! The request of a check by HTTP/1.1, and the status of its answer (RFC 9112).

/// Octets of an answer that are read at most: its status line comes first.
pub const HEAD_MAX: usize = 1024;

/// A request for `path` of `host`.
pub fn request(host: &str, path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sidestep-health\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// What is known of an answer by what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its status.
    Status(u16),
    /// More has to come.
    Incomplete,
    /// It is none.
    Malformed,
}

/// Reads the status line (RFC 9112, 4).
pub fn answer(octets: &[u8]) -> Answer {
    const BEGINNING: &[u8] = b"HTTP/1.";
    const STATUS: usize = BEGINNING.len() + 2;
    let known = octets.len().min(BEGINNING.len());
    if octets[..known] != BEGINNING[..known] || octets.get(STATUS - 1).is_some_and(|octet| *octet != b' ') {
        return Answer::Malformed;
    }
    // What follows the three digits tells that there are no more.
    let Some((end, status)) = octets.get(STATUS..STATUS + 4).and_then(<[u8]>::split_last) else {
        return Answer::Incomplete;
    };
    let is_whole = b" \r\n".contains(end) && status.iter().all(u8::is_ascii_digit);
    let digits = is_whole.then_some(status);
    let status =
        digits.and_then(|status| std::str::from_utf8(status).ok()).and_then(|text| text.parse().ok());
    match status {
        Some(status @ 100..=599) => Answer::Status(status),
        _ => Answer::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_known_as_soon_as_it_is_there() {
        let whole = b"HTTP/1.1 204 No Content\r\n\r\n";
        for len in 0..13 {
            assert_eq!(answer(&whole[..len]), Answer::Incomplete, "{len}");
        }
        assert_eq!(answer(&whole[..13]), Answer::Status(204));
        assert_eq!(answer(whole), Answer::Status(204));
        assert_eq!(answer(b"HTTP/1.0 503\r\n"), Answer::Status(503));
    }

    #[test]
    fn other_octets_are_no_answer() {
        for octets in [
            &b"SSH-2.0"[..],
            b"HTTP/2 200",
            b"HTTP/1.1 abc ",
            b"HTTP/1.1 +12 ",
            b"HTTP/1.1 999 ",
            b"HTTP/1.1 2000",
            b"HTTP/1.12 200",
        ] {
            assert_eq!(answer(octets), Answer::Malformed, "{octets:?}");
        }
    }

    #[test]
    fn a_request_names_the_host() {
        let text = String::from_utf8(request("www.example.com", "/health")).unwrap();
        assert!(
            text.starts_with("GET /health HTTP/1.1\r\nHost: www.example.com\r\n")
                && text.ends_with("\r\n\r\n")
        );
    }
}
