//! A page that needs nothing else: tables, and plots of rate, times and errors over the seconds as SVG.

use std::fmt::Write;

use gun::Summary;
use gun::summary::{Percentiles, Second};

use super::report::Report;
use super::text::{
    BY_KERNEL, Figure, busy_connections, count, figure, figures, named_codes, named_faults, ratio, time,
};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 180.0;
/// Room for the figures beside a plot.
const MARGIN: f64 = 70.0;
/// From one label of a curve to the next.
const LABEL: f64 = 12.0;
const COLOURS: [&str; 4] = ["#1565c0", "#2e7d32", "#ef6c00", "#c62828"];
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:820px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}td{white-space:nowrap}\
th:first-child,td:first-child{text-align:left}.bad{color:#c62828}svg text{font:11px system-ui,sans-serif;fill:#555}h2{margin-top:2em}";

/// A curve: its name, and a value for each second.
type Curve = (&'static str, Vec<f64>);

/// The page of one report or several.
pub(crate) fn page(reports: &[&Report]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sidestep gun</title><style>{STYLE}</style></head><body>\n"
    );
    page.push_str("<h1>sidestep gun</h1>\n");
    if let [first, second] = reports {
        comparison(&mut page, first, second);
    }
    for report in reports {
        section(&mut page, report);
    }
    page.push_str("</body></html>\n");
    page
}

/// Two reports beside each other, in one table and on one scale.
fn comparison(page: &mut String, first: &Report, second: &Report) {
    let (Some(one), Some(other)) = (first.telling(), second.telling()) else { return };
    page.push_str("<h2>Both</h2>\n<table><tr><th></th><th>first</th><th>second</th><th>ratio</th></tr>\n");
    for Figure { name, first, second } in figures((first, one), (second, other)) {
        let ratio = ratio(first, second).unwrap_or_default();
        let [first, second] = [first, second].map(figure);
        let _ = writeln!(page, "<tr><td>{name}</td><td>{first}</td><td>{second}</td><td>{ratio}</td></tr>");
    }
    page.push_str("</table>\n");
    if one.seconds.is_empty() || other.seconds.is_empty() {
        return;
    }
    let curves = |value: fn(&Second) -> f64| -> [Curve; 2] {
        let of = |load: &Summary| load.seconds.iter().map(value).collect();
        [("first", of(one)), ("second", of(other))]
    };
    plot(page, "answered a second", &curves(|it| it.answered as f64 / it.span_s), count);
    plot(page, "median time of answers", &curves(|it| timed(it, |times| times.p50)), time);
    plot(page, "time that 99 % of answers did not exceed", &curves(|it| timed(it, |times| times.p99)), time);
}

fn section(page: &mut String, report: &Report) {
    let Report { server, subject, began, device, ports, questions, .. } = report;
    let words = report.words();
    let what = if *questions == 1 { String::new() } else { format!("{questions} {} by ", words.requests) };
    let _ = writeln!(page, "<h2>{}</h2>", escape(server));
    let seed = report.seed.map_or(String::new(), |seed| format!(", seed {seed}"));
    let _ = writeln!(
        page,
        "<p>{}: {what}{ports} {}, {}{seed}. Began {}.</p>",
        escape(subject),
        words.places,
        escape(device),
        escape(began)
    );
    if let Some(held) = &report.held {
        let _ = writeln!(page, "<p>Held: {} at most, {} at the end.</p>", held.most, held.end);
    }
    if let Some(knee) = &report.knee {
        let _ = writeln!(page, "<p><b>Knee</b>: {}.</p>", escape(&knee.text(words)));
    }
    loads(page, report);
    let Some(load) = report.telling() else { return };
    totals(page, load, report);
    if !load.seconds.is_empty() {
        plots(page, &load.seconds);
    }
}

/// Rates, times and errors by second.
fn plots(page: &mut String, seconds: &[Second]) {
    let curve = |name: &'static str, value: fn(&Second) -> f64| -> Curve {
        (name, seconds.iter().map(value).collect())
    };
    let rates = [
        curve("sent", |it| it.sent as f64 / it.span_s),
        curve("answered", |it| it.answered as f64 / it.span_s),
    ];
    plot(page, "a second", &rates, count);
    let times = [
        curve("p50", |it| timed(it, |times| times.p50)),
        curve("p90", |it| timed(it, |times| times.p90)),
        curve("p99", |it| timed(it, |times| times.p99)),
        curve("max", |it| timed(it, |times| times.max)),
    ];
    plot(page, "time of answers", &times, time);
    let errors = [
        curve("refused", |it| it.refused as f64 / it.span_s),
        curve("wrong", |it| (it.mismatched + it.malformed) as f64 / it.span_s),
        curve("error codes", |it| it.errors as f64 / it.span_s),
        curve("no answer", |it| it.lost as f64 / it.span_s),
    ];
    plot(page, "errors a second (wrong: of the answers that were compared)", &errors, count);
}

