//! The history: a row for each finding of each round.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use dns_audit::checks::Verdict;
use dns_audit::report::Report;
use rusqlite::{Connection, OptionalExtension, params};

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
/// Each starts at the table of the last rounds, and finds the rest by keys: history does not make it slower.
const SCORES: &str = "
    SELECT latest.resolver, points, at FROM latest
    CROSS JOIN scores ON scores.round = latest.round AND scores.resolver = latest.resolver
    CROSS JOIN rounds ON rounds.id = latest.round
    ORDER BY latest.resolver";
const COUNTS: &str = "
    SELECT latest.resolver, verdict, count(*) FROM latest
    CROSS JOIN findings ON findings.round = latest.round AND findings.resolver = latest.resolver
    GROUP BY latest.resolver, verdict ORDER BY latest.resolver, verdict";
/// The index by that name has these rows alone.
const SEEN: &str = "
    SELECT verdict FROM findings WHERE resolver = ?1 AND name = ?2 AND verdict <> 'unknown' ORDER BY round DESC LIMIT 1";
const DAY_S: u64 = 86_400;

/// Verdicts of a resolver's checks, by resolver and check.
pub(super) type Verdicts = BTreeMap<(String, String), Verdict>;

/// What earlier rounds found.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The last verdict of each check that could be seen, in whichever round.
    pub(super) seen: Verdicts,
    /// Whether something could be seen of a resolver in its last round.
    pub(super) served: BTreeMap<String, bool>,
}

/// The database.
pub(super) struct History(Connection);

impl History {
    /// Opens a file, or makes it.
    pub(super) fn open(path: &Path) -> anyhow::Result<History> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        open().map(History).with_context(|| format!("history {}", path.display()))
    }

    /// What was last known of a report's resolvers.
    pub(super) fn last(&self, report: &Report) -> anyhow::Result<Past> {
        let mut past = Past::default();
        let mut served = self.0.prepare_cached(
            "SELECT max(verdict <> 'unknown') FROM findings WHERE resolver = ?1
             AND round = (SELECT round FROM latest WHERE resolver = ?1)",
        )?;
        let mut seen = self.0.prepare_cached(SEEN)?;
        for own in &report.resolvers {
            let has_served: Option<bool> = served.query_row(params![own.resolver], |row| row.get(0))?;
            past.served.extend(has_served.map(|has_served| (own.resolver.clone(), has_served)));
            for finding in &own.findings {
                let verdict = seen.query_row(params![own.resolver, &*finding.check], |row| row.get(0));
                let verdict: Option<String> = verdict.optional()?;
                if let Some(verdict) = verdict.as_deref().and_then(verdict_of) {
                    past.seen.insert((own.resolver.clone(), finding.check.to_string()), verdict);
                }
            }
        }
        Ok(past)
    }

    /// Adds a round, as a whole.
    pub(super) fn add(&self, report: &Report) -> anyhow::Result<()> {
        let transaction = self.0.unchecked_transaction()?;
        let now = unix_ms() / 1000;
        transaction
            .execute("INSERT INTO rounds (at, zone) VALUES (?1, ?2)", params![now as i64, report.zone])?;
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
        Ok(transaction.commit()?)
    }

    /// Drops rounds that are older than so many days.
    pub(super) fn forget(&self, days: u32) -> anyhow::Result<()> {
        let before = (unix_ms() / 1000).saturating_sub(u64::from(days) * DAY_S);
        self.0.execute("DELETE FROM rounds WHERE at < ?1", params![before as i64])?;
        Ok(())
    }

    /// Of each resolver of which something was seen in its last round: points, and when.
    pub(super) fn scores(&self) -> anyhow::Result<Vec<(String, u32, u64)>> {
        let mut rows = self.0.prepare_cached(SCORES)?;
        let rows =
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs())))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// How many of the last findings of each resolver end so.
    pub(super) fn counts(&self) -> anyhow::Result<Vec<(String, String, u64)>> {
        let mut rows = self.0.prepare_cached(COUNTS)?;
        let rows =
            rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.unsigned_abs())))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn word(verdict: Verdict) -> String {
    verdict.word().to_ascii_lowercase()
}

