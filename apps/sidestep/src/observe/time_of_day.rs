//! Times for people.

/// `HH:MM:SS.uuuuuu`, UTC.
pub(super) fn time_of_day(time_ns: u64) -> String {
    let micros = time_ns / 1000;
    let seconds = micros / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:06}", seconds / 3600, seconds / 60 % 60, seconds % 60, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_86400_seconds() {
        assert_eq!(time_of_day(0), "00:00:00.000000");
        assert_eq!(time_of_day(86_399_999_999_999), "23:59:59.999999");
        assert_eq!(time_of_day(86_400_000_001_999), "00:00:00.000001");
    }
}
