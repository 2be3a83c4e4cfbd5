//! A path with one bottleneck, for tests: a link of fixed rate behind a buffer that drops what does not fit, and a fixed
//! delay. One sender always has data; each segment is acknowledged; losses are known when a later segment arrives.

use std::collections::VecDeque;

use clock::{Duration, Instant};

use super::tests::MSS;
use super::{Acked, Congestion, CongestionControl, RateSample};
use crate::pacer::Pacer;
use crate::seq::SeqNum;

const TIMEOUT: Duration = Duration::from_secs(1);

/// The path. Octets a second, and octets.
#[derive(Clone, Copy)]
pub(super) struct Bottleneck {
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    pub(super) buffer: u64,
}

impl Bottleneck {
    /// Octets that fill the path without a queue.
    pub(super) fn bdp(&self) -> u64 {
        self.rate * self.rtt.as_nanos() / 1_000_000_000
    }
}

/// One flow over the path.
pub(super) struct Flow<C> {
    pub(super) controller: C,
    pub(super) path: Bottleneck,
    pub(super) now: Instant,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) srtt: Duration,
    pacer: Pacer,
    flight: VecDeque<Segment>,
    /// When the link will have sent what is queued.
    link_free: Instant,
    delivered_time: Instant,
    first_send_time: Instant,
    snd_nxt: SeqNum,
    recovery_point: Option<SeqNum>,
    cwnd_limited: bool,
}

/// A segment in flight, with the delivery state at its departure (draft-ietf-ccwg-bbr, 4.1.2.2).
struct Segment {
    end: SeqNum,
    send_time: Instant,
    delivered: u64,
    delivered_time: Instant,
    first_send_time: Instant,
    /// When its acknowledgement comes; `None` if it was dropped.
    acked_at: Option<Instant>,
}

impl<C: CongestionControl> Flow<C> {
    pub(super) fn new(path: Bottleneck, controller: C) -> Flow<C> {
        Flow {
            controller,
            path,
            now: Instant::ZERO,
            delivered: 0,
            lost: 0,
            srtt: Duration::ZERO,
            pacer: Pacer::new(MSS),
            flight: VecDeque::new(),
            link_free: Instant::ZERO,
            delivered_time: Instant::ZERO,
            first_send_time: Instant::ZERO,
            snd_nxt: SeqNum(0),
            recovery_point: None,
            cwnd_limited: false,
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.flight.len() as u32 * MSS
    }

    /// Octets that wait in the buffer or are on the link.
    pub(super) fn queue(&self) -> u64 {
        (self.link_free - self.now).as_nanos() * self.path.rate / 1_000_000_000
    }

    /// Runs until `end`, telling `observe` after every acknowledgement.
    pub(super) fn run_until(&mut self, end: Instant, mut observe: impl FnMut(&Self)) {
        while self.now < end {
            self.send();
            match self.next_acknowledgement() {
                Some((index, at)) if self.next_departure().is_none_or(|departure| at <= departure) => {
                    self.now = at;
                    self.acknowledge(index);
                    observe(self);
                }
                _ => match self.next_departure() {
                    Some(departure) => self.now = departure,
                    None => self.time_out(),
                },
            }
        }
    }

    fn window_allows(&self) -> bool {
        self.in_flight() + MSS <= self.controller.cwnd()
    }

    fn next_departure(&self) -> Option<Instant> {
        self.window_allows().then(|| self.pacer.earliest_departure(self.now))
    }

    fn next_acknowledgement(&self) -> Option<(usize, Instant)> {
        let mut arrivals = self.flight.iter().enumerate();
        arrivals.find_map(|(index, segment)| Some((index, segment.acked_at?)))
    }

    fn send(&mut self) {
        while self.window_allows() && self.pacer.may_send(self.now) {
            if self.flight.is_empty() {
                self.first_send_time = self.now;
                self.delivered_time = self.now;
            }
            self.controller.on_sent(self.now, self.in_flight());
            self.pacer.on_sent(MSS, self.now, self.controller.pacing_rate());
            self.snd_nxt += MSS;
            let acked_at = self.enqueue();
            self.flight.push_back(Segment {
                end: self.snd_nxt,
                send_time: self.now,
                delivered: self.delivered,
                delivered_time: self.delivered_time,
                first_send_time: self.first_send_time,
                acked_at,
            });
        }
        self.cwnd_limited |= !self.window_allows();
    }

    fn enqueue(&mut self) -> Option<Instant> {
        if self.queue() + u64::from(MSS) > self.path.buffer {
            return None;
        }
        let transmission = Duration::from_nanos(u64::from(MSS) * 1_000_000_000 / self.path.rate);
        self.link_free = self.link_free.max(self.now) + transmission;
        Some(self.link_free + self.path.rtt)
    }

    fn acknowledge(&mut self, index: usize) {
        let prior_in_flight = self.in_flight();
        let lost = index as u32 * MSS;
        self.flight.drain(..index);
        let segment = self.flight.pop_front().expect("the index is one of the flight");
        self.lost += u64::from(lost);
        self.delivered += u64::from(MSS);
        self.delivered_time = self.now;
        self.first_send_time = segment.send_time;
        let rtt = self.now - segment.send_time;
        self.srtt = if self.srtt.is_zero() { rtt } else { (self.srtt * 7 + rtt) / 8 };
        self.follow_recovery(lost, prior_in_flight, segment.end);
        let interval = (segment.send_time - segment.first_send_time).max(self.now - segment.delivered_time);
        self.controller.on_acked(&Acked {
            now: self.now,
            delivered: MSS,
            cumulative: MSS,
            prior_in_flight,
            in_flight: self.in_flight(),
            rtt: Some(rtt),
            srtt: self.srtt,
            min_rtt: self.path.rtt,
            rate: Some(RateSample {
                delivered: self.delivered - segment.delivered,
                interval,
                prior_delivered: segment.delivered,
                app_limited: false,
            }),
            cwnd_limited: core::mem::take(&mut self.cwnd_limited),
            in_recovery: self.recovery_point.is_some(),
            snd_una: segment.end,
            snd_nxt: self.snd_nxt,
            lost,
        });
    }

    fn follow_recovery(&mut self, lost: u32, flight_size: u32, acked: SeqNum) {
        if self.recovery_point.is_some_and(|point| acked.is_at_or_after(point)) {
            self.recovery_point = None;
            self.controller.on_recovered(self.now);
        }
        if lost > 0 && self.recovery_point.is_none() {
            self.recovery_point = Some(self.snd_nxt);
            self.controller.on_congestion(Congestion::Loss, flight_size, self.now);
        }
    }

    fn time_out(&mut self) {
        self.now += TIMEOUT;
        self.lost += u64::from(self.in_flight());
        self.controller.on_congestion(Congestion::Timeout, self.in_flight(), self.now);
        self.recovery_point = Some(self.snd_nxt);
        self.flight.clear();
    }
}
