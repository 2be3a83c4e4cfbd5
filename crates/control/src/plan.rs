//! What to do with one interface, given how it looks now. Pure: views and results come in, actions come out.
//!
//! ```text
//!                  view: interface is there                   needs other frames
//!   Absent ---------------------------------> Attached ----------------------+
//!     ^            Attach, Open*, SetClaims      |  ^                          |
//!     |                                          |  +--- Detach, then Attach --+
//!     +---------- view: gone, or a new index ----+
//!                       Detach
//! ```

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use steering::{Claim, ListenAddress, LocalAddress, Transport};

/// How long after a failure the next attempt comes, and how often queues are counted.
const RETRY: Duration = Duration::from_secs(1);
/// How long the engines get to close a device's sockets before its queues are opened again.
const REOPEN: Duration = Duration::from_millis(100);

/// The interface as it looks now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortView {
    /// Interface index.
    pub index: u32,
    /// Largest IP packet in octets.
    pub mtu: u32,
    /// Octets of the frames that devices on it have; `None` if none fits.
    pub frame_size: Option<u16>,
    /// Queues in use that both receive and transmit.
    pub queues: u16,
    /// Addresses that packets on it may be meant for.
    pub addresses: BTreeSet<LocalAddress>,
}

/// What the caller must do, in this order, telling the outcome before it asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Have the engines drop their devices, and detach the program if there is one.
    Detach,
    /// Attach the program, then tell [`PortPlan::on_attached`] or [`PortPlan::on_failure`].
    Attach,
    /// Open these queues as one device for this engine, then tell [`PortPlan::on_opened`] or
    /// [`PortPlan::on_failure`].
    Open {
        /// Which engine gets the device.
        engine: usize,
        /// Queues of the interface, not open so far.
        queues: Vec<u16>,
    },
    /// Tell the engines the MTU, then [`PortPlan::on_mtu_told`].
    TellMtu(u32),
    /// Have the program claim exactly these, then tell [`PortPlan::on_claimed`] or [`PortPlan::on_failure`].
    SetClaims(BTreeSet<Claim>),
}

/// Keeps one interface attached, all its queues open, and its claims right. Call [`PortPlan::next`] until it returns
/// `None`, whenever the view may have changed and at [`PortPlan::poll_timeout`].
#[derive(Debug)]
pub struct PortPlan {
    engines: usize,
    listens: Vec<(Transport, ListenAddress)>,
    attached: Option<Attached>,
    /// Nothing that may fail is tried before.
    not_before: Instant,
    last_look: Instant,
}

#[derive(Debug)]
struct Attached {
    index: u32,
    mtu: u32,
    frame_size: Option<u16>,
    open: BTreeSet<u16>,
    claims: BTreeSet<Claim>,
}

impl PortPlan {
    /// A plan for `engines` engines; queue `q` is engine `q % engines`'s.
    ///
    /// # Panics
    /// If `engines` is zero.
    pub fn new(engines: usize, listens: Vec<(Transport, ListenAddress)>) -> PortPlan {
        assert!(engines > 0, "somebody has to serve the queues");
        let (not_before, last_look) = (Instant::ZERO, Instant::ZERO);
        PortPlan { engines, listens, attached: None, not_before, last_look }
    }

    /// Replaces what is listened on.
    pub fn set_listens(&mut self, listens: Vec<(Transport, ListenAddress)>) {
        self.listens = listens;
    }

    /// What to do next about an interface that looks like `view`, or does not exist.
    pub fn next(&mut self, view: Option<&PortView>, now: Instant) -> Option<Action> {
        self.last_look = now;
        let Some(view) = view else { return self.attached.take().map(|_| Action::Detach) };
        if let Some(attached) = &self.attached
            && (attached.index, attached.frame_size) != (view.index, view.frame_size)
        {
            self.attached = None;
            self.not_before = now + REOPEN;
            return Some(Action::Detach);
        }
        if let Some(attached) = &self.attached
            && attached.mtu != view.mtu
        {
            return Some(Action::TellMtu(view.mtu));
        }
        if now < self.not_before {
            return None;
        }
        let Some(attached) = &self.attached else { return Some(Action::Attach) };
        self.queues_to_open(attached, view).or_else(|| {
            let claims = self.claims(view);
            (claims != attached.claims).then_some(Action::SetClaims(claims))
        })
    }