/// A time of a second's answers; not a number if there were none: the curve has a gap there.
fn timed(second: &Second, time: fn(&Percentiles) -> f64) -> f64 {
    second.latency_us.some().map_or(f64::NAN, time)
}

/// What the answers said, and what went wrong.
fn totals(page: &mut String, load: &Summary, report: &Report) {
    let codes = named_codes(load, report).into_iter().map(|(name, times)| (format!("code {name}"), times));
    let by_kernel = (format!("by the kernel, {BY_KERNEL}"), load.counts.by_kernel);
    let by_kernel = [by_kernel].into_iter().filter(|(_, times)| *times > 0);
    let rows: Vec<(String, u64)> = codes.chain(by_kernel).chain(named_faults(load)).collect();
    if rows.is_empty() {
        return;
    }
    page.push_str("<table><tr><th>what came of them</th><th>how many</th></tr>\n");
    for (name, times) in rows {
        let _ = writeln!(page, "<tr><td>{}</td><td>{times}</td></tr>", escape(&name));
    }
    page.push_str("</table>\n");
}

fn loads(page: &mut String, report: &Report) {
    page.push_str("<table><tr><th>offered/s</th><th>answered/s</th><th>lost</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th><th>sent late p99</th><th>spare</th></tr>\n");
    for load in &report.loads {
        row(page, load);
    }
    page.push_str("</table>\n");
    for line in report.wrong_answers() {
        let _ = writeln!(page, "<p class=\"bad\">{}.</p>", escape(&line));
    }
    for load in report.telling().into_iter().filter(|load| load.is_full()) {
        let _ = writeln!(page, "<p class=\"bad\">{}.</p>", escape(&busy_connections(load, report)));
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
        let _ = write!(page, "<td>{}</td>", times.some().map_or("-".to_owned(), |_| time(value)));
    }
    let _ = write!(page, "<td>{}</td>", time(load.sent_late_us().p99));
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
    let last = |values: &[f64]| values.iter().rev().copied().find(|value| !value.is_nan());
    let ends = curves.iter().map(|(_, values)| last(values).unwrap_or(0.0));
    let labels = apart(&ends.map(|last| 24.0 + HEIGHT * (1.0 - last / top)).collect::<Vec<f64>>());
    for (((name, values), colour), y) in curves.iter().zip(COLOURS).zip(labels) {
        let step = WIDTH / (seconds.max(2) - 1) as f64;
        let place = |number: usize, value: f64| {
            format!("{:.1},{:.1}", MARGIN + step * number as f64, 20.0 + HEIGHT * (1.0 - value / top))
        };
        let numbered: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
        for part in numbered.split(|(_, value)| value.is_nan()).filter(|part| !part.is_empty()) {
            let again = part.iter().filter(|_| part.len() == 1); // A line has two points, though it be a dot.
            let points = part.iter().chain(again).copied();
            let points: Vec<String> = points.map(|(number, value)| place(number, value)).collect();
            let _ = writeln!(
                page,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-linecap=\"round\" points=\"{}\"/>",
                points.join(" ")
            );
        }
        let _ = writeln!(
            page,
            "<text x=\"{}\" y=\"{y:.1}\" style=\"fill:{colour}\">{name}</text>",
            MARGIN + WIDTH + 4.0
        );
    }
    page.push_str("</svg>\n");
}

