//! Cookies and limits of rate, in front of the answers (RFC 7873, RFC 9018; response rate limiting as other servers have it).

use std::net::IpAddr;
use std::sync::Arc;

use clock::Instant;
use dns_auth::{Prepared, Responder, Transport};
use dns_guard::{
    Beyond, CLIENT_COOKIE_LEN, COOKIE, MalformedCookie, Networks, RateLimiter, RateOptions, ServerCookies,
    Verdict,
};
use dns_transfer::Policy;
use dns_wire::{Query, Rcode};

use crate::extras::Extras;
use crate::responder::length;

/// How clients are treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    /// Limits for addresses and networks that ask over UDP. Each responder counts for itself.
    pub rate: RateOptions,
    /// What happens to queries beyond a limit.
    pub beyond: Beyond,
    /// Who has no limits.
    pub exempt: Networks,
    /// Makes and checks cookies; `None` leaves those of clients unread.
    pub cookies: Option<ServerCookies>,
    /// Nobody else knows it: it places clients in the table of rates.
    pub key: [u8; 16],
}

impl GuardOptions {
    /// Whether there is anything to do.
    pub fn is_needed(&self) -> bool {
        self.cookies.is_some() || self.rate.per_address.is_some() || self.rate.per_prefix.is_some()
    }
}

/// The option data of an answer: the client's part, and ours.
pub(crate) type Cookie = [u8; 24];

/// A query that is not answered as others are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlike {
    /// Its cookie has a length that no cookie has: FORMERR (RFC 7873, 5.2.2).
    Malformed,
    /// It gets a truncated answer: the client asks over TCP, and who forges its address gets nothing from it.
    Truncate,
    /// It is refused.
    Refuse,
    /// It gets no answer.
    Drop,
    /// It asks for a cookie and nothing else (RFC 7873, 5.4): it gets that, with this code.
    CookieAlone(Rcode),
}

/// What it gets, and its cookie, if it came with one: by that the client gets out of the limit (RFC 7873, 5.2.3).
pub(crate) type Exception = (Unlike, Option<Cookie>);

impl Unlike {
    /// Writes what it gets over the prepared query in `buffer`, with `cookie`; the length, if there is an answer.
    #[inline(never)]
    pub(crate) fn answer(
        self,
        cookie: Option<Cookie>,
        responder: &mut Responder,
        prepared: &Prepared,
        buffer: &mut [u8],
        transport: Transport,
    ) -> Option<usize> {
        let (rcode, is_truncated) = match self {
            Unlike::Malformed => (Rcode::FormErr, false),
            Unlike::Truncate => (Rcode::NoError, true),
            Unlike::Refuse => (Rcode::Refused, false),
            Unlike::CookieAlone(rcode) => (rcode, false),
            Unlike::Drop => {
                responder.drop_for_rate(transport);
                return None;
            }
        };
        let len = length(responder.answer_nothing(prepared, (rcode, is_truncated), buffer, transport))?;
        let mut extras = Extras::default();
        extras.push_cookie(cookie);
        if extras.octets().is_empty() {
            return Some(len);
        }
        let room = responder.room(prepared, transport).min(buffer.len());
        Some(responder.add_options(&mut buffer[..room], len, extras.octets()))
    }
}

/// What one responder knows of its clients.
pub(crate) struct Guard {
    options: Arc<GuardOptions>,
    limiter: RateLimiter,
}

impl Guard {
    pub(crate) fn new(options: &Arc<GuardOptions>) -> Guard {
        Guard { options: Arc::clone(options), limiter: RateLimiter::new(options.rate, options.key) }
    }

    /// Goes on with other options; what clients have used of limits that stay is remembered.
    pub(crate) fn adopt(&mut self, options: &Arc<GuardOptions>) {
        if Arc::ptr_eq(&self.options, options) {
            return;
        }
        if (self.options.rate, self.options.key) != (options.rate, options.key) {
            self.limiter = RateLimiter::new(options.rate, options.key);
        }
        self.options = Arc::clone(options);
    }

    /// Judges the message in `octets`, which was prepared: the cookie of its answer, if it gets one, or what it gets instead of an answer. What
    /// is special has an answer of its own, which gets no cookie; it has no limit if it comes from where `policy` expects it.
    pub(crate) fn judge(
        &mut self,
        (prepared, octets): (&Prepared, &[u8]),
        policy: &Policy,
        (client, transport): (IpAddr, Transport),
        now: Instant,
        unix_secs: u64,
    ) -> Result<Option<Cookie>, Exception> {
        let (mut cookie, mut alone) = (None, None);
        let mut is_verified = transport != Transport::Udp;
        if let Some(cookies) = &self.options.cookies
            && let Some(option) = cookie_in(prepared, octets)
        {
            match cookies.check(option, client, unix_secs as u32) {
                Ok(checked) => {
                    is_verified |= checked.is_valid;
                    cookie = Some(checked.answer).filter(|_| !prepared.is_special());
                    if prepared.is_unasked() {
                        let is_good = checked.is_valid || option.len() == CLIENT_COOKIE_LEN;
                        let rcode = if is_good { Rcode::NoError } else { Rcode::BadCookie };
                        alone = Some(Unlike::CookieAlone(rcode));
                    }
                }
                Err(MalformedCookie) => alone = Some(Unlike::Malformed), // Within the limit, as all others.
            }
        }
        // Who has shown that the address is theirs amplifies nothing.
        let is_free = is_verified || self.options.exempt.contain(client);
        // A catalog of thousands of zones sends a NOTIFY for each at once. Their answers amplify nothing.
        let is_free = is_free || (prepared.is_special() && policy.knows_sender(octets, client));
        let unlike = if is_free { None } else { self.limit(client, now) };
        match (unlike, alone) {
            (Some(Unlike::Truncate), Some(Unlike::Malformed)) => Err((Unlike::Drop, None)), // There is nothing to ask again.
            (None | Some(Unlike::Truncate), Some(alone)) => Err((alone, cookie)),
            (None, None) => Ok(cookie),
            (Some(unlike), _) => Err((unlike, cookie)),
        }
    }

    /// Counts a query; what it gets instead of an answer, if it is one too many.
    fn limit(&mut self, client: IpAddr, now: Instant) -> Option<Unlike> {
        match (self.limiter.take(client, false, 0, now), self.options.beyond) {
            (Verdict::Pass, _) => None,
            (_, Beyond::Refuse) => Some(Unlike::Refuse),
            (Verdict::Slip, Beyond::Slip) => Some(Unlike::Truncate),
            (_, Beyond::Slip | Beyond::Drop) => Some(Unlike::Drop),
        }
    }
}

/// The data of the COOKIE option of a message.
fn cookie_in<'m>(prepared: &Prepared, octets: &'m [u8]) -> Option<&'m [u8]> {
    match prepared.query() {
        Some(query) => query.option(octets, COOKIE),
        None if prepared.is_unasked() => Query::option_unasked(octets, COOKIE),
        None => None,
    }
}
