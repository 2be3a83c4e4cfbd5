//! The screen of `top`: engines with their time, the programs, and what one of them drops or which sockets it has. Pure.

use std::cmp::Ordering;

use observe::report::SocketReport;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::choice::Choice;
use super::figures::{Drop, Engine, Figures, Interface, Program, Sockets};
use crate::live::{clip, percent, rate};

/// Engines in one column; with more there are two, where there is room.
const ENGINES_IN_COLUMN: usize = 4;
/// Columns that two columns of engines need.
const TWO_COLUMNS: u16 = 80;

/// Draws all of it, as far as there is room.
pub(super) fn draw(frame: &mut Frame<'_>, figures: &Figures, choice: &Choice) {
    let area = frame.area();
    let programs = choice.sorted(figures);
    let at = choice.place_in(&programs);
    let engines = engine_lines(&programs, at, area);
    let [head, engines_area, table, panel, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(engines.len() as u16),
        Constraint::Min(0),
        Constraint::Length(panel_height(area.height, choice.shows_sockets)),
        Constraint::Length(u16::from(area.height >= 4)),
    ])
    .areas(area);
    frame.render_widget(heading(figures), head);
    frame.render_widget(Paragraph::new(engines), engines_area);
    frame.render_widget(Paragraph::new(table_lines(figures, &programs, at, table.height)), table);
    let panel_lines = programs.get(at).map(|program| panel_lines(program, figures, choice, panel));
    frame.render_widget(Paragraph::new(panel_lines.unwrap_or_default()), panel);
    frame.render_widget(footer(choice), foot);
}

fn panel_height(height: u16, shows_sockets: bool) -> u16 {
    match height {
        ..12 => 0,
        _ if shows_sockets => height / 2,
        _ => (height / 3).min(12),
    }
}

fn heading(figures: &Figures) -> Line<'static> {
    let engines: usize = figures.programs.iter().map(|program| program.engines.len()).sum();
    let mut spans = vec![
        "sidestep top".bold(),
        format!("  {}, {}", count(figures.programs.len(), "program"), count(engines, "engine")).into(),
    ];
    if engines > 0 {
        spans.extend(["  ".into(), "busy".green(), " ".into(), "spinning".yellow(), " asleep".dark_gray()]);
    }
    if let Some(failure) = figures.failures.first() {
        spans.push(format!("  {failure}").red());
    }
    spans.into()
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn footer(choice: &Choice) -> Line<'static> {
    let lower = if choice.shows_sockets { "drops" } else { "sockets" };
    Line::from(vec![
        "↑↓".cyan(),
        " select  ".into(),
        "Enter".cyan(),
        format!(" {lower}  ").into(),
        "s".cyan(),
        format!(" order: {}  ", choice.order.words()).into(),
        "q".cyan(),
        " quit".into(),
    ])
}

/// One engine, and what it is called: the program, and its number there.
struct Labelled {
    program: String,
    /// Of the process, behind a slash.
    pid: String,
    number: usize,
    is_of_selected: bool,
    engine: Engine,
}

/// A line or half a line for each engine, as far as a quarter of the screen has room: first those of the program at `selected`, and of those and of the
/// others the busiest, if there is no room for all.
fn engine_lines(programs: &[&Program], selected: usize, area: Rect) -> Vec<Line<'static>> {
    let of_program = |(place, program): (usize, &&Program)| -> Vec<Labelled> {
        let engines = program.engines.iter().enumerate();
        engines
            .map(|(number, engine)| Labelled {
                program: program.name.clone(),
                pid: format!("/{}", program.pid),
                number,
                is_of_selected: place == selected,
                engine: *engine,
            })
            .collect()
    };
    let mut engines: Vec<Labelled> = programs.iter().enumerate().flat_map(of_program).collect();
    let columns = if engines.len() > ENGINES_IN_COLUMN && area.width >= TWO_COLUMNS { 2 } else { 1 };
    let room = usize::from(area.height / 4);
    let lines = engines.len().div_ceil(columns);
    let shown = if lines > room { room.saturating_sub(1) } else { lines };
    let width = usize::from(area.width) / columns;
    if shown < lines {
        let rank = |it: &Labelled| (it.is_of_selected, it.engine.busy);
        engines.sort_by(|one, other| rank(other).partial_cmp(&rank(one)).unwrap_or(Ordering::Equal));
    }
    let mut text: Vec<Line<'static>> = engines
        .chunks(columns)
        .take(shown)
        .map(|row| row.iter().flat_map(|labelled| engine_spans(labelled, width)).collect())
        .collect();
    let hidden = engines.len().saturating_sub(shown * columns);
    if hidden > 0 && room > 0 {
        text.push(format!("and {hidden} more engines").dark_gray().into());
    }
    text
}

