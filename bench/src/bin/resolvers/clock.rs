//! Names whose address is the time, which the proxies write into the answers that pass: whoever gets one knows how old it is.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Their address in the zones' files.
pub(crate) const ADDRESS: &str = "77.0.0.0";
/// Their TTL.
pub(crate) const TTL: Duration = Duration::from_secs(5);
/// The first octet of their addresses; 24 bits of hundredths of a second follow.
const MARK: u8 = 77;
/// Where the question starts (RFC 1035, 4.1.1).
const QUESTION: usize = 12;
/// Type A, class IN.
pub(crate) const A_IN: [u8; 4] = [0, 1, 0, 1];

/// Since the first call.
fn since_start(at: Instant) -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    at.saturating_duration_since(*START.get_or_init(Instant::now))
}

/// The question of a query: name, type, class.
pub(crate) fn question(query: &[u8]) -> Option<&[u8]> {
    let name = query.get(QUESTION..)?;
    name.get(..name.iter().position(|octet| *octet == 0)? + 1 + A_IN.len())
}

/// Writes the time into the answers for such names.
pub(crate) fn set(message: &mut [u8]) {
    let [.., high, middle, low] = ((since_start(Instant::now()).as_millis() / 10) as u32).to_be_bytes();
    if let Some(at) = find(message) {
        message[at..at + 4].copy_from_slice(&[MARK, high, middle, low]);
    }
}

/// Where an address that is a time starts.
fn find(message: &[u8]) -> Option<usize> {
    // Type, class, TTL, length, address: RFC 1035, 4.1.3.
    const ADDRESS: usize = 10;
    let is_such = |window: &[u8]| window[..4] == A_IN && window[8..=ADDRESS] == [0, 4, MARK];
    Some(message.windows(ADDRESS + 4).position(is_such)? + ADDRESS)
}

/// How old such an answer was at `at_time`; `None` if there is none in `message`.
pub(crate) fn age(message: &[u8], at_time: Instant) -> Option<Duration> {
    let at = find(message)?;
    let made = u32::from_be_bytes([0, message[at + 1], message[at + 2], message[at + 3]]);
    Some(since_start(at_time).saturating_sub(Duration::from_millis(u64::from(made) * 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_its_age() {
        let query = lab::message::query(7, "clock3.alpha", lab::message::A);
        assert!(question(&query).unwrap().ends_with(&A_IN));
        let later = Instant::now() + TTL;
        assert_eq!(age(&query, later), None);
        let mut answer = [&query[..], &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, MARK, 0, 0, 0]].concat();
        set(&mut answer);
        assert!(age(&answer, later).unwrap().abs_diff(TTL) < Duration::from_secs(1));
    }
}
