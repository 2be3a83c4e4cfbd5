//! Changes zones at their primaries, with the tools of operators: nsupdate, and for Knot knotc as well.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use simnet::net::Random;

use crate::client::other;
use crate::ledger::{Ledger, Run};
use crate::model::{Change, Model, Transaction};
use crate::servers::{Make, Server, run};

/// Names that a transaction changes at most.
const NAMES_MAX: u64 = 60;
/// The same for a large one, whose message has some 50 KiB.
const NAMES_OF_A_BURST: u64 = 250;
/// One in so many transactions of Knot's is made by knotc.
const KNOTC_IN: u64 = 4;
/// How long a primary may be away, and a version may take to be seen where it was made.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Writer<'a> {
    pub(crate) server: &'a Server,
    pub(crate) zone: usize,
    pub(crate) model: Model,
    pub(crate) ledger: &'a Ledger,
    pub(crate) run: &'a Run,
    pub(crate) directory: &'a Path,
    pub(crate) interval: Duration,
    pub(crate) chance: Random,
}

impl Writer<'_> {
    /// Writes until it is over, and returns what the zone is then.
    pub(crate) fn write(mut self) -> Model {
        while !self.run.is_over() {
            let large = self.ledger.burst.swap(0, Ordering::SeqCst);
            let sizes = std::iter::repeat_n(NAMES_OF_A_BURST, large as usize).chain([NAMES_MAX]);
            for most in sizes {
                if let Err(error) = self.transact(most) {
                    self.run.fault(format!("{} at {}: {error}", self.model.origin, self.server.name));
                    self.run.end();
                    return self.model;
                }
            }
            self.run.sleep(self.interval);
        }
        self.model
    }

    /// One version more.
    fn transact(&mut self, most: u64) -> io::Result<()> {
        let transaction = self.model.draw(most);
        self.ledger.announce(transaction.serial, transaction.sum);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let before = self.server.disturbance();
            let sent = self.send(&transaction);
            let serial = self.serial(deadline, sent.is_ok())?;
            if serial == transaction.serial {
                self.ledger.publish(serial);
                self.model.apply(transaction);
                return Ok(());
            }
            let (is_old, own) = (serial == self.model.serial, self.model.serial);
            match sent {
                _ if !is_old => {
                    return Err(other(format!("serial {serial} after {own}, and nobody made it")));
                }
                Ok(()) => return Err(other(format!("serial {serial} after an update that was answered"))),
                Err(error) if before == self.server.disturbance() && before.is_multiple_of(2) => {
                    return Err(error);
                }
                Err(error) if Instant::now() >= deadline => return Err(error),
                // Whoever made an update and has no answer looks whether it was carried out, and makes it again.
                Err(_) => self.run.sleep(Duration::from_millis(100)),
            }
        }
    }

    /// The serial that the primary has, once it answers. Knot's may come a little after the answer to an update.
    fn serial(&self, deadline: Instant, was_sent: bool) -> io::Result<u32> {
        loop {
            let before = self.server.disturbance();
            match self.server.serial(self.zone) {
                Ok(serial) if serial != self.model.serial || !was_sent || self.server.is_ours() => {
                    return Ok(serial);
                }
                answer if Instant::now() >= deadline => return answer,
                Err(error) if before == self.server.disturbance() && before.is_multiple_of(2) => {
                    return Err(error);
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn send(&mut self, transaction: &Transaction) -> io::Result<()> {
        let script = self.directory.join(format!("update-{}", self.zone));
        if self.server.make == Make::Knot && self.chance.one_in(KNOTC_IN) {
            fs::write(&script, for_knotc(&self.model.origin, &transaction.changes))?;
            let output = self.server.knotc(&script)?;
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            return if text.contains("error") { Err(other(text)) } else { Ok(()) };
        }
        fs::write(&script, for_nsupdate(self.server, &self.model.origin, &transaction.changes))?;
        // By TCP, and patient: an update that was sent and given up could be carried out later.
        let key = self.server.key_file();
        run(&format!("nsupdate -v -t {} -k {} {}", PATIENCE.as_secs(), key.display(), script.display()))
            .map(drop)
    }
}

fn for_nsupdate(server: &Server, origin: &str, changes: &[Change]) -> String {
    let address = server.address;
    let mut text = format!("server {} {}\nzone {origin}\n", address.ip(), address.port());
    for change in changes {
        let _ = match change {
            Change::DeleteName(name) => writeln!(text, "update delete {name}"),
            Change::DeleteSet(name, rtype) => writeln!(text, "update delete {name} {}", mnemonic(*rtype)),
            Change::Delete(entry) => writeln!(text, "update delete {} {}", entry.owner, entry.data),
            Change::Add(entry) => writeln!(text, "update add {} {} {}", entry.owner, entry.ttl, entry.data),
        }; // A string takes everything.
    }
    text + "send\n"
}

fn for_knotc(origin: &str, changes: &[Change]) -> String {
    // What an earlier attempt may have left open. That there is nothing is no error here.
    let mut text = format!("zone-begin {origin}\n");
    for change in changes {
        let _ = match change {
            Change::DeleteName(name) => writeln!(text, "zone-unset {origin} {name}"),
            Change::DeleteSet(name, rtype) => {
                writeln!(text, "zone-unset {origin} {name} {}", mnemonic(*rtype))
            }
            Change::Delete(entry) => {
                writeln!(text, "zone-unset {origin} {} {}", entry.owner, quoted(&entry.data.to_string()))
            }
            Change::Add(entry) => writeln!(
                text,
                "zone-set {origin} {} {} {}",
                entry.owner,
                entry.ttl,
                quoted(&entry.data.to_string())
            ),
        }; // A string takes everything.
    }
    text + &format!("zone-commit {origin}\nexit\n")
}

/// knotc takes the quotes of its words away.
fn quoted(data: &str) -> String {
    data.replace('"', "\\\"")
}

fn mnemonic(rtype: dns_wire::Rtype) -> &'static str {
    rtype.mnemonic().expect("all types of the model have names")
}
