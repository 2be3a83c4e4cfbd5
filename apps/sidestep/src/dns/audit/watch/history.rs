//! The history: a row for each finding of each round.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use dns_audit::checks::{ALL, SERVICE, Verdict};
use dns_audit::report::Report;
use rusqlite::{Connection, OptionalExtension, params};

use super::state::{Known, Latest};
use crate::dns::audit::clock::unix_ms;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS rounds (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, zone TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS scores (
        round INTEGER NOT NULL REFERENCES rounds(id) ON DELETE CASCADE, resolver TEXT NOT NULL, points INTEGER NOT NULL,
        PRIMARY KEY (round, resolver)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS findings (
        round INTEGER NOT NULL REFERENCES rounds(id) ON DELETE CASCADE, resolver TEXT NOT NULL, name TEXT NOT NULL,
        verdict TEXT NOT NULL, summary TEXT NOT NULL, PRIMARY KEY (round, resolver, name)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS latest (
        resolver TEXT PRIMARY KEY, round INTEGER NOT NULL REFERENCES rounds(id) ON DELETE CASCADE) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS rounds_of_latest ON latest (round);
    CREATE INDEX IF NOT EXISTS seen ON findings (resolver, name, round) WHERE verdict <> 'unknown';
";
/// The index by that name has these rows alone.
const SEEN: &str = "
    SELECT verdict FROM findings WHERE resolver = ?1 AND name = ?2 AND verdict <> 'unknown' ORDER BY round DESC LIMIT 1";
/// By keys: history does not make it slower.
const LATEST: &str = "
    SELECT latest.round, rounds.at, scores.points FROM latest
    CROSS JOIN rounds ON rounds.id = latest.round
    LEFT JOIN scores ON scores.round = latest.round AND scores.resolver = latest.resolver
    WHERE latest.resolver = ?1";
const COUNTS: &str =
    "SELECT verdict, count(*) FROM findings WHERE round = ?1 AND resolver = ?2 GROUP BY verdict";
const DAY_S: u64 = 86_400;

/// The database.
pub(super) struct History {
    connection: Connection,
    path: PathBuf,
    /// Device and inode; `None` of a database in memory.
    file: Option<(u64, u64)>,
}

impl History {
    /// Opens a file, or makes it. One that cannot be written is an error here, and not after the first round.
    pub(super) fn open(path: &Path) -> anyhow::Result<History> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.execute_batch(SCHEMA)?;
            let trial = connection.unchecked_transaction()?;
            trial.execute("INSERT INTO rounds (at, zone) VALUES (0, '')", [])?;
            trial.rollback()?;
            Ok(connection)
        };
        let connection = open().with_context(|| format!("history {}", path.display()))?;
        Ok(History { connection, path: path.to_owned(), file: file_at(path) })
    }

    /// Begins a new one if the file is not there any more, or another one is there: whether it did. What was in the old one is gone.
    pub(super) fn replace_if_lost(&mut self) -> anyhow::Result<bool> {
        let is_lost = self.file.is_some() && file_at(&self.path) != self.file;
        if is_lost {
            *self = History::open(&self.path)?;
        }
        Ok(is_lost)
    }

    /// What is known of a resolver.
    pub(super) fn known(&self, resolver: &str) -> anyhow::Result<Known> {
        let mut known = Known::default();
        let mut seen = self.connection.prepare_cached(SEEN)?;
        for check in ALL.iter().copied().chain([&SERVICE]) {
            let verdict =
                seen.query_row(params![resolver, check.id], |row| row.get::<_, String>(0)).optional()?;
            let verdict = verdict.as_deref().and_then(verdict_of);
            known.seen.extend(verdict.map(|verdict| (check.id.into(), verdict)));
        }
        let mut latest = self.connection.prepare_cached(LATEST)?;
        let latest = latest.query_row(params![resolver], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let Some((round, at_s, points)) = latest.optional()? else { return Ok(known) };
        let (round, at_s, points): (i64, i64, Option<u32>) = (round, at_s, points);
        let mut counts = self.connection.prepare_cached(COUNTS)?;
        let counts = counts.query_map(params![round, resolver], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
        })?;
        let counts: Vec<(String, u64)> = counts.collect::<rusqlite::Result<_>>()?;
        let counts = counts.iter().filter_map(|(text, count)| Some((verdict_of(text)?, *count))).collect();
        known.latest = Some(Latest { at_s: at_s.unsigned_abs(), points, counts });
        Ok(known)
    }

    /// Adds a round, as a whole, and drops those that are older than so many days.
    pub(super) fn add(&self, report: &Report, keep_days: u32) -> anyhow::Result<()> {
        self.try_to_add(report, keep_days).with_context(|| format!("history {}", self.path.display()))
    }

    fn try_to_add(&self, report: &Report, keep_days: u32) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        let now_s = unix_ms() / 1000;
        transaction
            .execute("INSERT INTO rounds (at, zone) VALUES (?1, ?2)", params![now_s as i64, report.zone])?;
        let round = transaction.last_insert_rowid();
        for resolver in &report.resolvers {
            if let Some(points) = resolver.score.points {
                let score = params![round, resolver.resolver, points];
                transaction.execute("INSERT OR REPLACE INTO scores VALUES (?1, ?2, ?3)", score)?;
            }
            let latest = params![resolver.resolver, round];
            transaction.execute("INSERT OR REPLACE INTO latest VALUES (?1, ?2)", latest)?;
            for finding in &resolver.findings {
                let row = params![
                    round,
                    resolver.resolver,
                    &*finding.check,
                    word(finding.verdict),
                    finding.summary
                ];
                transaction.execute("INSERT OR REPLACE INTO findings VALUES (?1, ?2, ?3, ?4, ?5)", row)?;
            }
        }
        let before = now_s.saturating_sub(u64::from(keep_days) * DAY_S);
        transaction.execute("DELETE FROM rounds WHERE at < ?1", params![before as i64])?;
        transaction.commit()
    }
}

