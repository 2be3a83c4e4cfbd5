//! The serial of a zone at a revision of etcd.
//!
//! All servers that have carried out the same revision give it the same serial, and a later revision has a later one (RFC 1982). Serials run
//! from 1 to 2^32 - 1 and begin anew at 1: a serial of 0 means "unset" to some.

/// How many serials there are.
const COUNT: u64 = u32::MAX as u64;

/// The serial of `revision`, which counts from 1; `base` is what its owner adds, so that a zone that comes from elsewhere goes on.
pub fn serial_at(base: u32, revision: u64) -> u32 {
    let place = (u64::from(base) + revision % COUNT + COUNT - 1) % COUNT;
    place as u32 + 1 // Less than COUNT.
}

/// Whether `serial` is that of some revision up to `revision`.
pub fn could_be_serial(serial: u32, base: u32, revision: u64) -> bool {
    // The revision that has this serial first.
    let first = (u64::from(serial) + COUNT - u64::from(base) % COUNT + COUNT - 1) % COUNT + 1;
    serial != 0 && first <= revision
}

#[cfg(test)]
mod tests {
    use dns_message::is_older;

    use super::*;

    #[test]
    fn without_a_base_the_serial_is_the_revision() {
        assert_eq!([1, 2, 1000, COUNT].map(|revision| serial_at(0, revision)), [1, 2, 1000, u32::MAX]);
        assert_eq!(serial_at(2_026_112_601, 7), 2_026_112_608);
    }

    #[test]
    fn a_later_revision_has_a_later_serial_across_the_wrap() {
        for base in [0, 1, u32::MAX - 2, u32::MAX] {
            for revision in (1..20).chain(COUNT - 20..COUNT + 20) {
                let (serial, next) = (serial_at(base, revision), serial_at(base, revision + 1));
                assert!(serial != 0 && is_older(serial, next), "{base} {revision}: {serial} {next}");
            }
        }
    }

    #[test]
    fn the_serials_up_to_a_revision_are_known() {
        for base in [0, 5, u32::MAX] {
            for revision in 1..50 {
                assert!(could_be_serial(serial_at(base, revision), base, 49), "{base} {revision}");
                assert!(!could_be_serial(serial_at(base, revision + 49), base, 49), "{base} {revision}");
            }
            assert!(could_be_serial(77, base, COUNT));
        }
        assert!(!could_be_serial(0, 0, COUNT));
    }
}
