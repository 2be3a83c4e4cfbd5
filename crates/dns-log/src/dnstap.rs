//! An answer as dnstap has it: a message of Protocol Buffers, by the schema `dnstap.proto` of dnstap.info.

use std::net::IpAddr;

use prost::Message as _;

use crate::{Entry, Transport};

/// The type of what a stream of frames has in it (Frame Streams, content type).
pub const CONTENT_TYPE: &[u8] = b"protobuf:dnstap.Dnstap";

/// What kind of answers a server gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Those of an authoritative server (`AUTH_RESPONSE`).
    Authority = 2,
    /// Those of a resolver to its clients (`CLIENT_RESPONSE`).
    Resolver = 6,
}

/// `Dnstap`, as far as it is written here.
#[derive(Clone, PartialEq, prost::Message)]
struct Dnstap {
    #[prost(bytes = "vec", optional, tag = "1")]
    identity: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    version: Option<Vec<u8>>,
    #[prost(message, optional, tag = "14")]
    message: Option<Message>,
    /// 1, `MESSAGE`.
    #[prost(int32, required, tag = "15")]
    kind: i32,
}

/// `Message`, as far as it is written here.
#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(int32, required, tag = "1")]
    kind: i32,
    /// `INET` or `INET6`.
    #[prost(int32, optional, tag = "2")]
    socket_family: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    socket_protocol: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "4")]
    query_address: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    response_address: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "6")]
    query_port: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    response_port: Option<u32>,
    #[prost(uint64, optional, tag = "8")]
    query_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "9")]
    query_time_nsec: Option<u32>,
    #[prost(uint64, optional, tag = "12")]
    response_time_sec: Option<u64>,
    #[prost(fixed32, optional, tag = "13")]
    response_time_nsec: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "14")]
    response_message: Option<Vec<u8>>,
}

/// The octets of an answer that a server of this `role` has given. `identity` says which server it is; empty says nothing.
pub fn encode(entry: &Entry<'_>, role: Role, identity: &[u8], version: &[u8]) -> Vec<u8> {
    let time = |nanoseconds: u64| {
        (Some(nanoseconds / 1_000_000_000), Some((nanoseconds % 1_000_000_000) as u32)) // Below 2^30.
    };
    let (response_time_sec, response_time_nsec) = time(entry.time_ns);
    let asked_at = entry.took_ns.map(|took| time(entry.time_ns.saturating_sub(took)));
    let (query_time_sec, query_time_nsec) = asked_at.unwrap_or_default();
    let message = Message {
        kind: role as i32,
        socket_family: Some(if entry.client.is_ipv4() { 1 } else { 2 }),
        socket_protocol: Some(protocol(entry.transport)),
        query_address: Some(octets(entry.client.ip())),
        response_address: entry.server.map(|server| octets(server.ip())),
        query_port: Some(entry.client.port().into()),
        response_port: entry.server.map(|server| server.port().into()),
        query_time_sec,
        query_time_nsec,
        response_time_sec,
        response_time_nsec,
        response_message: Some(entry.message.to_vec()),
    };
    let text = |octets: &[u8]| Some(octets.to_vec()).filter(|octets| !octets.is_empty());
    let dnstap = Dnstap { identity: text(identity), version: text(version), message: Some(message), kind: 1 };
    dnstap.encode_to_vec()
}

/// `SocketProtocol`.
fn protocol(transport: Transport) -> i32 {
    match transport {
        Transport::Udp => 1,
        Transport::Tcp => 2,
        Transport::Tls => 3,
        Transport::Https => 4,
        Transport::Quic => 7,
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
