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
            Action::Detach | Action::Reopen => (),
            Action::Reopened => plan.on_reopened(),
            Action::Attach => plan.on_attached(view.unwrap()),
            Action::Open { queues, .. } => plan.on_opened(queues),
            Action::TellMtu(mtu) => plan.on_mtu_told(*mtu),
            Action::SetClaims(claims) => plan.on_claimed(claims.clone()),
        }
        actions.push(action);
    }
    actions
}

fn open(engine: usize, queues: &[u16]) -> Action {
    Action::Open { engine, queues: queues.to_vec(), frame_size: Some(2048) }
}

fn claims(view: &PortView) -> Action {
    let listen = ListenAddress { address: None, port: 53 };
    Action::SetClaims(steering::claim::resolve(Transport::Udp, &[listen], &view.addresses))
}

#[test]
fn queues_are_dealt_out_to_engines_by_number() {
    let view = view(2, 5, &["192.0.2.1"]);
    let actions = settle(&mut plan(2), Some(&view), at(0));
    let expected = [Action::Attach, open(0, &[0, 2, 4]), open(1, &[1, 3]), claims(&view)];
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
    let anew = [Action::Attach, open(0, &[0])];
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

fn with_larger_frames(view: &PortView) -> PortView {
    PortView { mtu: 3000, frame_size: Some(4096), ..view.clone() }
}

#[test]
fn an_mtu_that_needs_larger_frames_has_queues_opened_again_under_the_same_program() {
    let (mut plan, small) = (plan(2), view(2, 3, &["192.0.2.1"]));
    settle(&mut plan, Some(&small), at(0));
    let large = with_larger_frames(&small);
    assert_eq!(settle(&mut plan, Some(&large), at(1)), [Action::Reopen, Action::TellMtu(3000)]);
    assert!(plan.is_reopening());
    assert_eq!(plan.poll_timeout(), at(21));
    let open = |engine, queues| Action::Open { engine, queues, frame_size: Some(4096) };
    assert_eq!(
        settle(&mut plan, Some(&large), at(21)),
        [open(0, vec![0, 2]), open(1, vec![1]), Action::Reopened]
    );
    assert!(!plan.is_reopening());
}

#[test]
fn an_mtu_that_shrinks_again_leaves_devices_their_larger_frames() {
    let (mut plan, small) = (plan(1), view(2, 1, &[]));
    let large = with_larger_frames(&small);
    settle(&mut plan, Some(&large), at(0));
    assert_eq!(settle(&mut plan, Some(&small), at(1)), [Action::TellMtu(1500)]);
    assert_eq!(settle(&mut plan, Some(&large), at(2)), [Action::TellMtu(3000)]);
    let more = PortView { queues: 2, ..small };
    let opened = Action::Open { engine: 0, queues: vec![1], frame_size: Some(4096) };
    assert_eq!(settle(&mut plan, Some(&more), at(3)), [Action::TellMtu(1500), opened]);
}

#[test]
fn queues_that_are_still_in_use_are_tried_again_in_a_moment_and_tcp_waits_a_second_at_most() {
    let (mut plan, small) = (plan(1), view(2, 1, &[]));
    settle(&mut plan, Some(&small), at(0));
    let large = PortView { mtu: 1500, ..with_larger_frames(&small) };
    assert_eq!(plan.next(Some(&large), at(0)), Some(Action::Reopen));
    let mut tries = 0;
    for millis in 1..1000 {
        if let Some(action) = plan.next(Some(&large), at(millis)) {
            assert!(matches!(action, Action::Open { .. }));
            assert!(plan.on_busy(at(millis)));
            tries += 1;
        }
    }
    assert_eq!(tries, 49);
    assert_eq!(plan.next(Some(&large), at(1000)), Some(Action::Reopened));
    plan.on_reopened();
    assert!(matches!(plan.next(Some(&large), at(1000)), Some(Action::Open { .. })));
    plan.on_failure(at(1000));
    assert_eq!(plan.next(Some(&large), at(1999)), None);
}

#[test]
fn queues_in_use_are_tried_again_quietly_for_two_seconds_and_then_every_second() {
    let (mut plan, view) = (plan(1), view(2, 1, &[]));
    assert_eq!(plan.next(Some(&view), at(0)), Some(Action::Attach));
    plan.on_attached(&view);
    let mut quiet = 0;
    for millis in 0..2000 {
        if let Some(action) = plan.next(Some(&view), at(millis)) {
            assert!(matches!(action, Action::Open { .. }));
            assert!(plan.on_busy(at(millis)) && plan.is_waiting_for_queues());
            quiet += 1;
        }
    }
    assert_eq!(quiet, 100);
    assert!(plan.next(Some(&view), at(2000)).is_some() && !plan.on_busy(at(2000)));
    assert!(!plan.is_waiting_for_queues());
    assert_eq!(plan.next(Some(&view), at(2999)), None);
    assert!(plan.next(Some(&view), at(3000)).is_some());
    plan.on_opened(&[0]);
    assert!(plan.on_busy(at(3001)), "what was opened meanwhile is waited for anew");
}

#[test]
fn an_interface_for_which_there_are_no_frames_is_left_to_the_kernel_until_there_are() {
    let (mut plan, small) = (plan(1), view(2, 1, &[]));
    settle(&mut plan, Some(&small), at(0));
    let none = PortView { mtu: 3000, frame_size: None, ..small.clone() };
    assert_eq!(settle(&mut plan, Some(&none), at(1)), [Action::Detach]);
    assert_eq!(plan.next(Some(&none), at(200)), Some(Action::Attach));
    plan.on_attached(&none);
    let refused = Action::Open { engine: 0, queues: vec![0], frame_size: None };
    assert_eq!(plan.next(Some(&none), at(200)), Some(refused));
    plan.on_failure(at(200));
    assert_eq!(settle(&mut plan, Some(&small), at(300)), [Action::TellMtu(1500)]);
    assert_eq!(settle(&mut plan, Some(&small), at(1200)), [open(0, &[0])]);
}

#[test]
fn new_queues_are_opened_beside_the_old_ones() {
    let mut plan = plan(2);
    settle(&mut plan, Some(&view(2, 2, &[])), at(0));
    assert_eq!(plan.poll_timeout(), at(1000), "queues are counted once a second");
    let expected = [open(0, &[2]), open(1, &[3])];
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
