//! Real programs: what each needs, how it starts, and when it is ready.
//!
//! A [`Program`] is a value without effects. [`Program::start`] starts it on one side of a laboratory, on the kernel's
//! network or under `sidestep run` ([`Network`]), and returns a [`Running`]. The descriptions are in the
//! files beside this one. The smallest programs, written for this purpose, are in `crates/lab/programs`.

mod databases;
mod interpreted;
mod remote;
mod running;
mod web;

use std::path::PathBuf;
use std::process::Command;

use crate::namespaces::run;
use crate::{
    CLIENT_INTERFACE, CLIENT_V4, CLIENT_V6, Child, Directory, Lab, LabError, SERVER_INTERFACE, SERVER_V4,
    SERVER_V6, Side, sidestep_binary, workspace_root,
};

pub use databases::{memcached, postgresql, redis};
pub use interpreted::{
    asyncio_echo, http_server, java_http, java_nio, node_cluster, node_http, python_suite, quic_echo,
    uvloop_echo,
};
pub use remote::{dnsmasq, iperf3, nsd, openssl_server, sockperf, sshd};
pub use running::Running;
pub use web::{LARGE, Nginx, haproxy};

/// Whose TCP/IP stack a program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// The kernel's.
    Kernel,
    /// Sidestep's, under `sidestep run` with these options.
    Sidestep(Vec<String>),
}

/// The environment variable that is `kernel` to run the programs on the kernel and check the tests' expectations.
const NETWORK: &str = "SIDESTEP_PROGRAMS";

impl Network {
    /// `sidestep run` on the server's interface, with more `options`.
    pub fn sidestep(options: &[&str]) -> Network {
        Network::sidestep_on(SERVER_INTERFACE, options)
    }

    /// The same on the client's. Load generators need less processor time for each request there, and can offer more before their
    /// core is full.
    pub fn sidestep_of_client(options: &[&str]) -> Network {
        Network::sidestep_on(CLIENT_INTERFACE, options)
    }

    fn sidestep_on(interface: &str, options: &[&str]) -> Network {
        let options = ["--device", interface].into_iter().chain(options.iter().copied());
        Network::Sidestep(options.map(str::to_owned).collect())
    }

    /// The network that `SIDESTEP_PROGRAMS` selects: `kernel`, or, without it, `sidestep run`.
    pub fn wanted() -> Network {
        match std::env::var(NETWORK).as_deref() {
            Ok("kernel") => Network::Kernel,
            _ => Network::sidestep(&[]),
        }
    }

    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Network::Kernel => "kernel",
            Network::Sidestep(_) => "sidestep run",
        }
    }

    /// Runs a program of these words to its end; returns its output.
    pub fn run(&self, lab: &Lab, side: Side, words: &[&str]) -> Result<String, LabError> {
        let words = self.wrap(words.iter().map(|&word| word.to_owned()).collect());
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        lab.run_in(side, &words[0], &arguments)
    }

    /// The words that start a program of these words.
    fn wrap(&self, words: Vec<String>) -> Vec<String> {
        let Network::Sidestep(options) = self else { return words };
        let mut wrapped = vec![sidestep_binary().display().to_string(), "run".to_owned()];
        wrapped.extend(options.iter().cloned());
        wrapped.push("--".to_owned());
        wrapped.extend(words);
        wrapped
    }
}

/// When a program is ready.
#[derive(Clone, Debug)]
pub enum Ready {
    /// At once, or when it has ended.
    AtOnce,
    /// When it has printed a line that contains this.
    Line(&'static str),
    /// When a connection to this TCP port, from the other side, is accepted.
    Port(u16),
    /// When this datagram to this UDP port, from the other side, is answered.
    Answer(u16, Vec<u8>),
}

/// What a program needs and how it starts.
///
/// These placeholders in commands, scripts and files are replaced at the start: `{dir}` by the program's own directory, `{own}`
/// and `{own6}` by the addresses of its side, `{peer}` and `{peer6}` by those of the other one, `{tools}` by the directory of what
/// `scripts/setup.sh` installs from elsewhere than Debian.
#[derive(Clone, Debug)]
pub struct Program {
    name: String,
    files: Vec<(String, String)>,
    scripts: Vec<String>,
    launcher: Vec<String>,
    words: Vec<String>,
    environment: Vec<(String, String)>,
    ready: Ready,
    is_daemon: bool,
}

impl Program {
    /// A program called `name` in messages and tables, started by the words of `command`.
    pub fn new(name: &str, command: &str) -> Program {
        Program {
            name: name.to_owned(),
            files: Vec::new(),
            scripts: Vec::new(),
            launcher: Vec::new(),
            words: command.split_whitespace().map(str::to_owned).collect(),
            environment: Vec::new(),
            ready: Ready::AtOnce,
            is_daemon: false,
        }
    }

    /// With one more argument, which may hold spaces.
    pub fn argument(mut self, word: &str) -> Program {
        self.words.push(word.to_owned());
        self
    }

