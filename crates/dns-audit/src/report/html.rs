//! A report as one page that needs nothing else. All text is escaped: much of it was chosen by those who are audited.

use std::fmt::{self, Write};

use super::{Report, ResolverReport};
use crate::checks::{Finding, Verdict};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid #d0d7de;padding-top:1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #eaeef2}\
.n{text-align:right;white-space:nowrap}.v{font-weight:600;white-space:nowrap}.bad{color:#cf222e}.notice{color:#9a6700}.good{color:#1a7f37}\
.unknown{color:#6e7781}.m{color:#57606a;font-size:.9rem}.points{font-size:1.1rem;font-weight:600}ul{margin:.3rem 0;padding-left:1.2rem}\
li{font:12px/1.5 ui-monospace,monospace}code{font:13px ui-monospace,monospace}summary{cursor:pointer}";

/// Text in a page.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            other => f.write_char(other),
        })
    }
}

/// The page.
#[must_use]
pub fn html(report: &Report) -> String {
    let [each, all] = report.rate;
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>DNS audit</title>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <style>{STYLE}</style></head><body><h1>DNS audit</h1><p class=\"m\">Zone <code>{}</code>, {}. At most {each} questions a \
         second to one resolver, {all} to all.</p>",
        Escaped(&report.zone),
        Escaped(&report.date)
    );
    overview(&mut out, report);
    report.resolvers.iter().for_each(|resolver| one(&mut out, resolver));
    out + "</body></html>\n"
}

// Writing to a string does not fail.
fn overview(out: &mut String, report: &Report) {
    *out += "<table><tr><th>Resolver</th><th class=\"n\">Points</th><th>Bad</th><th class=\"n\">Notices</th><th class=\"n\">Checks seen</th></tr>";
    for resolver in report.ranked() {
        let bad = resolver.findings.iter().filter(|finding| finding.verdict == Verdict::Bad);
        let bad: Vec<&str> = bad.map(|finding| &*finding.title).collect();
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td class=\"n points\">{}</td><td class=\"bad\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Escaped(&resolver.resolver),
            resolver.score.brief(),
            Escaped(&bad.join("; ")),
            resolver.count(Verdict::Notice),
            resolver.score.coverage()
        );
    }
    *out += "</table>";
}

fn one(out: &mut String, resolver: &ResolverReport) {
    let score = &resolver.score;
    let _ = write!(
        out,
        "<h2><code>{}</code></h2><p><span class=\"points\">{}.</span> {} questions asked.</p>",
        Escaped(&resolver.resolver),
        score.words(),
        resolver.questions
    );
    if !score.lines.is_empty() {
        *out += "<table><tr><th class=\"n\">Points</th><th>Taken by</th></tr>";
        for line in &score.lines {
            let (points, reason) = (line.points, Escaped(&line.reason));
            let _ = write!(
                out,
                "<tr><td class=\"n\">-{points}</td><td><code>{}</code> {reason}</td></tr>",
                Escaped(&line.check)
            );
        }
        *out += "</table>";
    }
    *out += "<table><tr><th>Verdict</th><th>Check</th><th>What was seen</th></tr>";
    resolver.findings.iter().for_each(|finding| row(out, finding));
    *out += "</table>";
}

fn row(out: &mut String, finding: &Finding) {
    let class = finding.verdict.word().to_ascii_lowercase();
    let _ = write!(
        out,
        "<tr><td class=\"v {class}\">{}</td><td>{}<div class=\"m\"><code>{}</code></div></td><td>{}",
        finding.verdict.word(),
        Escaped(&finding.title),
        Escaped(&finding.check),
        Escaped(&finding.summary)
    );
    if matches!(finding.verdict, Verdict::Bad | Verdict::Notice) {
        let _ = write!(out, "<div class=\"m\">{}", Escaped(&finding.meaning));
        if !finding.reference.is_empty() {
            let _ = write!(out, " ({})", Escaped(&finding.reference));
        }
        *out += "</div>";
    }
    if !finding.evidence.is_empty() {
        *out += "<details><summary class=\"m\">evidence</summary><ul>";
        for line in &finding.evidence {
            let _ = write!(out, "<li>{}</li>", Escaped(line));
        }
        *out += "</ul></details>";
    }
    *out += "</td></tr>";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::IDENTITY_VERSION;

    #[test]
    fn what_a_resolver_says_does_not_become_part_of_the_page() {
        let evil = "<script>alert('&\"')</script>";
        let finding = IDENTITY_VERSION.finding(Verdict::Notice, evil).because([evil.to_owned()]);
        let resolver = ResolverReport::new(evil.to_owned(), vec![finding], 7);
        let (zone, date) = (evil.to_owned(), evil.to_owned());
        let page = html(&Report { zone, date, rate: [10, 100], resolvers: vec![resolver] });
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;&amp;&quot;&#39;)"));
        for outside in ["http:", "https:", "src=", "href=", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
