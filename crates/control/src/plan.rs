//! Decides what to do with one interface, given its present state. Pure: views and results come in, actions come out.
//!
//! ```text
//!                  view: interface is there                   needs larger frames
//!   Absent ---------------------------------> Attached ----------------------+
//!     ^            Attach, Open*, SetClaims      |  ^                          |
//!     |                                          |  +- Reopen, Open*, Reopened +
//!     +---------- view: gone, or a new index ----+
//!                       Detach
//! ```

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use steering::{Claim, ListenAddress, LocalAddress, Transport};

/// Time between a failure and the next attempt, and between two counts of the queues.
const RETRY: Duration = Duration::from_secs(1);
/// Time for the engines to drop their devices before a new program replaces an attached one.
const REPLACE: Duration = Duration::from_millis(100);
/// Time between attempts to open queues again that the engines were told to close. The kernel frees them after a while.
const REOPEN: Duration = Duration::from_millis(20);
/// How long claimed TCP waits for that at most.
pub(crate) const REOPEN_MAX: Duration = Duration::from_secs(1);
/// How long nothing is said of a queue that is in use: the kernel frees those of a process that was killed some time after its end.
const BUSY_MAX: Duration = Duration::from_secs(2);

/// The interface in its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortView {
    /// Interface index.
    pub index: u32,
    /// Largest IP packet in octets.
    pub mtu: u32,
    /// Octets of its devices' frames; `None` if no frame is large enough.
    pub frame_size: Option<u16>,
    /// Queues in use that both receive and transmit.
    pub queues: u16,
    /// Destination addresses that packets on it may have.
    pub addresses: BTreeSet<LocalAddress>,
}

/// What the caller must do, in this order. It must report each outcome before it asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the engines drop their devices, and detach the program if there is one.
    Detach,
    /// Make the engines drop their devices, which new ones will replace. The program stays, and learns that claimed TCP
    /// waits.
    Reopen,
    /// Tell the program that claimed TCP no longer waits.
    Reopened,
    /// Attach the program, then call [`PortPlan::on_attached`] or [`PortPlan::on_failure`].
    Attach,
    /// Open these queues as one device for this engine, then call [`PortPlan::on_opened`] or
    /// [`PortPlan::on_failure`].
    Open {
        /// The engine that gets the device.
        engine: usize,
        /// Queues of the interface that are not open yet.
        queues: Vec<u16>,
        /// Octets of its frames; `None` if the interface allows none, which opening will report.
        frame_size: Option<u16>,
    },
    /// Tell the engines the MTU, then call [`PortPlan::on_mtu_told`].
    TellMtu(u32),
    /// Make the program claim exactly these, then call [`PortPlan::on_claimed`] or [`PortPlan::on_failure`].
    SetClaims(BTreeSet<Claim>),
}

/// Keeps one interface attached, all its queues open, and its claims right. Call [`PortPlan::next`] until it returns
/// `None`, whenever the view may have changed and at [`PortPlan::poll_timeout`].
#[derive(Debug)]
pub struct PortPlan {
    engines: usize,
    listens: Vec<(Transport, ListenAddress)>,
    attached: Option<Attached>,
    /// No action that may fail is tried before this time.
    not_before: Instant,
    last_look: Instant,
    /// Since when queues that are to be opened are in use.
    busy_since: Option<Instant>,
}

#[derive(Debug)]
struct Attached {
    index: u32,
    mtu: u32,
    /// The devices' frame size. They keep it when the interface needs less.
    frame_size: Option<u16>,
    open: BTreeSet<u16>,
    claims: BTreeSet<Claim>,
    /// Queues are being opened again, and claimed TCP waits for that until this time.
    reopening: Option<Instant>,
}

impl PortPlan {
    /// A plan for `engines` engines; queue `q` belongs to engine `q % engines`.
    ///
    /// # Panics
    /// If `engines` is zero.
    pub fn new(engines: usize, listens: Vec<(Transport, ListenAddress)>) -> PortPlan {
        assert!(engines > 0, "somebody has to serve the queues");
        let (not_before, last_look) = (Instant::ZERO, Instant::ZERO);
        PortPlan { engines, listens, attached: None, not_before, last_look, busy_since: None }
    }

    /// Replaces the listens.
    pub fn set_listens(&mut self, listens: Vec<(Transport, ListenAddress)>) {
        self.listens = listens;
    }

    /// The next action for an interface in the state `view`, or that does not exist.
    pub fn next(&mut self, view: Option<&PortView>, now: Instant) -> Option<Action> {
        self.last_look = now;
        let Some(view) = view else { return self.attached.take().map(|_| Action::Detach) };
        if let Some(action) = self.follow_link(view, now) {
            return Some(action);
        }
        if now < self.not_before {
            return None;
        }
        let Some(attached) = &self.attached else { return Some(Action::Attach) };
        self.queues_to_open(attached, view)
            .or_else(|| attached.reopening.map(|_| Action::Reopened))
            .or_else(|| self.claims_to_set(attached, view))
    }

