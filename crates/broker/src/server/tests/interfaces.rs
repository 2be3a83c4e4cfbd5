//! Interfaces of which the kernel says nothing for a while.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use device_xdp::XdpError;

use super::super::data_path::{DataPath, DataPaths};
use super::super::spread::DeviceSpread;
use super::*;
use crate::registry::LinkNumber;

/// The made-up interface, of which nothing can be known while the process has no free descriptor.
struct Exhaustible {
    paths: Box<dyn DataPaths>,
    is_exhausted: Arc<AtomicBool>,
}

impl DataPaths for Exhaustible {
    fn open(&self, interface: &str, link: LinkNumber) -> Result<Box<dyn DataPath>, XdpError> {
        self.paths.open(interface, link)
    }

    fn queues(&self, interface: &str) -> Result<u16, XdpError> {
        if !self.is_exhausted.load(Relaxed) {
            return self.paths.queues(interface);
        }
        Err(XdpError::System { operation: "socket", source: rustix::io::Errno::MFILE.into() })
    }

    fn frame_size(&self, mtu: u32) -> Option<u16> {
        self.paths.frame_size(mtu)
    }

    fn spread(&self, interface: &str) -> Option<DeviceSpread> {
        self.paths.spread(interface)
    }
}

#[test]
fn an_interface_stays_while_the_process_has_no_descriptors_to_look_at_it() {
    let is_exhausted = Arc::<AtomicBool>::default();
    let family = Family { head: std::process::id(), group: None };
    let usual = setup(1, &Log::default(), family, all());
    let paths = Exhaustible { paths: usual.paths, is_exhausted: Arc::clone(&is_exhausted) };
    let setup = Setup { paths: Box::new(paths), ..usual };
    let mut broker = Broker::open(setup, clock::Instant::ZERO).unwrap();
    let told =
        |broker: &mut Broker| broker.take_notices().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told(&mut broker), ["lo: made up"]);

    is_exhausted.store(true, Relaxed);
    let second = |number| clock::Instant::ZERO + clock::Duration::from_secs(number);
    (1..5).for_each(|number| broker.turn(second(number)));
    assert!(broker.has_interface(), "its clients would lose all their connections");
    let told = told(&mut broker);
    assert!(told.len() == 1 && told[0].starts_with("lo: socket: "), "once: {told:?}");

    is_exhausted.store(false, Relaxed);
    broker.turn(second(6));
    assert!(broker.has_interface() && broker.take_notices().is_empty());
}
