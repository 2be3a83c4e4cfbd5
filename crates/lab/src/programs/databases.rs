//! Databases and caches.

use super::{Program, Ready};

/// redis on port 6379, with more options: words of its command line.
pub fn redis(options: &str) -> Program {
    let fixed = "redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --dir {dir} --daemonize no \
                 --enable-debug-command yes";
    // It hands over an empty argument: no automatic snapshots.
    Program::new("redis", fixed).argument("--save").argument("").with_words(options).ready(Ready::Port(6379))
}

/// memcached on port 11211 of TCP and UDP.
pub fn memcached(threads: u32) -> Program {
    let name = format!("memcached, {threads} threads");
    Program::new(&name, &format!("memcached -u nobody -l 0.0.0.0 -p 11211 -U 11211 -c 4096 -t {threads}"))
        .ready(Ready::Port(11211))
}

/// PostgreSQL on port 5432, whose user `postgres` needs no password; the fresh database is prepared for it.
pub fn postgresql() -> Program {
    let initialise = "install -d -o postgres -m 700 data\n\
         setpriv --reuid=postgres --regid=postgres --clear-groups \
         /usr/lib/postgresql/*/bin/initdb -D data -A trust -E UTF8 --no-sync --no-instructions >/dev/null\n\
         cat settings >> data/postgresql.conf\n\
         echo 'host all all samenet trust' >> data/pg_hba.conf";
    let settings = "listen_addresses = '*'\nunix_socket_directories = ''\nfsync = off\nshared_buffers = 32MB\n\
                    dynamic_shared_memory_type = mmap\nlogging_collector = off\n";
    Program::new("PostgreSQL", "sh -c")
        .argument(
            "exec setpriv --reuid=postgres --regid=postgres --clear-groups \
             /usr/lib/postgresql/*/bin/postgres -D {dir}/data",
        )
        .file("settings", settings)
        .prepare(initialise)
        .ready(Ready::Line("ready to accept connections"))
}
