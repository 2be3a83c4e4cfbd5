use core::net::Ipv4Addr;

use super::*;

const KEY: [u64; 2] = [1, 2];
const START: Instant = Instant::from_nanos(1 << 55);
const LIFETIME: Duration = Duration::from_secs(60);
const SND_NXT: SeqNum = SeqNum(5000);
const RCV_NXT: SeqNum = SeqNum(9000);
const TS_RECENT: u32 = 700;

const ACK: TimeWaitVerdict = ack(None);
const ACK_WITH_TIMESTAMPS: TimeWaitVerdict = ack(Some(TS_RECENT));
const REUSE: TimeWaitVerdict = TimeWaitVerdict::Reuse { min_iss: SeqNum(5001) };

const fn ack(ts_recent: Option<u32>) -> TimeWaitVerdict {
    TimeWaitVerdict::Acknowledge { seq: SND_NXT, ack: RCV_NXT, window: 100, ts_recent }
}

fn flow(port: u16) -> FlowKey {
    FlowKey::v4((Ipv4Addr::LOCALHOST, 80), (Ipv4Addr::LOCALHOST, port))
}

/// A table beside the one whose hashes it takes.
struct Fixture {
    table: TimeWaitTable,
    flows: FlowTable,
}

impl Fixture {
    fn new(config: TimeWaitConfig) -> Fixture {
        Fixture { table: TimeWaitTable::new(config, KEY), flows: FlowTable::new(1, KEY) }
    }

    /// A table in which flow 1 waits since `START`.
    fn waiting(ts_recent: Option<u32>) -> Fixture {
        let mut fixture = Fixture::new(TimeWaitConfig { entries_max: 3, ..TimeWaitConfig::default() });
        fixture.insert(1, ts_recent, START);
        fixture
    }

    fn insert(&mut self, port: u16, ts_recent: Option<u32>, now: Instant) -> Option<FlowKey> {
        let key = flow(port);
        let left = TimeWait { key, snd_nxt: SND_NXT, rcv_nxt: RCV_NXT, window: 100, ts_recent };
        self.table.insert(self.flows.hash_of(&key), left, now)
    }

    fn on_segment(&mut self, segment: SegmentSummary) -> TimeWaitVerdict {
        self.on_segment_at(segment, START).unwrap()
    }

    fn on_segment_at(&mut self, segment: SegmentSummary, now: Instant) -> Option<TimeWaitVerdict> {
        self.table.on_segment(self.flows.hash_of(&flow(1)), &flow(1), &segment, now)
    }
}

fn segment(flags: u8, seq: SeqNum, ts_val: Option<u32>) -> SegmentSummary {
    SegmentSummary { seq, len: 0, flags, ts_val }
}

#[test]
fn a_flow_may_be_connected_anew_after_a_second_if_timestamps_tell_the_two_apart() {
    let may_connect = |fixture: &Fixture, millis| {
        let hash = fixture.flows.hash_of(&flow(1));
        fixture.table.may_connect(
            hash,
            &flow(1),
            Duration::from_secs(1),
            START + Duration::from_millis(millis),
        )
    };
    let fixture = Fixture::waiting(Some(TS_RECENT));
    assert_eq!(may_connect(&fixture, 990), None);
    assert_eq!(may_connect(&fixture, 1010), Some(SND_NXT + 65_537));
    assert_eq!(may_connect(&Fixture::waiting(None), 30_000), None);
    let mut fixture = Fixture::waiting(Some(TS_RECENT));
    let fin = segment(flag::FIN | flag::ACK, RCV_NXT - 1, Some(TS_RECENT));
    fixture.on_segment_at(fin, START + Duration::from_secs(20));
    assert_eq!(may_connect(&fixture, 20_990), None, "the peer's FIN came again");
    assert_eq!(may_connect(&fixture, 21_010), Some(SND_NXT + 65_537));
}

