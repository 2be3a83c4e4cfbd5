//! A report for a terminal. What others chose (names, versions) was escaped when it was read.

use std::fmt::Write;

use super::{Report, ResolverReport};
use crate::checks::Verdict;

/// Lines of evidence of one finding; the whole evidence is in JSON and HTML.
const EVIDENCE_MAX: usize = 10;

/// Everything. Good findings are one line each.
#[must_use]
pub fn text(report: &Report) -> String {
    let [each, all] = report.rate;
    let mut out = format!(
        "Audit by zone {} at {}: at most {each} questions a second to one resolver, {all} to all.\n",
        report.zone, report.date
    );
    report.resolvers.iter().for_each(|resolver| one(&mut out, resolver));
    if report.resolvers.len() > 1 {
        out += &comparison(report);
    }
    out
}

// Writing to a string does not fail.
fn one(out: &mut String, resolver: &ResolverReport) {
    let score = &resolver.score;
    let _ = writeln!(out, "\n{}: {}; {} questions", resolver.resolver, score.words(), resolver.questions);
    for finding in &resolver.findings {
        let _ = writeln!(out, "  {:<7} {:<22} {}", finding.verdict.word(), finding.check, finding.summary);
        if matches!(finding.verdict, Verdict::Good | Verdict::Unknown) {
            continue;
        }
        let _ = writeln!(out, "          {}", finding.meaning);
        if !finding.reference.is_empty() {
            let _ = writeln!(out, "          ({})", finding.reference);
        }
        for line in finding.evidence.iter().take(EVIDENCE_MAX) {
            let _ = writeln!(out, "          - {line}");
        }
    }
    for line in &score.lines {
        let _ = writeln!(out, "  -{:<6} {:<22} {}", line.points, line.check, line.reason);
    }
}

/// A table of resolvers, the best first.
#[must_use]
pub fn comparison(report: &Report) -> String {
    let mut out = format!(
        "\n{:<40} {:>6} {:>6} {:>4} {:>6} {:>5} {:>7}  bad\n",
        "resolver", "points", "seen", "bad", "notice", "good", "unknown"
    );
    for resolver in report.ranked() {
        let [bad, notice, good, unknown] = [Verdict::Bad, Verdict::Notice, Verdict::Good, Verdict::Unknown]
            .map(|verdict| resolver.count(verdict));
        let checks = resolver.findings.iter().filter(|finding| finding.verdict == Verdict::Bad);
        let checks: Vec<&str> = checks.map(|finding| &*finding.check).collect();
        let _ = writeln!(
            out,
            "{:<40} {:>6} {:>6} {bad:>4} {notice:>6} {good:>5} {unknown:>7}  {}",
            resolver.resolver,
            resolver.score.brief(),
            resolver.score.coverage(),
            checks.join(" ")
        );
    }
    out
}
