//! DNS over HTTPS: HTTP/2, GET and POST (RFC 8484).

use std::sync::Arc;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{self, SendResponse};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ask::{Answer, Asker, ask};
use crate::{QUESTION_MAX, Shared};

/// RFC 8484, 6.
const MEDIA_TYPE: &str = "application/dns-message";
/// Octets of the headers of one request.
const HEADERS_MAX: u32 = 16 << 10;
/// Octets of answers that may wait in one connection.
const SEND_BUFFER: usize = 128 << 10;

/// Serves one client until it leaves or is idle.
pub(crate) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, asker: Asker, shared: &Arc<Shared>) {
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(shared.streams_max);
    builder.max_header_list_size(HEADERS_MAX).max_send_buffer_size(SEND_BUFFER);
    let Ok(Ok(mut connection)) = timeout(shared.idle, builder.handshake::<_, Bytes>(stream)).await else {
        return;
    };
    let mut requests: JoinSet<()> = JoinSet::new();
    let mut idle_at = Instant::now() + shared.idle;
    loop {
        tokio::select! {
            request = connection.accept() => {
                let Some(Ok((request, respond))) = request else { return };
                let shared = Arc::clone(shared);
                requests.spawn(async move {
                    // A client that neither sends its question nor takes its answer has no place for ever.
                    let limit = shared.idle * 2;
                    let _ = timeout(limit, answer(request, respond, asker, &shared)).await;
                });
            }
            Some(_) = requests.join_next() => idle_at = Instant::now() + shared.idle,
            () = sleep_until(idle_at), if requests.is_empty() => {
                shared.admission.on_idle_closed();
                return;
            }
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    asker: Asker,
    shared: &Shared,
) {
    let answer = match question_in(request, &shared.path).await {
        Ok(octets) => match ask(shared, asker, octets).await {
            Some(Answer::One(octets)) => Ok(octets),
            // A body has one message (RFC 8484, 6).
            Some(Answer::Many(_)) | None => Err(StatusCode::BAD_REQUEST),
        },
        Err(status) => Err(status),
    };
    let response = match &answer {
        Ok(octets) => Response::builder()
            .status(StatusCode::OK)
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .header(CONTENT_LENGTH, octets.len())
            .header(CACHE_CONTROL, format!("max-age={}", age_max(octets))),
        Err(status) => Response::builder().status(*status),
    };
    let Ok(response) = response.body(()) else { return };
    // A stream that its client has reset takes nothing.
    if let Ok(mut body) = respond.send_response(response, answer.is_err())
        && let Ok(octets) = answer
    {
        let _ = body.send_data(octets.into(), true);
    }
}

/// The message of a request, or the status that says what is wrong with it.
async fn question_in(request: Request<RecvStream>, path: &str) -> Result<Vec<u8>, StatusCode> {
    let (head, body) = request.into_parts();
    let body = read_body(body).await?;
    if head.uri.path() != path {
        return Err(StatusCode::NOT_FOUND);
    }
    match head.method {
        Method::GET => {
            let query = head.uri.query().unwrap_or_default();
            let text = query.split('&').find_map(|pair| pair.strip_prefix("dns="));
            text.and_then(decode_base64url).filter(|octets| !octets.is_empty()).ok_or(StatusCode::BAD_REQUEST)
        }
        Method::POST if !is_dns(&head.headers) => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        Method::POST if body.len() > QUESTION_MAX => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Method::POST if body.is_empty() => Err(StatusCode::BAD_REQUEST),
        Method::POST => Ok(body),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

fn is_dns(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(MEDIA_TYPE.as_bytes()))
}

/// Reads the whole body: a client that is answered before its end may miss the answer. Of a long one it keeps one part too much.
async fn read_body(mut body: RecvStream) -> Result<Vec<u8>, StatusCode> {
    let mut octets = Vec::new();
    while let Some(part) = body.data().await {
        let part = part.map_err(|_| StatusCode::BAD_REQUEST)?;
        let _ = body.flow_control().release_capacity(part.len()); // An error means that the stream has ended.
        if octets.len() <= QUESTION_MAX {
            octets.extend_from_slice(&part);
        }
    }
    Ok(octets)
}

/// Octets of base64url without padding (RFC 4648, 5); `None` if it is none, or longer than a question.
fn decode_base64url(text: &str) -> Option<Vec<u8>> {
    if text.len() > QUESTION_MAX.div_ceil(3) * 4 || text.len() % 4 == 1 {
        return None;
    }
    let mut octets = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            octets.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(octets)
}

/// For how many seconds an answer is fresh: the smallest TTL of its answer and authority sections (RFC 8484, 5.1). 0 if that cannot be read.
fn age_max(octets: &[u8]) -> u32 {
    smallest_ttl(octets).unwrap_or(0)
}

fn smallest_ttl(octets: &[u8]) -> Option<u32> {
    let word = |at: usize| octets.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let mut at = 12;
    for _ in 0..word(4)? {
        at = name_end(octets, at)? + 4;
    }
    let mut smallest = None;
    for _ in 0..u32::from(word(6)?) + u32::from(word(8)?) {
        at = name_end(octets, at)?;
        let ttl = u32::from(word(at + 4)?) << 16 | u32::from(word(at + 6)?);
        smallest = Some(smallest.map_or(ttl, |other: u32| other.min(ttl)));
        at += 10 + usize::from(word(at + 8)?);
    }
    smallest
}

fn name_end(octets: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *octets.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            len => at += 1 + usize::from(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_read_without_padding() {
        for (text, octets) in [("", &b""[..]), ("AA", b"\0"), ("AAAB", b"\0\0\x01"), ("-_8", b"\xfb\xff")] {
            assert_eq!(decode_base64url(text).as_deref(), Some(octets), "{text}");
        }
        for text in ["A", "AA=", "A+", "A/", "AAAAA"] {
            assert_eq!(decode_base64url(text), None, "{text}");
        }
        assert_eq!(decode_base64url(&"A".repeat(5465)), None, "longer than a question");
    }

    #[test]
    fn an_answer_is_fresh_for_its_smallest_ttl() {
        let head = b"\0\0\x81\x80\0\x01\0\x02\0\0\0\0\x01a\0\0\x01\0\x01";
        let records = b"\xc0\x0c\0\x01\0\x01\0\0\x01\0\0\x01x\xc0\x0c\0\x01\0\x01\0\0\0\x07\0\0";
        let whole = [&head[..], records].concat();
        assert_eq!(age_max(&whole), 7);
        for len in 0..whole.len() {
            assert_eq!(age_max(&whole[..len]), 0, "{len} octets");
        }
    }
}
