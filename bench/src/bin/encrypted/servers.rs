//! Servers that speak DNS over TLS and what follows it: NSD, BIND and Sidestep, each with one worker on the server's core.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lab::{
    Child, Directory, Lab, LabError, Peer, SERVER_V4, Settings, Side, Zone, server_core, sidestep_binary,
};

const TLS: u16 = 853;
const HTTPS: u16 = 443;
/// Time from start until connections are taken.
const START_MAX: Duration = Duration::from_secs(60);

/// Who serves.
#[derive(Clone, Copy)]
pub(crate) enum Server {
    Nsd,
    Bind,
    Sidestep,
}

/// The certificate and the key of every server.
pub(crate) struct Secret {
    certificate: String,
    key: String,
}

impl Secret {
    /// What [`lab::make_certificate`] has made there.
    pub(crate) fn in_directory(directory: &Directory) -> Secret {
        let file = |name: &str| directory.path().join(name).display().to_string();
        Secret { certificate: file("certificate.pem"), key: file("key.pem") }
    }
}

/// A server that serves, until it is dropped.
pub(crate) struct Running {
    _process: Child,
    _directory: Directory,
}

impl Server {
    /// Its name in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Server::Nsd => Peer::Nsd.name(),
            Server::Bind => "BIND, kernel sockets".to_owned(),
            Server::Sidestep => "Sidestep, kernel sockets".to_owned(),
        }
    }

    pub(crate) fn start(self, lab: &Lab, zone: &Zone, secret: &Secret) -> Result<Running, LabError> {
        let directory = Directory::new()?;
        let mut process = match self {
            Server::Nsd => lab::start_nsd(lab, zone, &directory, &Settings::of_server(&nsd(secret)))?,
            Server::Bind => {
                let config = directory.write("named.conf", &bind(zone, secret, &directory))?;
                let words = ["-g", "-n", "1", "-c", &config.display().to_string()];
                lab.spawn_in(Side::Server, "named", &words)?
            }
            Server::Sidestep => {
                let config = directory.write("dns.toml", &sidestep(zone, secret))?.display().to_string();
                let core = server_core().to_string();
                let words = ["dns", "serve", "--config", &config, "--cores", &core, "--user", "root"];
                lab.spawn_in(Side::Server, &sidestep_binary().display().to_string(), &words)?
            }
        };
        wait(lab, &mut process)?;
        Ok(Running { _process: process, _directory: directory })
    }
}

/// All of them take connections for TLS.
fn wait(lab: &Lab, process: &mut Child) -> Result<(), LabError> {
    let server = SocketAddr::new(SERVER_V4.parse().expect("an address"), TLS);
    let deadline = Instant::now() + START_MAX;
    while Instant::now() < deadline && process.try_wait().is_none() {
        let connect = || TcpStream::connect_timeout(&server, Duration::from_secs(1));
        if lab.inside(Side::Client, connect).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err(process.not_seen("connection to its port for TLS".to_owned(), START_MAX))
}

/// What NSD needs for TLS.
fn nsd(secret: &Secret) -> String {
    let Secret { certificate, key } = secret;
    format!(
        "  ip-address: {SERVER_V4}@{TLS}\n  tls-port: {TLS}\n  tls-service-key: \"{key}\"\n  tls-service-pem: \"{certificate}\"\n  \
         tcp-count: 1000\n"
    )
}

fn bind(zone: &Zone, secret: &Secret, own: &Directory) -> String {
    let Secret { certificate, key } = secret;
    let (origin, file, own) = (&zone.origin, zone.file.display(), own.path().display());
    format!(
        r#"tls local {{ cert-file "{certificate}"; key-file "{key}"; }};
options {{
  directory "{own}";
  pid-file none;
  session-keyfile none;
  listen-on port 53 {{ {SERVER_V4}; }};
  listen-on port {TLS} tls local {{ {SERVER_V4}; }};
  listen-on port {HTTPS} tls local http default {{ {SERVER_V4}; }};
  listen-on-v6 {{ none; }};
  recursion no;
  minimal-responses yes;
  tcp-clients 1000;
  http-listener-clients 1000;
  notify no;
  dnssec-validation no;
}};
logging {{ category default {{ null; }}; }};
controls {{ }};
zone "{origin}" {{ type primary; file "{file}"; }};
"#
    )
}

fn sidestep(zone: &Zone, secret: &Secret) -> String {
    let Secret { certificate, key } = secret;
    let (origin, file) = (&zone.origin, zone.file.display());
    format!(
        r#"listen = ["{SERVER_V4}:53"]
[[zone]]
origin = "{origin}"
file = "{file}"
[encrypted]
certificate = "{certificate}"
key = "{key}"
tls = ["{SERVER_V4}:{TLS}"]
https = ["{SERVER_V4}:{HTTPS}"]
quic = ["{SERVER_V4}:{TLS}"]
"#
    )
}
