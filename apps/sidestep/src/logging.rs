//! The log of the commands that keep running, `dns serve` and `run`: lines on stderr, each with its time and level.
//!
//! Under systemd the journal reads stderr and adds the time itself; there a line starts with its priority instead (sd-daemon(3)).
//! Commands that print a result and end do not log: they say what is wrong by [`crate::output::complain`].

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::time::SystemTime;

use clap::Args;
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::systemd::stderr_is_journal;

/// The target of our own records starts with this.
const OURS: &str = "sidestep";

/// The options of a command that logs.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LogOptions {
    /// What to log on stderr: error, warn, info or debug, and all that is worse. FORMAT is text, journal (systemd's) or json [default
    /// format: journal if stderr is the journal, else text]
    #[arg(long, value_name = "LEVEL[,FORMAT]")]
    log: Option<Choice>,
}

/// What `--log` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    level: LevelFilter,
    format: Option<Format>,
}

/// How a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Time, level and message.
    Text,
    /// The priority in angle brackets, and the message.
    Journal,
    /// An object a line.
    Json,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Choice, String> {
        let (level, format) = match text.split_once(',') {
            Some((level, format)) => (level, Some(format)),
            None => (text, None),
        };
        let level = match level {
            "error" => LevelFilter::Error,
            "warn" => LevelFilter::Warn,
            "info" => LevelFilter::Info,
            "debug" => LevelFilter::Debug,
            other => return Err(format!("{other:?} is not a level, expected error, warn, info or debug")),
        };
        let format = match format {
            None => None,
            Some("text") => Some(Format::Text),
            Some("journal") => Some(Format::Journal),
            Some("json") => Some(Format::Json),
            Some(other) => return Err(format!("{other:?} is not a format, expected text, journal or json")),
        };
        Ok(Choice { level, format })
    }
}

impl LogOptions {
    /// Logs from now on, at `level` unless the options name another one. Only the first call of a process counts.
    pub(crate) fn start(&self, level: LevelFilter) {
        let format = self.log.and_then(|choice| choice.format);
        let format =
            format.unwrap_or_else(|| if stderr_is_journal() { Format::Journal } else { Format::Text });
        if log::set_boxed_logger(Box::new(Logger { format })).is_ok() {
            log::set_max_level(self.log.map_or(level, |choice| choice.level));
        }
    }
}

struct Logger {
    format: Format,
}

impl Log for Logger {
    /// Other crates' records are for those who look for a fault.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let max = log::max_level();
        metadata.level() <= max && (metadata.target().starts_with(OURS) || max >= LevelFilter::Debug)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let message = record.args().to_string();
            let text = render(self.format, SystemTime::now(), record.level(), record.target(), &message);
            let _ = io::stderr().write_all(text.as_bytes()); // Nothing is left to say it with.
        }
    }

    fn flush(&self) {}
}

/// A record as it is written. A message of several lines becomes several records, except in JSON.
fn render(format: Format, time: SystemTime, level: Level, target: &str, message: &str) -> String {
    let mut text = String::new();
    let time = humantime::format_rfc3339_millis(time);
    if format == Format::Json {
        let level = level.as_str().to_ascii_lowercase();
        let object = serde_json::json!({
            "time": time.to_string(), "level": level, "target": target, "message": message
        });
        let _ = writeln!(text, "{object}");
        return text;
    }
    let command = command_of(target);
    for line in message.lines() {
        let _ = match format {
            Format::Journal => writeln!(text, "<{}>{command}: {line}", priority(level)),
            _ => writeln!(text, "{time} {level:<5} {command}: {line}"),
        };
    }
    text
}

/// The command that a record comes from; of another crate's, the place in that crate.
fn command_of(target: &str) -> &str {
    match target {
        _ if target.starts_with("sidestep::dns") => "sidestep dns",
        _ if target.starts_with(OURS) => "sidestep",
        _ => target,
    }
}

/// As syslog(3) counts.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn written(format: Format, message: &str) -> String {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_007);
        render(format, time, Level::Warn, "sidestep::dns::load", message)
    }

    #[test]
    fn text_has_time_and_level() {
        assert_eq!(written(Format::Text, "odd"), "2000-02-29T00:00:00.007Z WARN  sidestep dns: odd\n");
    }

    #[test]
    fn the_journal_gets_the_priority_of_each_line() {
        assert_eq!(written(Format::Journal, "odd\nvery"), "<4>sidestep dns: odd\n<4>sidestep dns: very\n");
    }

    #[test]
    fn an_object_has_the_whole_message() {
        let line = written(Format::Json, "a \"zone\"\nnot read");
        assert_eq!(line.lines().count(), 1);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["message"], "a \"zone\"\nnot read");
        assert_eq!((&object["level"], &object["time"]), (&"warn".into(), &"2000-02-29T00:00:00.007Z".into()));
    }

    #[test]
    fn a_choice_is_a_level_and_perhaps_a_format() {
        let choice = |level, format| Ok(Choice { level, format });
        assert_eq!("debug".parse(), choice(LevelFilter::Debug, None));
        assert_eq!("error,json".parse(), choice(LevelFilter::Error, Some(Format::Json)));
        let refusal = |text: &str| text.parse::<Choice>().unwrap_err();
        assert_eq!(refusal("loud"), "\"loud\" is not a level, expected error, warn, info or debug");
        assert_eq!(refusal("info,xml"), "\"xml\" is not a format, expected text, journal or json");
    }

    #[test]
    fn another_crates_records_say_where_they_come_from() {
        assert_eq!(command_of("sidestep::run"), "sidestep");
        assert_eq!(command_of("netlink_packet_route::link"), "netlink_packet_route::link");
    }
}
