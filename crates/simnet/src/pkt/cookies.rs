//! Fast Open cookies (RFC 7413). A script's cookies are of another machine's secret, so they stand for the stack's: the one
//! that the script calls `TFO_COOKIE` for the cookie that is right for its peer, others for what was given out as them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::ast::{OptionSpec, flag};
use super::packet::Segment;

/// Which cookies correspond, and where the stack got one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cookies {
    /// The stack's by the script's.
    live: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Servers that gave the stack a cookie.
    servers: BTreeSet<IpAddr>,
}

impl Cookies {
    /// Says that `script` stands for `live`.
    pub(crate) fn stand_for(&mut self, script: &[u8], live: &[u8]) {
        if !script.is_empty() && script.len() == live.len() {
            self.live.insert(script.to_vec(), live.to_vec());
        }
    }

    /// Turns the cookies of a segment that `remote` sends to the stack into live ones.
    pub(crate) fn map_inbound(&mut self, segment: &mut Segment, remote: IpAddr) {
        let is_answer = segment.has(flag::SYN) && segment.has(flag::ACK);
        for option in &mut segment.options {
            let OptionSpec::FastOpen { cookie, .. } = option else { continue };
            if is_answer && (4..=16).contains(&cookie.len()) {
                self.servers.insert(remote);
            }
            if let Some(live) = self.live.get(cookie) {
                cookie.clone_from(live);
            }
        }
    }

    /// Turns the cookies of a segment that the stack sent into the script's, of which `expected` may tell new ones.
    pub(crate) fn map_outbound(&mut self, segment: &mut Segment, expected: &[OptionSpec]) {
        let of_script = expected.iter().find_map(cookie_of).unwrap_or_default();
        let is_answer = segment.has(flag::SYN) && segment.has(flag::ACK);
        for option in &mut segment.options {
            let OptionSpec::FastOpen { cookie, .. } = option else { continue };
            if is_answer
                && !self.live.contains_key(of_script)
                && !self.live.values().any(|live| live == cookie)
            {
                self.stand_for(of_script, cookie);
            }
            if let Some((script, _)) = self.live.iter().find(|(_, live)| *live == cookie) {
                cookie.clone_from(script);
            }
        }
    }

    /// Whether the stack has a cookie of `server`, so that a SYN to it may carry data.
    pub(crate) fn has_of(&self, server: IpAddr) -> bool {
        self.servers.contains(&server)
    }
}

/// The cookie of an option, if it is one of Fast Open.
pub(crate) fn cookie_of(option: &OptionSpec) -> Option<&[u8]> {
    match option {
        OptionSpec::FastOpen { cookie, .. } => Some(cookie),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u8, cookie: &[u8]) -> Segment {
        Segment {
            ports: (0, 0),
            seq: 0,
            ack: 0,
            flags: u16::from(flags),
            window: 0,
            urgent: 0,
            options: vec![OptionSpec::FastOpen { cookie: cookie.to_vec(), experimental: false }],
            payload: Vec::new(),
        }
    }

    #[test]
    fn a_cookie_that_was_given_out_is_known_again() {
        let mut cookies = Cookies::default();
        let script = OptionSpec::FastOpen { cookie: vec![1; 8], experimental: false };
        let mut answer = segment(flag::SYN | flag::ACK, &[9; 8]);
        cookies.map_outbound(&mut answer, std::slice::from_ref(&script));
        assert_eq!(answer.options[0], script);
        let mut syn = segment(flag::SYN, &[1; 8]);
        cookies.map_inbound(&mut syn, "192.0.2.1".parse().unwrap());
        assert_eq!(cookie_of(&syn.options[0]), Some(&[9; 8][..]));
    }

    #[test]
    fn a_cookie_of_another_length_stands_for_nothing() {
        let mut cookies = Cookies::default();
        let script = OptionSpec::FastOpen { cookie: vec![1; 4], experimental: false };
        let mut answer = segment(flag::SYN | flag::ACK, &[9; 8]);
        cookies.map_outbound(&mut answer, &[script]);
        assert_eq!(cookie_of(&answer.options[0]), Some(&[9; 8][..]));
    }

    #[test]
    fn servers_that_gave_a_cookie_are_remembered() {
        let mut cookies = Cookies::default();
        let server = "192.0.2.1".parse().unwrap();
        assert!(!cookies.has_of(server));
        cookies.map_inbound(&mut segment(flag::SYN | flag::ACK, &[3; 8]), server);
        assert!(cookies.has_of(server));
    }
}