#[test]
fn segments_without_data_are_answered_seldom_rfc_5961_section_7() {
    let mut fixture = Fixture::waiting(Some(TS_RECENT));
    let old = segment(flag::ACK, RCV_NXT - 1, Some(TS_RECENT));
    let at = |millis| START + Duration::from_millis(millis);
    assert_eq!(fixture.on_segment_at(old, at(0)), Some(ACK_WITH_TIMESTAMPS));
    assert_eq!(fixture.on_segment_at(old, at(400)), Some(TimeWaitVerdict::Skip));
    let data = SegmentSummary { len: 1, ..old };
    assert_eq!(fixture.on_segment_at(data, at(400)), Some(ACK_WITH_TIMESTAMPS));
    assert_eq!(fixture.on_segment_at(old, at(600)), Some(ACK_WITH_TIMESTAMPS));
    assert_eq!(fixture.on_segment_at(old, at(1000)), Some(TimeWaitVerdict::Skip));
    for seconds in 2..40 {
        let verdict = fixture.on_segment_at(old, at(seconds * 1000));
        assert_eq!(verdict, Some(ACK_WITH_TIMESTAMPS), "after {seconds} seconds");
    }
}

#[test]
fn an_entry_expires_after_its_lifetime_and_not_before() {
    let mut fixture = Fixture::waiting(None);
    let expiry = fixture.table.next_expiry().unwrap();
    assert!(expiry - START >= LIFETIME && expiry - START < LIFETIME + Duration::from_millis(2));
    assert_eq!(fixture.table.expire(START + (LIFETIME - Duration::from_nanos(1))), None);
    assert_eq!(fixture.table.expire(expiry), Some(flow(1)));
    assert_eq!(
        (fixture.table.expire(expiry), fixture.table.len(), fixture.table.next_expiry()),
        (None, 0, None)
    );
    assert_eq!(fixture.on_segment_at(segment(flag::ACK, RCV_NXT, None), expiry), None);
}

#[test]
fn a_fin_again_is_acknowledged_and_restarts_the_timer_rfc_9293_3_10_7_4() {
    let mut fixture = Fixture::waiting(None);
    fixture.insert(2, None, START);
    let later = START + Duration::from_secs(30);
    let fin = SegmentSummary { len: 10, ..segment(flag::FIN | flag::ACK, RCV_NXT - 11, None) };
    assert_eq!(fixture.on_segment_at(fin, later), Some(ACK));
    let expiry = fixture.table.next_expiry().unwrap();
    assert_eq!((fixture.table.expire(expiry), fixture.table.expire(expiry)), (Some(flow(2)), None));
    assert!(fixture.table.next_expiry().unwrap() >= later + LIFETIME);
}

#[test]
fn other_segments_do_not_restart_the_timer() {
    let mut fixture = Fixture::waiting(None);
    let later = START + Duration::from_secs(30);
    let data = SegmentSummary { len: 10, ..segment(flag::ACK, RCV_NXT - 10, None) };
    assert_eq!(fixture.on_segment_at(data, later), Some(ACK));
    assert_eq!(fixture.on_segment_at(segment(flag::FIN | flag::ACK, RCV_NXT, None), later), Some(ACK));
    assert_eq!(fixture.on_segment_at(segment(flag::SYN, RCV_NXT - 1, None), later), Some(ACK));
    assert!(fixture.table.next_expiry().unwrap() < later + LIFETIME);
}

#[test]
fn an_acceptable_bare_ack_is_not_answered() {
    let mut fixture = Fixture::waiting(None);
    assert_eq!(fixture.on_segment(segment(flag::ACK, RCV_NXT, None)), TimeWaitVerdict::Ignore);
    assert_eq!(fixture.on_segment(segment(0, RCV_NXT - 5, None)), TimeWaitVerdict::Ignore);
    assert_eq!(fixture.on_segment(segment(flag::ACK, RCV_NXT - 1, None)), ACK); // a keepalive probe
}

#[test]
fn a_reset_does_not_end_time_wait_if_so_configured_rfc_1337_section_3() {
    let mut fixture = Fixture::new(TimeWaitConfig { ignore_rst: true, ..TimeWaitConfig::default() });
    fixture.insert(1, None, START);
    assert_eq!(fixture.on_segment(segment(flag::RST, RCV_NXT, None)), TimeWaitVerdict::Ignore);
    assert_eq!(fixture.table.len(), 1);
}

