//! Socket addresses in scripts.

use std::net::{IpAddr, SocketAddr};

use super::Result;
use super::arguments::{integer, kind_name};
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::settings::Settings;
use crate::pkt::trouble::Trouble;

/// `...` stands for `usual`; a structure for what it says, with IPv4 addresses out of mapped ones.
pub(super) fn address(expression: &Expression, usual: SocketAddr) -> Result<SocketAddr> {
    match &expression.kind {
        ExpressionKind::Ellipsis => Ok(usual),
        ExpressionKind::Struct(_) => {
            let port = expression.field("sin_port").or_else(|| expression.field("sin6_port"));
            let port = port.map_or(Ok(i64::from(usual.port())), integer)?;
            let port = u16::try_from(port).map_err(|_| Trouble::differs(format!("{port} is no port")))?;
            let ip = expression.field("sin_addr").or_else(|| expression.field("sin6_addr"));
            Ok(SocketAddr::new(ip.map_or(Ok(usual.ip()), ip_address)?, port))
        }
        other => Err(Trouble::unsupported(format!("{} for a socket address", kind_name(other)))),
    }
}

/// `inet_addr("192.0.2.1")`, `inet6_addr("::1")`, `INADDR_ANY`.
fn ip_address(expression: &Expression) -> Result<IpAddr> {
    let text = match &expression.kind {
        ExpressionKind::Apply(_, arguments) => arguments.first().map(|argument| &argument.kind),
        kind => Some(kind),
    };
    match text {
        Some(ExpressionKind::Text(text)) => {
            let text = String::from_utf8_lossy(text);
            let ip: IpAddr =
                text.parse().map_err(|_| Trouble::differs(format!("`{text}` is no IP address")))?;
            Ok(ip.to_canonical())
        }
        Some(ExpressionKind::Word(word)) if word == "INADDR_ANY" => Ok(IpAddr::from([0, 0, 0, 0])),
        _ => Err(Trouble::unsupported("such an IP address")),
    }
}

/// Where sockets are bound to by `...`.
pub(super) fn bind_address(settings: &Settings) -> SocketAddr {
    SocketAddr::new(settings.local_ip, settings.bind_port)
}

/// Where sockets connect to by `...`.
pub(super) fn connect_address(settings: &Settings) -> SocketAddr {
    SocketAddr::new(settings.remote_ip, settings.connect_port)
}
