//! Measuring tools, secure shells and name servers.

use super::interpreted::CERTIFICATE;
use super::{Program, Ready};
use crate::message;

/// `openssl s_server` on port 4433: serves files, and prints what each connection negotiated (`-WWW`).
pub fn openssl_server() -> Program {
    Program::new("openssl s_server", "openssl s_server -accept 4433 -cert cert.pem -key key.pem -WWW")
        .prepare(CERTIFICATE)
        .prepare("echo 'Hello, world!' > page")
        .ready(Ready::Line("ACCEPT"))
}

/// sshd on port 2222, for root with the key `user`.
pub fn sshd() -> Program {
    let config = "Port 2222\nListenAddress 0.0.0.0\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/user.pub\nStrictModes no\n\
                  UsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
                  MaxStartups 100\nSubsystem sftp internal-sftp\n";
    Program::new("OpenSSH sshd", "/usr/sbin/sshd -D -e -f {dir}/sshd_config")
        .file("sshd_config", config)
        .prepare("mkdir -p /run/sshd; for key in host user; do ssh-keygen -q -t ed25519 -N '' -f $key; done")
        .ready(Ready::Line("Server listening"))
}

/// `iperf3 -s` on port 5201.
pub fn iperf3() -> Program {
    Program::new("iperf3", "iperf3 --server --forceflush").ready(Ready::Line("Server listening"))
}

/// `sockperf server` on port 11111 of UDP, or of TCP.
pub fn sockperf(tcp: bool) -> Program {
    let program = Program::new("sockperf", "sockperf server -i 0.0.0.0 -p 11111")
        .ready(Ready::Line("using recvfrom() to block"));
    if tcp { program.with_words("--tcp") } else { program }
}

/// dnsmasq on port 53 of UDP and TCP: everything below `example.com` is 192.0.2.3.
pub fn dnsmasq() -> Program {
    Program::new(
        "dnsmasq",
        "dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --user=nobody --pid-file= \
         --log-facility=- --address=/example.com/192.0.2.3",
    )
    .ready(Ready::Answer(53, message::query(1, "mail.example.com", message::A)))
}

/// NSD with one server process on port 53 of the side's addresses; `mail.example.com` is 192.0.2.3.
pub fn nsd() -> Program {
    let config = "server:\n  server-count: 1\n  ip-address: {own}@53\n  ip-address: {own6}@53\n  username: \"\"\n  \
                  chroot: \"\"\n  database: \"\"\n  zonesdir: \"{dir}\"\n  pidfile: \"{dir}/nsd.pid\"\n  \
                  xfrdfile: \"{dir}/xfrd.state\"\n  xfrdir: \"{dir}\"\n  zonelistfile: \"{dir}/zone.list\"\n  \
                  rrl-ratelimit: 0\nremote-control:\n  control-enable: no\nzone:\n  \
                  name: \"example.com\"\n  zonefile: \"example.com.zone\"\n";
    let zone = "$ORIGIN example.com.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 192.0.2.1\n\
                mail A 192.0.2.3\n";
    Program::new("NSD", "nsd -d -c {dir}/nsd.conf")
        .file("nsd.conf", config)
        .file("example.com.zone", zone)
        .ready(Ready::Answer(53, message::query(1, "mail.example.com", message::A)))
}
