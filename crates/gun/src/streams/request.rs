//! A request of HTTP/2 or HTTP/3, and the question of DNS that may be its body.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, Version};

use super::conversation::{Asked, Question};
use super::dns::QUESTION_MAX;

/// Octets of a message of DNS at most.
pub(crate) const MESSAGE_MAX: usize = 65535;

/// A request of HTTP/2 or HTTP/3, as all streams send it.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub(crate) request: Request<()>,
    pub(crate) body: Bytes,
}

impl HttpRequest {
    /// A request for `uri`, which has a scheme, an authority and a path.
    pub fn new(method: Method, uri: Uri, fields: HeaderMap, body: Bytes) -> HttpRequest {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = fields;
        HttpRequest { request, body }
    }
}

/// What a request's body is: its own, or with DNS over HTTPS the question. Its ID is 0, so that caches see equal questions as such
/// (RFC 8484, 4.1).
pub(crate) fn body_of(request: &HttpRequest, question: Option<Question>, asked: &Asked) -> Bytes {
    let Some(question) = question else { return request.body.clone() };
    let mut room = [0; QUESTION_MAX];
    let questions = asked.questions.as_ref();
    let len = questions.and_then(|it| it.write(question.index, question.number, 0, &mut room));
    Bytes::copy_from_slice(&room[..len.unwrap_or(0)]) // The room is enough for every question.
}
