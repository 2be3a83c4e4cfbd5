//! The screen of `dns top`: types and codes on lines, names and clients as lists. Pure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::heavy::Hit;
use super::tally::{Figures, List};
use crate::live::{Key, Next, clip, percent, rate};

/// Columns that two lists beside each other need.
const TWO_COLUMNS: u16 = 70;
/// Half of a thousandth: what one digit of a percentage does not show.
const EXACT: f64 = 0.0005;

/// Which list the user looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Chosen {
    #[default]
    Names,
    Above,
    Clients,
}

/// What the user has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) list: Chosen,
    /// The list has the screen to itself.
    pub(super) is_alone: bool,
    /// What was counted is to be forgotten.
    pub(super) forgets: bool,
}

impl Choice {
    pub(super) fn on_key(&mut self, key: Key) -> Next {
        match key {
            Key::Interrupt | Key::Character('q') => return Next::Ends,
            Key::Enter => self.is_alone = !self.is_alone,
            Key::Escape => self.is_alone = false,
            Key::Character('r') => self.forgets = true,
            Key::Tab | Key::Right | Key::Down => {
                self.list = match self.list {
                    Chosen::Names => Chosen::Above,
                    Chosen::Above => Chosen::Clients,
                    Chosen::Clients => Chosen::Names,
                }
            }
            Key::Left | Key::Up => {
                self.list = match self.list {
                    Chosen::Names => Chosen::Clients,
                    Chosen::Above => Chosen::Names,
                    Chosen::Clients => Chosen::Above,
                }
            }
            _ => {}
        }
        Next::GoesOn
    }
}

/// Draws all of it, as far as there is room.
pub(super) fn draw(frame: &mut Frame<'_>, figures: &Figures, choice: &Choice) {
    let area = frame.area();
    let [head, kinds, lists, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(if area.height >= 8 { 3 } else { 0 }),
        Constraint::Min(0),
        Constraint::Length(u16::from(area.height >= 4)),
    ])
    .areas(area);
    frame.render_widget(heading(figures), head);
    let kind_lines =
        [kinds_line("types", &figures.types), kinds_line("codes", &figures.codes), Line::default()];
    frame.render_widget(Paragraph::new(kind_lines.to_vec()), kinds);
    for (chosen, area) in places(lists, choice) {
        let is_chosen = chosen == choice.list;
        frame.render_widget(Paragraph::new(list_lines(figures, chosen, is_chosen, area)), area);
    }
    frame.render_widget(footer(), foot);
}

/// Which lists are where.
fn places(area: Rect, choice: &Choice) -> Vec<(Chosen, Rect)> {
    if choice.is_alone {
        return vec![(choice.list, area)];
    }
    if area.width >= TWO_COLUMNS {
        let [left, _, right] =
            Layout::horizontal([Constraint::Fill(3), Constraint::Length(2), Constraint::Fill(2)]).areas(area);
        let [names, above] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(left);
        return vec![(Chosen::Names, names), (Chosen::Above, above), (Chosen::Clients, right)];
    }
    let [names, above, clients] = Layout::vertical([Constraint::Fill(1); 3]).areas(area);
    vec![(Chosen::Names, names), (Chosen::Above, above), (Chosen::Clients, clients)]
}

fn heading(figures: &Figures) -> Line<'static> {
    let mut spans =
        vec!["sidestep dns top".bold(), format!("  {} answers/s over UDP", rate(figures.rate)).into()];
    if figures.seen < 1.0 - EXACT {
        spans.push(format!(", {} of them seen", percent(figures.seen)).yellow());
    }
    spans.push(match (figures.programs.as_slice(), figures.refused.first()) {
        ([], None) => "  waiting for a server".into(),
        ([], Some(why)) => format!("  {why}").red(),
        ([one], _) => format!("  {one}").into(),
        (several, _) => format!("  {} programs", several.len()).into(),
    });
    spans.into()
}

fn kinds_line(title: &str, list: &List) -> Line<'static> {
    let mut spans = vec![format!("{title}  ").bold()];
    spans.extend(
        list.iter().flat_map(|hit| [format!("{} ", hit.key).cyan(), format!("{}  ", share(hit)).into()]),
    );
    spans.into()
}

fn list_lines(figures: &Figures, chosen: Chosen, is_chosen: bool, area: Rect) -> Vec<Line<'static>> {
    let (title, list) = match chosen {
        Chosen::Names => ("NAMES".to_owned(), &figures.names),
        Chosen::Above => (format!("NAMES ABOVE, {} LABELS", figures.labels), &figures.above),
        Chosen::Clients => ("CLIENTS".to_owned(), &figures.clients),
    };
    let width = usize::from(area.width).saturating_sub(16);
    let heading = format!("{:<width$} {:>8} {:>6}", clip(&title, width), "SHARE", "PER S");
    let heading = if is_chosen { heading.bold().reversed() } else { heading.bold() };
    let line = |hit: &Hit<String>| {
        let per_second = rate(hit.at_least * figures.rate);
        Line::from(format!("{:<width$} {:>8} {per_second:>6}", clip(&hit.key, width), share(hit)))
    };
    let mut lines = vec![Line::from(heading)];
    lines.extend(list.iter().take(usize::from(area.height).saturating_sub(1)).map(line));
    lines
}

