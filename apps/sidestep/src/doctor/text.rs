//! Findings for people: the worst first, in 80 columns.
//!
//! ```text
//! BAD
//!   driver.program         another XDP program is on the interface (id 7)
//!                    costs Sidestep leaves it alone and cannot serve there
//!                       do ip link set dev eth0 xdp off # if nobody needs it
//! ```

use std::fmt::Write as _;

use ::doctor::{Command, Finding, Verdict};
use ratatui::style::{Color, Stylize};
use ratatui::text::Line;

use super::Summary;

const WIDTH: usize = 80;
/// Where the text of a finding begins.
const INDENT: usize = 25;
/// Commands of one finding that are shown.
const COMMANDS_MAX: usize = 6;

/// The verdicts, their titles, and the colours of those: for terminals (SGR), and for pictures.
const SECTIONS: [(Verdict, &str, &str, Color); 4] = [
    (Verdict::Bad, "BAD", "31;1", Color::Red),
    (Verdict::CouldBeBetter, "COULD BE BETTER", "33;1", Color::Yellow),
    (Verdict::NotKnown, "NOT KNOWN", "1", Color::Reset),
    (Verdict::Good, "GOOD", "32;1", Color::Green),
];

pub(super) fn report(heading: &str, findings: &[Finding], summary: Summary, is_coloured: bool) -> String {
    let mut text = format!("{heading}\n");
    for (verdict, title, colour, _) in SECTIONS {
        let mut of_section = findings.iter().filter(|finding| finding.verdict == verdict).peekable();
        if of_section.peek().is_none() {
            continue;
        }
        let _ = match is_coloured {
            true => writeln!(text, "\n\x1b[{colour}m{title}\x1b[0m"),
            false => writeln!(text, "\n{title}"),
        };
        of_section.for_each(|finding| write_finding(&mut text, finding));
    }
    let Summary { bad, could_be_better, not_known, good } = summary;
    let _ =
        writeln!(text, "\n{bad} bad, {could_be_better} could be better, {not_known} not known, {good} good");
    if findings.iter().flat_map(|finding| &finding.commands).any(|it| matches!(it, Command::Step(_))) {
        text.push_str("Commands after \"tune\" are steps of `sidestep tune`, which can undo them.\n");
    }
    text
}

/// The lines of a report without colours, as a picture has them.
pub(super) fn lines(report: &str) -> Vec<Line<'_>> {
    let line = |text| {
        let section = SECTIONS.iter().find(|(_, title, ..)| *title == text);
        section.map_or(Line::from(text), |(.., colour)| Line::from(text).fg(*colour).bold())
    };
    report.lines().map(line).collect()
}

fn write_finding(text: &mut String, finding: &Finding) {
    wrap(text, INDENT, &format!("  {}", finding.id), &finding.seen);
    if let Some(cost) = &finding.cost {
        wrap(text, INDENT, &format!("{:>width$}", "costs", width = INDENT - 1), cost);
    }
    for command in finding.commands.iter().take(COMMANDS_MAX) {
        let label = if matches!(command, Command::Step(_)) { "tune" } else { "do" };
        // A command stays in one piece, however long it is, so that it can be copied.
        let _ = writeln!(text, "{label:>width$} {}", command.line(), width = INDENT - 1);
    }
    if let Some(more) = finding.commands.len().checked_sub(COMMANDS_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "{:INDENT$}and {more} more: --json has them all", "");
    }
}

/// Writes words in lines from an indent to the width, the first after a label.
pub(super) fn wrap(text: &mut String, indent: usize, label: &str, words: &str) {
    let mut line = format!("{label:<indent$}");
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &'static str, verdict: Verdict) -> Finding {
        Finding {
            id,
            verdict,
            seen: "what was seen is longer than a line ".repeat(3),
            cost: (verdict != Verdict::Good).then(|| "something".to_owned()),
            commands: vec![Command::Manual("ip link set dev eth0 up".to_owned())],
            source: "rtnetlink",
        }
    }

    #[test]
    fn the_worst_comes_first_in_80_columns() {
        let findings = [finding("driver.xdp", Verdict::Good), finding("driver.link", Verdict::Bad)];
        let text = report("eth0", &findings, Summary::of(&findings), false);
        assert!(text.find("driver.link").unwrap() < text.find("driver.xdp").unwrap());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("costs something\n") && text.contains(" do ip link set dev eth0 up\n"));
        assert!(text.ends_with("1 bad, 0 could be better, 0 not known, 1 good\n"));
    }

    #[test]
    fn colour_is_for_terminals() {
        let findings = [finding("driver.link", Verdict::Bad)];
        assert!(!report("eth0", &findings, Summary::of(&findings), false).contains('\x1b'));
        assert!(report("eth0", &findings, Summary::of(&findings), true).contains("\x1b[31;1mBAD\x1b[0m"));
    }

    #[test]
    fn a_picture_has_the_lines_of_the_report() {
        let findings = [finding("driver.xdp", Verdict::Good), finding("driver.link", Verdict::Bad)];
        let report = report("eth0", &findings, Summary::of(&findings), false);
        let drawn = lines(&report);
        assert!(drawn.iter().map(Line::to_string).eq(report.lines()));
        let coloured: Vec<_> = drawn.iter().filter_map(|line| line.style.fg).collect();
        assert_eq!(coloured, [Color::Red, Color::Green]);
    }

    #[test]
    fn not_all_of_many_commands_are_shown() {
        let commands = vec![Command::Manual("x".to_owned()); COMMANDS_MAX + 3];
        let findings = [Finding { commands, ..finding("cpu.governor", Verdict::CouldBeBetter) }];
        let text = report("eth0", &findings, Summary::of(&findings), false);
        assert!(text.contains("and 3 more") && text.matches(" do x").count() == COMMANDS_MAX);
    }
}
