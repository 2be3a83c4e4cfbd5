//! NSD.

use super::{Settings, version};
use crate::{Child, Directory, Lab, LabError, SERVER_V4, SERVER_V6, Side, Zone};

/// Starts NSD with one server process, and with more of its configuration.
///
/// # Errors
/// If it cannot be started.
pub fn start(lab: &Lab, zone: &Zone, directory: &Directory, more: &Settings) -> Result<Child, LabError> {
    let config = directory.write("nsd.conf", &config(zone, directory, more))?;
    lab.spawn_in(Side::Server, &version::NSD.program(), &["-d", "-c", &config.display().to_string()])
}

fn config(zone: &Zone, directory: &Directory, more: &Settings) -> String {
    let Settings { server, zone: more_of_zone } = more;
    let own = directory.path().display();
    let zones = zone.directory().display();
    let (origin, file) = (&zone.origin, zone.file.display());
    format!(
        r#"server:
  server-count: 1
  ip-address: {SERVER_V4}@53
  ip-address: {SERVER_V6}@53
  username: ""
  chroot: ""
  database: ""
  zonesdir: "{zones}"
  pidfile: "{own}/nsd.pid"
  xfrdfile: "{own}/xfrd.state"
  xfrdir: "{own}"
  zonelistfile: "{own}/zone.list"
  logfile: "{own}/nsd.log"
  verbosity: 0
  rrl-ratelimit: 0
  minimal-responses: yes
{server}remote-control:
  control-enable: no
zone:
  name: "{origin}"
  zonefile: "{file}"
{more_of_zone}"#
    )
}
