//! Whose place a broker takes: that of one that was killed, or a new one.

use std::os::fd::OwnedFd;

use super::config::OpenError;
use super::pins::{Kept, interface_name};
use super::turns::{listen_anywhere, listen_at};
use crate::registry::LinkNumber;

/// Where a broker is reached, and its interfaces.
pub(super) struct Place {
    /// The name of its socket.
    pub(super) name: String,
    pub(super) socket: OwnedFd,
    /// Each interface, and what it is to programs.
    pub(super) interfaces: Vec<(LinkNumber, String)>,
    /// It was a killed broker's.
    pub(super) is_successor: bool,
}

impl Place {
    /// The place of the first killed broker that left something on one of the interfaces, with all that it had; if none did, a new one.
    /// With `take_over`, only the former will do, and without any names any of them.
    pub(super) fn take(left: &[Kept], named: Vec<String>, take_over: bool) -> Result<Place, OpenError> {
        let left: Vec<(&Kept, String)> =
            left.iter().filter_map(|kept| Some((kept, interface_name(kept.interface)?))).collect();
        let is_meant = |name: &String| named.contains(name) || (take_over && named.is_empty());
        let mut is_taken = false;
        for (kept, _) in left.iter().filter(|(_, name)| is_meant(name)) {
            let Ok(socket) = listen_at(&kept.broker) else {
                is_taken = true;
                continue;
            };
            let its_own = left.iter().filter(|(other, _)| other.broker == kept.broker);
            let its_own = its_own.map(|(kept, name)| (kept.link, name.clone())).collect();
            let interfaces = numbered(its_own, named);
            return Ok(Place { name: kept.broker.clone(), socket, interfaces, is_successor: true });
        }
        if take_over {
            return Err(if is_taken { OpenError::Taken } else { OpenError::NothingLeft });
        }
        let (name, socket) = listen_anywhere()?;
        Ok(Place { name, socket, interfaces: numbered(Vec::new(), named), is_successor: false })
    }
}

/// Interfaces with the numbers that programs know, and others with numbers that are free.
fn numbered(mut known: Vec<(LinkNumber, String)>, named: Vec<String>) -> Vec<(LinkNumber, String)> {
    for name in named {
        if known.iter().all(|(_, other)| *other != name) {
            let is_free = |link: &LinkNumber| known.iter().all(|(other, _)| other != link);
            let link = (0..).find(is_free).expect("there are fewer interfaces than numbers");
            known.push((link, name));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_know_interfaces_by_the_numbers_that_they_had() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let known = vec![(1, "b".to_owned())];
        let numbered: Vec<_> = numbered(known, names(&["a", "b", "c"]));
        assert_eq!(numbered, [(1, "b".to_owned()), (0, "a".to_owned()), (2, "c".to_owned())]);
    }

    #[test]
    fn the_place_of_a_killed_broker_on_the_same_interface_is_taken() {
        let kept = |broker: &str, interface| Kept { interface, link: 3, broker: broker.to_owned() };
        let (free, _) = listen_anywhere().unwrap();
        let left = [kept("of another interface", u32::MAX), kept(&free, 1)];
        let taken = Place::take(&left, vec!["lo".to_owned()], false).unwrap();
        assert_eq!((taken.name.as_str(), taken.is_successor), (free.as_str(), true));
        assert_eq!(taken.interfaces, [(3, "lo".to_owned())]);
        let other = Place::take(&left, vec!["lo".to_owned()], false).unwrap();
        assert!(!other.is_successor && other.name != free, "who comes later takes a place of its own");
        let nothing = Place::take(&left, Vec::new(), true);
        assert!(matches!(nothing, Err(OpenError::Taken)));
        drop(taken);
        assert_eq!(Place::take(&left, Vec::new(), true).unwrap().name, free);
    }
}
