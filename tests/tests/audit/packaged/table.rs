//! The table of all checks of packaged resolvers, `docs/audit-verdicts.md`: a row for each check, a column for each resolver. A cell has the verdicts
//! that were seen, in whichever run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dns_audit::checks::{self, Finding, Verdict};
use dns_audit::report::ResolverReport;

const HEAD: &str = "# Verdicts of packaged resolvers

All checks of the resolvers of [audit.md](audit.md#what-packaged-resolvers-do), as `scripts/audit-picture.sh` saw them in several runs: `good / notice` is good in
one run and a notice in another one. A dash: there was nothing to judge, as no expired data came, say; `integrity.names`, `open` and `encrypted` need
options that were not given, and `who.lines` a database. `tests/tests/audit/packaged` holds resolvers to this table but for what depends on how
busy the machine is: `selection`, `latency` and the checks marked with a star. Elsewhere what is good here is not bad there, nor the reverse.
";
/// Verdicts of these depend on how busy the machine is.
const TIMED: [&str; 4] = ["selection.", "latency.", "stale.slow", "stale.outage"];

/// Checks of a resolver that may be unseen though the table has them seen.
const UNSEEN_MAX: usize = 6;

/// Verdicts by resolver and check.
pub(super) struct Table(BTreeMap<(String, String), BTreeSet<String>>);

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/audit-verdicts.md")
}

fn is_timed(check: &str) -> bool {
    TIMED.iter().any(|start| check.starts_with(start))
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches(['`', '*']).to_owned()).collect()
}

impl Table {
    /// As it was written; empty if there is none.
    pub(super) fn read() -> Table {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        let mut rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
        let head = rows.next().unwrap_or_default();
        let mut table = Table(BTreeMap::new());
        for row in rows.skip(1) {
            for (resolver, cell) in head.iter().zip(&row).skip(1) {
                let verdicts = cell.split(" / ").filter(|word| *word != "-").map(str::to_owned);
                table.0.entry((resolver.clone(), row[0].clone())).or_default().extend(verdicts);
            }
        }
        table
    }

    /// Adds what was seen of a resolver.
    pub(super) fn add(&mut self, resolver: &str, report: &ResolverReport) {
        for finding in &report.findings {
            let verdicts = self.0.entry((resolver.to_owned(), finding.check.to_string())).or_default();
            verdicts.insert(finding.verdict.word().to_owned());
        }
    }

    /// What was seen of a resolver that is far from what the table has: good where that has bad, or the reverse. A machine that does other work makes
    /// a notice of either, and leaves some things unseen, but not many.
    pub(super) fn differences(&self, resolver: &str, findings: &[Finding]) -> Vec<String> {
        let findings: Vec<&Finding> = findings.iter().filter(|it| !is_timed(&it.check)).collect();
        let of = |finding: &Finding| self.0.get(&(resolver.to_owned(), finding.check.to_string()));
        let has =
            |finding: &Finding, verdict: Verdict| of(finding).is_some_and(|own| own.contains(verdict.word()));
        let is_opposite = |finding: &&&Finding| {
            let opposite = match finding.verdict {
                Verdict::Good => Verdict::Bad,
                Verdict::Bad => Verdict::Good,
                Verdict::Unknown | Verdict::Notice => return false,
            };
            has(finding, opposite) && of(finding).is_some_and(|own| own.len() == 1)
        };
        let told = |finding: &&Finding| {
            format!("{resolver}: {} {:?} {}", finding.check, finding.verdict, finding.summary)
        };
        let is_unseen =
            |finding: &&&Finding| finding.verdict == Verdict::Unknown && !has(finding, Verdict::Unknown);
        let unseen: Vec<String> = findings.iter().filter(is_unseen).map(told).collect();
        let odd = findings.iter().filter(is_opposite).map(told);
        odd.chain(unseen.into_iter().skip(UNSEEN_MAX)).collect()
    }

    pub(super) fn write(&self, resolvers: &[&str]) {
        let mut text = format!(
            "{HEAD}\n| check | {} |\n| --- |{}\n",
            resolvers.join(" | "),
            " --- |".repeat(resolvers.len())
        );
        for check in checks::ALL {
            let star = if is_timed(check.id) && check.probe() == "stale" { "*" } else { "" };
            text += &format!("| `{}`{star} |", check.id);
            for resolver in resolvers {
                let own = self.0.get(&((*resolver).to_owned(), check.id.to_owned()));
                let words: Vec<&str> = own.into_iter().flatten().map(String::as_str).collect();
                text += &format!(" {} |", if words.is_empty() { "-".to_owned() } else { words.join(" / ") });
            }
            text.push('\n');
        }
        std::fs::write(path(), text).unwrap();
    }
}

/// Findings of all checks that are not timed, with this verdict.
fn all(verdict: Verdict) -> Vec<Finding> {
    let finding = |check: &&checks::Check| Finding {
        check: check.id.into(),
        title: check.title.into(),
        verdict,
        summary: String::new(),
        evidence: Vec::new(),
        meaning: check.meaning.into(),
        reference: check.reference.into(),
        weight: 0,
    };
    checks::ALL.iter().filter(|check| !is_timed(check.id)).map(finding).collect()
}

#[test]
fn a_verdict_that_is_the_opposite_of_the_tables_is_found() {
    let table = Table::read();
    let of = |verdict| table.differences("Unbound", &all(verdict));
    assert!(of(Verdict::Bad).len() > 20, "nearly all are good: {:?}", of(Verdict::Bad));
    assert!(of(Verdict::Unknown).len() > 20, "nothing was seen");
    assert_eq!(of(Verdict::Notice), [""; 0]);
}
