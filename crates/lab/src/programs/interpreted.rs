//! Programs in Python, Node and Java: the smallest that use each runtime's own networking.

use super::web::large_file;
use super::{Program, Ready};

/// Debian's Python.
const PYTHON: &str = "/usr/bin/python3";

const ECHO: &str = include_str!("../../programs/echo.py");
const QUIC: &str = include_str!("../../programs/quic_echo.py");
const HTTP_JS: &str = include_str!("../../programs/http.js");
const HTTP_JAVA: &str = include_str!("../../programs/Http.java");
const ECHO_JAVA: &str = include_str!("../../programs/Echo.java");

/// `python3 -m http.server` on port 8000, a thread for each connection: serves `large` and `small`.
pub fn http_server() -> Program {
    Program::new(
        "Python http.server",
        &format!("{PYTHON} -u -m http.server 8000 --bind 0.0.0.0 --directory {{dir}}/www"),
    )
    .prepare(&large_file())
    .prepare("echo 'Hello, world!' > www/small")
    .ready(Ready::Port(8000))
}

/// asyncio on port 7000 of TCP and UDP: an echo server.
pub fn asyncio_echo() -> Program {
    Program::new("Python asyncio", &format!("{PYTHON} {{dir}}/echo.py 7000"))
        .file("echo.py", ECHO)
        .ready(Ready::Line("ready"))
}

/// The same on uvloop.
pub fn uvloop_echo() -> Program {
    Program::new("Python uvloop", "{tools}/python/bin/python {dir}/echo.py 7000 uvloop")
        .file("echo.py", ECHO)
        .ready(Ready::Line("ready:  uvloop"))
}

/// aioquic on port 4433 of UDP: `server` echoes each stream; `client SECONDS` sends streams to the other side's server.
pub fn quic_echo(role: &str) -> Program {
    let program = Program::new("Python aioquic", "{tools}/python/bin/python {dir}/quic_echo.py")
        .file("quic_echo.py", QUIC);
    match role.split_once(' ') {
        Some(("client", seconds)) => program.with_words(&format!("client {{peer}} 4433 {seconds}")),
        _ => program
            .with_words("server {own} 4433 cert.pem key.pem")
            .prepare(CERTIFICATE)
            .ready(Ready::Line("ready")),
    }
}

/// A script that makes `cert.pem` and `key.pem`.
pub(super) const CERTIFICATE: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
     -keyout key.pem -out cert.pem -days 2 -subj /CN=lab 2>/dev/null";

/// Node's HTTP server on port 3000.
pub fn node_http() -> Program {
    Program::new("Node http", "node {dir}/http.js 3000").file("http.js", HTTP_JS).ready(Ready::Line("ready"))
}

/// The same by a cluster of two workers, to which the primary process passes connections, or whose socket they share.
pub fn node_cluster(shares_socket: bool) -> Program {
    let (policy, name) = match shares_socket {
        true => ("none", "Node cluster, shared socket"),
        false => ("rr", "Node cluster"),
    };
    Program::new(name, "node {dir}/http.js 3000 2")
        .file("http.js", HTTP_JS)
        .variable("NODE_CLUSTER_SCHED_POLICY", policy)
        .ready(Ready::Line("ready"))
}

/// The HTTP server of the JDK on port 8080.
pub fn java_http() -> Program {
    java("Java HttpServer", "Http", HTTP_JAVA, 8080)
}

/// A selector of `java.nio` on port 7000 of TCP and UDP: an echo server.
pub fn java_nio() -> Program {
    java("Java NIO", "Echo", ECHO_JAVA, 7000)
}

fn java(name: &str, class: &str, source: &str, port: u16) -> Program {
    // A small heap and the simplest collector, which start sooner. No delay between head and body of a response.
    let options = "-Xmx128m -XX:+UseSerialGC -Dsun.net.httpserver.nodelay=true";
    Program::new(name, &format!("java {options} -cp {{dir}} {class} {port}"))
        .file(&format!("{class}.java"), source)
        .prepare(&format!("javac -J-XX:+UseSerialGC -J-XX:TieredStopAtLevel=1 {class}.java"))
        .ready(Ready::Line("ready"))
}

/// The interpreters of CPython's tests run this first: it makes the tests' servers listen at another address of this host.
const SITE_CUSTOMIZE: &str = "\
    try:\n    from test.support import socket_helper\n    socket_helper.HOST = socket_helper.HOSTv4 = '{host}'\n    \
    socket_helper.bind_port.__defaults__ = (socket_helper.HOST,)\n\
    except ImportError:\n    pass\n";

/// CPython's own tests at an address of this host, with more arguments; the results are in the file `results.xml`. Tests of virtual
/// machines' own sockets are left out: all namespaces share such sockets, and other programs may use them.
pub fn python_suite(host: &str, arguments: &str) -> Program {
    let fixed = "-m test --junit-xml {dir}/results.xml --ignore *VSOCK* --timeout 300";
    Program::new("CPython tests", &format!("{PYTHON} {fixed} {arguments}"))
        .file("sitecustomize.py", &SITE_CUSTOMIZE.replace("{host}", host))
        .variable("PYTHONPATH", "{dir}")
}