/// Heights of labels as near to these as can be, so that none covers another and none is below the plot.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut heights = wanted.to_vec();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut least = f64::MIN;
    for label in &order {
        heights[*label] = heights[*label].max(least);
        least = heights[*label] + LABEL;
    }
    let mut most = 24.0 + HEIGHT;
    for label in order.iter().rev() {
        heights[*label] = heights[*label].min(most);
        most = heights[*label] - LABEL;
    }
    heights
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_curves_that_end_alike_do_not_cover_each_other() {
        assert_eq!(apart(&[100.0, 50.0]), [100.0, 50.0]);
        assert_eq!(apart(&[50.0, 50.0, 55.0]), [50.0, 62.0, 74.0]);
        let bottom = 24.0 + HEIGHT;
        assert_eq!(apart(&[bottom, bottom, bottom]), [bottom - 24.0, bottom - 12.0, bottom]);
    }

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

    /// A report of one load of two seconds, of which little went well.
    fn unhappy() -> Report {
        let counts = |count: u64| {
            serde_json::json!({ "sent": count, "answered": count, "in_time": count, "octets": 0, "compared": 9, "mismatched": 3,
                "malformed": 2, "unexpected": 0, "refused": 4, "truncated": 5, "errors": 6 })
        };
        let times =
            serde_json::json!({ "min": 1.0, "p50": 1.0, "p90": 1.0, "p99": 1.0, "p999": 1.0, "max": 1.0 });
        let second =
            serde_json::json!({ "sent": 50, "answered": 40, "lost": 10, "errors": 6, "latency_us": times });
        let load = serde_json::json!({ "offered": 50, "length_s": 2.0, "counts": counts(100), "lost": 20,
            "rcodes": { "0": 74, "2": 6 }, "latency_us": times, "lag_us": times, "spare": 0.5, "bottleneck": null,
            "faults": { "timed out": 7 }, "seconds": [second, second] });
        let report = serde_json::json!({ "kind": "gun dns", "began": "2026-01-01T00:00:00Z", "server": "192.0.2.1:53", "subject": "a A",
            "questions": 1, "device": "kernel sockets", "ports": 1, "loads": [load], "knee": null });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn a_page_has_what_went_wrong_as_totals_and_by_second() {
        let page = page(&[&unhappy()]);
        for row in [
            "<td>code NOERROR</td><td>74</td>",
            "<td>code SERVFAIL</td><td>6</td>",
            "<td>lost</td><td>20</td>",
            "<td>cut</td><td>5</td>",
            "<td>to another question, of 9 compared</td><td>3</td>",
            "<td>malformed</td><td>2</td>",
            "<td>refused by the system</td><td>4</td>",
            "<td>timed out</td><td>7</td>",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        assert_eq!(page.matches("<svg").count(), 3, "rate, times, errors");
        for curve in ["no answer", "error codes", "refused", "wrong"] {
            assert!(page.contains(&format!(">{curve}</text>")), "{curve}: {page}");
        }
        let bad = "3 of the 9 answers that were compared are to another question";
        assert!(page.contains(bad), "{page}");
    }

    #[test]
    fn two_reports_have_a_table_and_plots_in_common() {
        let mut faster = unhappy();
        faster.loads[0].counts.errors = 12;
        let page = page(&[&unhappy(), &faster]);
        let row = "<tr><td>error codes, %</td><td>6.0</td><td>12.0</td><td>2.00</td></tr>";
        assert!(page.contains(row), "{page}");
        assert_eq!(page.matches("<svg").count(), 3 + 2 * 3, "those of both, and of each");
        assert_eq!(page.matches(">second</text>").count(), 3, "{page}");
    }

    #[test]
    fn a_second_without_answers_has_no_times_and_not_short_ones() {
        let mut report = unhappy();
        let second = report.loads[0].seconds[0].clone();
        let silent = Second { answered: 0, latency_us: Percentiles::default(), ..second.clone() };
        assert!(serde_json::to_string(&silent).unwrap().contains(r#""latency_us":null"#));
        report.loads[0].seconds = vec![second.clone(), silent, second];
        let page = page(&[&report]);
        assert!(!page.contains("NaN") && page.matches("<polyline").count() == 2 + 2 * 4 + 4, "{page}");
    }

    #[test]
    fn a_load_of_one_second_has_lines_too() {
        let mut report = unhappy();
        report.loads[0].seconds.truncate(1);
        let page = page(&[&report]);
        let lines = page.split("<polyline").skip(1);
        for line in lines {
            let points = line.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
            assert_eq!(points.split(' ').count(), 2, "{points}");
        }
    }
}
