//! Knot DNS.

use super::{Settings, version};
use crate::{Child, Directory, Lab, LabError, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side, Zone};

/// Starts Knot with one UDP worker; with `xdp`, UDP goes over AF_XDP.
pub(super) fn start(
    lab: &Lab,
    zone: &Zone,
    directory: &Directory,
    xdp: bool,
    more: &Settings,
) -> Result<Child, LabError> {
    let config = directory.write("knot.conf", &config(zone, directory, xdp, more))?;
    lab.spawn_in(Side::Server, &version::KNOT.program(), &["-c", &config.display().to_string()])
}

fn config(zone: &Zone, directory: &Directory, xdp: bool, more: &Settings) -> String {
    let own = directory.path().display();
    let (origin, file) = (&zone.origin, zone.file.display());
    let Settings { server, zone: more_of_zone } = more;
    let xdp = if xdp { format!("xdp:\n    listen: {SERVER_INTERFACE}@53\n") } else { String::new() };
    format!(
        r#"server:
    rundir: "{own}"
    listen: [ {SERVER_V4}@53, {SERVER_V6}@53 ]
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
{xdp}log:
  - target: stderr
    any: error
database:
    storage: "{own}"
{server}zone:
  - domain: {origin}
    file: "{file}"
    zonefile-sync: -1
    journal-content: none
    semantic-checks: off
{more_of_zone}"#
    )
}
