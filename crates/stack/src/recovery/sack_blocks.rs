//! Validates the blocks of a SACK option (RFC 2018, 3; RFC 2883, 4).

use arrayvec::ArrayVec;

use super::interface::AckSegment;
use crate::seq::{SeqNum, SeqRange};

/// Blocks that fit the option space of a segment.
const BLOCKS_MAX: usize = 4;

/// Octets behind SND.UNA that a DSACK may lie: a window at most (RFC 7323, 2.3).
const DSACK_AGE_MAX: u32 = 1 << 30;

/// Blocks inside of what is in flight, in order of sequence, and what the peer got twice.
#[derive(Debug, Default)]
pub(super) struct SackBlocks {
    pub(super) blocks: ArrayVec<SeqRange, BLOCKS_MAX>,
    pub(super) dsack: Option<SeqRange>,
    /// Some block was neither.
    pub(super) has_invalid: bool,
}

impl SackBlocks {
    /// Reads the blocks of `ack`; `una` is SND.UNA with it.
    pub(super) fn read(ack: &AckSegment<'_>, una: SeqNum) -> SackBlocks {
        let mut read = SackBlocks::default();
        let mut received = &ack.sack[..ack.sack.len().min(BLOCKS_MAX)];
        if let Some((first, rest)) = received.split_first()
            && is_dsack(*first, rest.first(), ack.ack)
        {
            read.dsack = valid_dsack(*first, una, ack.snd_nxt);
            read.has_invalid = read.dsack.is_none();
            received = rest;
        }
        for &block in received {
            let is_valid = block.start.is_before(block.end)
                && block.start.is_at_or_after(ack.ack)
                && block.end.is_at_or_before(ack.snd_nxt);
            read.has_invalid |= !is_valid;
            if is_valid && block.end.is_after(una) {
                read.blocks.push(SeqRange::new(block.start.max(una), block.end));
            }
        }
        read.blocks.sort_unstable_by_key(|block| block.start.since(una));
        read
    }
}

/// Whether the first block tells of a duplicate: below the cumulative acknowledgement, or inside of the second block
/// (RFC 2883, 4).
fn is_dsack(first: SeqRange, second: Option<&SeqRange>, ack: SeqNum) -> bool {
    first.start.is_before(ack)
        || second.is_some_and(|second| second.start.is_at_or_after(ack) && second.contains(first))
}

fn valid_dsack(block: SeqRange, una: SeqNum, snd_nxt: SeqNum) -> Option<SeqRange> {
    let is_valid = block.start.is_before(block.end)
        && block.end.is_at_or_before(snd_nxt)
        && block.start.is_after(una - DSACK_AGE_MAX);
    is_valid.then_some(block)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack_of, seq_range};
    use super::*;

    /// RFC 2883, 4.1 and 4.2, and blocks that no honest receiver sends. SND.UNA 10, SND.NXT 20, in thousands.
    #[test]
    fn blocks_are_sorted_into_news_duplicates_and_nonsense() {
        type Case<'a> = (&'a [(u32, u32)], &'a [(u32, u32)], Option<(u32, u32)>, bool);
        let table: [Case<'_>; 9] = [
            (&[(12, 13)], &[(12, 13)], None, false),
            (&[(15, 16), (12, 13)], &[(12, 13), (15, 16)], None, false),
            (&[(8, 9)], &[], Some((8, 9)), false),
            (&[(8, 9), (12, 14)], &[(12, 14)], Some((8, 9)), false),
            (&[(12, 13), (12, 14)], &[(12, 14)], Some((12, 13)), false),
            (&[(19, 21)], &[], None, true),
            (&[(13, 12)], &[], None, true),
            (&[(12, 13), (8, 9)], &[(12, 13)], None, true),
            (&[(9, 8)], &[], None, true),
        ];
        for (received, blocks, dsack, has_invalid) in table {
            let received: Vec<_> = received.iter().map(|&(start, end)| seq_range(start, end)).collect();
            let blocks: Vec<_> = blocks.iter().map(|&(start, end)| seq_range(start, end)).collect();
            let ack = AckSegment { sack: &received, ..ack_of(10, 10, 20) };
            let read = SackBlocks::read(&ack, ack.ack);
            assert_eq!(read.blocks[..], blocks[..], "{received:?}");
            assert_eq!(read.dsack, dsack.map(|(start, end)| seq_range(start, end)), "{received:?}");
            assert_eq!(read.has_invalid, has_invalid, "{received:?}");
        }
    }

    #[test]
    fn an_acknowledgement_that_comes_late_tells_only_of_what_is_still_in_flight() {
        let received = [seq_range(9, 11), seq_range(13, 14)];
        let ack = AckSegment { sack: &received, ..ack_of(8, 10, 20) };
        let read = SackBlocks::read(&ack, seq_range(10, 11).start);
        assert_eq!(read.blocks[..], [seq_range(10, 11), seq_range(13, 14)]);
        assert!(read.dsack.is_none() && !read.has_invalid);
    }
}
