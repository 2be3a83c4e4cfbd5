//! getsockopt() and setsockopt().

use clock::Duration;

use super::Result;
use super::arguments::{Arguments, bracketed, field, kind_name};
use super::blocking::{Progress, Running};
use super::file::SocketState;
use crate::pkt::ast::{Expression, ExpressionKind};
use crate::pkt::errno::Errno;
use crate::pkt::host::{OptionValue, OptionsError, get_option, get_udp_option, set_option, set_udp_option};
use crate::pkt::symbols as sym;
use crate::pkt::trouble::Trouble;
use crate::pkt::world::World;

/// Options that change nothing that a script could see here: they are kept, and read back as they were set.
const KEPT: &[(i64, &[i64])] = &[
    (
        sym::SOL_SOCKET,
        &[
            sym::SO_DEBUG,
            sym::SO_REUSEADDR,
            sym::SO_DONTROUTE,
            sym::SO_BROADCAST,
            sym::SO_PRIORITY,
            sym::SO_REUSEPORT,
            sym::SO_TIMESTAMP,
            sym::SO_MARK,
            sym::SO_BUSY_POLL,
            sym::SO_INCOMING_CPU,
            sym::SO_ZEROCOPY,
            sym::SO_TIMESTAMPING,
            sym::SO_PASSCRED,
        ],
    ),
    (
        sym::SOL_IP,
        &[
            sym::IP_FREEBIND,
            sym::IP_RECVTOS,
            sym::IP_TRANSPARENT,
            sym::IP_BIND_ADDRESS_NO_PORT,
            sym::IP_LOCAL_PORT_RANGE,
        ],
    ),
    (sym::SOL_IPV6, &[sym::IPV6_V6ONLY, sym::IPV6_RECVTCLASS]),
    (sym::SOL_TCP, &[sym::TCP_INQ, sym::TCP_SAVE_SYN, sym::TCP_THIN_LINEAR_TIMEOUTS, sym::TCP_THIN_DUPACK]),
];

fn is_kept(level: i64, name: i64) -> bool {
    KEPT.iter().any(|(known, names)| *known == level && names.contains(&name))
}

pub(super) fn set(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 5..=5)?;
    let (fd, level, name) = (arguments.fd(0)?, arguments.int(1)?, arguments.int(2)?);
    let unsupported = || Trouble::unsupported(format!("socket option {}", show(arguments.get(2))));
    if let Some(time) = timeval(arguments.get(3))? {
        let socket = world.socket(fd)?;
        match name {
            sym::SO_RCVTIMEO => socket.receive_timeout = time,
            sym::SO_SNDTIMEO => socket.send_timeout = time,
            _ => return Err(unsupported()),
        }
        return Ok(Progress::done(0));
    }
    let value = value(arguments.get(3))?;
    let len = arguments.int(4)?;
    let fits = match &value {
        // IP's numbers may be single octets.
        OptionValue::Int(_) => len >= 4 || matches!(level, sym::SOL_IP | sym::SOL_IPV6) && len >= 1,
        OptionValue::Linger(..) => len >= 8,
        OptionValue::Text(_) => len >= 1,
    };
    if !fits {
        return Ok(Progress::failed(Errno::EINVAL));
    }
    match set_value(world, fd, level, name, &value)? {
        Ok(true) => Ok(Progress::done(0)),
        Ok(false) => Err(unsupported()),
        Err(OptionsError::Errno(errno)) => Ok(Progress::failed(errno)),
        Err(OptionsError::Unsupported) => {
            Err(Trouble::unsupported(format!("this value of socket option {}", show(arguments.get(2)))))
        }
    }
}

