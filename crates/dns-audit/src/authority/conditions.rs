//! [`Condition`]: how a server of the zone differs from the others, for names that ask for it: the selection of a server is tested with it.

use std::fmt;
use std::str::FromStr;

use super::spec::{Behaviour, Servers};

/// Without conditions given: the delay of the last server, the fastest, and how much later each one before it is.
const FASTEST_MS: u16 = 5;
const APART_MS: u16 = 60;
/// More servers than this have the delay of the slowest.
const STEPS_MAX: usize = 5;
/// Without conditions given: when the last server is silent, in tenths of a second, and how many of a hundred queries are lost.
const OUTAGE: (u32, u32) = (60, 110);
const LOSS: u8 = 25;
/// The end of an outage, in tenths of a second: a probe takes some seconds longer.
const OUTAGE_MAX: u32 = 600;
/// No answer waits for longer, whatever its name says: each one takes memory meanwhile.
pub(super) const DELAY_MAX_MS: u16 = 5000;

/// How one server differs from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Its answers are late by so many milliseconds.
    pub delay_ms: u16,
    /// Of a hundred queries, how many are lost.
    pub loss: u8,
    /// It is silent, from when until when: tenths of a second since the start that a name says.
    pub outage: Option<(u32, u32)>,
}

impl Condition {
    /// Those of so many servers, where nothing is said: the last one is the fastest, and has an outage.
    #[must_use]
    pub fn of_servers(count: usize) -> Vec<Condition> {
        let one = |number: usize| {
            let behind = count - 1 - number;
            let delay_ms = FASTEST_MS + APART_MS * behind.min(STEPS_MAX) as u16;
            Condition { delay_ms, loss: LOSS, outage: (behind == 0).then_some(OUTAGE) }
        };
        (0..count).map(one).collect()
    }

    /// Whether it is silent so long after the start.
    #[must_use]
    pub fn is_out(&self, tenths: u64) -> bool {
        self.outage.is_some_and(|(from, until)| (u64::from(from)..u64::from(until)).contains(&tenths))
    }

    /// What it does to a query that is the `chance`th of a hundred.
    pub(super) fn behaviour(&self, servers: Servers, chance: u8, tenths: u64) -> Option<Behaviour> {
        let is_silent = match servers {
            Servers::Alike => return None,
            Servers::Apart => self.is_out(tenths),
            Servers::Lossy => chance < self.loss,
        };
        Some(if is_silent { Behaviour::Silent } else { Behaviour::Slow(self.delay_ms) })
    }
}

/// `delay=MS,loss=PERCENT,outage=SECONDS-SECONDS`, each one or none of them.
impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let mut condition = Condition::default();
        for field in text.split(',').filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let wrong = |wanted: &str| format!("{name}: {value:?} is not {wanted}");
            match name {
                "delay" => {
                    let delay = value.parse().ok().filter(|ms| *ms <= DELAY_MAX_MS);
                    condition.delay_ms = delay.ok_or_else(|| wrong("a number of milliseconds up to 5000"))?;
                }
                "loss" => {
                    let loss = value.parse().ok().filter(|percent| *percent <= 100);
                    condition.loss = loss.ok_or_else(|| wrong("a number up to 100"))?;
                }
                "outage" => {
                    let outage = value.split_once('-').and_then(|(from, until)| span(from, until));
                    let form = "two times such as 6-11.5: seconds, the first one less, up to 60";
                    condition.outage = Some(outage.ok_or_else(|| wrong(form))?);
                }
                _ => {
                    return Err(format!("{field:?} is not delay=MS, loss=PERCENT or outage=SECONDS-SECONDS"));
                }
            }
        }
        Ok(condition)
    }
}

fn span(from: &str, until: &str) -> Option<(u32, u32)> {
    let (from, until) = (tenths(from)?, tenths(until)?);
    (from < until && until <= OUTAGE_MAX).then_some((from, until))
}

/// Seconds with one digit behind the point or none, in tenths.
fn tenths(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits =
        |text: &str| text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse::<u32>().ok());
    let (whole, part) = (digits(whole)??, digits(part).filter(|_| part.len() == 1)??);
    whole.checked_mul(10)?.checked_add(part)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay={},loss={}", self.delay_ms, self.loss)?;
        let Some((from, until)) = self.outage else { return Ok(()) };
        write!(f, ",outage={}.{}-{}.{}", from / 10, from % 10, until / 10, until % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_read_as_it_was_written() {
        let given = Condition { delay_ms: 20, loss: 5, outage: Some((60, 115)) };
        for condition in [given, Condition::default()].into_iter().chain(Condition::of_servers(8)) {
            assert_eq!(condition.to_string().parse(), Ok(condition));
        }
        assert_eq!("outage=6-11.5,delay=20,loss=5".parse(), Ok(given));
        assert_eq!("".parse(), Ok(Condition::default()));
        for bad in [
            "delay=5001",
            "delay",
            "loss=101",
            "loss=-1",
            "outage=6",
            "outage=11-6",
            "outage=6-6",
            "outage=0-61",
            "outage=1.25-2",
            "outage=.-2",
            "outage=1.-2",
            "speed=1",
            "delay=+5x",
        ] {
            assert!(bad.parse::<Condition>().is_err(), "{bad}");
        }
    }

    #[test]
    fn servers_are_late_and_out_or_late_and_lossy_as_a_name_asks() {
        let condition = Condition { delay_ms: 5, loss: 30, outage: Some((10, 20)) };
        let at = |servers, chance, tenths| condition.behaviour(servers, chance, tenths);
        assert_eq!(at(Servers::Alike, 0, 15), None);
        assert_eq!(at(Servers::Apart, 0, 9), Some(Behaviour::Slow(5)));
        assert_eq!(at(Servers::Apart, 99, 10), Some(Behaviour::Silent));
        assert_eq!(at(Servers::Apart, 99, 20), Some(Behaviour::Slow(5)));
        assert_eq!(at(Servers::Lossy, 29, 15), Some(Behaviour::Silent));
        assert_eq!(at(Servers::Lossy, 30, 15), Some(Behaviour::Slow(5)));
    }

    #[test]
    fn without_conditions_the_last_server_is_the_fastest_and_the_only_one_with_an_outage() {
        let conditions = Condition::of_servers(9);
        let delays: Vec<u16> = conditions.iter().map(|condition| condition.delay_ms).collect();
        assert_eq!(delays, [305, 305, 305, 305, 245, 185, 125, 65, 5]);
        assert_eq!(conditions.iter().filter(|condition| condition.outage.is_some()).count(), 1);
        assert!(
            conditions[8].is_out(60) && !conditions[8].is_out(110) && Condition::of_servers(0).is_empty()
        );
    }
}
