//! `sidestep dns` over AF_XDP, between two namespaces. Needs root and AF_XDP; skipped otherwise, and says so.

mod coexistence;
mod dispatchers;
mod doctor;
mod dpdk;
mod flood;
mod gun;
mod gun_http;
mod idle;
mod interface;
mod kernel_peer;
mod lifecycle;
mod observe;
mod privileges;
mod reload;
mod resolver;
mod secondary;
mod serving;
mod signing;
mod signing_algorithm;
mod sources;
mod stack;
mod transfers;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use lab::message::{self, Answer};
use lab::{Device, Lab, Peer, SERVER_INTERFACE, SERVER_V4, Server, Side, Sidestep, Zone};

/// A laboratory in which Sidestep serves over AF_XDP. One at a time: all use the same two cores.
struct Setting {
    // Dropped in this order.
    server: Server,
    lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

/// Time for the server to follow a change of the interface.
const FOLLOW_MAX: Duration = Duration::from_secs(60);
/// Nothing here takes longer, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Silence after which nobody answers.
const SILENCE: Duration = Duration::from_millis(500);

/// A laboratory without a server, with the turn to use it; `None` if there can be none.
fn empty_lab() -> Option<(Lab, MutexGuard<'static, ()>)> {
    let turn = turn()?;
    Some((Lab::new().unwrap(), turn))
}

/// The turn to use a laboratory; `None` if there can be none.
fn turn() -> Option<MutexGuard<'static, ()>> {
    lab::require_root_and_xdp().then(|| TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

impl Setting {
    fn new(zone: &Zone) -> Option<Setting> {
        Setting::with(zone, &[])
    }

    /// With more options for the server.
    fn with(zone: &Zone, arguments: &[&str]) -> Option<Setting> {
        let (lab, turn) = empty_lab()?;
        let server = Peer::Sidestep(Sidestep::on(Device::Xdp).with(arguments)).start(&lab, zone).unwrap();
        Some(Setting { server, lab, _turn: turn })
    }

    /// Asks for the address of mail.example.com, once.
    fn ask(&self, server: &str) -> Option<Answer> {
        self.ask_with(server, &message::query(1, "mail.example.com", message::A))
    }

    fn ask_with(&self, server: &str, query: &[u8]) -> Option<Answer> {
        self.ask_for(PATIENCE, server, query)
    }

    fn ask_for(&self, patience: Duration, server: &str, query: &[u8]) -> Option<Answer> {
        let server = SocketAddr::new(server.parse::<IpAddr>().unwrap(), 53);
        self.lab.inside(Side::Client, || message::ask(server, query, patience)).ok()
    }

    /// Asks once, and waits a little for an answer that is not to come.
    fn is_silent(&self, server: &str) -> bool {
        self.ask_for(SILENCE, server, &message::query(1, "mail.example.com", message::A)).is_none()
    }

    /// Asks until there is an answer, for as long as following a change may take.
    fn ask_patiently(&self, server: &str) -> Option<Answer> {
        let deadline = Instant::now() + FOLLOW_MAX;
        loop {
            let answer = self.ask_for(SILENCE, server, &message::query(1, "mail.example.com", message::A));
            if answer.is_some() || Instant::now() > deadline {
                return answer;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sum of the counters of the server whose name ends so.
    fn count(&self, ending: &str) -> u64 {
        let counters = tests::stats(self.server.directory.path());
        counters.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, value)| value).sum()
    }

    fn has_xdp_program(&self) -> bool {
        has_xdp_program(&self.lab)
    }

    fn assert_program_goes(&self) {
        assert_program_goes(&self.lab);
    }
}

/// The kernel takes a program down a moment after its owner has gone.
fn assert_program_goes(lab: &Lab) {
    let deadline = Instant::now() + PATIENCE;
    while has_xdp_program(lab) {
        assert!(Instant::now() < deadline, "the program stays");
        thread::sleep(Duration::from_millis(5));
    }
}

fn has_xdp_program(lab: &Lab) -> bool {
    lab.ip(Side::Server, &format!("link show {SERVER_INTERFACE}")).unwrap().contains("prog/xdp")
}

/// Checks an answer for mail.example.com.
fn assert_is_mail(answer: Option<Answer>) {
    let answer = answer.expect("an answer");
    assert_eq!((answer.id(), answer.rcode(), answer.answer_count()), (1, 0, 1));
    assert!(answer.contains(&[192, 0, 2, 3]));
}

/// The server's first address on port 53.
fn server_v4() -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse().unwrap(), 53)
}