/// `Ok(Ok(false))` if there is no such option.
fn set_value(
    world: &mut World,
    fd: i32,
    level: i64,
    name: i64,
    value: &OptionValue,
) -> Result<std::result::Result<bool, OptionsError>> {
    let now = world.now;
    let socket = world.socket(fd)?;
    if let OptionValue::Int(value) = value {
        if is_kept(level, name) {
            socket.kept.insert((level, name), *value);
            return Ok(Ok(true));
        }
        if (level, name) == (sym::SOL_TCP, sym::TCP_QUICKACK) {
            if let Some(id) = socket.connection() {
                world.host.set_quick_ack(id, *value != 0, now);
            }
            return Ok(Ok(true));
        }
    }
    if socket.is_udp {
        let result = set_udp_option(&mut socket.udp_options, level, name, value);
        let (state, options) = (socket.state, socket.udp_options);
        if let SocketState::Datagram(id) = state {
            world.host.udp_set_options(id, options);
        }
        return Ok(result);
    }
    let mut options = options_of(world, fd)?;
    let result = set_option(&mut options, level, name, value);
    if result == Ok(true) {
        let socket = world.socket(fd)?;
        if let ((sym::SOL_TCP, sym::TCP_NOTSENT_LOWAT), OptionValue::Int(value)) = ((level, name), value) {
            socket.kept.insert((level, name), *value);
        }
        socket.options = options.clone();
        match socket.state {
            SocketState::Listening(id) => world.host.set_listener_options(id, &options),
            SocketState::Connecting(id) | SocketState::Connected(id) => {
                world.host.set_options(id, options, now);
                if lets_go(level, name, value) {
                    world.host.push(id, now);
                }
            }
            _ => {}
        }
    }
    Ok(result)
}

/// Whether to set this sends what is held back, also if it was set before.
fn lets_go(level: i64, name: i64, value: &OptionValue) -> bool {
    match (level, name, value) {
        (sym::SOL_TCP, sym::TCP_NODELAY, OptionValue::Int(value)) => *value != 0,
        (sym::SOL_TCP, sym::TCP_CORK, OptionValue::Int(value)) => *value == 0,
        _ => false,
    }
}

fn options_of(world: &mut World, fd: i32) -> Result<crate::pkt::host::TcpOptions> {
    let socket = world.socket(fd)?;
    let (connection, own) = (socket.connection(), socket.options.clone());
    Ok(connection.map_or(own, |id| world.host.options(id)))
}

/// `[5]`, `5`, `"reno"`, `{onoff=1, linger=2}`.
fn value(expression: &Expression) -> Result<OptionValue> {
    match &expression.kind {
        ExpressionKind::Text(text) => Ok(OptionValue::Text(text.clone())),
        ExpressionKind::Struct(_) => {
            let (on, seconds) = (field(expression, "onoff")?, field(expression, "linger")?);
            match (on, seconds) {
                (Some(on), Some(seconds)) => Ok(OptionValue::Linger(on != 0, seconds)),
                _ => Err(Trouble::unsupported("such a structure for a socket option")),
            }
        }
        ExpressionKind::Array(_) => bracketed(expression).map(OptionValue::Int),
        other => Err(Trouble::unsupported(format!("{} for the value of a socket option", kind_name(other)))),
    }
}

/// `{tv_sec=1, tv_usec=0}`, which is no limit if both are zero.
fn timeval(expression: &Expression) -> Result<Option<Option<Duration>>> {
    let Some(seconds) = field(expression, "tv_sec")? else { return Ok(None) };
    let micros = field(expression, "tv_usec")?.unwrap_or(0);
    let time = Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(micros.unsigned_abs());
    Ok(Some((!time.is_zero()).then_some(time)))
}

pub(super) fn get(world: &mut World, running: &Running<'_>) -> Result<Progress> {
    let arguments = Arguments::of(running.call, 5..=5)?;
    let (fd, level, name) = (arguments.fd(0)?, arguments.int(1)?, arguments.int(2)?);
    let expected = arguments.get(3);
    if expected.is_ellipsis() {
        return Ok(Progress::done(0));
    }
    let came = get_value(world, fd, level, name)?;
    let came = came
        .ok_or_else(|| Trouble::unsupported(format!("reading socket option {}", show(arguments.get(2)))))?;
    let expected = value(expected)?;
    if without_padding(&expected) != without_padding(&came) && !are_same_octets(&expected, &came) {
        return Err(Trouble::differs(format!(
            "option value: expected {}, came {}",
            text(&expected),
            text(&came)
        )));
    }
    Ok(Progress::done(0))
}

