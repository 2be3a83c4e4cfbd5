//! A page that needs nothing else: tables, and plots of rate and times over the seconds as SVG.

use std::fmt::Write;

use gun::Summary;
use gun::tally::Second;

use super::report::Report;
use super::text::{count, time};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 180.0;
/// Room for the figures beside a plot.
const MARGIN: f64 = 70.0;
const COLOURS: [&str; 4] = ["#1565c0", "#2e7d32", "#ef6c00", "#c62828"];
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child{text-align:left}.bad{color:#c62828}svg text{font:11px system-ui,sans-serif;fill:#555}h2{margin-top:2em}";

/// A curve: its name, and a value for each second.
type Curve = (&'static str, Vec<f64>);

/// The page of one report or several.
pub(crate) fn page(reports: &[&Report]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sidestep gun</title><style>{STYLE}</style></head><body>\n"
    );
    page.push_str("<h1>sidestep gun</h1>\n");
    for report in reports {
        section(&mut page, report);
    }
    page.push_str("</body></html>\n");
    page
}

fn section(page: &mut String, report: &Report) {
    let Report { server, subject, began, device, ports, questions, .. } = report;
    let words = report.words();
    let what = if *questions == 1 { String::new() } else { format!("{questions} {} by ", words.requests) };
    let _ = writeln!(page, "<h2>{}</h2>", escape(server));
    let _ = writeln!(
        page,
        "<p>{}: {what}{ports} {}, {}. Began {}.</p>",
        escape(subject),
        words.places,
        escape(device),
        escape(began)
    );
    if let Some(knee) = &report.knee {
        let carried = knee
            .carried
            .map_or("none".to_owned(), |rate| format!("{} {} a second", count(rate.into()), words.requests));
        let _ =
            writeln!(page, "<p><b>Knee: {carried}</b>; what limits it is the {}.</p>", escape(&knee.limit));
    }
    loads(page, report);
    let Some(load) = report.telling() else { return };
    if load.seconds.is_empty() {
        return;
    }
    let curve = |name, value: fn(&Second) -> f64| (name, load.seconds.iter().map(value).collect());
    plot(
        page,
        "a second",
        &[curve("sent", |it| it.sent as f64), curve("answered", |it| it.answered as f64)],
        count,
    );
    let times = [
        curve("p50", |it| it.latency_us.p50),
        curve("p90", |it| it.latency_us.p90),
        curve("p99", |it| it.latency_us.p99),
        curve("max", |it| it.latency_us.max),
    ];
    plot(page, "time of answers", &times, time);
}

fn loads(page: &mut String, report: &Report) {
    page.push_str("<table><tr><th>offered/s</th><th>answered/s</th><th>lost</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th><th>spare</th></tr>\n");
    for load in &report.loads {
        row(page, load);
    }
    page.push_str("</table>\n");
    for (name, times) in report.telling().into_iter().flat_map(|load| &load.faults) {
        let _ = writeln!(page, "<p class=\"bad\">{times} {}</p>", escape(name));
    }
    for load in report.telling().into_iter().filter_map(|load| load.bottleneck.as_ref()) {
        let _ = writeln!(page, "<p class=\"bad\">The generator was the bottleneck: {}.</p>", escape(load));
    }
}

fn row(page: &mut String, load: &Summary) {
    let times = &load.latency_us;
    let _ =
        write!(page, "<tr><td>{}</td><td>{}</td>", count(load.offered.into()), count(load.answered_rate()));
    let _ = write!(page, "<td>{}</td>", load.lost);
    for value in [times.p50, times.p99, times.p999, times.max] {
        let _ = write!(page, "<td>{}</td>", time(value));
    }
    let _ = writeln!(page, "<td>{:.0} %</td></tr>", 100.0 * load.spare);
}

fn plot(page: &mut String, title: &str, curves: &[Curve], figure: impl Fn(f64) -> String) {
    let top = curves.iter().flat_map(|(_, values)| values).copied().fold(1.0, f64::max);
    let seconds = curves.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let _ = writeln!(page, "<svg viewBox=\"0 0 {} {}\" role=\"img\">", WIDTH + 2.0 * MARGIN, HEIGHT + 40.0);
    let _ = writeln!(page, "<text x=\"{MARGIN}\" y=\"12\">{title}</text>");
    for part in [0.0, 0.5, 1.0] {
        let y = 20.0 + HEIGHT * (1.0 - part);
        let _ = writeln!(
            page,
            "<line x1=\"{MARGIN}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#ddd\"/>",
            MARGIN + WIDTH
        );
        let _ = writeln!(
            page,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            MARGIN - 6.0,
            y + 4.0,
            figure(top * part)
        );
    }
    let _ = writeln!(
        page,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{seconds} s</text>",
        MARGIN + WIDTH,
        HEIGHT + 36.0
    );
    for ((name, values), colour) in curves.iter().zip(COLOURS) {
        let step = WIDTH / (seconds.max(2) - 1) as f64;
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(number, value)| {
                format!("{:.1},{:.1}", MARGIN + step * number as f64, 20.0 + HEIGHT * (1.0 - value / top))
            })
            .collect();
        let _ = writeln!(
            page,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.join(" ")
        );
        let last = values.last().copied().unwrap_or(0.0);
        let y = 24.0 + HEIGHT * (1.0 - last / top);
        let _ = writeln!(
            page,
            "<text x=\"{}\" y=\"{y:.1}\" style=\"fill:{colour}\">{name}</text>",
            MARGIN + WIDTH + 4.0
        );
    }
    page.push_str("</svg>\n");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_nothing_that_was_not_meant_as_text() {
        let report = Report {
            kind: "gun dns".to_owned(),
            began: "2026-01-01T00:00:00Z".to_owned(),
            server: "192.0.2.1:53".to_owned(),
            subject: "<script>\"&".to_owned(),
            questions: 1,
            device: "kernel sockets".to_owned(),
            ports: 1,
            ..Report::default()
        };
        let page = page(&[&report, &report]);
        assert!(
            !page.contains("<script") && page.matches("&lt;script&gt;&quot;&amp;").count() == 2,
            "{page}"
        );
    }
}
