//! Cookies and limits of rate, in front of the answers (RFC 7873, RFC 9018; response rate limiting as other servers have it).

use std::net::IpAddr;
use std::sync::Arc;

use clock::Instant;
use dns_auth::{Prepared, Responder, Transport};
use dns_guard::{Beyond, COOKIE, Networks, RateLimiter, RateOptions, ServerCookies, Verdict};
use dns_transfer::Policy;
use dns_wire::Rcode;

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
}

impl Unlike {
    /// Writes what it gets over the prepared query in `buffer`; the length, if there is an answer.
    #[inline(never)]
    pub(crate) fn answer(
        self,
        responder: &mut Responder,
        prepared: &Prepared,
        buffer: &mut [u8],
        transport: Transport,
    ) -> Option<usize> {
        let (rcode, is_truncated) = match self {
            Unlike::Malformed => (Rcode::FormErr, false),
            Unlike::Truncate => (Rcode::NoError, true),
            Unlike::Refuse => (Rcode::Refused, false),
            Unlike::Drop => {
                responder.drop_for_rate(transport);
                return None;
            }
        };
        length(responder.answer_nothing(prepared, (rcode, is_truncated), buffer, transport))
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
    ) -> Result<Option<Cookie>, Unlike> {
        let mut cookie = None;
        let mut is_verified = transport != Transport::Udp;
        if let Some(cookies) = &self.options.cookies
            && let Some(option) = prepared.query().and_then(|query| query.option(octets, COOKIE))
        {
            let checked = cookies.check(option, client, unix_secs as u32).map_err(|_| Unlike::Malformed)?;
            is_verified |= checked.is_valid;
            cookie = Some(checked.answer).filter(|_| !prepared.is_special());
        }
        // Who has shown that the address is theirs amplifies nothing.
        if is_verified || self.options.exempt.contain(client) {
            return Ok(cookie);
        }
        // A catalog of thousands of zones sends a NOTIFY for each at once. Their answers amplify nothing.
        if prepared.is_special() && policy.knows_sender(octets, client) {
            return Ok(cookie);
        }
        match (self.limiter.take(client, false, 0, now), self.options.beyond) {
            (Verdict::Pass, _) => Ok(cookie),
            (_, Beyond::Refuse) => Err(Unlike::Refuse),
            (Verdict::Slip, Beyond::Slip) => Err(Unlike::Truncate),
            (_, Beyond::Slip | Beyond::Drop) => Err(Unlike::Drop),
        }
    }
}
