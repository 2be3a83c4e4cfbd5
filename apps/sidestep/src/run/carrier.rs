//! A port of DPDK under `sidestep run`: this process has it, and carries frames between it and an interface of the kernel's, whose queues programs get as
//! those of any other one.
//!
//! ```text
//!   NIC or memif <--> DPDK port <--> carrier <--> TAP interface --> claimed? --yes--> AF_XDP --> the program's stack
//!                                                                      |no
//!                                                                      v
//!                                                                   the kernel
//! ```
//!
//! The port's interface goes with this process.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::path::Path;
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, bail, ensure};
use clock::{Duration, Instant};
use device::DataPath;
use engine::{Datagram, DeviceId, Engine, EngineHandle, Role, UdpResponder};

use super::Options;
use crate::port::{OpenPort, port_name};

/// The port has one queue, and so has its interface: programs share that.
const QUEUE: u16 = 0;

/// What carries frames, on a thread of its own.
pub(super) struct Carrier {
    engine: EngineHandle,
    thread: JoinHandle<Nobody>,
    path: Box<dyn DataPath>,
    /// The descriptors that this process was started with. All others are its own.
    inherited: BTreeSet<RawFd>,
}

/// Gets nothing: all is the interface's.
struct Nobody;

impl UdpResponder for Nobody {
    fn respond(&mut self, _batch: &mut [Datagram<'_>], _now: Instant) {}
}

/// The interfaces that the options name, and what carries frames if one of them is a port's.
pub(super) fn open(options: &Options) -> anyhow::Result<(Vec<String>, Option<Carrier>)> {
    let ports: Vec<&str> = options.devices.iter().filter_map(|device| port_name(device)).collect();
    let others = options.devices.iter().filter(|device| port_name(device).is_none());
    let mut interfaces: Vec<String> = others.map(|name| control::kernel_name(name)).collect();
    let [name] = *ports else {
        ensure!(
            ports.is_empty(),
            "--device {}: one process can have one port of DPDK",
            options.devices.join(" --device ")
        );
        options.port.refuse(&options.devices.join(" --device "))?;
        return Ok((interfaces, None));
    };
    if options.take_over {
        bail!("a port of DPDK ends with the `sidestep run` that has it: there is nothing to take over");
    }
    let inherited = descriptors()?;
    let port = options.port.open(name)?;
    interfaces.push(port.interface.clone());
    Ok((interfaces, Some(Carrier::start(port, inherited, options.spin())?)))
}

impl Carrier {
    fn start(port: OpenPort, inherited: BTreeSet<RawFd>, spin: Duration) -> anyhow::Result<Carrier> {
        let OpenPort { interface, mut path, .. } = port;
        let opened = path.open(&[QUEUE], path.frame_size_for(0))?; // A port's frames are as large as its own MTU says.
        log::info!("{interface}: carries the frames of {}", opened.mode);
        let config = engine::Config { spin, linger: Duration::ZERO, ..engine::Config::default() };
        let (made, engine) = Engine::new(config, Nobody).context("making an engine")?;
        engine.add_device(DeviceId(0), Role::Primary, opened.device);
        let thread = Builder::new().name("carrier".to_owned()).spawn(move || made.run())?;
        Ok(Carrier { engine, thread, path, inherited })
    }

    /// A program is about to be started, and is not to have what DPDK has opened.
    pub(super) fn keep_descriptors(&self) -> std::io::Result<()> {
        for fd in descriptors()?.difference(&self.inherited) {
            let _ = syscall::close_on_exec(*fd); // It may have been closed meanwhile.
        }
        Ok(())
    }

    /// Ends the interface.
    pub(super) fn stop(self) {
        self.engine.stop();
        if self.thread.join().is_err() {
            log::error!("the thread that carried frames has panicked");
        }
        for (name, count) in self.path.counters().into_iter().flatten().filter(|(_, count)| *count > 0) {
            log::info!("{name} {count}");
        }
    }
}

/// The open descriptors.
fn descriptors() -> std::io::Result<BTreeSet<RawFd>> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let listed: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?.flatten().filter_map(number).collect();
    // By one of them the others were listed.
    Ok(listed.into_iter().filter(|fd| Path::new(&format!("/proc/self/fd/{fd}")).is_symlink()).collect())
}
