//! Servers of one small page, on port 80 of the server's first address.

use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::{
    Child, Directory, Lab, LabError, SERVER_INTERFACE, SERVER_V4, Side, example_binary, server_core,
};

/// A web server, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpPeer {
    /// nginx with one worker, on kernel sockets.
    Nginx,
    /// The example `http_hello`, on our own stack over AF_XDP; polls for packets for 200 us before it sleeps.
    Hello,
    /// The same without polling: the processor time that it uses is work.
    HelloAsleep,
}

/// A running web server. It ends when its owner drops it.
pub struct HttpServer {
    /// The process.
    pub process: Child,
    /// Its configuration and output files; removed after the process.
    pub directory: Directory,
}

/// Time from start to first connection.
const START_MAX: Duration = Duration::from_secs(60);

impl HttpPeer {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            HttpPeer::Nginx => "nginx, kernel",
            HttpPeer::Hello => "http_hello, AF_XDP",
            HttpPeer::HelloAsleep => "http_hello, AF_XDP, sleeping",
        }
    }

    /// Starts it in the server's namespace; returns when it accepts a connection from the client's.
    pub fn start(self, lab: &Lab) -> Result<HttpServer, LabError> {
        let directory = Directory::new()?;
        let process = match self {
            HttpPeer::Nginx => start_nginx(lab, &directory)?,
            // If a client pauses no longer than this, the server is still awake.
            HttpPeer::Hello => start_hello(lab, "200")?,
            HttpPeer::HelloAsleep => start_hello(lab, "0")?,
        };
        let mut server = HttpServer { process, directory };
        server.wait_until_it_accepts(lab)?;
        Ok(server)
    }
}

impl HttpServer {
    fn wait_until_it_accepts(&mut self, lab: &Lab) -> Result<(), LabError> {
        let server = SocketAddr::new(SERVER_V4.parse().expect("an address"), 80);
        let connect = || TcpStream::connect_timeout(&server, Duration::from_secs(2));
        let deadline = Instant::now() + START_MAX;
        while Instant::now() < deadline && self.process.try_wait().is_none() {
            if lab.inside(Side::Client, connect).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(self.process.not_seen("connection to port 80".to_owned(), START_MAX))
    }
}

fn start_nginx(lab: &Lab, directory: &Directory) -> Result<Child, LabError> {
    let place = directory.path().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {place}/{kind};\n"))
        .concat();
    let text = format!(
        "worker_processes 1;\nmaster_process off;\ndaemon off;\npid {place}/pid;\nerror_log stderr;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{temporary}  access_log off;\n  keepalive_requests 1000000000;\n  default_type text/plain;\n  \
         server {{ listen {SERVER_V4}:80 backlog=4096; location / {{ return 200 \"Hello, world!\\n\"; }} }}\n}}\n"
    );
    let file = directory.write("nginx.conf", &text)?.display().to_string();
    lab.spawn_in(Side::Server, "nginx", &["-c", &file, "-e", "stderr", "-p", &place.to_string()])
}

fn start_hello(lab: &Lab, spin_us: &str) -> Result<Child, LabError> {
    let program = example_binary("http_hello").display().to_string();
    let (listen, core) = (format!("{SERVER_V4}:80"), server_core().to_string());
    let arguments = ["--device", SERVER_INTERFACE, "--listen", &listen, "--core", &core];
    let mut process =
        lab.spawn_in(Side::Server, &program, &[&arguments[..], &["--spin-us", spin_us]].concat())?;
    process.wait_for_line("ready", START_MAX)?;
    Ok(process)
}
