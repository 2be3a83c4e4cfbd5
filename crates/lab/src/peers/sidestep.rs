//! Sidestep itself.

use super::Settings;
use crate::{
    Child, Directory, Lab, LabError, SERVER_INTERFACE, SERVER_V4, SERVER_V6, Side, Zone, server_core,
    sidestep_binary,
};

/// Where Sidestep takes packets from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Kernel sockets at the server's addresses.
    Kernel,
    /// The server's interface, over AF_XDP.
    Xdp,
}

/// `sidestep dns serve` with one engine on the server's core.
#[derive(Clone, Debug)]
pub struct Sidestep {
    /// Where it takes packets from.
    pub device: Device,
    /// More options.
    pub arguments: Vec<String>,
    /// What distinguishes it in tables, if anything does.
    pub remark: Option<&'static str>,
}

impl Sidestep {
    /// With no more options.
    pub fn on(device: Device) -> Sidestep {
        Sidestep { device, arguments: Vec::new(), remark: None }
    }

    /// With more options.
    pub fn with(mut self, arguments: &[&str]) -> Sidestep {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// With a remark for tables.
    pub fn named(mut self, remark: &'static str) -> Sidestep {
        self.remark = Some(remark);
        self
    }

    /// The name in tables.
    pub fn name(&self) -> String {
        let device = match self.device {
            Device::Kernel => "kernel sockets",
            Device::Xdp => "AF_XDP",
        };
        let remark = self.remark.map(|remark| format!(", {remark}")).unwrap_or_default();
        format!("Sidestep, {device}{remark}")
    }

    /// The cores that its own options name.
    fn own_cores(&self) -> Option<&str> {
        let at = self.arguments.iter().position(|own| own == "--cores")?;
        self.arguments.get(at + 1).map(String::as_str)
    }

    /// The command line after the program, statistics at `control` in `directory`.
    pub(super) fn arguments(&self, directory: &Directory) -> Vec<String> {
        let control = directory.path().join("control.sock").display().to_string();
        let core = server_core().to_string();
        let mut words: Vec<String> = ["dns", "serve", "--control", &control].map(str::to_owned).to_vec();
        if self.own_cores().is_none() {
            words.extend(["--cores", &core].map(str::to_owned));
        }
        match self.device {
            Device::Kernel => {
                let addresses = [format!("{SERVER_V4}:53"), format!("[{SERVER_V6}]:53")];
                words.extend(addresses.into_iter().flat_map(|address| ["--listen".to_owned(), address]));
            }
            Device::Xdp => words.extend(["--device", SERVER_INTERFACE].map(str::to_owned)),
        }
        if !self.arguments.iter().any(|own| own == "--user") {
            words.extend(["--user", "root"].map(str::to_owned)); // The files of a laboratory are root's.
        }
        words.extend(self.arguments.iter().cloned());
        words
    }

    /// Starts it. The zone is named by the configuration file if there is more to say, or else by an option.
    pub(super) fn start(
        &self,
        lab: &Lab,
        zone: &Zone,
        directory: &Directory,
        more: &Settings,
    ) -> Result<Child, LabError> {
        let program = sidestep_binary().display().to_string();
        let mut arguments = self.arguments(directory);
        arguments.extend(if *more == Settings::default() {
            ["--zone".to_owned(), format!("{}={}", zone.origin, zone.file.display())]
        } else {
            let config = directory.write("dns.toml", &config(zone, more))?;
            ["--config".to_owned(), config.display().to_string()]
        });
        let mut command = match self.own_cores() {
            None => lab.command(Side::Server, &program),
            Some(cores) => {
                // A program in the laboratory may use the server's core alone, unless it asks for others.
                let mut command = lab.command(Side::Server, "taskset");
                command.args(["--cpu-list", cores, &program]);
                command
            }
        };
        let mut child = Child::spawn("sidestep", command.args(arguments))?;
        child.wait_for_line("ready", super::START_MAX)?;
        Ok(child)
    }
}

fn config(zone: &Zone, more: &Settings) -> String {
    let (origin, file) = (&zone.origin, zone.file.display());
    let Settings { server, zone: more_of_zone } = more;
    format!("{server}[[zone]]\norigin = \"{origin}\"\nfile = \"{file}\"\n{more_of_zone}")
}
