//! F-RTO: whether a retransmission timeout was spurious, by the acknowledgements that follow it (RFC 5682).

/// Where the algorithm is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ForwardRto {
    /// Not running, or the timeout was found genuine: everything lost is sent again.
    #[default]
    Off,
    /// The first segment is sent again; the first acknowledgement is awaited (step 2).
    AwaitFirst,
    /// New data is sent instead of lost segments; the second acknowledgement is awaited (step 3).
    AwaitSecond,
}

/// What an acknowledgement after a timeout tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// Data sent before the timeout, and not since, arrived.
    pub(super) original_arrived: bool,
    /// SND.UNA moved.
    pub(super) has_advanced: bool,
    /// Something was selectively acknowledged.
    pub(super) has_sacked: bool,
    pub(super) is_duplicate: bool,
    pub(super) has_unsent: bool,
}

impl ForwardRto {
    /// Whether lost segments must wait for the next acknowledgement.
    pub(super) fn holds_retransmissions(self) -> bool {
        self == ForwardRto::AwaitSecond
    }

    /// Takes an acknowledgement below the recovery point; says whether the timeout was spurious.
    pub(super) fn on_ack(&mut self, evidence: Evidence, is_sack_permitted: bool) -> bool {
        if *self == ForwardRto::Off {
            return false;
        }
        if evidence.original_arrived {
            *self = ForwardRto::Off;
            return true; // step 3b; with SACK as soon as it shows (3.1)
        }
        *self = match *self {
            ForwardRto::AwaitFirst if evidence.has_advanced && evidence.has_unsent => ForwardRto::AwaitSecond,
            ForwardRto::AwaitFirst if evidence.has_advanced => ForwardRto::Off,
            ForwardRto::AwaitFirst if evidence.is_duplicate && !is_sack_permitted => ForwardRto::Off, // step 2a
            ForwardRto::AwaitSecond
                if evidence.has_advanced || evidence.has_sacked || evidence.is_duplicate =>
            {
                ForwardRto::Off // step 3a
            }
            same => same,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Evidence = Evidence {
        original_arrived: false,
        has_advanced: false,
        has_sacked: false,
        is_duplicate: false,
        has_unsent: false,
    };

    /// RFC 5682, 2.1 and 3.1.
    #[test]
    fn two_acknowledgements_decide() {
        use ForwardRto::{AwaitFirst, AwaitSecond, Off};
        let advance = Evidence { has_advanced: true, ..NONE };
        let duplicate = Evidence { is_duplicate: true, has_unsent: true, ..NONE };
        let sacked = Evidence { has_sacked: true, ..duplicate };
        let original = Evidence { original_arrived: true, ..NONE };
        let table = [
            (AwaitFirst, Evidence { has_unsent: true, ..advance }, false, AwaitSecond, false),
            (AwaitFirst, advance, false, Off, false),
            (AwaitFirst, duplicate, false, Off, false),
            (AwaitFirst, duplicate, true, AwaitFirst, false),
            (AwaitFirst, original, true, Off, true),
            (AwaitSecond, duplicate, false, Off, false),
            (AwaitSecond, sacked, true, Off, false),
            (AwaitSecond, Evidence { has_advanced: true, ..original }, false, Off, true),
            (AwaitSecond, NONE, true, AwaitSecond, false),
            (Off, original, true, Off, false),
        ];
        for (before, evidence, sack, after, spurious) in table {
            let mut frto = before;
            assert_eq!(frto.on_ack(evidence, sack), spurious, "{before:?} {evidence:?}");
            assert_eq!(frto, after, "{before:?} {evidence:?}");
        }
    }
}
