//! How much a segment carries (RFC 9293, 3.7.1; RFC 6691).

use crate::congestion::CongestionControl;
use crate::flow_table::FlowKey;
use crate::segment::{TIMESTAMPS_LEN, headers_len};
use crate::tcp::connection::{Connection, Shared};

/// Least payload of a full segment, whatever MSS and options say.
const PAYLOAD_MIN: u16 = 36;

impl Connection {
    /// Segment size to announce: what our link takes (RFC 9293, 3.7.1; RFC 6691).
    pub(crate) fn mss_to_announce(&self, shared: &Shared) -> u16 {
        mss_of_link(shared, self.link, &self.key, self.options.mss_max)
    }

    /// The same less the room of the options that each segment has, by the path as it is known now (`tcpi_advmss`).
    pub(crate) fn mss_taken(&self) -> u16 {
        let by_path = self.path_mtu.mtu().saturating_sub(headers_len(&self.key.remote().ip()));
        let options = if self.flags.timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        by_path.min(self.options.mss_max.unwrap_or(u16::MAX)).saturating_sub(options)
    }

    /// Works out anew how much payload a full segment carries.
    pub(crate) fn update_mss(&mut self, shared: &mut Shared) {
        let link = shared.paths.link(self.link);
        let mtu = self.path_mtu.mtu().min(link.mtu);
        let by_path = mtu.saturating_sub(headers_len(&self.key.remote().ip()));
        let options = if self.flags.timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        let by_path = by_path.saturating_sub(options);
        self.send.mss = by_path.min(self.payload_limit(shared)).max(PAYLOAD_MIN);
        if let Some(transfer) = &mut self.transfer {
            transfer.controller.set_mss(self.send.mss.into());
            transfer.pacer.set_mss(self.send.mss.into());
        }
    }

    /// Octets of payload of a full segment that the peer and the options allow, whatever the path does.
    pub(crate) fn payload_limit(&self, shared: &Shared) -> u16 {
        let route = shared.paths.route_clamp(self.key.remote().ip());
        let clamps = [shared.paths.link(self.link).mss_clamp, route, self.options.mss_max];
        let mss = clamps.into_iter().flatten().fold(self.send.peer_mss, u16::min);
        let options = if self.flags.timestamps { TIMESTAMPS_LEN as u16 } else { 0 };
        mss.saturating_sub(options)
    }
}

/// Segment size that `link` takes on the way to `key`'s peer.
pub(crate) fn mss_of_link(
    shared: &Shared,
    link: crate::path::LinkId,
    key: &FlowKey,
    mss_max: Option<u16>,
) -> u16 {
    let link = shared.paths.link(link);
    let by_link = link.mtu.saturating_sub(headers_len(&key.remote().ip()));
    let route = shared.paths.route_clamp(key.remote().ip());
    [link.mss_clamp, route, mss_max].into_iter().flatten().fold(by_link, u16::min)
}
