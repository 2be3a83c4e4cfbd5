//! DNS cookies: proof that a client has received an answer at the address that it asks from.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;

/// The code of the EDNS option (RFC 7873, 4).
pub const COOKIE: u16 = 10;
/// Octets of the client's part.
pub const CLIENT_COOKIE_LEN: usize = 8;
/// Octets of the longest option data: the client's part and 32 of the server's (RFC 7873, 4.2).
pub const COOKIE_MAX: usize = 40;
/// Octets of our server's part (RFC 9018, 4).
const SERVER_COOKIE_LEN: usize = 16;
/// RFC 9018, 4.1.
const VERSION: u8 = 1;
/// A cookie counts for an hour, one from the near future for five minutes, and is renewed after half an hour (RFC 9018, 4.3), or when
/// its secret was replaced.
const AGE_MAX_S: i32 = 3600;
const FUTURE_MAX_S: i32 = 300;
const FRESH_S: i32 = 1800;

/// 128 bits that nobody else knows. Servers that answer at one address share them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// The option has a length that it cannot have: the answer is FORMERR (RFC 7873, 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedCookie;

/// What a client's cookie is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The client has had an answer of ours at its address within the hour.
    pub is_valid: bool,
    /// The option data of the answer: the client's part, and ours.
    pub answer: [u8; CLIENT_COOKIE_LEN + SERVER_COOKIE_LEN],
}

/// Makes and checks the server's part of cookies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCookies {
    current: Secret,
    /// Those whose cookies still count.
    others: Vec<Secret>,
}

impl ServerCookies {
    /// Cookies are made with `current`. Those made with `others` count, too: the secrets before it, or the next one, which other servers
    /// of this address use already (RFC 9018, 5).
    #[must_use]
    pub fn new(current: Secret, others: Vec<Secret>) -> ServerCookies {
        ServerCookies { current, others }
    }

    /// Goes over to another secret; the one before still counts.
    pub fn roll_over(&mut self, next: Secret) {
        self.others = vec![self.current];
        self.current = next;
    }

    /// Checks the data of a COOKIE option that came from `client` at `unix_secs`, seconds since 1970 modulo 2^32.
    pub fn check(&self, option: &[u8], client: IpAddr, unix_secs: u32) -> Result<Checked, MalformedCookie> {
        let (client_part, server_part) =
            option.split_first_chunk::<CLIENT_COOKIE_LEN>().ok_or(MalformedCookie)?;
        if !(server_part.is_empty() || (8..=32).contains(&server_part.len())) {
            return Err(MalformedCookie);
        }
        let presented = <&[u8; SERVER_COOKIE_LEN]>::try_from(server_part).ok();
        let maker = presented.and_then(|presented| self.maker(client_part, presented, client));
        let age = presented.map_or(0, |presented| unix_secs.wrapping_sub(made_at(presented)) as i32); // RFC 1982.
        let is_valid = maker.is_some() && (-FUTURE_MAX_S..=AGE_MAX_S).contains(&age);
        let is_fresh = is_valid && maker == Some(&self.current) && age <= FRESH_S;
        let server = match presented {
            Some(presented) if is_fresh => *presented,
            _ => make(self.current, client_part, unix_secs, client),
        };
        let mut answer = [0; CLIENT_COOKIE_LEN + SERVER_COOKIE_LEN];
        answer[..CLIENT_COOKIE_LEN].copy_from_slice(client_part);
        answer[CLIENT_COOKIE_LEN..].copy_from_slice(&server);
        Ok(Checked { is_valid, answer })
    }

    /// The secret that made a server's part for `client`, if one of ours did.
    fn maker(
        &self,
        client_part: &[u8; CLIENT_COOKIE_LEN],
        presented: &[u8; SERVER_COOKIE_LEN],
        client: IpAddr,
    ) -> Option<&Secret> {
        let is_maker =
            |secret: &&Secret| equal(&make(**secret, client_part, made_at(presented), client), presented);
        [&self.current].into_iter().chain(&self.others).find(is_maker)
    }
}

fn made_at(server_part: &[u8; SERVER_COOKIE_LEN]) -> u32 {
    u32::from_be_bytes([server_part[4], server_part[5], server_part[6], server_part[7]])
}

/// RFC 9018, 4.4: version, three octets of zeros, the time, and a hash of these, the client's part and the client's address.
fn make(
    secret: Secret,
    client_part: &[u8; CLIENT_COOKIE_LEN],
    unix_secs: u32,
    client: IpAddr,
) -> [u8; SERVER_COOKIE_LEN] {
    let mut cookie = [0; SERVER_COOKIE_LEN];
    cookie[0] = VERSION;
    cookie[4..8].copy_from_slice(&unix_secs.to_be_bytes());
    let mut hasher = hasher(secret);
    hasher.write(client_part);
    hasher.write(&cookie[..8]);
    write_address(&mut hasher, client);
    cookie[8..].copy_from_slice(&hasher.finish().to_le_bytes());
    cookie
}

