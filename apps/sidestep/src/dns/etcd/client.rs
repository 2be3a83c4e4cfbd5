//! One connection to one member of etcd, by gRPC.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use dns_etcd::KeyRange;
use http::uri::PathAndQuery;
use prost::Message;
use thiserror::Error;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::config::{EtcdSpec, TlsSpec};
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use crate::dns::privileges::explain_denial;

/// Time for a connection, and for an answer that is no watch.
const CONNECT_MAX: Duration = Duration::from_secs(3);
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// A member that is silent for both together is taken for gone. etcd takes no more than one ping in 5 s.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWER_MAX: Duration = Duration::from_secs(5);
/// Octets of a message. etcd bounds a transaction by 1.5 MiB, unless it is told otherwise, and a fragment of a watch by a little more. Pages that are
/// longer have fewer keys.
const MESSAGE_MAX: usize = 16 << 20;

/// Why a call gave nothing.
#[derive(Debug, Error)]
pub(super) enum CallError {
    /// What etcd says.
    #[error("{} ({:?})", .0.message(), .0.code())]
    Status(Box<Status>),
    /// The connection.
    #[error("{0:#}")]
    Connection(anyhow::Error),
    /// There is no answer in time.
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    Silent,
}

impl CallError {
    /// Whether the revision that was asked for has been compacted: "required revision has been compacted".
    pub(super) fn is_compacted(&self) -> bool {
        matches!(self, CallError::Status(status) if status.code() == Code::OutOfRange && status.message().contains("compacted"))
    }

    /// Whether an answer was longer than what is taken here ("decoded message length too large"), or sent there ("trying to send message larger than
    /// max"). An etcd that has too much to do says something else with the same codes.
    pub(super) fn is_too_long(&self) -> bool {
        let says_so = |message: &str| message.contains("message") && message.contains("large");
        matches!(self, CallError::Status(status)
            if matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted) && says_so(status.message()))
    }

    /// Whether the token is good no longer: etcd forgets those that are not used for five minutes.
    fn is_token_old(&self) -> bool {
        matches!(self, CallError::Status(status) if status.code() == Code::Unauthenticated)
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> CallError {
        CallError::Status(Box::new(status))
    }
}

/// A connection, and what it may do.
pub(super) struct Client {
    grpc: Grpc<Channel>,
    /// The user, and the file with the password.
    login: Option<(String, PathBuf)>,
    token: Option<MetadataValue<Ascii>>,
}

impl Client {
    /// Connects, and says who we are, if etcd wants to know.
    pub(super) async fn connect(spec: &EtcdSpec, endpoint: &str) -> anyhow::Result<Client> {
        let mut builder = Endpoint::from_shared(endpoint.to_owned())?
            .connect_timeout(CONNECT_MAX)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER_MAX)
            .keep_alive_while_idle(true);
        if let Some(tls) = &spec.tls {
            builder = builder.tls_config(tls_config(tls)?)?;
        }
        let channel =
            timeout(2 * CONNECT_MAX, builder.connect()).await.context("no connection in time")??;
        let grpc = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX);
        let mut client = Client { grpc, login: spec.login.clone(), token: None };
        client.log_in().await?;
        Ok(client)
    }

    async fn log_in(&mut self) -> anyhow::Result<()> {
        let Some((user, file)) = &self.login else { return Ok(()) };
        let password = std::fs::read_to_string(file).map_err(explain_denial);
        let password = password.with_context(|| format!("reading {}", file.display()))?;
        let message = AuthenticateRequest {
            name: user.clone(),
            password: password.trim_end_matches(['\r', '\n']).to_owned(),
        };
        let user = format!("user {user:?}");
        self.token = None;
        let answer: Result<AuthenticateResponse, _> =
            self.call("/etcdserverpb.Auth/Authenticate", message).await;
        let token = answer.context(user)?.token;
        self.token = Some(token.parse().context("the token of the user")?);
        Ok(())
    }

    /// Keys of a range, `limit` at most, as they were at a revision; 0 is the newest one.
    pub(super) async fn range(
        &mut self,
        range: &KeyRange,
        revision: u64,
        limit: usize,
    ) -> Result<RangeResponse, CallError> {
        const PATH: &str = "/etcdserverpb.KV/Range";
        let message = RangeRequest {
            key: range.first.clone(),
            range_end: range.end.clone(),
            limit: limit as i64,
            revision: revision as i64,
        };
        match self.call(PATH, message.clone()).await {
            Err(error) if error.is_token_old() && self.login.is_some() => {
                self.log_in().await.map_err(CallError::Connection)?;
                self.call(PATH, message).await
            }
            answer => answer,
        }
    }

    /// What becomes of the keys of a range from a revision on.
    pub(super) async fn watch(
        &mut self,
        range: &KeyRange,
        from_revision: u64,
    ) -> Result<Streaming<WatchResponse>, CallError> {
        let create = WatchCreateRequest {
            key: range.first.clone(),
            range_end: range.end.clone(),
            start_revision: from_revision as i64,
            progress_notify: true,
            fragment: true,
        };
        let create = WatchRequest { create_request: Some(create) };
        // The end of the requests would be that of the watch.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut request = self.request(requests);
        // A member that the others have left out ends the watch, and does not sit there in silence.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        self.ready().await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let answer = timeout(ANSWER_MAX, self.grpc.streaming(request, path, codec)).await;
        Ok(answer.map_err(|_| CallError::Silent)??.into_inner())
    }

    async fn call<Q, A>(&mut self, path: &'static str, message: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.request(message);
        self.ready().await?;
        let call = self.grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default());
        Ok(timeout(ANSWER_MAX, call).await.map_err(|_| CallError::Silent)??.into_inner())
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn ready(&mut self) -> Result<(), CallError> {
        self.grpc.ready().await.map_err(|error| CallError::Connection(error.into()))
    }
}

/// Reads the certificates, which may have changed since the last connection.
fn tls_config(tls: &TlsSpec) -> anyhow::Result<ClientTlsConfig> {
    let read = |file: &Path| {
        let octets = std::fs::read(file).map_err(explain_denial);
        octets.with_context(|| format!("reading {}", file.display()))
    };
    let mut config = match &tls.ca {
        Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            Ok(config.identity(Identity::from_pem(read(certificate)?, read(key)?)))
        }
        (None, None) => Ok(config),
        _ => bail!("expected certificate and key together"),
    }
}
