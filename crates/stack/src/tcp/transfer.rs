//! State that a connection needs only while its data is in flight.
//!
//! A server has many connections, and few of them send at a time. Loss recovery, congestion control and pacing take most of a
//! connection's memory. So they come from a pool when the first octet is to be sent, and go back when nothing has been
//! sent for [`REST_AFTER`]. By then the window would restart anyway (RFC 5681, 4.1); only the slow-start threshold is kept.

use clock::{Duration, Instant};

use crate::config::TcpOptions;
use crate::congestion::{CongestionControl, Controller, initial_window};
use crate::pacer::Pacer;
use crate::recovery::{Context, Recovery};
use crate::seq::{SeqNum, SeqRange};
use crate::tcp::connection::{Connection, Fate, Shared};
use crate::tcp::send_limits::{SendLimits, SendTimes};
use crate::tcp::timers::{Timer, Timers};

/// Idle time after which a connection rests. As long as BBR believes its least round-trip time.
pub(crate) const REST_AFTER: Duration = Duration::from_secs(10);
/// Transfers kept for the next connection that sends.
const SPARE_MAX: usize = 1 << 14;

/// State of sending.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) recovery: Recovery,
    pub(crate) controller: Controller,
    pub(crate) pacer: Pacer,
    /// A tail loss probe is due: new data, else this again (RFC 8985, 7.3).
    pub(crate) loss_probe: Option<SeqRange>,
    /// Sequence space of the probe of a larger path MTU that is in flight.
    pub(crate) mtu_probe: Option<SeqRange>,
    /// Deadlines of sending.
    pub(crate) timers: Timers,
    /// The window or the pacer, not the application, limited sending.
    pub(crate) cwnd_limited: bool,
    pub(crate) limits: SendLimits,
}

/// What is remembered of a connection's congestion control while it rests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// Window to begin with in octets; zero for the usual one.
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// See [`SendTimes::to_millis`].
    pub(crate) times_ms: [u32; 3],
}

impl Rest {
    /// Nothing has been sent yet.
    pub(crate) const NEW: Rest = Rest { cwnd: 0, ssthresh: u32::MAX, times_ms: [0; 3] };
}

impl Transfer {
    fn new(options: &TcpOptions, mss: u32, una: SeqNum, seed: u32, rest: Rest, now: Instant) -> Transfer {
        let mut controller = Controller::new(options.congestion, mss, seed, now);
        if rest.cwnd > 0 {
            controller.resume(rest.cwnd, rest.ssthresh);
        }
        Transfer {
            recovery: Recovery::new(una),
            controller,
            pacer: Pacer::new(mss),
            loss_probe: None,
            mtu_probe: None,
            timers: Timers::new(),
            cwnd_limited: false,
            limits: SendLimits::resume(SendTimes::of_millis(rest.times_ms), now),
        }
    }
}

/// Boxes of transfers that are not in use.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "the boxes themselves are what is kept")]
pub(crate) struct SpareTransfers(Vec<Box<Transfer>>);

impl SpareTransfers {
    fn put(&mut self, transfer: Transfer) -> Box<Transfer> {
        match self.0.pop() {
            Some(mut spare) => {
                *spare = transfer;
                spare
            }
            None => Box::new(transfer),
        }
    }

    fn keep(&mut self, transfer: Box<Transfer>) {
        if self.0.len() < SPARE_MAX {
            self.0.push(transfer);
        }
    }
}

impl Connection {
    /// The state of sending, made if the connection rested.
    #[inline]
    pub(crate) fn wake(&mut self, shared: &mut Shared, now: Instant) -> &mut Transfer {
        if self.transfer.is_none() {
            self.begin_transfer(shared, now);
        }
        self.transfer.as_mut().expect("just made")
    }

