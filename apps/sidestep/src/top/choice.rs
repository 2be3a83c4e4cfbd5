//! What the user has chosen: the order of programs, the selected one, and whether its sockets are shown. Pure.

use super::figures::{Figures, Program};
use crate::live::{Key, Next};

/// By what programs are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Packets a second, both ways.
    #[default]
    Packets,
    Cpu,
    Connections,
    Drops,
    Pid,
    Name,
}

/// The user's choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) order: Order,
    /// The selected program; it may have gone.
    pub(super) selected: Option<u32>,
    pub(super) shows_sockets: bool,
}

/// Lines that a page key moves.
const PAGE: usize = 10;

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Packets => Order::Cpu,
            Order::Cpu => Order::Connections,
            Order::Connections => Order::Drops,
            Order::Drops => Order::Pid,
            Order::Pid => Order::Name,
            Order::Name => Order::Packets,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Order::Packets => "packets",
            Order::Cpu => "CPU",
            Order::Connections => "connections",
            Order::Drops => "drops",
            Order::Pid => "process id",
            Order::Name => "name",
        }
    }
}

impl Choice {
    /// The programs in order: what there is most of first. Equal ones stay in the order of their process ids.
    pub(super) fn sorted<'f>(&self, figures: &'f Figures) -> Vec<&'f Program> {
        let mut programs: Vec<&Program> = figures.programs.iter().collect();
        programs.sort_by_key(|program| program.pid);
        let packets = |program: &Program| program.packets_in + program.packets_out;
        match self.order {
            Order::Packets => programs.sort_by(|a, b| packets(b).total_cmp(&packets(a))),
            Order::Cpu => {
                let cpu = |program: &Program| program.cpu.unwrap_or(0.0);
                programs.sort_by(|a, b| cpu(b).total_cmp(&cpu(a)));
            }
            Order::Connections => programs.sort_by_key(|program| std::cmp::Reverse(program.connections)),
            Order::Drops => programs.sort_by(|a, b| b.drop_rate().total_cmp(&a.drop_rate())),
            Order::Pid => {}
            Order::Name => programs.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        programs
    }

    /// The place of the selected program among `programs`; the first one if it has gone or none is selected.
    pub(super) fn place_in(&self, programs: &[&Program]) -> usize {
        programs.iter().position(|program| Some(program.pid) == self.selected).unwrap_or(0)
    }

    /// Carries a key out.
    pub(super) fn on_key(&mut self, key: Key, figures: &Figures) -> Next {
        match key {
            Key::Interrupt | Key::Character('q') => return Next::Ends,
            Key::Character('s') => self.order = self.order.next(),
            Key::Enter => self.shows_sockets = !self.shows_sockets,
            Key::Escape => self.shows_sockets = false,
            key => {
                let programs = self.sorted(figures);
                let (at, last) = (self.place_in(&programs), programs.len().saturating_sub(1));
                let to = match key {
                    Key::Up | Key::Character('k') => at.saturating_sub(1),
                    Key::Down | Key::Character('j') => at + 1,
                    Key::PageUp => at.saturating_sub(PAGE),
                    Key::PageDown => at + PAGE,
                    Key::Home => 0,
                    Key::End => last,
                    _ => at,
                };
                self.selected = programs.get(to.min(last)).map(|program| program.pid);
            }
        }
        Next::GoesOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(programs: &[(u32, &str, f64)]) -> Figures {
        let of = |(pid, name, packets_in): &(u32, &str, f64)| Program {
            pid: *pid,
            name: (*name).to_owned(),
            packets_in: *packets_in,
            ..Program::default()
        };
        Figures { programs: programs.iter().map(of).collect(), ..Figures::default() }
    }

    fn pids(choice: &Choice, figures: &Figures) -> Vec<u32> {
        choice.sorted(figures).iter().map(|program| program.pid).collect()
    }

    #[test]
    fn the_busiest_program_is_first_and_s_changes_the_order() {
        let figures = figures(&[(1, "b", 5.0), (2, "c", 9.0), (3, "a", 5.0)]);
        let mut choice = Choice::default();
        assert_eq!(pids(&choice, &figures), [2, 1, 3]);
        while choice.order != Order::Name {
            assert_eq!(choice.on_key(Key::Character('s'), &figures), Next::GoesOn);
        }
        assert_eq!(pids(&choice, &figures), [3, 1, 2]);
        choice.on_key(Key::Character('s'), &figures);
        assert_eq!(choice.order, Order::Packets);
    }

    #[test]
    fn the_selection_stays_with_its_program_whatever_the_order() {
        let before = figures(&[(1, "a", 5.0), (2, "b", 9.0)]);
        let mut choice = Choice::default();
        choice.on_key(Key::Down, &before);
        assert_eq!(choice.selected, Some(1));
        let after = figures(&[(1, "a", 50.0), (2, "b", 9.0)]);
        assert_eq!(choice.place_in(&choice.sorted(&after)), 0);
        choice.on_key(Key::Down, &after);
        assert_eq!(choice.selected, Some(2));
    }

    #[test]
    fn a_selected_program_that_goes_leaves_the_selection_to_the_first() {
        let mut choice = Choice { selected: Some(7), ..Choice::default() };
        let others = figures(&[(1, "a", 5.0), (2, "b", 9.0)]);
        assert_eq!(choice.place_in(&choice.sorted(&others)), 0);
        choice.on_key(Key::End, &others);
        assert_eq!(choice.selected, Some(1));
        let nobody = Figures::default();
        for key in [Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Home, Key::End, Key::Enter] {
            assert_eq!(choice.on_key(key, &nobody), Next::GoesOn);
        }
        assert_eq!(choice.selected, None);
    }

    #[test]
    fn q_and_an_interrupt_end_it() {
        let (mut choice, nobody) = (Choice::default(), Figures::default());
        assert_eq!(choice.on_key(Key::Character('q'), &nobody), Next::Ends);
        assert_eq!(choice.on_key(Key::Interrupt, &nobody), Next::Ends);
    }
}
