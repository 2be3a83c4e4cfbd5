//! Receive-side scaling: which queue a flow arrives on.
//!
//! A network card hashes addresses and ports with the Toeplitz function and a key of 40 octets, and looks up the low
//! bits of the hash in an indirection table. With the key and the table one can compute beforehand where a reply will arrive.
//! The order is that of Microsoft's RSS specification, which cards and virtio follow: source before destination, addresses before ports.

use std::net::{IpAddr, SocketAddr};

/// Octets of a key.
pub const KEY_LEN: usize = 40;
/// Entries of an indirection table, where nobody says otherwise.
pub const TABLE_LEN: usize = 128;
/// Octets of the longest input: two IPv6 addresses and two ports.
const INPUT_MAX: usize = 36;

/// The key of Microsoft's verification suite, which many drivers use as their default.
pub const MICROSOFT_KEY: [u8; KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, //
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, //
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// The Toeplitz function for one key.
///
/// The hash is the exclusive or, over all set bits of the input, of the 32 key bits that start at the bit's position.
/// Kept as one table per half octet of input: 4.5 KiB, and two loads per octet.
#[derive(Clone)]
pub struct Toeplitz {
    nibbles: Box<[[u32; 16]; 2 * INPUT_MAX]>,
}

impl Toeplitz {
    /// Prepares the tables for `key`.
    pub fn new(key: &[u8; KEY_LEN]) -> Toeplitz {
        let mut nibbles = Box::new([[0; 16]; 2 * INPUT_MAX]);
        for (position, table) in nibbles.iter_mut().enumerate() {
            for (value, hash) in table.iter_mut().enumerate() {
                *hash = (0..4)
                    .filter(|bit| value & (8 >> bit) != 0)
                    .fold(0, |hash, bit| hash ^ key_window(key, 4 * position + bit));
            }
        }
        Toeplitz { nibbles }
    }

    /// The hash of `input`, of which the first 36 octets count.
    pub fn hash(&self, input: &[u8]) -> u32 {
        let tables = self.nibbles.as_chunks::<2>().0;
        input.iter().zip(tables).fold(0, |hash, (octet, [high, low])| {
            hash ^ high[usize::from(octet >> 4)] ^ low[usize::from(octet & 15)]
        })
    }

    /// The hash of a TCP or UDP packet from `source` to `destination`. Zero if their IP versions differ.
    pub fn hash_ports(&self, source: SocketAddr, destination: SocketAddr) -> u32 {
        let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()];
        self.hash_addresses_and(source.ip(), destination.ip(), ports.as_flattened())
    }

    /// The hash of a packet of another protocol, or of a fragment.
    pub fn hash_addresses(&self, source: IpAddr, destination: IpAddr) -> u32 {
        self.hash_addresses_and(source, destination, &[])
    }

    /// What a destination port adds to the hash of a packet of IPv4 or IPv6: it is that of the same packet to port 0, exclusive or this.
    pub(crate) fn part_of_port(&self, is_v4: bool, port: u16) -> u32 {
        let mut input = [0; INPUT_MAX];
        let end = if is_v4 { 12 } else { 36 };
        input[end - 2..end].copy_from_slice(&port.to_be_bytes());
        self.hash(&input)
    }

    fn hash_addresses_and(&self, source: IpAddr, destination: IpAddr, ports: &[u8]) -> u32 {
        let mut input = [0; INPUT_MAX];
        let addresses_len = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                input[..4].copy_from_slice(&source.octets());
                input[4..8].copy_from_slice(&destination.octets());
                8
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                input[..16].copy_from_slice(&source.octets());
                input[16..32].copy_from_slice(&destination.octets());
                32
            }
            _ => return 0,
        };
        let len = addresses_len + ports.len();
        input[addresses_len..len].copy_from_slice(ports);
        self.hash(&input[..len])
    }
}

impl std::fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

/// The 32 bits of `key` that start at bit `start`, counted from the most significant.
fn key_window(key: &[u8; KEY_LEN], start: usize) -> u32 {
    let octet = |at: usize| u64::from(key.get(at).copied().unwrap_or(0));
    let five = (0..5).fold(0u64, |bits, at| bits << 8 | octet(start / 8 + at));
    (five >> (8 - start % 8)) as u32
}

/// Which queue receives which hashes: the low bits of a hash are the number of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectionTable(Box<[u16]>);

impl IndirectionTable {
    /// Spreads hashes evenly over `queues` queues, as drivers do by default.
    ///
    /// # Panics
    /// If `queues` is zero.
    pub fn even(queues: u16) -> IndirectionTable {
        assert!(queues > 0, "packets arrive somewhere");
        IndirectionTable((0..TABLE_LEN).map(|entry| (entry % usize::from(queues)) as u16).collect())
    }

    /// A table as a driver reports it. `None` unless its length is a power of two: no specification says which entry a hash
    /// has in one of another length.
    pub fn new(entries: &[u16]) -> Option<IndirectionTable> {
        entries.len().is_power_of_two().then(|| IndirectionTable(entries.into()))
    }

    /// The queue for `hash`.
    pub fn queue(&self, hash: u32) -> u16 {
        self.0[hash as usize & (self.0.len() - 1)]
    }

    /// The queue of each entry.
    pub fn entries(&self) -> &[u16] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Destination, source, hash of addresses, hash of addresses and ports: "Verifying the RSS hash calculation" in
    /// Microsoft's documentation of network drivers.
    const VECTORS: [(&str, &str, u32, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
        (
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    #[test]
    fn the_published_vectors_hash_as_published() {
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        for (destination, source, addresses, ports) in VECTORS {
            let (source, destination): (SocketAddr, SocketAddr) =
                (source.parse().unwrap(), destination.parse().unwrap());
            assert_eq!(toeplitz.hash_addresses(source.ip(), destination.ip()), addresses, "{source}");
            assert_eq!(toeplitz.hash_ports(source, destination), ports, "{source}");
        }
    }

    #[test]
    fn an_even_table_gives_each_queue_its_share() {
        let table = IndirectionTable::even(3);
        let shares = (0..3).map(|queue| (0..128).filter(|&hash| table.queue(hash) == queue).count());
        assert_eq!(shares.collect::<Vec<_>>(), [43, 43, 42]);
    }

    #[test]
    fn only_the_low_bits_choose_the_queue() {
        let table = IndirectionTable::even(4);
        assert_eq!(table.queue(0xffff_ff80), table.queue(0));
        let short = IndirectionTable::new(&[3, 1]).unwrap();
        assert_eq!([0, 1, 2, u32::MAX].map(|hash| short.queue(hash)), [3, 1, 3, 1]);
    }

    #[test]
    fn a_table_whose_length_is_no_power_of_two_is_not_understood() {
        assert_eq!([0, 3, 96, 192].map(|len| IndirectionTable::new(&vec![0; len])), [None, None, None, None]);
        let lens = [1, 64, 512, 2048];
        assert_eq!(lens.map(|len| IndirectionTable::new(&vec![0; len]).unwrap().entries().len()), lens);
    }
}