/// Label, bar and figures of an engine in `width` columns.
fn engine_spans(labelled: &Labelled, width: usize) -> Vec<Span<'static>> {
    let Labelled { program, pid, number, engine, .. } = labelled;
    let is_wide = width >= 60;
    let label_width = if is_wide { 20 } else { 15 };
    let figures = if is_wide {
        let [busy, spinning, asleep] = [engine.busy, engine.spinning, engine.asleep].map(percent);
        format!("{busy:>6} {spinning:>6} {asleep:>6} ")
    } else {
        format!("{:>6} ", percent(engine.busy))
    };
    let room = width.saturating_sub(label_width + figures.len() + 3);
    let busy = (engine.busy * room as f64).round().clamp(0.0, room as f64) as usize;
    let spinning = (engine.spinning * room as f64).round().clamp(0.0, (room - busy) as f64) as usize;
    let number = format!(" {number}");
    // The number of the process tells programs of one name apart: the name gives way.
    let room_for_program = label_width.saturating_sub(number.len() + 1);
    let label = clip(program, room_for_program.saturating_sub(pid.len())) + pid + &number;
    vec![
        format!("{label:<label_width$}").into(),
        "[".bold(),
        "|".repeat(busy).green(),
        ":".repeat(spinning).yellow(),
        " ".repeat(room - busy - spinning).into(),
        "] ".bold(),
        figures.into(),
    ]
}

/// The table of programs: those around the selected one.
fn table_lines(figures: &Figures, programs: &[&Program], at: usize, height: u16) -> Vec<Line<'static>> {
    if programs.is_empty() {
        return vec![Line::default(), nothing_words(figures).into()];
    }
    let heading = format!(
        "{:>7} {:<14} {:>7} {:>7} {:>6} {:>6} {:>7} {}",
        "PID", "PROGRAM", "IN/s", "OUT/s", "CPU%", "CONNS", "DROPS/s", "QUEUES"
    );
    let room = usize::from(height).saturating_sub(1);
    let first = (at + 1).saturating_sub(room);
    let rows = programs.iter().enumerate().skip(first).take(room);
    let lines = rows.map(|(number, program)| {
        let line = program_line(program);
        if number == at { line.reversed() } else { line }
    });
    std::iter::once(Line::from(heading.bold())).chain(lines).collect()
}

/// What is said in place of programs.
fn nothing_words(figures: &Figures) -> &'static str {
    match figures {
        Figures { has_looked: false, .. } => "Looking for programs ...",
        Figures { brokers: 1.., .. } => "No program is on Sidestep yet.",
        Figures { may_answer: true, .. } => "No program has answered yet.",
        _ => "No Sidestep program is running here. It appears when it starts.",
    }
}

fn program_line(program: &Program) -> Line<'static> {
    let Program { pid, name, place, .. } = program;
    let name = clip(name, 14);
    if let Some(why) = &program.silent {
        return format!("{pid:>7} {name:<14} {why}").dark_gray().into();
    }
    let cpu = program.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{:.1}", cpu * 100.0));
    let connections =
        program.connections.map_or_else(|| "-".to_owned(), |connections| rate(connections as f64));
    let [packets_in, packets_out, drops] =
        [program.packets_in, program.packets_out, program.drop_rate()].map(rate);
    format!(
        "{pid:>7} {name:<14} {packets_in:>7} {packets_out:>7} {cpu:>6} {connections:>6} {drops:>7} {place}"
    )
    .into()
}

fn panel_lines(program: &Program, figures: &Figures, choice: &Choice, area: Rect) -> Vec<Line<'static>> {
    let who = format!("{}/{}", program.name, program.pid);
    if choice.shows_sockets {
        return socket_lines(&who, program.sockets.as_ref(), area);
    }
    let title = if program.drops.is_empty() { "has dropped nothing" } else { "drops" };
    let mut lines = vec![Line::default(), Line::from(format!("{who} {title}").bold())];
    lines.extend(program.drops.iter().map(|drop| drop_words(drop).into()));
    // The interfaces have the last lines, if there are any.
    let interfaces = figures.interfaces.iter().filter(|interface| !interface.rates.is_empty());
    let interfaces: Vec<Line<'static>> =
        interfaces.map(|interface| interface_words(interface).into()).collect();
    lines.truncate(usize::from(area.height).saturating_sub(interfaces.len()).max(2));
    lines.extend(interfaces);
    lines
}

