//! What protects a DNS server from its clients, and a resolver from forgers: cookies and rates.
//!
//! | module | what it does |
//! | --- | --- |
//! | `cookies` | DNS cookies (RFC 7873) in the form that servers share (RFC 9018) |
//! | `networks` | prefixes of addresses |
//! | `rate` | token buckets for addresses and networks, in a table of fixed size |
//!
//! They are values and decisions: the time, the secrets and the addresses are arguments.
#![forbid(unsafe_code)]

mod cookies;
mod networks;
mod rate;

pub use cookies::{
    CLIENT_COOKIE_LEN, COOKIE, COOKIE_MAX, Checked, MalformedCookie, Secret, ServerCookies, client_cookie,
};
pub use networks::{NETWORK_FORM, Network, Networks};
pub use rate::{Beyond, Prefixes, Rate, RateLimiter, RateOptions, Verdict};
