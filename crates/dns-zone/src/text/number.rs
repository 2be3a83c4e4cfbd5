//! Numbers, durations and points in time as zone files write them.

/// The highest TTL (RFC 2181, 8).
pub(super) const TTL_MAX: u64 = 0x7fff_ffff;

/// A decimal number up to `max`.
pub(super) fn decimal(text: &[u8], max: u64) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let value = text.iter().try_fold(0u64, |value, &digit| {
        let digit = u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        value.checked_mul(10)?.checked_add(digit)
    })?;
    (value <= max).then_some(value)
}

/// A number of seconds: `3600`, `1h30m`, `1w2d`, in any case. More than 64 bits stay at the maximum.
pub(super) fn duration_s(text: &[u8]) -> Option<u64> {
    let (mut total, mut amount, mut has_digits, mut has_unit) = (0u64, 0u64, false, false);
    for &octet in text {
        if octet.is_ascii_digit() {
            amount = amount.saturating_mul(10).saturating_add(u64::from(octet - b'0'));
            has_digits = true;
            continue;
        }
        let unit_s = match octet.to_ascii_lowercase() {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86400,
            b'w' => 604_800,
            _ => return None,
        };
        if !has_digits {
            return None;
        }
        total = total.saturating_add(amount.saturating_mul(unit_s));
        (amount, has_digits, has_unit) = (0, false, true);
    }
    match (has_digits, has_unit) {
        (true, false) => Some(amount),
        (false, true) => Some(total),
        _ => None, // nothing at all, or "1h30" whose unit one would have to guess
    }
}

/// A number with up to `places` decimals, as an integer of that many decimals more: `1.5` at 2 places is 150.
pub(super) fn fixed_point(text: &[u8], places: usize) -> Option<u64> {
    let (whole, fraction) = match text.iter().position(|&octet| octet == b'.') {
        Some(dot) => (&text[..dot], decimal(&text[dot + 1..], u64::MAX)?),
        None => (text, 0),
    };
    let fraction_places = text.len() - whole.len() - usize::from(whole.len() < text.len());
    let missing_places = places.checked_sub(fraction_places)?;
    let scale = |digits: usize| 10u64.pow(digits as u32);
    Some(decimal(whole, u64::from(u32::MAX))? * scale(places) + fraction * scale(missing_places))
}

/// The time of a signature in seconds since 1970: `YYYYMMDDHHmmSS` in UTC, or that number itself (RFC 4034, 3.2).
pub(super) fn time_s(text: &[u8]) -> Option<u32> {
    const DIGITS: usize = 14;
    if text.len() != DIGITS {
        return decimal(text, u64::from(u32::MAX)).map(|seconds| seconds as u32);
    }
    let part =
        |from: usize, to: usize, min: u64, max: u64| decimal(&text[from..to], max).filter(|v| *v >= min);
    let (year, month) = (part(0, 4, 1970, 2106)?, part(4, 6, 1, 12)?);
    let day = part(6, 8, 1, days_in_month(year, month))?;
    let (hour, minute, second) = (part(8, 10, 0, 23)?, part(10, 12, 0, 59)?, part(12, 14, 0, 59)?);
    let whole_years = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<u64>();
    let whole_months = (1..month).map(|month| days_in_month(year, month)).sum::<u64>();
    let days = whole_years + whole_months + day - 1;
    u32::try_from(((days * 24 + hour) * 60 + minute) * 60 + second).ok()
}

/// Seconds since 1970 as `YYYYMMDDHHmmSS` in UTC (RFC 4034, 3.2).
pub(super) fn calendar(seconds: u32) -> String {
    let (mut days, seconds) = (u64::from(seconds) / 86_400, seconds % 86_400);
    let (mut year, mut month) = (1970, 1);
    loop {
        let length = days_in_month(year, month);
        if days < length {
            break;
        }
        days -= length;
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    }
    let (day, hour, minute, second) = (days + 1, seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_digits_within_a_range() {
        assert_eq!(decimal(b"0", 255), Some(0));
        assert_eq!(decimal(b"00255", 255), Some(255));
        for text in ["", "256", "-1", "+1", "1x", "99999999999999999999999"] {
            assert_eq!(decimal(text.as_bytes(), 255), None, "{text}");
        }
    }

    #[test]
    fn durations_are_seconds_or_units() {
        assert_eq!(duration_s(b"3600"), Some(3600));
        assert_eq!(duration_s(b"1h30M"), Some(5400));
        assert_eq!(duration_s(b"1W2d3h4m5s"), Some(604_800 + 2 * 86400 + 3 * 3600 + 4 * 60 + 5));
        assert_eq!(duration_s(b"99999999999999999999w"), Some(u64::MAX));
        for text in ["", "h", "1h30", "1x", "h1", "1hh", "-1"] {
            assert_eq!(duration_s(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn fixed_points_keep_their_decimals() {
        assert_eq!(fixed_point(b"1.5", 2), Some(150));
        assert_eq!(fixed_point(b"1", 3), Some(1000));
        assert_eq!(fixed_point(b"0.001", 3), Some(1));
        for text in ["1.234", ".5", "1.", "1.2.3", "", "-1"] {
            assert_eq!(fixed_point(text.as_bytes(), 2), None, "{text}");
        }
    }

    #[test]
    fn times_are_calendar_or_seconds() {
        assert_eq!(time_s(b"19700101000000"), Some(0));
        assert_eq!(time_s(b"20040509183619"), Some(1_084_127_779));
        assert_eq!(time_s(b"20240229000000"), Some(1_709_164_800));
        assert_eq!(time_s(b"21060207062815"), Some(u32::MAX));
        assert_eq!(time_s(b"1084127779"), Some(1_084_127_779));
        for seconds in [0, 1_084_127_779, 1_709_164_800, u32::MAX] {
            assert_eq!(time_s(calendar(seconds).as_bytes()), Some(seconds));
        }
        for text in ["20230229000000", "20231301000000", "21060207062816", "20230101240000", "4294967296"] {
            assert_eq!(time_s(text.as_bytes()), None, "{text}");
        }
    }
}