/// A reason, how often it is one now, and how often it was.
pub(super) fn drop_words(drop: &Drop) -> String {
    format!("{:<40} {:>7}/s {:>12} so far", drop.reason, rate(drop.rate), drop.total)
}

/// An interface, and what becomes of its packets.
pub(super) fn interface_words(interface: &Interface) -> String {
    let words = interface.rates.iter().map(|(name, gained)| format!("{name} {}/s", rate(*gained)));
    format!("{}: {}", interface.name, words.collect::<Vec<_>>().join(", "))
}

fn socket_lines(who: &str, sockets: Option<&Sockets>, area: Rect) -> Vec<Line<'static>> {
    let Some(Sockets { sockets, is_cut }) = sockets else {
        return vec![Line::default(), Line::from(format!("{who}: its sockets are not known yet").bold())];
    };
    let title = match (sockets.len(), is_cut) {
        (0, _) => format!("{who} has no sockets on its engines"),
        (number, true) => format!("sockets of {who}, the first {number}"),
        (_, false) => format!("sockets of {who}"),
    };
    let mut lines = vec![Line::default(), Line::from(title.bold())];
    lines.extend((!sockets.is_empty()).then(|| Line::from(SOCKET_HEADING.bold())));
    lines.extend(sockets.iter().map(|(socket, moved)| socket_words(socket, *moved).into()));
    lines.truncate(area.height.into());
    lines
}

const SOCKET_HEADING: &str = "Netid State      Recv-Q Send-Q OCT/S Local Address:Port    Peer Address:Port";

