//! Databases in the MaxMind DB format 2.0, for tests: no file of theirs is at hand.

use std::net::{IpAddr, Ipv6Addr};

/// A value of the data section.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text.
    Text(&'static str),
    /// A number.
    Number(u32),
    /// A number of two octets.
    Short(u16),
    /// A number of eight octets.
    Long(u64),
    /// Values by name.
    Map(Vec<(&'static str, Value)>),
    /// Values in order.
    List(Vec<Value>),
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        let short =
            |len: usize| u8::try_from(len).ok().filter(|len| *len < 29).expect("few values are enough");
        match self {
            Value::Text(text) => {
                match text.len() {
                    len @ ..29 => out.push(2 << 5 | len as u8),
                    len => out.extend_from_slice(&[2 << 5 | 29, (len - 29) as u8]),
                }
                out.extend_from_slice(text.as_bytes());
            }
            Value::Number(number) => {
                out.push(6 << 5 | 4);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Short(number) => {
                out.push(5 << 5 | 2);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Long(number) => {
                out.extend_from_slice(&[8, 9 - 7]);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Map(entries) => {
                out.push(7 << 5 | short(entries.len()));
                for (name, value) in entries {
                    Value::Text(name).write(out);
                    value.write(out);
                }
            }
            Value::List(values) => {
                out.extend_from_slice(&[short(values.len()), 11 - 7]);
                values.iter().for_each(|value| value.write(out));
            }
        }
    }
}

/// Where a bit leads.
#[derive(Clone, Copy)]
enum Branch {
    Nothing,
    Node(usize),
    /// Offset in the data section.
    Data(usize),
}

/// A database of these networks, none of which holds another one. IPv4 networks are below `::/96`, as the format says.
pub fn mmdb(networks: &[(&str, u8, Value)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Branch::Nothing; 2]], Vec::new());
    for (address, length, value) in networks {
        let offset = data.len();
        value.write(&mut data);
        let (bits, length) = match address.parse().expect("an address") {
            IpAddr::V4(own) => (u128::from(own.to_bits()), length + 96),
            IpAddr::V6(own) => (Ipv6Addr::to_bits(own), *length),
        };
        let mut at = 0;
        for depth in 0..length {
            let bit = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == length {
                nodes[at][bit] = Branch::Data(offset);
                break;
            }
            let next = match nodes[at][bit] {
                Branch::Node(next) => next,
                _ => nodes.len(),
            };
            if next == nodes.len() {
                nodes.push([Branch::Nothing; 2]);
                nodes[at][bit] = Branch::Node(next);
            }
            at = next;
        }
    }
    let count = nodes.len();
    let number = |branch: Branch| match branch {
        Branch::Nothing => count,
        Branch::Node(number) => number,
        Branch::Data(offset) => count + 16 + offset,
    };
    let records = nodes.iter().flatten().flat_map(|branch| (number(*branch) as u32).to_be_bytes());
    let mut file: Vec<u8> = records.collect();
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(&data);
    file.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let metadata = [
        ("binary_format_major_version", Value::Short(2)),
        ("binary_format_minor_version", Value::Short(0)),
        ("build_epoch", Value::Long(1)),
        ("database_type", Value::Text("Test")),
        ("description", Value::Map(Vec::new())),
        ("ip_version", Value::Short(6)),
        ("languages", Value::List(Vec::new())),
        ("node_count", Value::Number(count as u32)),
        ("record_size", Value::Short(32)),
    ];
    Value::Map(metadata.to_vec()).write(&mut file);
    file
}
