//! `gun http`: a URL and options become a server, a protocol and a request.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use gun::streams::{Http1Request, HttpRequest, Quic, Speech};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use rustls::pki_types::ServerName;

use super::options::{Certificates, Http, read_at_most};
use super::sockets::{Kind, Target, Tls};
use crate::authority::has_port_or_none;

/// Octets of a body at most.
const BODY_MAX: usize = 1 << 30;
/// Fields that say how a message is framed, which follows from the other options; HTTP/2 and HTTP/3 have none of the last ones (RFC 9113, 8.2.2; RFC 9114, 4.2).
const FRAMING: [&str; 2] = ["content-length", "transfer-encoding"];
const OF_A_CONNECTION: [&str; 4] = ["connection", "keep-alive", "proxy-connection", "upgrade"];

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    is_secure: bool,
    authority: Authority,
    /// Path and query.
    path: PathAndQuery,
}

impl Url {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Url> {
        let wrong = || format!("{text:?} is no URL such as http://192.0.2.1/index.html");
        let uri: Uri = text.parse().with_context(wrong)?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!(wrong()),
        };
        let authority = uri.authority().with_context(wrong)?.clone();
        ensure!(!authority.as_str().contains('@'), "{text:?} has a user's name, which no server sees");
        ensure!(
            has_port_or_none(&authority),
            "{text:?} has something behind its host that is no port number"
        );
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Url { is_secure, authority, path: path.parse().with_context(wrong)? })
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_secure { 443 } else { 80 })
    }

    /// Without the brackets of IPv6.
    fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        ensure!(self.port() != 0, "port 0 is none that a server has");
        let found = (self.host(), self.port()).to_socket_addrs();
        let found: Vec<SocketAddr> = found.with_context(|| format!("looking for {}", self.host()))?.collect();
        ensure!(!found.is_empty(), "{} has no address", self.host());
        Ok(found)
    }

    fn uri(&self) -> anyhow::Result<Uri> {
        let scheme = if self.is_secure { Scheme::HTTPS } else { Scheme::HTTP };
        let builder = Uri::builder().scheme(scheme).authority(self.authority.clone());
        Ok(builder.path_and_query(self.path.clone()).build()?)
    }

    /// Where connections go. With QUIC, what is said on them has the certificate to look at.
    pub(crate) fn target(
        &self,
        address: SocketAddr,
        certificates: &Certificates,
        version: HttpVersion,
    ) -> anyhow::Result<Target> {
        let kind = match (version, self.is_secure) {
            (HttpVersion::Http3, _) => Kind::Datagrams,
            (HttpVersion::Http1 | HttpVersion::Http2, false) => Kind::Tcp,
            (HttpVersion::Http1, true) => Kind::Tls(self.tls(certificates, b"http/1.1", None)?),
            (HttpVersion::Http2, true) => Kind::Tls(self.tls(certificates, b"h2", Some(b"h2"))?),
        };
        Ok(Target { address, kind })
    }

    fn tls(
        &self,
        certificates: &Certificates,
        protocol: &[u8],
        required: Option<&'static [u8]>,
    ) -> anyhow::Result<Tls> {
        Ok(Tls { config: certificates.config(protocol)?, name: self.certified_name(certificates)?, required })
    }

    fn certified_name(&self, certificates: &Certificates) -> anyhow::Result<ServerName<'static>> {
        match &certificates.tls_host {
            Some(name) => Ok(name.clone()),
            None => ServerName::try_from(self.host().to_owned()).context("no name for a certificate"),
        }
    }

    fn quic(&self, address: SocketAddr, certificates: &Certificates) -> anyhow::Result<Quic> {
        ensure!(self.is_secure, "HTTP/3 is never without TLS: the URL has to begin with https");
        let (name, tls) = (self.certified_name(certificates)?, certificates.config(b"h3")?);
        Ok(Quic::for_http(address, &name, tls, Instant::now())?)
    }
}

/// What is sent.
pub(crate) struct Request {
    method: Method,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(options: &Http) -> anyhow::Result<Request> {
        let body = options.body.as_deref().map_or(Ok(Vec::new()), read_body)?;
        let default = if options.body.is_some() { "POST" } else { "GET" };
        let text = options.method.as_deref().unwrap_or(default);
        let method: Method = text.parse().with_context(|| format!("{text:?} is no method"))?;
        ensure!(method != Method::CONNECT, "CONNECT asks a proxy for a connection, and is no request");
        let version = HttpVersion::of(options);
        let mut fields =
            options.headers.iter().map(|text| read_field(text, version)).collect::<Result<Vec<_>, _>>()?;
        if options.close && version == HttpVersion::Http1 {
            fields.push((http::header::CONNECTION, HeaderValue::from_static("close")));
        }
        Ok(Request { method, fields, body })
    }

    /// For people.
    pub(crate) fn subject(&self, url: &Url) -> String {
        let body =
            if self.body.is_empty() { String::new() } else { format!(" with {} octets", self.body.len()) };
        format!("{} {}{body}", self.method, url.path)
    }

    pub(crate) fn speech(
        self,
        url: &Url,
        version: HttpVersion,
        address: SocketAddr,
        certificates: &Certificates,
    ) -> anyhow::Result<Speech> {
        match version {
            HttpVersion::Http1 => Ok(Speech::Http1(self.http1(url))),
            HttpVersion::Http2 => Ok(Speech::Http2(self.multiplexed(url)?)),
            HttpVersion::Http3 => Ok(Speech::Http3(url.quic(address, certificates)?, self.multiplexed(url)?)),
        }
    }