    /// What must be done now, even before the time for another attempt.
    fn follow_link(&mut self, view: &PortView, now: Instant) -> Option<Action> {
        let attached = self.attached.as_mut()?;
        let (had, needed) = (attached.frame_size, view.frame_size);
        if attached.index != view.index || (had.is_some() && needed.is_none()) {
            self.attached = None;
            self.not_before = now + REPLACE;
            return Some(Action::Detach);
        }
        attached.frame_size = had.max(needed);
        if attached.frame_size != had && !attached.open.is_empty() {
            attached.open.clear();
            attached.reopening = Some(now + REOPEN_MAX);
            self.not_before = now + REOPEN;
            return Some(Action::Reopen);
        }
        if attached.mtu != view.mtu {
            return Some(Action::TellMtu(view.mtu));
        }
        attached.reopening.is_some_and(|until| now >= until).then_some(Action::Reopened)
    }

    /// When to call [`PortPlan::next`] again without news: the kernel does not report new queues.
    pub fn poll_timeout(&self) -> Instant {
        let look = self.last_look + RETRY;
        if self.not_before > self.last_look { look.min(self.not_before) } else { look }
    }

    /// The program is attached to the interface in `view`.
    pub fn on_attached(&mut self, view: &PortView) {
        let &PortView { index, mtu, frame_size, .. } = view;
        let (open, claims) = (BTreeSet::new(), BTreeSet::new());
        self.busy_since = None;
        self.attached = Some(Attached { index, mtu, frame_size, open, claims, reopening: None });
    }

    /// The engines know this MTU.
    pub fn on_mtu_told(&mut self, mtu: u32) {
        if let Some(attached) = &mut self.attached {
            attached.mtu = mtu;
        }
    }

    /// These queues are open.
    pub fn on_opened(&mut self, queues: &[u16]) {
        self.busy_since = None;
        if let Some(attached) = &mut self.attached {
            attached.open.extend(queues);
        }
    }

    /// Claimed TCP no longer waits.
    pub fn on_reopened(&mut self) {
        if let Some(attached) = &mut self.attached {
            attached.reopening = None;
        }
    }

    /// Whether queues are to be opened soon that were in use a moment ago.
    pub fn is_waiting_for_queues(&self) -> bool {
        self.busy_since.is_some_and(|since| self.last_look.since(since) < BUSY_MAX)
    }

    /// Queues are being opened again that may still be in use for a moment.
    pub fn is_reopening(&self) -> bool {
        self.attached.as_ref().is_some_and(|attached| attached.reopening.is_some())
    }

    /// These claims are in force.
    pub fn on_claimed(&mut self, claims: BTreeSet<Claim>) {
        if let Some(attached) = &mut self.attached {
            attached.claims = claims;
        }
    }

    /// Number of claims that [`PortPlan::on_claimed`] reported.
    pub(crate) fn claims_in_force(&self) -> usize {
        self.attached.as_ref().map_or(0, |attached| attached.claims.len())
    }

    /// The last action failed. It is tried again in a second, or sooner while queues are being opened again.
    pub fn on_failure(&mut self, now: Instant) {
        self.not_before = now + if self.is_reopening() { REOPEN } else { RETRY };
    }

    /// Queues that were to be opened are in use. They are tried again soon; `false` says that this has lasted too long for a queue that somebody
    /// has just left, so it is a failure.
    pub fn on_busy(&mut self, now: Instant) -> bool {
        let since = *self.busy_since.get_or_insert(now);
        let is_soon = self.is_reopening() || now.since(since) < BUSY_MAX;
        self.not_before = now + if is_soon { REOPEN } else { RETRY };
        is_soon
    }

    /// The closed queues of the first engine that has any.
    fn queues_to_open(&self, attached: &Attached, view: &PortView) -> Option<Action> {
        let missing: Vec<u16> = (0..view.queues).filter(|queue| !attached.open.contains(queue)).collect();
        let engine = usize::from(*missing.first()?) % self.engines;
        let queues =
            missing.into_iter().filter(|&queue| usize::from(queue) % self.engines == engine).collect();
        Some(Action::Open { engine, queues, frame_size: attached.frame_size })
    }

    fn claims_to_set(&self, attached: &Attached, view: &PortView) -> Option<Action> {
        let claims = self.claims(view);
        (claims != attached.claims).then_some(Action::SetClaims(claims))
    }

    fn claims(&self, view: &PortView) -> BTreeSet<Claim> {
        let resolve = |&(transport, listen)| steering::claim::resolve(transport, &[listen], &view.addresses);
        self.listens.iter().flat_map(resolve).collect()
    }
}

#[cfg(test)]
mod tests;
