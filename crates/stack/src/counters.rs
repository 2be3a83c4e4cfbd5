//! A stack's counters, by their names in Linux's `/proc/net/snmp` and `/proc/net/netstat` where they exist (RFC 4022).

use crate::recovery::{Event, Events};

/// Declares the counters, their names and their list in one place, so that they cannot disagree.
macro_rules! counters {
    ($($(#[$doc:meta])+ $field:ident => $name:literal,)+) => {
        /// Counts since the stack was made.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])+ pub $field: u64,)+
        }

        impl Counters {
            /// Name and value of each, in a stable order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),+].into_iter()
            }
        }
    };
}

counters! {
    /// Connections opened by us.
    active_opens => "TcpActiveOpens",
    /// Connections opened by a peer.
    passive_opens => "TcpPassiveOpens",
    /// Connections that failed before they were established.
    attempt_fails => "TcpAttemptFails",
    /// Established connections that ended by a reset.
    estab_resets => "TcpEstabResets",
    /// Segments received.
    in_segs => "TcpInSegs",
    /// Segments sent, retransmissions aside.
    out_segs => "TcpOutSegs",
    /// Segments sent again.
    retrans_segs => "TcpRetransSegs",
    /// Segments received with an error.
    in_errs => "TcpInErrs",
    /// Segments received with a wrong checksum.
    in_csum_errors => "TcpInCsumErrors",
    /// Resets sent.
    out_rsts => "TcpOutRsts",
    /// SYN cookies sent.
    syncookies_sent => "TcpExtSyncookiesSent",
    /// SYN cookies that came back right.
    syncookies_recv => "TcpExtSyncookiesRecv",
    /// SYN cookies that came back wrong.
    syncookies_failed => "TcpExtSyncookiesFailed",
    /// Half-open connections reset by their peer.
    embryonic_rsts => "TcpExtEmbryonicRsts",
    /// SYNs and final ACKs dropped for a full accept queue.
    listen_overflows => "TcpExtListenOverflows",
    /// SYNs dropped for any reason.
    listen_drops => "TcpExtListenDrops",
    /// SYNs dropped because there are too many half-open connections and cookies are off.
    req_q_full_drop => "TcpExtTCPReqQFullDrop",
    /// SYNs answered by a cookie because there are too many half-open connections.
    req_q_full_do_cookies => "TcpExtTCPReqQFullDoCookies",
    /// Connections refused because buffer memory or connections are exhausted.
    memory_refused => "SidestepMemoryRefused",
    /// Connections that went to TIME-WAIT.
    time_waited => "TcpExtTW",
    /// TIME-WAIT entries that a new connection took over.
    time_wait_recycled => "TcpExtTWRecycled",
    /// TIME-WAIT entries dropped because there are too many.
    time_wait_overflow => "TcpExtTCPTimeWaitOverflow",
    /// Segments dropped by PAWS.
    paws_estab => "TcpExtPAWSEstab",
    /// SYN-SENT: acknowledgements with an impossible timestamp.
    paws_active => "TcpExtPAWSActive",
    /// Delayed ACKs sent.
    delayed_acks => "TcpExtDelayedACKs",
    /// Duplicate data arrived, so an ACK was sent at once.
    delayed_ack_lost => "TcpExtDelayedACKLost",
    /// Acknowledgements without data that arrived and moved something.
    pure_acks => "TcpExtTCPPureAcks",
    /// Challenge ACKs sent (RFC 5961).
    challenge_acks => "TcpExtTCPChallengeACK",
    /// SYNs that arrived in a synchronised state and were answered so.
    syn_challenge => "TcpExtTCPSYNChallenge",
    /// Duplicate ACKs not sent because one was sent just now.
    acks_skipped => "TcpExtTCPACKSkipped",
    /// The same of half-open connections.
    acks_skipped_syn_received => "TcpExtTCPACKSkippedSynRecv",
    /// The same in TIME-WAIT.
    acks_skipped_time_wait => "TcpExtTCPACKSkippedTimeWait",
    /// Old acknowledgements ignored.
    old_acks => "TcpExtTCPOldAck",
    /// Segments wholly outside the window.
    outside_window => "TcpExtTCPOutsideWindow",
    /// Segments that came out of order and were kept.
    ofo_queue => "TcpExtTCPOFOQueue",
    /// Segments that arrived out of order and were dropped for lack of memory.
    ofo_drop => "TcpExtTCPOFODrop",
    /// How often out-of-order data was dropped for lack of memory.
    ofo_pruned => "TcpExtOfoPruned",
    /// Segments in order that were dropped for lack of memory.
    rcv_q_drop => "TcpExtTCPRcvQDrop",
    /// Segments that did not fit the advertised window.
    zero_window_drop => "TcpExtTCPZeroWindowDrop",
    /// DSACKs sent for data in order.
    dsack_old_sent => "TcpExtTCPDSACKOldSent",
    /// DSACKs sent for data out of order.
    dsack_ofo_sent => "TcpExtTCPDSACKOfoSent",
    /// DSACKs received.
    dsack_recv => "TcpExtTCPDSACKRecv",
    /// Fast recoveries entered with SACK.
    sack_recovery => "TcpExtTCPSackRecovery",
    /// Fast recoveries entered without SACK.
    reno_recovery => "TcpExtTCPRenoRecovery",
    /// Segments retransmitted in fast recovery.
    fast_retrans => "TcpExtTCPFastRetrans",
    /// Segments retransmitted after a timeout.
    slow_start_retrans => "TcpExtTCPSlowStartRetrans",
    /// Retransmission timeouts.
    timeouts => "TcpExtTCPTimeouts",
    /// Tail loss probes sent.
    loss_probes => "TcpExtTCPLossProbes",
    /// Losses that a probe repaired.
    loss_probe_recovery => "TcpExtTCPLossProbeRecovery",
    /// Timeouts found spurious.
    spurious_rtos => "TcpExtTCPSpuriousRTOs",
    /// Fast recoveries found spurious by timestamps at their end.
    full_undo => "TcpExtTCPFullUndo",
    /// Fast recoveries found spurious by timestamps before their end.
    partial_undo => "TcpExtTCPPartialUndo",
    /// Selective acknowledgements out of range.
    sack_discard => "TcpExtTCPSACKDiscard",
    /// Recoveries found spurious by DSACKs.
    dsack_undo => "TcpExtTCPDSACKUndo",
    /// Timeouts found spurious after loss recovery began.
    loss_undo => "TcpExtTCPLossUndo",
    /// Peers that took back a selective acknowledgement.
    sack_reneging => "TcpExtTCPSACKReneging",
    /// Zero-window probes sent.
    window_probes => "TcpExtTCPWinProbe",
    /// Keepalive probes sent.
    keepalive_probes => "TcpExtTCPKeepAlive",
    /// Our window fell to zero.
    to_zero_window => "TcpExtTCPToZeroWindowAdv",
    /// Our window opened again.
    from_zero_window => "TcpExtTCPFromZeroWindowAdv",
    /// Connections ended because data came after close.
    abort_on_data => "TcpExtTCPAbortOnData",
    /// Connections reset because they were closed with data unread.
    abort_on_close => "TcpExtTCPAbortOnClose",
    /// Connections ended by retransmission or keepalive limits.
    abort_on_timeout => "TcpExtTCPAbortOnTimeout",
    /// Connections reset by the closing socket's wish.
    abort_on_linger => "TcpExtTCPAbortOnLinger",
    /// Connections reset at close because there are too many that no socket holds.
    abort_on_memory => "TcpExtTCPAbortOnMemory",
    /// Closed connections dropped in FIN-WAIT-2.
    fin_wait2_timeout => "SidestepFinWait2Timeout",
    /// Segments with congestion experienced.
    in_ce => "IpExtInCEPkts",
    /// Reductions of the window on ECN-echo.
    ecn_reductions => "SidestepEcnReductions",
    /// Fast Open: data in a SYN that we sent was acknowledged.
    fast_open_active => "TcpExtTCPFastOpenActive",
    /// Fast Open: data in a SYN that we sent was not acknowledged.
    fast_open_active_fail => "TcpExtTCPFastOpenActiveFail",
    /// Fast Open: data in a SYN was accepted.
    fast_open_passive => "TcpExtTCPFastOpenPassive",
    /// Fast Open: a cookie was wrong.
    fast_open_passive_fail => "TcpExtTCPFastOpenPassiveFail",
    /// Fast Open: a cookie was asked for.
    fast_open_cookie_requested => "TcpExtTCPFastOpenCookieReqd",
    /// Fast Open: too many connections are pending.
    fast_open_listen_overflow => "TcpExtTCPFastOpenListenOverflow",
    /// ICMP errors about no flow of ours.
    icmp_unknown => "SidestepIcmpUnknown",
    /// ICMP errors whose sequence number is not in flight (RFC 5927).
    out_of_window_icmps => "TcpExtOutOfWindowIcmps",
    /// Path MTU lowered by ICMP.
    path_mtu_reductions => "SidestepPathMtuReductions",
    /// Path MTU lowered because a black hole is suspected.
    mtu_probe_fail => "TcpExtTCPMTUPFail",
    /// Path MTU raised by a probe.
    mtu_probe_success => "TcpExtTCPMTUPSuccess",
    /// Replies without a connection (resets, challenge ACKs) dropped because too many are waiting.
    replies_dropped => "SidestepRepliesDropped",
    /// Connections that left for another stack or the kernel.
    detached => "SidestepDetached",
    /// Connections that came from another stack.
    attached => "SidestepAttached",
    /// Segments ignored because their connection or listener has just left.
    departed_ignored => "SidestepDepartedIgnored",
    /// Segments of a connection that has just left, kept for its new owner.
    departed_late => "SidestepDepartedLate",
    /// Segments of no connection here that others were asked about.
    strays => "SidestepStrays",
    /// Segments that came behind those, or while as many were asked about as may be.
    strays_ignored => "SidestepStraysIgnored",
    /// UDP datagrams delivered.
    udp_in_datagrams => "UdpInDatagrams",
    /// UDP datagrams to a port without a socket.
    udp_no_ports => "UdpNoPorts",
    /// UDP datagrams dropped as malformed.
    udp_in_errors => "UdpInErrors",
    /// UDP datagrams sent.
    udp_out_datagrams => "UdpOutDatagrams",
    /// UDP datagrams dropped because the receive buffer is full.
    udp_rcvbuf_errors => "UdpRcvbufErrors",
    /// UDP datagrams refused because the send buffer is full.
    udp_sndbuf_errors => "UdpSndbufErrors",
    /// UDP datagrams dropped because the memory for all of them is full.
    udp_mem_errors => "UdpMemErrors",
    /// UDP datagrams dropped because their link's MTU fell below their length before they left.
    udp_out_too_long => "SidestepUdpOutTooLong",
    /// UDP datagrams with a wrong checksum.
    udp_in_csum_errors => "UdpInCsumErrors",
}

impl Counters {
    /// Adds the events of loss recovery.
    pub(crate) fn add_recovery_events(&mut self, events: Events) {
        if events.is_empty() {
            return; // As nearly always.
        }
        for event in events.iter() {
            *self.of_recovery_event(event) += 1;
        }
    }

    fn of_recovery_event(&mut self, event: Event) -> &mut u64 {
        match event {
            Event::SackRecovery => &mut self.sack_recovery,
            Event::RenoRecovery => &mut self.reno_recovery,
            Event::Timeout => &mut self.timeouts,
            Event::LossProbeRecovery => &mut self.loss_probe_recovery,
            Event::DsackReceived => &mut self.dsack_recv,
            Event::SackReneging => &mut self.sack_reneging,
            Event::SpuriousTimeout => &mut self.spurious_rtos,
            Event::FullUndo => &mut self.full_undo,
            Event::PartialUndo => &mut self.partial_undo,
            Event::DsackUndo => &mut self.dsack_undo,
            Event::LossUndo => &mut self.loss_undo,
            Event::SackDiscarded => &mut self.sack_discard,
        }
    }
}
