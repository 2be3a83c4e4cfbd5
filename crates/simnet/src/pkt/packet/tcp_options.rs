//! TCP options as octets, with every no-operation in its place.

use crate::pkt::ast::OptionSpec;

const EXPERIMENT: u8 = 254;
/// Fast Open's number among the experiments (RFC 6994; RFC 7413, 4.1.2).
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];

/// Writes options one after another and pads them with ends of list to a multiple of four octets.
pub(super) fn encode(options: &[OptionSpec]) -> Vec<u8> {
    let mut octets = Vec::new();
    for option in options {
        append(&mut octets, option);
    }
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

fn append(octets: &mut Vec<u8>, option: &OptionSpec) {
    let (kind, data) = match option {
        OptionSpec::EndOfList => return octets.push(0),
        OptionSpec::NoOperation => return octets.push(1),
        OptionSpec::MaximumSegmentSize(size) => (2, size.to_be_bytes().to_vec()),
        OptionSpec::WindowScale(shift) => (3, vec![shift.unwrap_or(0)]),
        OptionSpec::SackPermitted => (4, Vec::new()),
        OptionSpec::Sack(blocks) => (
            5,
            blocks
                .iter()
                .flat_map(|(left, right)| [left, right])
                .flat_map(|edge| edge.to_be_bytes())
                .collect(),
        ),
        OptionSpec::Timestamps { value, echo_reply } => {
            (8, [value, echo_reply].into_iter().flat_map(|stamp| stamp.unwrap_or(0).to_be_bytes()).collect())
        }
        OptionSpec::Md5(digest) => (19, digest.clone()),
        OptionSpec::FastOpen { cookie, experimental: false } => (34, cookie.clone()),
        OptionSpec::FastOpen { cookie, experimental: true } => {
            (EXPERIMENT, [&FAST_OPEN_MAGIC[..], cookie].concat())
        }
        OptionSpec::Other { kind, data } => (*kind, data.clone()),
    };
    let len = u8::try_from(data.len() + 2).unwrap_or(u8::MAX);
    octets.extend([kind, len]);
    octets.extend(data);
}

/// Reads options up to the end of the list or of `octets`; the error says what is malformed.
pub(super) fn decode(mut octets: &[u8]) -> Result<Vec<OptionSpec>, String> {
    let mut options = Vec::new();
    while let Some((&kind, rest)) = octets.split_first() {
        if kind <= 1 {
            options.push(if kind == 0 { OptionSpec::EndOfList } else { OptionSpec::NoOperation });
            octets = rest;
            continue;
        }
        let len = rest.first().copied().map_or(0, usize::from);
        let data =
            octets.get(2..len).ok_or_else(|| format!("TCP option {kind} has the impossible length {len}"))?;
        options.push(option(kind, data));
        octets = &octets[len..];
    }
    Ok(options)
}

fn option(kind: u8, data: &[u8]) -> OptionSpec {
    let word = |octets: &[u8]| octets.iter().fold(0, |word, octet| word << 8 | u32::from(*octet));
    match (kind, data) {
        (2, &[high, low]) => OptionSpec::MaximumSegmentSize(u16::from_be_bytes([high, low])),
        (3, &[shift]) => OptionSpec::WindowScale(Some(shift)),
        (4, []) => OptionSpec::SackPermitted,
        (5, blocks) if !blocks.is_empty() && blocks.len().is_multiple_of(8) => {
            OptionSpec::Sack(blocks.chunks(8).map(|block| (word(&block[..4]), word(&block[4..]))).collect())
        }
        (8, stamps) if stamps.len() == 8 => {
            OptionSpec::Timestamps { value: Some(word(&stamps[..4])), echo_reply: Some(word(&stamps[4..])) }
        }
        (19, digest) => OptionSpec::Md5(digest.to_vec()),
        (34, cookie) => OptionSpec::FastOpen { cookie: cookie.to_vec(), experimental: false },
        (EXPERIMENT, data) if data.starts_with(&FAST_OPEN_MAGIC) => {
            OptionSpec::FastOpen { cookie: data[2..].to_vec(), experimental: true }
        }
        (kind, data) => OptionSpec::Other { kind, data: data.to_vec() },
    }
}
