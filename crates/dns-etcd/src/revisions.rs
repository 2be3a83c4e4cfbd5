//! What a watch tells, cut into whole revisions: the changes of one transaction belong together.

/// All changes of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its number.
    pub revision: u64,
    /// The keys that it changes, each once.
    pub changes: Vec<KeyChange>,
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: Vec<u8>,
    /// Its value; `None` if it was deleted.
    pub value: Option<Vec<u8>>,
}

/// Collects the events of a watch. A long list comes in fragments, which may end within a revision.
#[derive(Debug, Default)]
pub struct Revisions {
    /// The revision of which more may come.
    open: Option<Revision>,
}

impl Revisions {
    /// Adds the events of one message, which are in the order of their revisions. The revisions that are whole by then; without `is_fragment`
    /// that is all of them.
    pub fn add(
        &mut self,
        events: impl IntoIterator<Item = (u64, KeyChange)>,
        is_fragment: bool,
    ) -> Vec<Revision> {
        let mut whole = Vec::new();
        for (revision, change) in events {
            match &mut self.open {
                Some(open) if open.revision == revision => open.changes.push(change),
                open => whole.extend(open.replace(Revision { revision, changes: vec![change] })),
            }
        }
        if !is_fragment {
            whole.extend(self.open.take());
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, key: u8) -> (u64, KeyChange) {
        (revision, KeyChange { key: vec![key], value: None })
    }

    fn shown(revisions: &[Revision]) -> Vec<(u64, Vec<u8>)> {
        revisions
            .iter()
            .map(|revision| {
                (revision.revision, revision.changes.iter().map(|change| change.key[0]).collect())
            })
            .collect()
    }

    #[test]
    fn changes_of_one_revision_stay_together() {
        let mut revisions = Revisions::default();
        let whole = revisions.add([event(4, 1), event(4, 2), event(6, 3)], false);
        assert_eq!(shown(&whole), [(4, vec![1, 2]), (6, vec![3])]);
        assert!(revisions.add([], false).is_empty());
    }

    #[test]
    fn a_revision_that_is_cut_by_fragments_waits_for_its_end() {
        let mut revisions = Revisions::default();
        assert_eq!(shown(&revisions.add([event(4, 1), event(5, 2)], true)), [(4, vec![1])]);
        assert!(revisions.add([event(5, 3)], true).is_empty());
        assert_eq!(
            shown(&revisions.add([event(5, 4), event(7, 5)], false)),
            [(5, vec![2, 3, 4]), (7, vec![5])]
        );
    }

    #[test]
    fn the_last_fragment_may_be_empty() {
        let mut revisions = Revisions::default();
        assert!(revisions.add([event(4, 1)], true).is_empty());
        assert_eq!(shown(&revisions.add([], false)), [(4, vec![1])]);
    }
}
