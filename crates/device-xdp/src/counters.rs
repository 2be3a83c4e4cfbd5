//! The steering program's counters.

use aya::maps::{MapData, PerCpuArray};

use crate::XdpError;
use crate::error::map_error;

/// Length of `enum outcome` in `bpf/maps.bpf.h`.
pub(crate) const OUTCOMES: usize = 14;

/// The map `outcomes`: one array of counts for each processor.
pub(crate) type Outcomes = PerCpuArray<MapData, [u64; OUTCOMES]>;

/// Packets by what the steering program did with them: `passed` packets went to the kernel, `dropped` ones nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringCounters {
    /// Given to an AF_XDP socket, which may still have dropped them: see the device's counters.
    pub redirected: u64,
    /// Neither IPv4 nor IPv6, or behind more than two tags.
    pub passed_not_ip: u64,
    /// An IPv4 fragment or a packet with IPv4 options.
    pub passed_fragment_or_options: u64,
    /// Neither UDP nor TCP, or behind an IPv6 extension header.
    pub passed_other_protocol: u64,
    /// No claim has this port.
    pub passed_unclaimed_port: u64,
    /// A claim has this port, but on another address or behind other tags.
    pub passed_unclaimed_address: u64,
    /// Claimed, but no socket serves the receive queue.
    pub passed_no_socket: u64,
    /// Shorter than its headers.
    pub passed_truncated: u64,
    /// Claimed, but longer than the largest frame holds.
    pub passed_too_long: u64,
    /// Claimed, but not on the receive queue.
    pub passed_other_queue: u64,
    /// Claimed, but of a flow that is the kernel's.
    pub passed_kernel_flow: u64,
    /// Claimed TCP that no socket can be given, as it has IP options or extension headers, is a fragment, or is longer than a
    /// frame; or as it came by another queue than a connection's that the kernel cannot have. The kernel, which does not know the connection, would
    /// reset it.
    pub dropped_claimed_tcp: u64,
    /// Claimed TCP that came while sockets were opened anew.
    pub dropped_reopening: u64,
    /// Of a connection whose handshake moves from one socket to the next: [`SteeringProgram::add_awaited_flow`].
    ///
    /// [`SteeringProgram::add_awaited_flow`]: crate::SteeringProgram::add_awaited_flow
    pub dropped_awaited: u64,
}

impl SteeringCounters {
    pub(crate) fn read(outcomes: &Outcomes) -> Result<SteeringCounters, XdpError> {
        let per_cpu = outcomes.get(&0, 0).map_err(map_error("outcomes"))?;
        let sum = |outcome: usize| per_cpu.iter().map(|counts| counts[outcome]).sum();
        Ok(SteeringCounters {
            redirected: sum(0),
            passed_not_ip: sum(1),
            passed_fragment_or_options: sum(2),
            passed_other_protocol: sum(3),
            passed_unclaimed_port: sum(4),
            passed_unclaimed_address: sum(5),
            passed_no_socket: sum(6),
            passed_truncated: sum(7),
            passed_too_long: sum(8),
            passed_other_queue: sum(9),
            passed_kernel_flow: sum(10),
            dropped_claimed_tcp: sum(11),
            dropped_reopening: sum(12),
            dropped_awaited: sum(13),
        })
    }

    /// Name and value of each count, in a stable order.
    pub fn named(&self) -> [(&'static str, u64); OUTCOMES] {
        [
            ("redirected", self.redirected),
            ("passed_not_ip", self.passed_not_ip),
            ("passed_fragment_or_options", self.passed_fragment_or_options),
            ("passed_other_protocol", self.passed_other_protocol),
            ("passed_unclaimed_port", self.passed_unclaimed_port),
            ("passed_unclaimed_address", self.passed_unclaimed_address),
            ("passed_no_socket", self.passed_no_socket),
            ("passed_truncated", self.passed_truncated),
            ("passed_too_long", self.passed_too_long),
            ("passed_other_queue", self.passed_other_queue),
            ("passed_kernel_flow", self.passed_kernel_flow),
            ("dropped_claimed_tcp", self.dropped_claimed_tcp),
            ("dropped_reopening", self.dropped_reopening),
            ("dropped_awaited", self.dropped_awaited),
        ]
    }
}
