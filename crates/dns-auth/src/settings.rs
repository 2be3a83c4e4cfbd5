//! The operator's settings for answers.

/// Settings that change answers. The reader of the configuration checks them; each field states its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest UDP message sent, in octets, 512 to 4096, however much the client would take. 1232 avoids fragments on
    /// nearly every path (RFC 9715); a smaller value sends more clients to TCP.
    pub udp_payload_max: u16,
    /// Rotates the records of an answer from query to query. Costs some nanoseconds an answer.
    pub rotate: bool,
    /// Answer to `version.bind` and `version.server` in class CHAOS; `None` refuses. At most 255 octets.
    pub version: Option<String>,
    /// Answer to `hostname.bind` and `id.server` in class CHAOS; `None` refuses. At most 255 octets.
    pub hostname: Option<String>,
    /// Name server identifier (RFC 5001), sent to clients that ask for it; `None` sends none. At most 255 octets.
    pub nsid: Option<Vec<u8>>,
    /// Percent of a responder's time that may go into signatures for one answer over UDP, and as much again over connections: 1 to 50. More leaves less for
    /// other answers while somebody asks for names that do not exist.
    pub online_signing_percent: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            udp_payload_max: 1232,
            rotate: false,
            version: None,
            hostname: None,
            nsid: None,
            online_signing_percent: 5,
        }
    }
}