fn verdict_of(text: &str) -> Option<Verdict> {
    [Verdict::Good, Verdict::Unknown, Verdict::Notice, Verdict::Bad]
        .into_iter()
        .find(|verdict| word(*verdict) == text)
}

#[cfg(test)]
mod tests {
    use dns_audit::checks::{STALE_REACHABLE, TTL_ZERO};
    use dns_audit::report::ResolverReport;

    use super::*;

    pub(crate) fn report(verdict: Verdict) -> Report {
        let findings =
            vec![STALE_REACHABLE.finding(verdict, "seen"), TTL_ZERO.finding(Verdict::Good, "fine")];
        let resolvers = vec![ResolverReport::new("192.0.2.1:53".to_owned(), findings, 7)];
        Report { zone: "probe.example.".to_owned(), date: String::new(), rate: [1, 1], resolvers }
    }

    #[test]
    fn the_last_round_is_what_counts_and_old_ones_are_forgotten() {
        let history = History::open(Path::new(":memory:")).unwrap();
        assert!(history.last(&report(Verdict::Bad)).unwrap().seen.is_empty());
        history.add(&report(Verdict::Good)).unwrap();
        history.add(&report(Verdict::Bad)).unwrap();
        let last = history.last(&report(Verdict::Bad)).unwrap().seen;
        let key = |check: &str| ("192.0.2.1:53".to_owned(), check.to_owned());
        assert_eq!((last[&key("stale.reachable")], last[&key("ttl.zero")]), (Verdict::Bad, Verdict::Good));
        assert_eq!(history.scores().unwrap()[0].1, 75);
        assert_eq!(history.counts().unwrap().len(), 2);
        history.0.execute("UPDATE rounds SET at = 1", []).unwrap();
        history.forget(1).unwrap();
        assert!(history.scores().unwrap().is_empty() && history.counts().unwrap().is_empty());
    }

    #[test]
    fn what_could_not_be_seen_does_not_hide_what_was() {
        let history = History::open(Path::new(":memory:")).unwrap();
        history.add(&report(Verdict::Bad)).unwrap();
        let mut silent = report(Verdict::Unknown);
        silent.resolvers[0].findings.truncate(1);
        history.add(&silent).unwrap();
        let past = history.last(&report(Verdict::Good)).unwrap();
        let key = ("192.0.2.1:53".to_owned(), "stale.reachable".to_owned());
        assert_eq!((past.seen[&key], past.served["192.0.2.1:53"]), (Verdict::Bad, false));
        let mut plan = history.0.prepare(&format!("EXPLAIN QUERY PLAN {SEEN}")).unwrap();
        let line: String = plan.query_row(params!["r", "c"], |row| row.get(3)).unwrap();
        assert!(line.contains("USING INDEX seen"), "{line}");
    }

    #[test]
    fn metrics_read_the_last_rounds_alone() {
        let history = History::open(Path::new(":memory:")).unwrap();
        for query in [SCORES, COUNTS] {
            let mut plan = history.0.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let lines = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
            let lines: Vec<String> = lines.map(Result::unwrap).collect();
            let scans: Vec<&String> = lines.iter().filter(|line| line.starts_with("SCAN")).collect();
            assert!(scans.iter().all(|line| line.starts_with("SCAN latest")), "{lines:?}");
        }
    }

    #[test]
    fn a_resolver_of_which_nothing_was_seen_has_no_points() {
        let history = History::open(Path::new(":memory:")).unwrap();
        history.add(&report(Verdict::Bad)).unwrap();
        let mut silent = report(Verdict::Unknown);
        let findings = silent.resolvers[0].findings.drain(..1).collect();
        silent.resolvers[0] = ResolverReport::new("192.0.2.1:53".to_owned(), findings, 7);
        history.add(&silent).unwrap();
        assert!(history.scores().unwrap().is_empty());
        assert_eq!(history.counts().unwrap(), [("192.0.2.1:53".to_owned(), "unknown".to_owned(), 1)]);
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
