//! The zones: a root, three top-level domains, and twenty below them, half of them signed.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use lab::{Directory, LabError};

use crate::clock;

/// Top-level domains.
pub(crate) const TOP: [&str; 3] = ["alpha.", "beta.", "gamma."];
/// Zones below them that are asked for all the time.
pub(crate) const ZONES: usize = 20;
/// The one after these: unsigned, and all of its servers are slow.
pub(crate) const SLOW: usize = ZONES;
/// Servers of each.
pub(crate) const SERVERS: usize = 4;
/// Servers of the root, and of each top-level domain.
pub(crate) const UPPER_SERVERS: usize = 2;

/// Names of each unsigned zone whose address is the time.
pub(crate) const CLOCKS: u64 = 12;

/// A zone with its file.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub(crate) origin: String,
    pub(crate) file: String,
    /// Its DS record's owner and data, if it is signed.
    ds: Option<String>,
}

/// All of them; the last of the leaves is [`SLOW`].
#[derive(Debug)]
pub(crate) struct Zones {
    pub(crate) root: Zone,
    pub(crate) top: Vec<Zone>,
    pub(crate) leaves: Vec<Zone>,
}

/// The origin of one of the twenty.
pub(crate) fn leaf(number: usize) -> String {
    format!("zone{number}.{}", TOP[number % TOP.len()])
}

/// Whether one of the twenty is signed.
pub(crate) fn is_signed(number: usize) -> bool {
    number % 2 == 1
}

/// A server's address; servers are counted from 0.
pub(crate) fn leaf_server(zone: usize, server: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 53, 10 + zone as u8, 1 + server as u8)
}

/// A server of a top-level domain.
pub(crate) fn top_server(domain: usize, server: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 53, 2 + domain as u8, 1 + server as u8)
}

/// A server of the root.
pub(crate) fn root_server(server: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 53, 1, 1 + server as u8)
}

/// The address of every name in one of the twenty zones.
pub(crate) fn address_in(zone: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 1 + zone as u8)
}

/// What resolvers start with.
pub(crate) fn hints() -> String {
    let line =
        |server| format!(". 3600 NS ns{server}.root.\nns{server}.root. 3600 A {}\n", root_server(server));
    (0..UPPER_SERVERS).map(line).collect()
}

impl Zones {
    /// Writes and signs them; each of the twenty has so many names, `n0` and on.
    pub(crate) fn make(directory: &Directory, names: usize) -> Result<Zones, LabError> {
        let leaves = (0..=SLOW).map(|number| {
            let text = apex(|server| leaf_server(number, server), SERVERS);
            let address = address_in(number);
            let clocks = if is_signed(number) { 0 } else { CLOCKS };
            let clock = |name| format!("clock{name} {} A {}\n", clock::TTL.as_secs(), clock::ADDRESS);
            let text = (0..clocks).map(clock).fold(text, |text, line| text + &line);
            let text = (0..names).fold(text, |text, name| text + &format!("n{name} A {address}\n"));
            write(directory, &leaf(number), &text, is_signed(number))
        });
        let leaves: Vec<Zone> = leaves.collect::<Result<_, _>>()?;
        let top = TOP.iter().enumerate().map(|(domain, origin)| {
            let mut text = apex(|server| top_server(domain, server), UPPER_SERVERS);
            for (number, zone) in leaves.iter().enumerate().filter(|(number, _)| number % TOP.len() == domain)
            {
                delegate(&mut text, zone, |server| leaf_server(number, server), SERVERS);
            }
            write(directory, origin, &text, true)
        });
        let top: Vec<Zone> = top.collect::<Result<_, _>>()?;
        let mut text = String::new();
        for server in 0..UPPER_SERVERS {
            let _ = writeln!(text, "@ NS ns{server}.root.\nns{server}.root. A {}", root_server(server));
        }
        for (domain, zone) in top.iter().enumerate() {
            delegate(&mut text, zone, |server| top_server(domain, server), UPPER_SERVERS);
        }
        Ok(Zones { root: write(directory, ".", &text, true)?, top, leaves })
    }

    /// The DS record of the root's key.
    pub(crate) fn anchor(&self) -> String {
        self.root.ds.clone().unwrap_or_default()
    }
}

fn apex(address: impl Fn(usize) -> Ipv4Addr, servers: usize) -> String {
    (0..servers).map(|server| format!("@ NS ns{server}\nns{server} A {}\n", address(server))).collect()
}

fn delegate(parent: &mut String, zone: &Zone, address: impl Fn(usize) -> Ipv4Addr, servers: usize) {
    let origin = &zone.origin;
    for server in 0..servers {
        let _ =
            writeln!(parent, "{origin} NS ns{server}.{origin}\nns{server}.{origin} A {}", address(server));
    }
    if let Some(ds) = &zone.ds {
        let _ = writeln!(parent, "{ds}");
    }
}

/// Writes a zone's file, and signs it by BIND's tools.
fn write(directory: &Directory, origin: &str, text: &str, is_signed: bool) -> Result<Zone, LabError> {
    let name = if origin == "." { "root.zone".to_owned() } else { format!("{origin}zone") };
    let text = format!("$ORIGIN {origin}\n$TTL 3600\n@ SOA ns0 hostmaster 1 3600 900 86400 60\n{text}");
    let file = directory.write(&name, &text)?.display().to_string();
    if !is_signed {
        return Ok(Zone { origin: origin.to_owned(), file, ds: None });
    }
    let path = directory.path();
    run(path, "dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", "-f", "KSK", origin])?;
    run(path, "dnssec-keygen", &["-q", "-a", "ECDSAP256SHA256", origin])?;
    run(path, "dnssec-signzone", &["-q", "-S", "-o", origin, &name])?;
    let ds =
        std::fs::read_to_string(path.join(format!("dsset-{origin}"))).map_err(LabError::system("dsset"))?;
    // The tool breaks the digest in two.
    let words: Vec<&str> = ds.lines().next().unwrap_or_default().split_whitespace().collect();
    let (head, digest) = words.split_at(words.len().min(6));
    let ds = format!("{} {}", head.join(" "), digest.concat());
    Ok(Zone { origin: origin.to_owned(), file: format!("{file}.signed"), ds: Some(ds) })
}

fn run(directory: &Path, program: &str, words: &[&str]) -> Result<(), LabError> {
    let failed =
        |output: String| LabError::Command { command: format!("{program} {}", words.join(" ")), output };
    let output = Command::new(program).args(words).current_dir(directory).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}
