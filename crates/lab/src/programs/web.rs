//! Web servers.

use super::{Program, Ready};

/// Octets of the file `large` that [`Nginx`] and others serve; `large.sum` is its SHA-256 checksum.
pub const LARGE: u64 = 8_000_000;

/// nginx on port 80: `/` is one line, `/large` a file of [`LARGE`] octets; what a client uploads to `/put/` is stored.
#[derive(Clone, Copy, Debug)]
pub struct Nginx {
    /// Its worker processes.
    pub workers: u32,
    /// Whether each worker has its own listening socket.
    pub reuseport: bool,
    /// Whether it goes into the background, as under init scripts; only then can its binary be replaced while it runs.
    pub daemon: bool,
    /// Whether workers take turns at `accept`, by a lock of nginx's own.
    pub takes_turns: bool,
}

impl Nginx {
    /// With so many workers.
    pub fn with_workers(workers: u32) -> Nginx {
        Nginx { workers, reuseport: false, daemon: false, takes_turns: false }
    }

    /// With this text at `/`.
    pub fn saying(self, greeting: &str) -> Program {
        self.serving("", &format!("return 200 \"{greeting}\\n\";"))
    }

    /// A proxy: what it has at `/` is from the web server on port 80 of the other side, by connections that it keeps.
    pub fn in_front_of_a_peer(self) -> Program {
        let kept = "  upstream peer { server {peer}:80; keepalive 16; }\n";
        let pass = "proxy_pass http://peer; proxy_http_version 1.1; proxy_set_header Connection \"\";";
        self.serving(kept, pass)
    }

    /// With these lines for all of HTTP, and these for what is at `/`.
    fn serving(self, http: &str, root: &str) -> Program {
        let place = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("  {kind}_temp_path {{dir}}/{kind};\n"))
            .concat();
        let reuseport = if self.reuseport { " reuseport" } else { "" };
        let turns = if self.takes_turns { "on" } else { "off" };
        let config = format!(
            "worker_processes {};\ndaemon {};\npid {{dir}}/pid;\nerror_log {{dir}}/error.log notice;\n\
             worker_rlimit_nofile 20000;\nevents {{ worker_connections 16384; accept_mutex {turns}; }}\nhttp {{\n{place}{http}  access_log off;\n  sendfile on;\n  \
             keepalive_requests 1000000000;\n  default_type text/plain;\n  server {{\n    \
             listen 80 backlog=4096{reuseport};\n    listen [::]:80 backlog=4096{reuseport};\n    root {{dir}}/www;\n    \
             location = / {{ {root} }}\n    \
             location /put/ {{ dav_methods PUT; client_max_body_size 64m; }}\n  }}\n}}\n",
            self.workers,
            if self.daemon { "on" } else { "off" },
        );
        let program = Program::new(
            &format!("nginx, {} worker{}", self.workers, if self.workers == 1 { "" } else { "s" }),
            "/usr/sbin/nginx -c {dir}/nginx.conf -e {dir}/error.log -p {dir}",
        )
        .file("nginx.conf", &config)
        .prepare(&large_file())
        .prepare("mkdir -m 777 www/put")
        .ready(Ready::Port(80));
        if self.daemon { program.daemon() } else { program }
    }

    /// With a greeting at `/`.
    pub fn program(self) -> Program {
        self.saying("Hello, world!")
    }
}

/// A script that makes `www/large`, pseudo-random and the same every time, and its checksum.
pub(super) fn large_file() -> String {
    format!(
        "mkdir -m 755 www; head -c {LARGE} /dev/zero | openssl enc -aes-128-ctr -nosalt -K 00 -iv 00 2>/dev/null > www/large; \
         sha256sum < www/large | cut -d' ' -f1 > large.sum"
    )
}

/// haproxy with two threads on port 8080, in front of a web server on port 80 of the other side.
pub fn haproxy() -> Program {
    let config = "global\n  nbthread 2\n  maxconn 4000\n  user nobody\ndefaults\n  mode http\n  timeout connect 5s\n  \
                  timeout client 10s\n  timeout server 10s\n  option redispatch\nfrontend front\n  \
                  bind 0.0.0.0:8080\n  bind [::]:8080 v6only\n  default_backend back\nbackend back\n  server web {peer}:80\n";
    Program::new("haproxy, 2 threads", "haproxy -db -f {dir}/haproxy.cfg")
        .file("haproxy.cfg", config)
        .ready(Ready::Port(8080))
}
