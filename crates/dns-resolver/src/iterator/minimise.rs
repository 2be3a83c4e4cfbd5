//! How much of a name the servers of a zone are asked for (RFC 9156, 2.3).

use dns_wire::Name;

/// Questions for a part of a name, at most.
const MINIMISE_COUNT_MAX: usize = 10;
/// The first of these add one label each.
const ONE_LABEL_COUNT: usize = 4;

/// Labels to ask for next, when the servers know `known` labels of a name with `total`, after `asked` questions for a part of it.
pub(super) fn next_label_count(known: usize, total: usize, asked: usize) -> usize {
    let left = total.saturating_sub(known);
    let step = match asked {
        0..ONE_LABEL_COUNT => 1,
        ONE_LABEL_COUNT..MINIMISE_COUNT_MAX => left.div_ceil(MINIMISE_COUNT_MAX - asked),
        _ => left,
    };
    (known + step.max(1)).min(total)
}

/// The last `count` labels of a name.
pub(crate) fn last_labels(name: Name<'_>, count: usize) -> Name<'_> {
    let mut name = name;
    for _ in count..name.label_count() {
        name = name.parent().unwrap_or(Name::ROOT);
    }
    name
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;

    #[test]
    fn a_name_of_any_length_takes_at_most_ten_questions() {
        for total in 1..=127 {
            let (mut known, mut asked) = (0, 0);
            while known < total {
                let next = next_label_count(known, total, asked);
                assert!(next > known && (asked >= ONE_LABEL_COUNT || next == known + 1));
                (known, asked) = (next, asked + 1);
            }
            assert!(asked <= MINIMISE_COUNT_MAX, "{total} labels: {asked} questions");
        }
    }

    #[test]
    fn labels_are_taken_from_the_right() {
        let name = NameBuf::from_text(b"a.b.c.", None).unwrap();
        assert_eq!(last_labels(name.as_name(), 2).to_string(), "b.c.");
        assert_eq!(last_labels(name.as_name(), 3), name.as_name());
        assert!(last_labels(name.as_name(), 0).is_root());
    }
}
