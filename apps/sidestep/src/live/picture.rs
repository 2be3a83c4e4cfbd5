//! A view as a picture in SVG: each run of characters that look the same is one text.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ratatui::{Frame, Terminal, backend::TestBackend};

/// Of a terminal.
const COLUMNS: u16 = 80;
/// Pixels of a character.
const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
/// Pixels around the terminal.
const MARGIN: f64 = 8.0;
const BACKGROUND: &str = "#1c1f24";
const FOREGROUND: &str = "#d5d9e0";

/// Writes what `draw` draws on a terminal of 80 columns and `rows` lines.
pub(crate) fn write_picture(path: &Path, rows: u16, draw: impl FnOnce(&mut Frame<'_>)) -> anyhow::Result<()> {
    write(path, &drawn(COLUMNS, rows, draw))
}

/// Writes lines, of which the longest says how wide the terminal is, if 80 columns are not enough.
pub(crate) fn write_text_picture(path: &Path, lines: &[Line<'_>]) -> anyhow::Result<()> {
    let columns = lines.iter().map(Line::width).max().unwrap_or(0).max(COLUMNS.into());
    let text = Paragraph::new(lines.to_vec());
    let size = |size: usize| u16::try_from(size).unwrap_or(u16::MAX);
    let buffer = drawn(size(columns), size(lines.len()), |frame| frame.render_widget(text, frame.area()));
    write(path, &buffer)
}

fn write(path: &Path, buffer: &Buffer) -> anyhow::Result<()> {
    std::fs::write(path, svg(buffer)).with_context(|| format!("writing {}", path.display()))
}

/// A terminal in memory after one drawing.
fn drawn(columns: u16, rows: u16, draw: impl FnOnce(&mut Frame<'_>)) -> Buffer {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, rows));
    let Ok(_) = terminal.draw(draw);
    terminal.backend().buffer().clone()
}

/// The lines of text that `draw` draws, without blanks at their ends.
#[cfg(test)]
pub(crate) fn text_of(columns: u16, rows: u16, draw: impl FnOnce(&mut Frame<'_>)) -> Vec<String> {
    let buffer = drawn(columns, rows, draw);
    let line = |row| (0..columns).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..rows).map(|row| line(row).trim_end().to_owned()).collect()
}

fn svg(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let (pixels_wide, pixels_high) =
        (f64::from(width) * WIDTH + 2.0 * MARGIN, f64::from(height) * HEIGHT + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{pixels_wide:.0}\" height=\"{pixels_high:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..height {
        let mut column = 0;
        while column < width {
            let end = (column..width).find(|at| !is_alike(&buffer[(column, row)], &buffer[(*at, row)]));
            let end = end.unwrap_or(width);
            let text: String = (column..end).map(|at| buffer[(at, row)].symbol()).collect();
            push_run(&mut svg, (column, row), end - column, &text, &buffer[(column, row)]);
            column = end;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn is_alike(left: &Cell, right: &Cell) -> bool {
    (left.fg, left.bg, left.modifier) == (right.fg, right.bg, right.modifier)
}

fn push_run(svg: &mut String, (column, row): (u16, u16), columns: u16, text: &str, style: &Cell) {
    let (x, y) = (f64::from(column) * WIDTH + MARGIN, f64::from(row) * HEIGHT + MARGIN);
    let width = f64::from(columns) * WIDTH;
    let (mut ink, mut paper) = (of_color(style.fg, FOREGROUND), of_color(style.bg, BACKGROUND));
    if style.modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut ink, &mut paper);
    }
    if paper != BACKGROUND {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{paper}\"/>"
        );
    }
    let blanks = text.chars().take_while(|character| *character == ' ').count();
    let text = text.trim_matches(' ');
    if text.is_empty() {
        return;
    }
    let x = x + blanks as f64 * WIDTH;
    let width = text.chars().count() as f64 * WIDTH;
    let weight = if style.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{ink}\"{weight} textLength=\"{width:.1}\" \
         lengthAdjust=\"spacingAndGlyphs\">{}</text>",
        y + 13.5,
        escape(text)
    );
}

/// Blanks that nobody joins, and no markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(' ', "\u{a0}")
}

/// The sixteen colours of terminals, of which views use some.
fn of_color(color: Color, otherwise: &'static str) -> &'static str {
    match color {
        Color::Black => BACKGROUND,
        Color::Red | Color::LightRed => "#f07178",
        Color::Green | Color::LightGreen => "#8fce6b",
        Color::Yellow | Color::LightYellow => "#e6c35c",
        Color::Blue | Color::LightBlue => "#6ca7f2",
        Color::Magenta | Color::LightMagenta => "#c792ea",
        Color::Cyan | Color::LightCyan => "#5fc9d1",
        Color::DarkGray => "#6b7280",
        Color::Gray | Color::White => FOREGROUND,
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Stylize;

    use super::*;

    #[test]
    fn a_picture_has_each_run_as_a_text_and_nothing_of_markup_in_it() {
        let line = Line::from(vec!["<busy>".green(), " & ".into(), "idle".reversed()]);
        let picture = svg(&drawn(20, 2, |frame| frame.render_widget(line, frame.area())));
        assert!(picture.contains(">&lt;busy&gt;</text>") && picture.contains(">&amp;</text>"), "{picture}");
        assert_eq!(picture.matches("<text ").count(), 3, "{picture}");
        assert_eq!(picture.matches("<rect ").count(), 2, "the terminal, and what is reversed: {picture}");
    }
}