#[test]
fn an_exact_reset_ends_time_wait_rfc_5961_section_3_2() {
    let mut fixture = Fixture::waiting(None);
    assert_eq!(fixture.on_segment(segment(flag::RST, RCV_NXT + 1, None)), TimeWaitVerdict::Ignore);
    assert_eq!(fixture.on_segment(segment(flag::RST, RCV_NXT, None)), TimeWaitVerdict::Remove);
    assert!(fixture.table.is_empty());
}

#[test]
fn a_syn_is_judged_by_timestamp_then_by_sequence_number_rfc_6191_section_2() {
    let old = RCV_NXT - 100;
    let new = RCV_NXT + 1;
    let cases = [
        (Some(TS_RECENT), old, Some(TS_RECENT + 1), true),
        (Some(TS_RECENT), new, Some(TS_RECENT), true),
        (Some(TS_RECENT), old, Some(TS_RECENT), false),
        (Some(TS_RECENT), new, Some(TS_RECENT - 1), false),
        (Some(TS_RECENT), new, None, true),
        (Some(TS_RECENT), old, None, false),
        (None, old, Some(1), true),
        (None, new, None, true),
        (None, old, None, false),
        (None, RCV_NXT, None, false),
    ];
    for (ts_recent, seq, ts_val, is_reused) in cases {
        let mut fixture = Fixture::waiting(ts_recent);
        let verdict = fixture.on_segment(segment(flag::SYN, seq, ts_val));
        assert_eq!(
            verdict,
            if is_reused { REUSE } else { ack(ts_recent) },
            "{ts_recent:?} {seq:?} {ts_val:?}"
        );
        assert_eq!(fixture.table.len(), 1); // An old SYN leaves TIME-WAIT as it was: RFC 1122, 4.2.2.13
    }
}

#[test]
fn a_syn_with_ack_does_not_reuse() {
    let mut fixture = Fixture::waiting(None);
    assert_eq!(fixture.on_segment(segment(flag::SYN | flag::ACK, RCV_NXT + 1, None)), ACK);
}

#[test]
fn an_old_timestamp_is_answered_and_not_taken_rfc_7323_section_5_3() {
    let mut fixture = Fixture::waiting(Some(TS_RECENT));
    assert_eq!(fixture.on_segment(segment(flag::ACK, RCV_NXT, Some(TS_RECENT - 1))), ACK_WITH_TIMESTAMPS);
    let ahead = SegmentSummary { len: 1, ..segment(flag::ACK, RCV_NXT + 9, Some(TS_RECENT + 5)) };
    assert_eq!(fixture.on_segment(ahead), ACK_WITH_TIMESTAMPS);
    let newer = segment(flag::FIN | flag::ACK, RCV_NXT - 1, Some(TS_RECENT + 5));
    assert_eq!(fixture.on_segment(newer), ack(Some(TS_RECENT + 5)));
}

#[test]
fn a_fin_that_lacks_its_timestamp_is_acknowledged_as_well() {
    let mut fixture = Fixture::waiting(Some(TS_RECENT));
    let fin = segment(flag::FIN | flag::ACK, RCV_NXT - 1, None);
    assert_eq!(fixture.on_segment_at(fin, START + LIFETIME), Some(ACK_WITH_TIMESTAMPS));
    assert!(fixture.table.next_expiry().unwrap() >= START + 2 * LIFETIME);
}

#[test]
fn a_full_table_gives_up_the_oldest() {
    let mut fixture = Fixture::waiting(None);
    assert_eq!((fixture.insert(2, None, START), fixture.insert(3, None, START)), (None, None));
    assert_eq!(fixture.insert(1, None, START), None); // replaced, and now the newest
    assert_eq!(fixture.insert(4, None, START), Some(flow(2)));
    assert_eq!((fixture.table.len(), fixture.table.recycled()), (3, 1));
    assert!(!fixture.table.contains(fixture.flows.hash_of(&flow(2)), &flow(2)));
    assert!(fixture.table.remove(fixture.flows.hash_of(&flow(3)), &flow(3)));
    assert_eq!(fixture.insert(5, None, START), None);
}

#[test]
fn a_table_without_room_keeps_nothing() {
    let mut fixture = Fixture::new(TimeWaitConfig { entries_max: 0, ..TimeWaitConfig::default() });
    assert_eq!(fixture.insert(1, None, START), Some(flow(1)));
    assert_eq!((fixture.table.len(), fixture.table.recycled()), (0, 1));
}
