//! Zones that change while they are asked for.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Child, Directory, LabError};
use rustix::process::Signal;

use crate::{Load, Tally};

/// The name whose address tells the version: 192.0.2.VERSION.
pub const VERSION_NAME: &str = "version.example.com";

/// A zone file that says which version it is.
pub struct VersionedZone {
    directory: Directory,
}

impl VersionedZone {
    /// In a directory of its own, at `version`, with `hosts` more names.
    pub fn new(version: u8, hosts: u32) -> VersionedZone {
        let zone = VersionedZone { directory: Directory::new().unwrap() };
        zone.set(version, hosts);
        zone
    }

    /// Writes the next version in place of the last, at once, as an editor does.
    pub fn set(&self, version: u8, hosts: u32) {
        let mut text = format!(
            "$ORIGIN example.com.\n$TTL 60\n@ SOA ns1 host {version} 1 1 1 1\n NS ns1\nns1 A 192.0.2.53\n\
             version A 192.0.2.{version}\n"
        );
        (0..hosts).for_each(|host| text += &format!("h{host} A 198.51.100.7\n"));
        self.set_text(&text);
    }

    /// Writes anything at all.
    pub fn set_text(&self, text: &str) {
        let new = self.directory.write("new", text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// Where the file is.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("versioned.zone")
    }
}

/// Reloads `zone` a hundred times, versions 1 to 100, while `load` runs where `start` puts it, each time when it has had an answer from
/// the version before; returns what `load` counted.
pub fn reload_under_load(
    server: &mut Child,
    zone: &VersionedZone,
    load: &Load,
    start: impl FnOnce(&(dyn Fn() -> Tally + Sync)) -> Tally + Send,
) -> Tally {
    const TURN_MAX: Duration = Duration::from_secs(60);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let counted = scope.spawn(|| start(&|| load.run(&stop).unwrap()));
        let reloaded: Result<(), LabError> = (1..=100).try_for_each(|version| {
            zone.set(version, 100);
            server.signal(Signal::HUP);
            server.wait_for_line("reloaded", TURN_MAX)?;
            let deadline = Instant::now() + TURN_MAX;
            while load.latest.load(Ordering::Relaxed) < version && Instant::now() < deadline {
                thread::sleep(Duration::from_micros(100));
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        let counted = counted.join().unwrap();
        reloaded.unwrap();
        counted
    })
}
