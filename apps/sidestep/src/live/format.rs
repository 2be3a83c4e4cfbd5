//! Numbers and words in few columns.

/// A number a second, or any other, in at most five columns: `0`, `9999`, `12.3k`, `4.56M`.
pub(crate) fn rate(number: f64) -> String {
    const UNITS: [&str; 5] = ["k", "M", "G", "T", "P"];
    // Neither what is no number nor a negative zero, which is the sum of nothing.
    let mut number = if number > 0.0 { number } else { 0.0 };
    if number < 9_999.5 {
        return format!("{number:.0}");
    }
    let mut unit = "";
    for next in UNITS {
        number /= 1000.0;
        unit = next;
        if number < 999.5 {
            break;
        }
    }
    match number {
        ..9.995 => format!("{number:.2}{unit}"),
        ..99.95 => format!("{number:.1}{unit}"),
        _ => format!("{number:.0}{unit}"),
    }
}

/// A share of one, in per cent with one digit.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", if share.is_finite() && share > 0.0 { share * 100.0 } else { 0.0 })
}

/// At most so many characters; what is cut ends in a dot.
pub(crate) fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let cut = text.chars().take(width.saturating_sub(1));
    cut.chain((width > 0).then_some('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_take_five_columns() {
        let said =
            [0.0, 0.4, 9_999.0, 12_345.0, 999_499.0, 999_600.0, 4.56e6, 5e7, 1e12, f64::NAN, -1.0, -0.0]
                .map(rate);
        let expected = ["0", "0", "9999", "12.3k", "999k", "1.00M", "4.56M", "50.0M", "1.00T", "0", "0", "0"];
        assert_eq!(said, expected);
        assert!((0..60).all(|bits| rate((1u64 << bits) as f64).len() <= 5));
    }

    #[test]
    fn what_is_too_long_is_cut() {
        assert_eq!([clip("nginx", 5), clip("nginx", 4), clip("nginx", 0)], ["nginx", "ngi…", ""]);
    }

    #[test]
    fn shares_of_nothing_are_none() {
        assert_eq!([0.1234, f64::NAN, -0.0, 1.0].map(percent), ["12.3%", "0.0%", "0.0%", "100.0%"]);
    }
}
