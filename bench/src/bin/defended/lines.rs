//! Two lines that have an address of their own for each name that is asked for: that of who asks, and one of nobody here.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use lab::{Directory, Lab, LabError, Questions, SERVER_V4, Settings, Side};

struct Line {
    name: &'static str,
    network: &'static str,
    /// What it has for the first name. Each name has the address after that of the name before.
    first: Ipv4Addr,
}

/// The asker's line comes first.
const LINES: [Line; 2] = [
    Line { name: "near", network: "10.53.0.0/24", first: Ipv4Addr::new(100, 64, 0, 0) },
    Line { name: "far", network: "198.51.100.0/24", first: Ipv4Addr::new(100, 96, 0, 0) },
];
const TTL: u32 = 300;

/// How servers are told of the lines, and what the asker's line has.
pub(crate) struct Lines {
    pub(crate) knot: Settings,
    pub(crate) sidestep: Settings,
    /// A name, and the address that its line gives it.
    sample: (String, Ipv4Addr),
}

impl Lines {
    /// Writes what servers read, for all names of `questions`.
    pub(crate) fn of(questions: &Questions, directory: &Directory) -> Result<Lines, LabError> {
        let what = questions.file.display().to_string();
        let text = std::fs::read_to_string(&questions.file).map_err(LabError::system(what.clone()))?;
        let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let first = names.first().ok_or(LabError::Report { field: "question", report: what })?;
        Ok(Lines {
            knot: knot(&names, directory)?,
            sidestep: sidestep(&names, directory)?,
            sample: ((*first).to_owned(), LINES[0].address(0)),
        })
    }

    /// # Errors
    /// The asker gets something else than the address that its line has.
    pub(crate) fn check(&self, lab: &Lab) -> Result<(), LabError> {
        let (name, wanted) = &self.sample;
        let output = lab.run_in(Side::Client, "dig", &[&format!("@{SERVER_V4}"), name, "A", "+short"])?;
        if output.trim() == wanted.to_string() {
            return Ok(());
        }
        let output = format!("got {:?}, but its line has {wanted}", output.trim());
        Err(LabError::Command { command: format!("dig {name}"), output })
    }
}

impl Line {
    fn address(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() + number)
    }
}

/// The module of Knot reads its own file, a list of networks for each name.
fn knot(names: &[&str], directory: &Directory) -> Result<Settings, LabError> {
    let mut text = String::new();
    for (number, name) in (0..).zip(names) {
        let _ = writeln!(text, "{name}:"); // A String takes everything.
        for line in &LINES {
            let _ = writeln!(text, "  - net: {}\n    A: {}", line.network, line.address(number));
        }
    }
    let file = directory.write("geo.conf", &text)?;
    let server = format!(
        "mod-geoip:\n  - id: lines\n    config-file: \"{}\"\n    mode: subnet\n    ttl: {TTL}\n",
        file.display()
    );
    Ok(Settings { server, zone: "    module: mod-geoip/lines\n".to_owned() })
}

/// Each line has a zone file.
fn sidestep(names: &[&str], directory: &Directory) -> Result<Settings, LabError> {
    let (mut server, mut files) = (String::new(), Vec::new());
    for line in &LINES {
        let mut text = format!("$TTL {TTL}\n");
        for (number, name) in (0..).zip(names) {
            let _ = writeln!(text, "{name}. A {}", line.address(number));
        }
        let Line { name, network, .. } = line;
        let file = directory.write(&format!("{name}.zone"), &text)?;
        files.push(format!("{name} = \"{}\"", file.display()));
        let _ = write!(server, "[[line]]\nname = \"{name}\"\nprefixes = [\"{network}\"]\n");
    }
    Ok(Settings { server, zone: format!("lines = {{ {} }}\n", files.join(", ")) })
}
