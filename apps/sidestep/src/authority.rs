//! The authority of a URL (RFC 3986, 3.2).

use http::uri::Authority;

/// Whether nothing follows the host, or a valid port. [`Authority::port_u16`] gives `None` for an invalid port, as for no port.
pub(crate) fn has_port_or_none(authority: &Authority) -> bool {
    let Some(behind) = authority.as_str().strip_prefix(authority.host()) else { return false };
    let Some(port) = behind.strip_prefix(':') else { return behind.is_empty() };
    port.is_empty() || port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_of_16_bits_or_not_there() {
        let is_good = |text: &str| text.parse().is_ok_and(|authority| has_port_or_none(&authority));
        for text in ["h.example", "h.example:", "h.example:65535", "192.0.2.1:80", "[::1]", "[::1]:80"] {
            assert!(is_good(text), "{text}");
        }
        for text in ["h.example:65536", "192.0.2.1:99999", "h:8o80", "h:-1", "h:+80", "[::1]:99999", "[::1]x"]
        {
            assert!(!is_good(text), "{text}");
        }
    }
}