fn get_value(world: &mut World, fd: i32, level: i64, name: i64) -> Result<Option<OptionValue>> {
    let mtu = i64::from(world.host.mtu());
    let options = options_of(world, fd)?;
    let socket = world.socket(fd)?;
    let connection = socket.connection();
    let value = match (level, name) {
        (sym::SOL_SOCKET, sym::SO_ERROR) => {
            let error = match socket.state {
                SocketState::Datagram(id) => world.host.udp_take_error(id),
                _ => connection.and_then(|id| world.host.take_error(id)),
            };
            error.map_or(0, |errno| i64::from(errno.0))
        }
        (sym::SOL_SOCKET, sym::SO_TYPE) if socket.is_udp => sym::SOCK_DGRAM,
        (sym::SOL_SOCKET, sym::SO_TYPE) => sym::SOCK_STREAM,
        (sym::SOL_SOCKET, sym::SO_PROTOCOL) if socket.is_udp => sym::IPPROTO_UDP,
        (sym::SOL_SOCKET, sym::SO_PROTOCOL) => sym::IPPROTO_TCP,
        (sym::SOL_SOCKET, sym::SO_DOMAIN) => {
            if socket.is_v6 {
                sym::AF_INET6
            } else {
                sym::AF_INET
            }
        }
        (sym::SOL_SOCKET, sym::SO_ACCEPTCONN) => matches!(socket.state, SocketState::Listening(_)).into(),
        (sym::SOL_TCP, sym::TCP_QUICKACK) => connection.is_none_or(|id| world.host.is_quick_ack(id)).into(),
        (sym::SOL_TCP, sym::TCP_MAXSEG) => match connection {
            Some(id) => info(world, id, "tcpi_snd_mss"),
            None => options.mss_max.map_or(536, i64::from),
        },
        (sym::SOL_IP, sym::IP_MTU) | (sym::SOL_IPV6, sym::IPV6_MTU) => match connection {
            Some(id) => info(world, id, "tcpi_pmtu"),
            None if level == sym::SOL_IP => return Ok(None),
            None => mtu,
        },
        // What the sysctl says in its place is not told.
        (sym::SOL_TCP, sym::TCP_NOTSENT_LOWAT) => socket.kept(level, name),
        _ if is_kept(level, name) => socket.kept(level, name),
        _ if socket.is_udp => return Ok(get_udp_option(&socket.udp_options, level, name)),
        _ => return Ok(get_option(&options, level, name).or_else(|| world.host.default_option(level, name))),
    };
    Ok(Some(OptionValue::Int(value)))
}

fn info(world: &World, id: crate::pkt::host::ConnectionId, name: &str) -> i64 {
    let fields = world.host.tcp_info(id, world.now);
    fields.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value as i64)
}

/// Whether two numbers are the same as 32 bits, with a sign or without.
fn are_same_octets(expected: &OptionValue, came: &OptionValue) -> bool {
    let bits = |value: &OptionValue| match value {
        OptionValue::Int(value) => {
            i32::try_from(*value).map(i32::cast_unsigned).or(u32::try_from(*value)).ok()
        }
        _ => None,
    };
    bits(expected).is_some_and(|expected| bits(came) == Some(expected))
}

/// Texts end at their first zero.
fn without_padding(value: &OptionValue) -> OptionValue {
    match value {
        OptionValue::Text(text) => {
            OptionValue::Text(text.iter().copied().take_while(|octet| *octet != 0).collect())
        }
        other => other.clone(),
    }
}

fn text(value: &OptionValue) -> String {
    match value {
        OptionValue::Int(value) => value.to_string(),
        OptionValue::Text(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
        OptionValue::Linger(on, seconds) => format!("{{onoff={}, linger={seconds}}}", i32::from(*on)),
    }
}

/// The option as the script names it.
fn show(expression: &Expression) -> String {
    match &expression.kind {
        ExpressionKind::Word(word) => word.clone(),
        ExpressionKind::Integer(value) => value.to_string(),
        other => kind_name(other).to_owned(),
    }
}
