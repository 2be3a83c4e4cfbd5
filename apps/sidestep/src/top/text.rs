//! What `top` says where there is no terminal: a line for each program, engine and reason for drops. Pure.

use std::fmt::Write as _;

use super::choice::Choice;
use super::figures::{Engine, Figures, Program};
use super::screen::{interface_words, socket_words};
use crate::live::{percent, rate};

/// The lines of one update.
pub(super) fn lines(figures: &Figures, choice: &Choice) -> String {
    let mut text = String::new();
    for program in choice.sorted(figures) {
        of_program(&mut text, program);
    }
    for interface in figures.interfaces.iter().filter(|interface| !interface.rates.is_empty()) {
        let _ = writeln!(text, "interface {}", interface_words(interface));
    }
    if figures.programs.is_empty() {
        text.push_str("no program is on Sidestep just now\n");
    }
    text
}

fn of_program(text: &mut String, program: &Program) {
    let who = format!("{}/{}", program.name, program.pid);
    if let Some(why) = &program.silent {
        let _ = writeln!(text, "program {who}: {why}");
        return;
    }
    let [packets_in, packets_out, drops] =
        [program.packets_in, program.packets_out, program.drop_rate()].map(rate);
    let _ = write!(
        text,
        "program {who} {}: in {packets_in}/s, out {packets_out}/s, drops {drops}/s",
        program.place
    );
    if let Some(cpu) = program.cpu {
        let _ = write!(text, ", CPU {}", percent(cpu));
    }
    if let Some(connections) = program.connections {
        let _ = write!(text, ", {connections} connections");
    }
    text.push('\n');
    for (number, Engine { busy, spinning, asleep }) in program.engines.iter().enumerate() {
        let [busy, spinning, asleep] = [*busy, *spinning, *asleep].map(percent);
        let _ = writeln!(text, "engine {who} {number}: busy {busy}, spinning {spinning}, asleep {asleep}");
    }
    for drop in &program.drops {
        let _ = writeln!(text, "drop {who} {}: {}/s, {} so far", drop.reason, rate(drop.rate), drop.total);
    }
    for (socket, moved) in program.sockets.iter().flat_map(|sockets| &sockets.sockets) {
        let _ = writeln!(text, "socket {who} {}", socket_words(socket, *moved));
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Drop;
    use super::*;

    #[test]
    fn each_program_engine_and_reason_has_a_line() {
        let dns = Program {
            pid: 7,
            name: "dns".to_owned(),
            place: "native".to_owned(),
            cpu: Some(0.5),
            connections: Some(3),
            packets_in: 20_000.0,
            packets_out: 10.0,
            drops: vec![Drop { reason: "dropped_udp_length".to_owned(), rate: 2.0, total: 9 }],
            engines: vec![Engine { busy: 0.25, spinning: 0.5, asleep: 0.25 }],
            ..Program::default()
        };
        let silent = Program { pid: 8, silent: Some("it does not answer".to_owned()), ..Program::default() };
        let figures = Figures { programs: vec![dns, silent], ..Figures::default() };
        let expected = "\
program dns/7 native: in 20.0k/s, out 10/s, drops 2/s, CPU 50.0%, 3 connections
engine dns/7 0: busy 25.0%, spinning 50.0%, asleep 25.0%
drop dns/7 dropped_udp_length: 2/s, 9 so far
program /8: it does not answer
";
        assert_eq!(lines(&figures, &Choice::default()), expected);
    }

    #[test]
    fn without_programs_there_is_a_line_too() {
        let nobody = lines(&Figures::default(), &Choice::default());
        assert_eq!(nobody, "no program is on Sidestep just now\n");
    }
}