/// The client's part for `server` (RFC 9018, 3): each server gets another one, so that none can forge for the others, and nobody can follow a
/// client from server to server. Renew the secret when the client's own address changes.
#[must_use]
pub fn client_cookie(secret: Secret, server: IpAddr) -> [u8; CLIENT_COOKIE_LEN] {
    let mut hasher = hasher(secret);
    write_address(&mut hasher, server);
    hasher.finish().to_le_bytes()
}

fn hasher(secret: Secret) -> SipHasher24 {
    SipHasher24::new_with_key(&secret.0)
}

fn write_address(hasher: &mut SipHasher24, address: IpAddr) {
    match address {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
}

/// Takes the same time wherever they differ.
fn equal(one: &[u8; SERVER_COOKIE_LEN], other: &[u8; SERVER_COOKIE_LEN]) -> bool {
    one.iter().zip(other).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn secret(hex: &str) -> Secret {
        Secret(octets(hex).try_into().unwrap())
    }

    const FIRST: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";

    fn check(cookies: &ServerCookies, option: &str, client: &str, at: u32) -> (bool, Vec<u8>) {
        let checked = cookies.check(&octets(option), client.parse().unwrap(), at).unwrap();
        (checked.is_valid, checked.answer.to_vec())
    }

    /// RFC 9018, A.1 and A.2.
    #[test]
    fn a_new_client_learns_a_cookie_which_is_renewed_after_half_an_hour() {
        let cookies = ServerCookies::new(secret(FIRST), Vec::new());
        let learnt = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";
        assert_eq!(
            check(&cookies, "2464c4abcf10c957", "198.51.100.100", 1_559_731_985),
            (false, octets(learnt))
        );
        assert_eq!(check(&cookies, learnt, "198.51.100.100", 1_559_732_000), (true, octets(learnt)));
        let renewed = "2464c4abcf10c957010000005cf7a871d4a564a1442aca77";
        assert_eq!(check(&cookies, learnt, "198.51.100.100", 1_559_734_385), (true, octets(renewed)));
    }

    /// RFC 9018, A.4.
    #[test]
    fn a_secret_that_was_replaced_still_counts_and_the_next_one_answers() {
        let mut cookies = ServerCookies::new(secret("dd3bdf9344b678b185a6f5cb60fca715"), Vec::new());
        cookies.roll_over(secret("445536bcd2513298075a5d379663c962"));
        let client = "2001:db8:220:1:59de:d0f4:8769:82b8";
        let old = "22681ab97d52c298010000005cf7c57926556bd0934c72f8";
        let new = "22681ab97d52c298010000005cf7c609a6bb79d16625507a";
        assert_eq!(check(&cookies, old, client, 1_559_741_961), (true, octets(new)), "it is not fresh");
    }

    #[test]
    fn cookies_of_others_and_of_other_times_do_not_count() {
        let cookies = ServerCookies::new(secret(FIRST), Vec::new());
        let learnt = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";
        let (home, made) = ("198.51.100.100", 1_559_731_985);
        let is_valid = |option: &str, client, at| check(&cookies, option, client, at).0;
        assert!(is_valid(learnt, home, made + 3600) && is_valid(learnt, home, made - 300));
        assert!(!is_valid(learnt, home, made + 3601) && !is_valid(learnt, home, made - 301));
        assert!(!is_valid(learnt, "198.51.100.101", made), "another address");
        assert!(!is_valid(&learnt.replace("c957", "c958"), home, made), "another client");
        assert!(!is_valid(&learnt.replace("9480", "9481"), home, made), "another hash");
        assert!(!is_valid("2464c4abcf10c9570102030405060708", home, made), "another server's");
    }

    #[test]
    fn impossible_lengths_are_malformed() {
        let cookies = ServerCookies::new(secret(FIRST), Vec::new());
        let client = IpAddr::from([192, 0, 2, 1]);
        for len in 0..60 {
            let is_possible = len == 8 || (16..=40).contains(&len);
            assert_eq!(cookies.check(&vec![7; len], client, 0).is_ok(), is_possible, "{len} octets");
        }
    }

    #[test]
    fn every_server_gets_another_client_cookie() {
        let for_server = |number| client_cookie(secret(FIRST), IpAddr::from([192, 0, 2, number]));
        assert_eq!(for_server(1), for_server(1));
        assert_ne!(for_server(1), for_server(2));
        assert_ne!(for_server(1), client_cookie(Secret([1; 16]), IpAddr::from([192, 0, 2, 1])));
    }
}