    /// With more arguments, the words of `words`.
    pub fn with_words(mut self, words: &str) -> Program {
        self.words.extend(words.split_whitespace().map(str::to_owned));
        self
    }

    /// With a file in its directory.
    pub fn file(mut self, name: &str, text: &str) -> Program {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// With a script for `sh` that is run in its directory before it is started.
    pub fn prepare(mut self, script: &str) -> Program {
        self.scripts.push(script.to_owned());
        self
    }

    /// With a variable in its environment.
    pub fn variable(mut self, name: &str, value: &str) -> Program {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this condition of readiness.
    pub fn ready(mut self, ready: Ready) -> Program {
        self.ready = ready;
        self
    }

    /// On these cores instead of its side's own, in taskset(1)'s words.
    pub fn on_cores(mut self, cores: &str) -> Program {
        self.words.splice(0..0, ["taskset", "-c", cores].map(str::to_owned));
        self
    }

    /// Started by these words before its own and those of `sidestep run`: a program that replaces itself by what follows.
    pub fn launched_by(mut self, words: &[&str]) -> Program {
        self.launcher = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// A daemon: the started process ends, and the program continues in the background.
    pub fn daemon(mut self) -> Program {
        self.is_daemon = true;
        self
    }

    /// Both, started by one shell; ready when the first one is.
    pub fn together_with(self, other: &Program) -> Program {
        let commands = format!("{} & {} & wait", self.command_line(), other.command_line());
        let name = format!("{} and {}", self.name, other.name);
        let mut both = Program::new(&name, "sh -c").argument(&commands).ready(self.ready);
        both.files = [self.files, other.files.clone()].concat();
        both.scripts = [self.scripts, other.scripts.clone()].concat();
        both.environment = [self.environment, other.environment.clone()].concat();
        both
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The words that start it, for `sh`.
    pub fn command_line(&self) -> String {
        let is_plain =
            |word: &str| !word.is_empty() && !word.contains([' ', '\'', '"', '$', '*', '?', '&', ';']);
        let quote = |word: &String| if is_plain(word) { word.clone() } else { format!("'{word}'") };
        self.words.iter().map(quote).collect::<Vec<_>>().join(" ")
    }

    /// Starts it on `side`; returns when it is ready.
    pub fn start(&self, lab: &Lab, side: Side, network: &Network) -> Result<Running, LabError> {
        let directory = Directory::new()?;
        let place = Place::new(side, &directory);
        for (name, text) in &self.files {
            directory.write(name, &place.fill(text))?;
        }
        for script in &self.scripts {
            let mut command = lab.command(side, "sh");
            run(command.current_dir(directory.path()).args(["-ec", &place.fill(script)]))?;
        }
        let process = Child::spawn(&self.name, &mut self.command(lab, &place, &directory, network))?;
        let mut running = Running::new(process, directory, network.clone(), self.is_daemon);
        running.wait_until_ready(lab, side, &self.ready)?;
        Ok(running)
    }

    fn command(&self, lab: &Lab, place: &Place, directory: &Directory, network: &Network) -> Command {
        let wrapped = network.wrap(self.words.iter().map(|word| place.fill(word)).collect());
        let words = [self.launcher.clone(), wrapped].concat();
        let mut command = lab.command(place.side, &words[0]);
        command.args(&words[1..]).current_dir(directory.path());
        for (name, value) in &self.environment {
            command.env(name, place.fill(value));
        }
        command
    }
}

/// Where a program is started: the values of the placeholders.
struct Place {
    side: Side,
    values: [(&'static str, String); 6],
}

impl Place {
    fn new(side: Side, directory: &Directory) -> Place {
        let (server, client) = ([SERVER_V4, SERVER_V6], [CLIENT_V4, CLIENT_V6]);
        let (own, peer) = if side == Side::Server { (server, client) } else { (client, server) };
        let values = [
            ("{dir}", directory.path().display().to_string()),
            ("{own}", own[0].to_owned()),
            ("{own6}", own[1].to_owned()),
            ("{peer}", peer[0].to_owned()),
            ("{peer6}", peer[1].to_owned()),
            ("{tools}", tools().display().to_string()),
        ];
        Place { side, values }
    }

    fn fill(&self, text: &str) -> String {
        self.values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

/// Where `scripts/setup.sh` installs what does not come from Debian.
fn tools() -> PathBuf {
    workspace_root().join("target/programs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_its_own_addresses() {
        let directory = Directory::new().unwrap();
        let fill = |side| Place::new(side, &directory).fill("{own} {own6} {peer} {peer6}");
        assert_eq!(fill(Side::Server), "10.53.0.1 fd53::1 10.53.0.2 fd53::2");
        assert_eq!(fill(Side::Client), "10.53.0.2 fd53::2 10.53.0.1 fd53::1");
    }

    #[test]
    fn the_kernel_is_asked_for_nothing_more() {
        let words = vec!["nginx".to_owned(), "-t".to_owned()];
        assert_eq!(Network::Kernel.wrap(words.clone()), words);
    }
}
