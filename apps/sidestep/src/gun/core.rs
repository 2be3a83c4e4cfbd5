//! How long this thread was ready to run, and something else had its core.

use clock::Duration;

/// Of this thread: nanoseconds on a core, nanoseconds ready to run, and how often it got a core (Linux, Documentation/scheduler/sched-stats.rst).
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// The thread's core, from some time on.
pub(crate) struct Core {
    waited_before: Option<Duration>,
}

impl Core {
    pub(crate) fn watch() -> Core {
        Core { waited_before: waited() }
    }

    /// How long it has waited since. Kernels that do not count that say nothing: zero.
    pub(crate) fn waited(&self) -> Duration {
        let since = self.waited_before.zip(waited()).map(|(before, now)| now - before);
        since.unwrap_or(Duration::ZERO)
    }
}

fn waited() -> Option<Duration> {
    parse(&std::fs::read_to_string(SCHEDSTAT).ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_time_that_it_waited() {
        assert_eq!(parse("1200 345 6\n"), Some(Duration::from_nanos(345)));
        assert_eq!((parse(""), parse("1200 much 6")), (None, None));
    }
}