    /// When to call [`PortPlan::next`] again though nothing was heard: the kernel does not tell of new queues.
    pub fn poll_timeout(&self) -> Instant {
        let look = self.last_look + RETRY;
        if self.not_before > self.last_look { look.min(self.not_before) } else { look }
    }

    /// The program is attached to the interface in `view`.
    pub fn on_attached(&mut self, view: &PortView) {
        let &PortView { index, mtu, frame_size, .. } = view;
        let (open, claims) = (BTreeSet::new(), BTreeSet::new());
        self.attached = Some(Attached { index, mtu, frame_size, open, claims });
    }

    /// The engines know this MTU.
    pub fn on_mtu_told(&mut self, mtu: u32) {
        if let Some(attached) = &mut self.attached {
            attached.mtu = mtu;
        }
    }

    /// These queues are open.
    pub fn on_opened(&mut self, queues: &[u16]) {
        if let Some(attached) = &mut self.attached {
            attached.open.extend(queues);
        }
    }

    /// These claims are in force.
    pub fn on_claimed(&mut self, claims: BTreeSet<Claim>) {
        if let Some(attached) = &mut self.attached {
            attached.claims = claims;
        }
    }

    /// The last action failed; it comes again in a second.
    pub fn on_failure(&mut self, now: Instant) {
        self.not_before = now + RETRY;
    }

    /// The queues that are not open, of the first engine that has such.
    fn queues_to_open(&self, attached: &Attached, view: &PortView) -> Option<Action> {
        let missing: Vec<u16> = (0..view.queues).filter(|queue| !attached.open.contains(queue)).collect();
        let engine = usize::from(*missing.first()?) % self.engines;
        let queues =
            missing.into_iter().filter(|&queue| usize::from(queue) % self.engines == engine).collect();
        Some(Action::Open { engine, queues })
    }

