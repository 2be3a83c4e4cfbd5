//! Posts changes as JSON: HTTP/1.1 without encryption, to somebody near.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::authority::has_port_or_none;

/// How often a post is tried, and the wait after the first failure; each one after it is twice as long.
const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// For one try.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where to.
#[derive(Clone, Debug)]
pub(super) struct Webhook(Uri);

impl FromStr for Webhook {
    type Err = String;

    fn from_str(text: &str) -> Result<Webhook, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let has_host = uri.authority().is_some_and(has_port_or_none);
        let is_http = uri.scheme_str() == Some("http") && has_host;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            Err("user and password are not sent: leave them out of the URL".to_owned())
        } else if is_http {
            Ok(Webhook(uri))
        } else {
            Err("expected a URL such as http://127.0.0.1:8080/path".to_owned())
        }
    }
}

/// Without what may be secret: the query.
impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        write!(f, "http://{}{port}{}", self.0.host().unwrap_or_default(), self.0.path())
    }
}

impl Webhook {
    /// Posts `body`, a few times if need be. An answer other than 2xx is an error.
    pub(super) fn post(&self, body: &[u8]) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut wait = FIRST_WAIT;
            for _ in 1..TRIES {
                match self.try_once(body).await {
                    Ok(()) => return Ok(()),
                    Err(error) => log::warn!("webhook: {error:#}; it is tried again"),
                }
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            self.try_once(body).await
        })
    }

    async fn try_once(&self, body: &[u8]) -> anyhow::Result<()> {
        let posted = tokio::time::timeout(PATIENCE, self.exchange(body.to_vec())).await;
        posted.with_context(|| format!("{self}: no answer in time"))?
    }

    async fn exchange(&self, body: Vec<u8>) -> anyhow::Result<()> {
        let (host, port) = (self.0.host().unwrap_or_default(), self.0.port_u16().unwrap_or(80));
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
        let stream = stream.with_context(|| self.to_string())?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let path = self.0.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(HOST, format!("{host}:{port}"))
            .header(CONTENT_TYPE, "application/json");
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        connection.abort();
        ensure!(response.status().is_success(), "{self} says {}", response.status());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_has_no_query_and_a_user_is_refused() {
        let shown = |url: &str| url.parse::<Webhook>().unwrap().to_string();
        assert_eq!(shown("http://[::1]:8080/changed?token=7"), "http://[::1]:8080/changed");
        assert_eq!(shown("http://hooks.example"), "http://hooks.example/");
        assert!("https://hooks.example".parse::<Webhook>().is_err());
        let refusal = "http://me:word@hooks.example/".parse::<Webhook>().unwrap_err();
        assert!(refusal.contains("user and password are not sent"), "{refusal}");
    }

    #[test]
    fn a_post_is_tried_again_until_it_is_taken() {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/changed", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for status in ["500 Oops", "204 No Content"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"[7]") {
                    let mut octet = [0];
                    stream.read_exact(&mut octet).unwrap();
                    request.push(octet[0]);
                }
                stream
                    .write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                    .unwrap();
            }
        });
        url.parse::<Webhook>().unwrap().post(b"[7]").unwrap();
        server.join().unwrap();
    }
}