/// The share of all answers: what is certain, marked so if it may be more.
pub(super) fn share(hit: &Hit<String>) -> String {
    let mark = if hit.at_most - hit.at_least < EXACT { "" } else { "≥" };
    format!("{mark}{}", percent(hit.at_least))
}

fn footer() -> Line<'static> {
    Line::from(vec![
        "Tab".cyan(),
        " list  ".into(),
        "Enter".cyan(),
        " alone  ".into(),
        "r".cyan(),
        " forget  ".into(),
        "q".cyan(),
        " quit   ≥ at least   UDP only".into(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::text_of;

    fn hit(key: &str, at_least: f64, at_most: f64) -> Hit<String> {
        Hit { key: key.to_owned(), at_least, at_most }
    }

    fn figures() -> Figures {
        Figures {
            programs: vec!["dns/1476".to_owned()],
            rate: 52_110.0,
            seen: 0.384,
            names: vec![
                hit("www.example.org.", 0.5, 0.5),
                hit(&format!("{}.example.org.", "x".repeat(60)), 0.021, 0.03),
            ],
            above: vec![hit("example.org.", 0.9, 0.9)],
            clients: vec![hit("2001:db8::1", 0.25, 0.25)],
            types: vec![hit("A", 0.7, 0.7), hit("AAAA", 0.3, 0.3)],
            codes: vec![hit("NOERROR", 0.8, 0.8), hit("NXDOMAIN", 0.2, 0.2)],
            labels: 2,
            ..Figures::default()
        }
    }

    fn screen(columns: u16, rows: u16, figures: &Figures, choice: &Choice) -> Vec<String> {
        text_of(columns, rows, |frame| draw(frame, figures, choice))
    }

    #[test]
    fn eighty_columns_have_all_lists_and_no_share_says_more_than_is_certain() {
        let screen = screen(80, 24, &figures(), &Choice::default());
        assert_eq!(screen[0], "sidestep dns top  52.1k answers/s over UDP, 38.4% of them seen  dns/1476");
        assert_eq!(screen[1], "types  A 70.0%  AAAA 30.0%");
        assert_eq!(screen[2], "codes  NOERROR 80.0%  NXDOMAIN 20.0%");
        let text = screen.join("\n");
        assert!(text.contains("www.example.org.                   50.0%  26.1k  2001:db8::1"), "{text}");
        assert!(text.contains("…    ≥2.1%   1094"), "{text}");
        assert!(text.contains("NAMES ABOVE, 2 LABELS"), "{text}");
        assert!(screen[23].ends_with("UDP only"), "{text}");
    }

    #[test]
    fn a_list_may_have_the_screen_to_itself() {
        let mut choice = Choice::default();
        for key in [Key::Tab, Key::Tab, Key::Enter] {
            assert_eq!(choice.on_key(key), Next::GoesOn);
        }
        let text = screen(80, 24, &figures(), &choice).join("\n");
        assert!(text.contains("CLIENTS") && !text.contains("NAMES"), "{text}");
        assert_eq!(choice.on_key(Key::Escape), Next::GoesOn);
        assert!(!choice.is_alone);
        assert_eq!(choice.on_key(Key::Character('q')), Next::Ends);
    }

    #[test]
    fn no_size_is_too_small() {
        for (columns, rows) in [(0, 0), (1, 1), (20, 3), (40, 10), (80, 1), (3, 50), (200, 60)] {
            for is_alone in [false, true] {
                let choice = Choice { is_alone, ..Choice::default() };
                screen(columns, rows, &figures(), &choice);
                screen(columns, rows, &Figures::default(), &choice);
            }
        }
        let narrow = screen(40, 14, &figures(), &Choice::default()).join("\n");
        assert!(narrow.contains("www.example.org.            50.0%  26.1k"), "{narrow}");
    }

    #[test]
    fn a_resolver_is_refused_with_the_reason() {
        let refused =
            Figures { programs: Vec::new(), refused: vec!["resolver/1 is".to_owned()], ..figures() };
        assert!(screen(80, 24, &refused, &Choice::default())[0].contains("resolver/1 is"));
        assert!(screen(80, 24, &Figures::default(), &Choice::default())[0].ends_with("waiting for a server"));
    }
}
