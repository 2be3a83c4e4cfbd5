//! Posts changes as JSON: HTTP/1.1 without encryption, to somebody near.

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

/// For all of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where to.
#[derive(Clone, Debug)]
pub(super) struct Webhook(Uri);

impl FromStr for Webhook {
    type Err = String;

    fn from_str(text: &str) -> Result<Webhook, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}"))?;
        let is_http = uri.scheme_str() == Some("http") && uri.host().is_some();
        if is_http {
            Ok(Webhook(uri))
        } else {
            Err("expected a URL such as http://127.0.0.1:8080/path".to_owned())
        }
    }
}

impl Webhook {
    /// Posts `body`. An answer other than 2xx is an error.
    pub(super) fn post(&self, body: &[u8]) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let posted = async { tokio::time::timeout(PATIENCE, self.exchange(body.to_vec())).await };
        runtime.block_on(posted).with_context(|| format!("{}: no answer in time", self.0))?
    }

    async fn exchange(&self, body: Vec<u8>) -> anyhow::Result<()> {
        let (host, port) = (self.0.host().unwrap_or_default(), self.0.port_u16().unwrap_or(80));
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
        let stream = stream.with_context(|| self.0.to_string())?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let path = self.0.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(HOST, format!("{host}:{port}"))
            .header(CONTENT_TYPE, "application/json");
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        connection.abort();
        ensure!(response.status().is_success(), "{} says {}", self.0, response.status());
        Ok(())
    }
}