    fn claims(&self, view: &PortView) -> BTreeSet<Claim> {
        let resolve = |&(transport, listen)| steering::claim::resolve(transport, &[listen], &view.addresses);
        self.listens.iter().flat_map(resolve).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steering::VlanTags;

    const SECOND: Duration = Duration::from_secs(1);

    fn view(index: u32, queues: u16, addresses: &[&str]) -> PortView {
        let local = |text: &&str| LocalAddress { address: text.parse().unwrap(), vlan: VlanTags::default() };
        let addresses = addresses.iter().map(local).collect();
        PortView { index, mtu: 1500, frame_size: Some(2048), queues, addresses }
    }

    fn plan(engines: usize) -> PortPlan {
        PortPlan::new(engines, vec![(Transport::Udp, ListenAddress { address: None, port: 53 })])
    }

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Carries out all that the plan wants, successfully.
    fn settle(plan: &mut PortPlan, view: Option<&PortView>, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = plan.next(view, now) {
            match &action {
                Action::Detach => (),
                Action::Attach => plan.on_attached(view.unwrap()),
                Action::Open { queues, .. } => plan.on_opened(queues),
                Action::TellMtu(mtu) => plan.on_mtu_told(*mtu),
                Action::SetClaims(claims) => plan.on_claimed(claims.clone()),
            }
            actions.push(action);
        }
        actions
    }

    fn claims(view: &PortView) -> Action {
        let listen = ListenAddress { address: None, port: 53 };
        Action::SetClaims(steering::claim::resolve(Transport::Udp, &[listen], &view.addresses))
    }

    #[test]
    fn queues_are_dealt_out_to_engines_by_number() {
        let view = view(2, 5, &["192.0.2.1"]);
        let actions = settle(&mut plan(2), Some(&view), at(0));
        let expected = [
            Action::Attach,
            Action::Open { engine: 0, queues: vec![0, 2, 4] },
            Action::Open { engine: 1, queues: vec![1, 3] },
            claims(&view),
        ];
        assert_eq!(actions, expected);
    }

    #[test]
    fn claims_follow_addresses_and_nothing_else_happens() {
        let (mut plan, before, after) = (plan(1), view(2, 1, &["192.0.2.1"]), view(2, 1, &["2001:db8::1"]));
        settle(&mut plan, Some(&before), at(0));
        assert_eq!(settle(&mut plan, Some(&after), at(1)), [claims(&after)]);
        assert_eq!(settle(&mut plan, Some(&after), at(2)), []);
    }

    #[test]
    fn listens_can_be_replaced() {
        let (mut plan, view) = (plan(1), view(2, 1, &["192.0.2.1"]));
        settle(&mut plan, Some(&view), at(0));
        plan.set_listens(Vec::new());
        assert_eq!(settle(&mut plan, Some(&view), at(1)), [Action::SetClaims(BTreeSet::new())]);
    }

    #[test]
    fn an_interface_that_comes_back_under_another_index_is_attached_anew() {
        let (mut plan, old, new) = (plan(1), view(2, 1, &[]), view(3, 1, &[]));
        settle(&mut plan, Some(&old), at(0));
        assert_eq!(settle(&mut plan, None, at(1)), [Action::Detach]);
        let anew = [Action::Attach, Action::Open { engine: 0, queues: vec![0] }];
        assert_eq!(settle(&mut plan, Some(&new), at(2)), anew);
    }

    #[test]
    fn an_interface_that_was_replaced_unseen_is_detached_first() {
        let (mut plan, old, new) = (plan(1), view(2, 1, &[]), view(3, 1, &[]));
        settle(&mut plan, Some(&old), at(0));
        assert_eq!(settle(&mut plan, Some(&new), at(1)), [Action::Detach]);
        assert_eq!(plan.poll_timeout(), at(101));
        assert_eq!(settle(&mut plan, Some(&new), at(101)).first(), Some(&Action::Attach));
    }

    #[test]
    fn another_mtu_is_told_and_nothing_else_happens() {
        let (mut plan, old) = (plan(1), view(2, 1, &[]));
        settle(&mut plan, Some(&old), at(0));
        let new = PortView { mtu: 1280, ..old };
        assert_eq!(settle(&mut plan, Some(&new), at(1)), [Action::TellMtu(1280)]);
        assert_eq!(settle(&mut plan, Some(&new), at(2)), []);
    }

    #[test]
    fn an_mtu_that_needs_other_frames_reopens_the_port() {
        let (mut plan, old) = (plan(1), view(2, 1, &[]));
        settle(&mut plan, Some(&old), at(0));
        let new = PortView { mtu: 9000, frame_size: Some(4096), ..old };
        assert_eq!(settle(&mut plan, Some(&new), at(1)), [Action::Detach]);
        assert_eq!(settle(&mut plan, Some(&new), at(200)).first(), Some(&Action::Attach));
    }

    #[test]
    fn new_queues_are_opened_beside_the_old_ones() {
        let mut plan = plan(2);
        settle(&mut plan, Some(&view(2, 2, &[])), at(0));
        assert_eq!(plan.poll_timeout(), at(1000), "queues are counted once a second");
        let expected =
            [Action::Open { engine: 0, queues: vec![2] }, Action::Open { engine: 1, queues: vec![3] }];
        assert_eq!(settle(&mut plan, Some(&view(2, 4, &[])), at(1000)), expected);
    }

    #[test]
    fn a_failure_is_tried_again_after_a_second() {
        let (mut plan, view) = (plan(1), view(2, 1, &[]));
        assert_eq!(plan.next(Some(&view), at(0)), Some(Action::Attach));
        plan.on_failure(at(0));
        assert_eq!(plan.next(Some(&view), at(999)), None);
        assert_eq!(plan.poll_timeout(), at(1000));
        assert_eq!(plan.next(Some(&view), at(0) + SECOND), Some(Action::Attach));
    }

    #[test]
    fn an_interface_that_vanishes_during_a_retry_is_detached_at_once() {
        let mut plan = plan(1);
        settle(&mut plan, Some(&view(2, 1, &[])), at(0));
        plan.on_failure(at(0));
        assert_eq!(settle(&mut plan, None, at(1)), [Action::Detach]);
    }
}