    #[cold]
    fn begin_transfer(&mut self, shared: &mut Shared, now: Instant) {
        let mss = u32::from(self.send.mss);
        let mut transfer =
            Transfer::new(&self.options, mss, self.data_una(), self.send.iss.0, self.rest, now);
        transfer.controller.on_handshake_rtt(self.rtt.srtt());
        self.transfer = Some(shared.spare_transfers.put(transfer));
        self.set_timer(Timer::Rest, now + REST_AFTER);
    }

    /// Lets `act` work on loss recovery and all that it needs.
    #[inline]
    pub(crate) fn with_recovery<R>(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        act: impl FnOnce(&mut Recovery, &mut Context<'_>) -> R,
    ) -> R {
        let (mss, sack) = (u32::from(self.send.mss), self.flags.sack);
        self.wake(shared, now);
        let transfer = self.transfer.as_mut().expect("it is awake");
        let (controller, rtt, pool) = (&mut transfer.controller, &mut self.rtt, &mut shared.flights);
        let mut context = Context { controller, rtt, pool, mss, sack, now };
        act(&mut transfer.recovery, &mut context)
    }

    /// Nothing has been sent for a while, perhaps: then the state of sending is given back.
    pub(crate) fn on_rest_timeout(&mut self, shared: &mut Shared, now: Instant) -> Fate {
        let idle = crate::tcp::connection::since_millis(self.tally.last_sent_ms, now);
        let waits = !self.send.queue.is_empty() || !self.is_all_acknowledged() || self.is_fin_due();
        if waits || idle < REST_AFTER {
            let rest_of_it = if waits { REST_AFTER } else { REST_AFTER - idle };
            self.set_timer(Timer::Rest, now + rest_of_it);
        } else {
            self.end_transfer(shared, now);
        }
        Fate::Alive
    }

    /// Gives the state of sending back; remembers what the next one begins with.
    pub(crate) fn end_transfer(&mut self, shared: &mut Shared, now: Instant) {
        let Some(mut transfer) = self.transfer.take() else {
            return;
        };
        transfer.recovery.clear(&mut shared.flights);
        let shrinks = shared.config.slow_start_after_idle;
        let most = if shrinks { initial_window(self.send.mss.into()) } else { u32::MAX };
        let window = transfer.controller.cwnd().min(most);
        let (ssthresh, times) = (transfer.controller.ssthresh(), transfer.limits.times(now));
        self.rest = Rest { cwnd: window, ssthresh, times_ms: times.to_millis() };
        shared.spare_transfers.keep(transfer);
    }

    /// The options ask for another controller: it begins as for a new connection.
    pub(crate) fn change_controller(&mut self, shared: &mut Shared, now: Instant) {
        let (algorithm, mss, seed) = (self.options.congestion, self.send.mss.into(), self.send.iss.0);
        if self.transfer.is_some() {
            let srtt = self.rtt.srtt();
            let controller = &mut self.wake(shared, now).controller;
            *controller = Controller::new(algorithm, mss, seed, now);
            controller.on_handshake_rtt(srtt);
        }
    }

    /// RFC 5681, 3.1: after a lost SYN the window is one segment.
    pub(crate) fn start_carefully(&mut self) {
        self.rest = Rest { cwnd: self.send.mss.into(), ..Rest::NEW };
        if let Some(transfer) = &mut self.transfer {
            transfer.controller.on_handshake_loss();
        }
    }

    /// Whether all that was sent is acknowledged.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        self.transfer.as_ref().is_none_or(|transfer| transfer.recovery.is_idle())
    }

    /// Octets to retransmit.
    pub(crate) fn lost(&self) -> u32 {
        self.transfer.as_ref().map_or(0, |transfer| transfer.recovery.lost())
    }

    /// Octets in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        self.transfer.as_ref().map_or(0, |transfer| transfer.recovery.in_flight())
    }

    /// Octets that may be in flight.
    pub(crate) fn cwnd(&self) -> u32 {
        match &self.transfer {
            Some(transfer) => transfer.controller.cwnd(),
            None if self.rest.cwnd > 0 => self.rest.cwnd,
            None => initial_window(self.send.mss.into()),
        }
    }
}
