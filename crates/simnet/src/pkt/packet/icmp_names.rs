//! Types and codes of ICMP by the names that scripts use (RFC 792, RFC 1812, RFC 4443).

use crate::pkt::ast::IcmpSpec;

/// The first eight octets of an ICMP message, without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcmpHeader {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// The four octets behind the checksum.
    pub(crate) rest: u32,
}

type Codes = &'static [(&'static str, u8)];
type Types = &'static [(&'static str, u8, Codes)];

const V4_UNREACHABLE: Codes = &[
    ("net_unreachable", 0),
    ("host_unreachable", 1),
    ("protocol_unreachable", 2),
    ("port_unreachable", 3),
    ("frag_needed", 4),
    ("source_route_failed", 5),
    ("net_unknown", 6),
    ("host_unknown", 7),
    ("source_host_isolated", 8),
    ("net_prohibited", 9),
    ("host_prohibited", 10),
    ("net_unreachable_for_tos", 11),
    ("host_unreachable_for_tos", 12),
    ("packet_filtered", 13),
    ("precedence_violation", 14),
    ("precedence_cutoff", 15),
];
const V6_UNREACHABLE: Codes = &[
    ("net_unreachable", 0),
    ("no_route", 0),
    ("admin_prohibited", 1),
    ("not_neighbour", 2),
    ("address_unreachable", 3),
    ("port_unreachable", 4),
];
const V6_TIME_EXCEEDED: Codes = &[("exceeded_hop_limit", 0), ("exceeded_frag_time", 1)];
const V6_PARAMETER_PROBLEM: Codes = &[("header_field", 0), ("unknown_next_header", 1), ("unknown_option", 2)];

const V4: Types = &[
    ("echo_reply", 0, &[]),
    ("unreachable", 3, V4_UNREACHABLE),
    ("source_quench", 4, &[]),
    ("redirect", 5, &[]),
    ("echo_request", 8, &[]),
    ("time_exceeded", 11, &[]),
    ("parameter_problem", 12, &[]),
    ("timestamp_request", 13, &[]),
    ("timestamp_reply", 14, &[]),
    ("information_request", 15, &[]),
    ("information_reply", 16, &[]),
    ("address_mask_request", 17, &[]),
    ("address_mask_reply", 18, &[]),
];
const V6: Types = &[
    ("unreachable", 1, V6_UNREACHABLE),
    ("packet_too_big", 2, &[]),
    ("time_exceeded", 3, V6_TIME_EXCEEDED),
    ("parameter_problem", 4, V6_PARAMETER_PROBLEM),
    ("echo_request", 128, &[]),
    ("echo_reply", 129, &[]),
];

/// What a script's message is in its version of ICMP; the error says which name is unknown.
pub(crate) fn icmp_header(spec: &IcmpSpec, v6: bool) -> Result<IcmpHeader, String> {
    let types = if v6 { V6 } else { V4 };
    let known = types.iter().find(|(name, ..)| *name == spec.kind);
    let kind = known.map(|(_, kind, _)| *kind).or_else(|| numbered(&spec.kind, "type_"));
    let kind = kind.ok_or_else(|| format!("`{}` is no type of this version of ICMP", spec.kind))?;
    let code = match &spec.code {
        None => 0,
        Some(name) => {
            let codes = known.map_or(&[][..], |(_, _, codes)| codes);
            let code = codes.iter().find(|(known, _)| known == name).map(|(_, code)| *code);
            code.or_else(|| numbered(name, "code_"))
                .ok_or_else(|| format!("`{name}` is no code of this type"))?
        }
    };
    let echo_id = spec.echo_id.map(|id| u32::from(id) << 16);
    Ok(IcmpHeader { kind, code, rest: spec.mtu.or(echo_id).unwrap_or(0) })
}

fn numbered(name: &str, prefix: &str) -> Option<u8> {
    name.strip_prefix(prefix)?.parse().ok()
}