/// A socket in the columns of ss(8), with the octets that it moved a second. Addresses are last: those of IPv6 may be long.
pub(super) fn socket_words(socket: &SocketReport, moved: f64) -> String {
    let SocketReport { protocol, state, recv_q, send_q, local, remote, .. } = socket;
    let [recv_q, send_q, moved] = [*recv_q as f64, *send_q as f64, moved].map(rate);
    let (local, peer) = (local.to_string(), remote.map_or_else(|| "*".to_owned(), |peer| peer.to_string()));
    format!("{protocol:<5} {state:<10} {recv_q:>6} {send_q:>6} {moved:>5} {local:<21} {peer}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::text_of;

    fn program(pid: u32, name: &str) -> Program {
        Program {
            pid,
            name: name.to_owned(),
            place: "native".to_owned(),
            cpu: Some(0.431),
            connections: Some(64),
            packets_in: 52_110.0,
            packets_out: 52_108.0,
            drops: vec![Drop { reason: "dropped_udp_length".to_owned(), rate: 12.0, total: 1203 }],
            engines: vec![Engine { busy: 0.31, spinning: 0.12, asleep: 0.57 }],
            sockets: None,
            silent: None,
        }
    }

    fn two() -> Figures {
        let quiet = Program { packets_in: 0.0, packets_out: 0.0, drops: Vec::new(), ..program(7, "nginx") };
        let interface =
            Interface { name: "eth0".to_owned(), rates: vec![("redirected".to_owned(), 52_110.0)] };
        Figures {
            programs: vec![quiet, program(1476, "dns")],
            interfaces: vec![interface],
            ..Figures::default()
        }
    }

    fn screen(columns: u16, rows: u16, figures: &Figures, choice: &Choice) -> Vec<String> {
        text_of(columns, rows, |frame| draw(frame, figures, choice))
    }

    #[test]
    fn engines_of_programs_with_one_name_are_told_apart_in_two_columns() {
        let programs = (0..40).map(|number| program(30_211 + number, "python3.12")).collect();
        let screen = screen(80, 60, &Figures { programs, ..Figures::default() }, &Choice::default());
        let line = screen.iter().find(|line| line.contains("/30212 0")).expect("the second engine");
        assert!(line.starts_with("pytho…/30211 0") && line.contains("pytho…/30212 0"), "{line}");
    }

    #[test]
    fn eighty_columns_have_engines_programs_and_the_drops_of_the_selected_one() {
        let screen = screen(80, 24, &two(), &Choice::default());
        assert_eq!(screen[0], "sidestep top  2 programs, 2 engines  busy spinning asleep");
        let bar = format!(
            "{:<20}[{}{}{}]  31.0%  12.0%  57.0%",
            "dns/1476 0",
            "|".repeat(11),
            ":".repeat(4),
            " ".repeat(21)
        );
        assert_eq!(screen[1], bar);
        assert_eq!(screen[3], "    PID PROGRAM           IN/s   OUT/s   CPU%  CONNS DROPS/s QUEUES");
        assert_eq!(screen[4], "   1476 dns              52.1k   52.1k   43.1     64      12 native");
        assert_eq!(screen[5], "      7 nginx                0       0   43.1     64       0 native");
        let below = screen.join("\n");
        assert!(below.contains("dns/1476 drops\n"), "{below}");
        assert!(
            below.contains("dropped_udp_length                            12/s         1203 so far"),
            "{below}"
        );
        assert!(below.contains("eth0: redirected 52.1k/s\n"), "{below}");
        assert_eq!(screen[23], "↑↓ select  Enter sockets  s order: packets  q quit");
    }

    #[test]
    fn the_sockets_of_the_selected_program_are_in_place_of_its_drops() {
        let socket = SocketReport {
            engine: 0,
            protocol: "tcp".to_owned(),
            state: "ESTAB".to_owned(),
            recv_q: 0,
            send_q: 20_000,
            local: "192.0.2.1:80".parse().unwrap(),
            remote: Some("192.0.2.2:39214".parse().unwrap()),
            id: Some("0.3".to_owned()),
            half_open: None,
            drops: None,
            tcp: None,
        };
        let mut figures = two();
        figures.programs[1].sockets = Some(Sockets { sockets: vec![(socket, 1.5e6)], is_cut: true });
        let choice = Choice { selected: Some(1476), shows_sockets: true, ..Choice::default() };
        let text = screen(80, 24, &figures, &choice).join("\n");
        assert!(text.contains("sockets of dns/1476, the first 1\n"), "{text}");
        let line = "tcp   ESTAB           0  20.0k 1.50M 192.0.2.1:80          192.0.2.2:39214\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("dropped_udp_length"), "{text}");
    }

    #[test]
    fn the_selected_program_is_on_the_screen_however_many_there_are() {
        let programs =
            (1..=100).map(|pid| Program { packets_in: 0.0, packets_out: 0.0, ..program(pid, "p") });
        let figures = Figures { programs: programs.collect(), ..Figures::default() };
        let choice = Choice { selected: Some(100), ..Choice::default() };
        let text = screen(80, 24, &figures, &choice).join("\n");
        assert!(text.contains("\n    100 p"), "{text}");
        assert!(text.contains("and 90 more engines"), "five lines of two: {text}");
        assert!(text.contains("\np/100 0 "), "its engine comes first: {text}");
    }

    #[test]
    fn the_busiest_engines_are_shown_with_their_numbers() {
        let mut many = program(1_234_567, "memcached");
        many.engines = vec![many.engines[0]; 64];
        many.engines[63].busy = 0.99;
        let figures = Figures { programs: vec![many], ..Figures::default() };
        let text = screen(80, 24, &figures, &Choice::default()).join("\n");
        assert!(text.contains("…/1234567 63 [") && text.contains("…/1234567 0 "), "{text}");
        assert!(!text.contains("/1234567 62 "), "{text}");
    }

    #[test]
    fn no_size_is_too_small() {
        let sockets = Choice { shows_sockets: true, ..Choice::default() };
        for (columns, rows) in [(0, 0), (1, 1), (20, 3), (40, 10), (80, 1), (3, 50), (200, 60)] {
            for figures in [&two(), &Figures::default()] {
                screen(columns, rows, figures, &Choice::default());
                screen(columns, rows, figures, &sockets);
            }
        }
        let narrow = screen(40, 10, &two(), &Choice::default());
        assert!(
            narrow.iter().any(|line| line.starts_with("   1476 dns              52.1k   52.1k")),
            "{narrow:?}"
        );
    }

    #[test]
    fn a_program_that_does_not_answer_says_so_and_nobody_is_said_too() {
        let silent = Program { silent: Some("it does not answer".to_owned()), ..program(7, "nginx") };
        let figures = Figures { programs: vec![silent], ..Figures::default() };
        assert!(
            screen(80, 24, &figures, &Choice::default())
                .contains(&"      7 nginx          it does not answer".to_owned())
        );
        let said = |figures: &Figures| screen(80, 24, figures, &Choice::default())[2].clone();
        let looked = || Figures { has_looked: true, ..Figures::default() };
        assert_eq!(said(&Figures::default()), "Looking for programs ...", "nobody knows yet");
        assert!(said(&looked()).starts_with("No Sidestep program is running here"));
        let waiting = Figures { may_answer: true, ..looked() };
        assert_eq!(said(&waiting), "No program has answered yet.");
        assert_eq!(said(&Figures { brokers: 1, ..looked() }), "No program is on Sidestep yet.");
    }
}