/// Which file is there.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

pub(super) fn word(verdict: Verdict) -> String {
    verdict.word().to_ascii_lowercase()
}

fn verdict_of(text: &str) -> Option<Verdict> {
    [Verdict::Good, Verdict::Unknown, Verdict::Notice, Verdict::Bad]
        .into_iter()
        .find(|verdict| word(*verdict) == text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dns_audit::checks::{STALE_REACHABLE, TTL_ZERO};
    use dns_audit::report::ResolverReport;

    use super::*;

    fn report(verdict: Verdict) -> Report {
        let findings = vec![
            SERVICE.finding(Verdict::Good, "there"),
            STALE_REACHABLE.finding(verdict, "seen"),
            TTL_ZERO.finding(Verdict::Good, "fine"),
        ];
        let resolvers = vec![ResolverReport::new("192.0.2.1:53".to_owned(), findings, 7)];
        Report { zone: "probe.example.".to_owned(), date: String::new(), rate: [1, 1], resolvers }
    }

    const RESOLVER: &str = "192.0.2.1:53";

    #[test]
    fn what_was_last_seen_of_each_check_is_known_again_and_old_rounds_are_forgotten() {
        let history = History::open(Path::new(":memory:")).unwrap();
        assert_eq!(history.known(RESOLVER).unwrap(), Known::default());
        history.add(&report(Verdict::Good), 1).unwrap();
        history.add(&report(Verdict::Bad), 1).unwrap();
        let known = history.known(RESOLVER).unwrap();
        let verdicts: Vec<(&str, Verdict)> =
            known.seen.iter().map(|(check, verdict)| (&**check, *verdict)).collect();
        assert_eq!(
            verdicts,
            [("service", Verdict::Good), ("stale.reachable", Verdict::Bad), ("ttl.zero", Verdict::Good)]
        );
        let latest = known.latest.unwrap();
        assert_eq!((latest.points, latest.counts[&Verdict::Good]), (Some(75), 2));
        history.connection.execute("UPDATE rounds SET at = 1", []).unwrap();
        history.add(&Report { resolvers: Vec::new(), ..report(Verdict::Bad) }, 1).unwrap();
        assert_eq!(history.known(RESOLVER).unwrap(), Known::default());
    }

    #[test]
    fn what_could_not_be_seen_does_not_hide_what_was() {
        let history = History::open(Path::new(":memory:")).unwrap();
        history.add(&report(Verdict::Bad), 1).unwrap();
        let mut silent = report(Verdict::Bad);
        let findings = silent.resolvers[0].findings.drain(..).map(|finding| finding.not_tested("silent"));
        silent.resolvers[0] = ResolverReport::new(RESOLVER.to_owned(), findings.collect(), 7);
        history.add(&silent, 1).unwrap();
        let known = history.known(RESOLVER).unwrap();
        let latest = known.latest.unwrap();
        assert_eq!((latest.points, &latest.counts), (None, &BTreeMap::from([(Verdict::Unknown, 3)])));
        assert_eq!(known.seen["stale.reachable"], Verdict::Bad);
    }

    #[test]
    fn what_is_known_is_found_by_keys() {
        let history = History::open(Path::new(":memory:")).unwrap();
        for (query, values) in [(SEEN, params!["r", "c"]), (LATEST, params!["r"]), (COUNTS, params![1, "r"])]
        {
            let mut plan = history.connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let lines = plan.query_map(values, |row| row.get::<_, String>(3)).unwrap();
            let lines: Vec<String> = lines.map(Result::unwrap).collect();
            assert!(lines.iter().all(|line| !line.starts_with("SCAN")), "{lines:?}");
        }
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sidestep-history-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_full_disk_is_an_error_with_the_name_of_the_file_and_leaves_what_was_written() {
        let path = scratch("full");
        let history = History::open(&path).unwrap();
        history.add(&report(Verdict::Bad), 1).unwrap();
        let pages: i64 = history.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let bound = format!("PRAGMA max_page_count = {pages}");
        history.connection.query_row(&bound, [], |row| row.get::<_, i64>(0)).unwrap();
        let mut large = report(Verdict::Good);
        large.resolvers[0].findings[0].summary = "x".repeat(1 << 20);
        let error = format!("{:#}", history.add(&large, 1).unwrap_err());
        let known = history.known(RESOLVER).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("history-full") && error.contains("disk is full"), "{error}");
        assert_eq!(known.seen["stale.reachable"], Verdict::Bad);
    }

    #[test]
    fn a_database_that_was_deleted_or_replaced_is_noticed() {
        let path = scratch("lost");
        let mut history = History::open(&path).unwrap();
        history.add(&report(Verdict::Bad), 1).unwrap();
        assert!(!history.replace_if_lost().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(history.replace_if_lost().unwrap() && !history.replace_if_lost().unwrap());
        assert_eq!(history.known(RESOLVER).unwrap(), Known::default());
        history.add(&report(Verdict::Bad), 1).unwrap();
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        drop(History::open(&path).unwrap());
        assert!(history.replace_if_lost().unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(path.with_extension("old")).unwrap();
    }

    #[test]
    fn a_file_that_is_no_database_is_an_error_with_its_name() {
        let path = std::env::temp_dir().join(format!("sidestep-history-{}", std::process::id()));
        std::fs::write(&path, "this is no database, and long enough to be seen as none: ".repeat(20))
            .unwrap();
        let error = History::open(&path).err().map(|error| format!("{error:#}")).unwrap_or_default();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("sidestep-history") && error.contains("not a database"), "{error}");
    }
}
