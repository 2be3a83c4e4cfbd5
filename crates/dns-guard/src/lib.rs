//! What protects a DNS server from its clients, and a resolver from forgers: cookies and rates.
//!
//! | module | what it does |
//! | --- | --- |
//! | `cookies` | DNS cookies (RFC 7873) in the form that servers share (RFC 9018) |
//! | `rate` | token buckets for addresses and networks, in a table of fixed size |
//!
//! Both are values and decisions: the time, the secrets and the addresses are arguments.
#![forbid(unsafe_code)]

mod cookies;
mod rate;

pub use cookies::{
    CLIENT_COOKIE_LEN, COOKIE, COOKIE_MAX, Checked, MalformedCookie, Secret, ServerCookies, client_cookie,
};
pub use rate::{Prefixes, Rate, RateLimiter, RateOptions, Verdict};