    fn multiplexed(self, url: &Url) -> anyhow::Result<HttpRequest> {
        let mut fields = HeaderMap::new();
        self.fields.into_iter().for_each(|(name, value)| {
            fields.append(name, value);
        });
        Ok(HttpRequest::new(self.method, url.uri()?, fields, self.body.into()))
    }

    fn http1(&self, url: &Url) -> Http1Request {
        let fields: Vec<(String, Vec<u8>)> = self
            .fields
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_owned()))
            .collect();
        let host = url.authority.as_str();
        Http1Request::new(self.method.as_str(), url.path.as_str(), host, &fields, &self.body)
    }
}

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
    Http3,
}

impl HttpVersion {
    pub(crate) fn of(options: &Http) -> HttpVersion {
        match (options.http2, options.http3) {
            (_, true) => HttpVersion::Http3,
            (true, false) => HttpVersion::Http2,
            (false, false) => HttpVersion::Http1,
        }
    }

    /// For people.
    pub(crate) fn number(self) -> &'static str {
        match self {
            HttpVersion::Http1 => "1.1",
            HttpVersion::Http2 => "2",
            HttpVersion::Http3 => "3",
        }
    }
}

/// The request that questions of DNS are the bodies of (RFC 8484).
pub(crate) fn doh_request(server: SocketAddr, path: &str) -> anyhow::Result<HttpRequest> {
    let url = Url::parse(&format!("https://{server}{path}"))?;
    let message = HeaderValue::from_static("application/dns-message");
    let mut fields = HeaderMap::new();
    fields.insert(http::header::CONTENT_TYPE, message.clone());
    fields.insert(http::header::ACCEPT, message);
    Ok(HttpRequest::new(Method::POST, url.uri()?, fields, Default::default()))
}

fn read_field(text: &str, version: HttpVersion) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let wrong = || format!("{text:?} is no field such as \"Accept: text/html\"");
    let (name, value) = text.split_once(':').with_context(wrong)?;
    let name: HeaderName = name.parse().with_context(wrong)?;
    let value: HeaderValue = value.trim().parse().with_context(wrong)?;
    ensure!(!FRAMING.contains(&name.as_str()), "{name} is not for --header: it follows from --body");
    ensure!(
        version == HttpVersion::Http1 || name != http::header::HOST,
        "HTTP/{} has the host from the URL, and no field for it",
        version.number()
    );
    let is_of_a_connection = OF_A_CONNECTION.contains(&name.as_str());
    ensure!(
        version == HttpVersion::Http1 || !is_of_a_connection,
        "HTTP/{} has no field {name}",
        version.number()
    );
    Ok((name, value))
}

fn read_body(text: &str) -> anyhow::Result<Vec<u8>> {
    if let Some(size) = size(text) {
        ensure!(size <= BODY_MAX as u64, "a body has {BODY_MAX} octets at most");
        return Ok(vec![b'x'; size as usize]);
    }
    let file = read_at_most(Path::new(text), BODY_MAX);
    file.with_context(|| {
        format!("--body {text}: no file of {BODY_MAX} octets at most, and no size such as 64k")
    })
}

/// `None` if this is no size.
fn size(text: &str) -> Option<u64> {
    let (number, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1024),
        b'M' => (&text[..text.len() - 1], 1024 * 1024),
        _ => (text, 1),
    };
    let is_number = number.bytes().all(|octet| octet.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_whatever_path() {
        let parts = |text: &str| {
            let url = Url::parse(text).unwrap();
            (url.host().to_owned(), url.port(), url.path.to_string())
        };
        let expected = |host: &str, port, path: &str| (host.to_owned(), port, path.to_owned());
        assert_eq!(parts("http://192.0.2.1"), expected("192.0.2.1", 80, "/"));
        assert_eq!(parts("https://[2001:db8::1]"), expected("2001:db8::1", 443, "/"));
        assert_eq!(parts("http://h.example:8080/a?b=c#d"), expected("h.example", 8080, "/a?b=c"));
        assert_eq!(parts("http://h.example?b"), expected("h.example", 80, "/?b"));
        assert_eq!(parts("http://h.example//%00/..;/[]"), expected("h.example", 80, "//%00/..;/[]"));
        for text in [
            "",
            "/path",
            "h.example",
            "ftp://h.example/",
            "http://",
            "http://u:p@h.example/",
            "http://h:99999/",
            "http://h/a b",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_path_that_is_read_makes_a_request_of_http_2() {
        for path in ["", "?", "?a", "/", "//", "/*", "/?", "/%", "/\u{fc}", "/{a}", "/:443", "/a@b"] {
            let Ok(url) = Url::parse(&format!("http://192.0.2.1{path}")) else { continue };
            let uri = url.uri().unwrap();
            assert!(
                uri.scheme().is_some() && uri.authority().is_some() && uri.path().starts_with('/'),
                "{path}"
            );
        }
    }

    #[test]
    fn fields_and_sizes_are_checked() {
        assert_eq!(read_field("Accept:  text/html ", HttpVersion::Http2).unwrap().1, "text/html");
        for wrong in
            ["Accept", ": x", "A b: x", "X: a\r\nY: b", "Content-Length: 5", "transfer-encoding: chunked"]
        {
            assert!(read_field(wrong, HttpVersion::Http1).is_err(), "{wrong:?}");
        }
        assert!(
            read_field("Connection: close", HttpVersion::Http1).is_ok()
                && read_field("Connection: close", HttpVersion::Http3).is_err()
        );
        assert_eq!(["100", "64k", "1M", "0"].map(size), [Some(100), Some(65536), Some(1 << 20), Some(0)]);
        assert_eq!(["", "k", "-1", "+1", "1G", "file", "99999999999999999M"].map(size), [None; 7]);
    }
}
