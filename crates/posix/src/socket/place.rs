//! Where a socket is, and what becomes of it when something happens to it. It is pure; [`crate::moves`] carries it out.
//!
//! `docs/inside-run.md` has it as a table, which a test compares with [`step`].

use std::net::SocketAddr;

use stack::ConnectionId;

use crate::broker_side::{MadeBecause, RequestId};

/// The place of a TCP socket that does not listen.
pub(crate) enum Place {
    /// It is the kernel's.
    Kernel,
    /// On its way to the stack: it connects once the way to the peer is known.
    ToStack {
        /// What was asked.
        request: RequestId,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection of the stack, or one that begins or has ended there.
    Stack(ConnectionId),
    /// On its way to the kernel, from the stack of the process that we are a child of, as soon as it is used.
    FromParent(Box<Inherited>),
    /// Its connection has failed, and the program has yet to be told.
    Lost,
}

/// What is known of a connection of the parent.
pub(crate) struct Inherited {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// It was asked for.
    pub(crate) request: Option<RequestId>,
}

/// A place, as far as the table goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// [`Place::Kernel`].
    Kernel,
    /// [`Place::ToStack`]: the way to the peer is not known yet.
    Routing,
    /// [`Place::Stack`], and its SYN has left.
    Connecting,
    /// [`Place::Stack`].
    Stack,
    /// [`Place::FromParent`].
    Parent,
    /// [`Place::Stack`], and it has ended, of which the program has yet to be told.
    Over,
    /// [`Place::Lost`]: the same without a stack.
    Lost,
    /// A listener or a UDP socket, which is the kernel's and the stack's at once.
    Shadow,
}

/// What happens to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// Only the kernel can do what the program wants, for this reason.
    KernelOnly(&'static str),
    /// Other processes get a descriptor of it, and they do not know our stack.
    PassedOn,
    /// The kernel would serve it better.
    Unsuited,
    /// Its packets come by the queue of another process.
    Strayed,
    /// A child wants what it has inherited.
    ChildAsks,
    /// No packet comes to this process any more.
    QueuesGo,
    /// Nobody is there who could move anything.
    BrokerEnds,
    /// The process is a child, and has none of the stack.
    Forked,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// It is not to be claimed from now on, for this reason.
    Keep(&'static str),
    /// It is not to be connected here from now on: others would not know.
    Share,
    /// The kernel makes the connection instead.
    ConnectByKernel(MadeBecause),
    /// It becomes the kernel's, or is lost.
    Move,
    /// It becomes the kernel's if the kernel takes it.
    Offer,
    /// The parent gives it to the kernel.
    AskParent,
    /// The program is told that it is reset.
    Lose,
    /// It is the parent's.
    Inherit,
    /// What the stack has of it does not concern us.
    Forget,
}

/// The table.
pub(crate) fn step(at: At, happening: Happening) -> Step {
    use At::*;
    use Happening::*;
    match (happening, at) {
        (KernelOnly(reason), Kernel | Shadow) => Step::Keep(reason),
        (PassedOn, Kernel | Shadow) => Step::Share,
        (KernelOnly(_) | PassedOn, Routing | Connecting) => Step::ConnectByKernel(MadeBecause::Socket),
        (BrokerEnds, Routing) => Step::ConnectByKernel(MadeBecause::NoQueue),
        (KernelOnly(_) | PassedOn | ChildAsks, Stack) => Step::Move,
        (KernelOnly(_) | PassedOn, Parent) => Step::AskParent,
        (Unsuited | Strayed, Stack) => Step::Offer,
        (QueuesGo, Connecting | Stack) => Step::Lose,
        (BrokerEnds, Connecting | Stack | Parent | Over) => Step::Lose,
        (Forked, Routing | Connecting | Stack | Parent | Over) => Step::Inherit,
        (BrokerEnds | Forked, Shadow) => Step::Forget,
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [At; 8] =
        [At::Kernel, At::Routing, At::Connecting, At::Stack, At::Parent, At::Over, At::Lost, At::Shadow];
    const HAPPENINGS: [Happening; 8] = [
        Happening::KernelOnly("an option"),
        Happening::PassedOn,
        Happening::Unsuited,
        Happening::Strayed,
        Happening::ChildAsks,
        Happening::QueuesGo,
        Happening::BrokerEnds,
        Happening::Forked,
    ];

    /// Where a socket may be after a step: if all goes well, and if the kernel or the parent refuses.
    fn after(at: At, step: Step) -> Vec<At> {
        match step {
            Step::Nothing | Step::Keep(_) | Step::Share | Step::Forget => vec![at],
            Step::ConnectByKernel(_) => vec![At::Kernel, At::Lost],
            Step::Move | Step::AskParent => vec![At::Kernel, At::Lost],
            Step::Offer => vec![At::Kernel, at],
            Step::Lose => vec![At::Lost],
            Step::Inherit => vec![At::Parent, At::Lost],
        }
    }

    /// The step's name in the table of docs/inside-run.md.
    fn name_of(step: Step) -> &'static str {
        match step {
            Step::Nothing => "-",
            Step::Keep(_) => "keep there",
            Step::Share => "share",
            Step::ConnectByKernel(_) => "kernel connects",
            Step::Move => "move",
            Step::Offer => "offer",
            Step::AskParent => "ask parent",
            Step::Lose => "lose",
            Step::Inherit => "inherit",
            Step::Forget => "forget",
        }
    }

    #[test]
    fn the_page_has_the_same_table() {
        let page = include_str!("../../../../docs/inside-run.md");
        fn cells(line: &str) -> Vec<&str> {
            line.trim_matches('|').split('|').map(str::trim).collect()
        }
        let head = PLACES.map(|at| format!("`{at:?}`"));
        let is_head = |line: &str| cells(line)[1..] == head;
        let table: Vec<&str> =
            page.lines().skip_while(|line| !line.starts_with('|') || !is_head(line)).collect();
        for (line, happening) in table.iter().skip(2).zip(HAPPENINGS) {
            let steps = PLACES.map(|at| name_of(step(at, happening)));
            assert_eq!(cells(line)[1..], steps, "{happening:?}");
        }
        assert!(table.get(2 + HAPPENINGS.len()).is_some_and(|line| line.is_empty()), "it is there, and ends");
    }

    fn each() -> impl Iterator<Item = (At, Happening)> {
        PLACES.into_iter().flat_map(|at| HAPPENINGS.into_iter().map(move |happening| (at, happening)))
    }

    #[test]
    fn what_is_the_kernels_or_lost_stays_where_it_is() {
        for (at, happening) in each().filter(|(at, _)| matches!(at, At::Kernel | At::Lost | At::Shadow)) {
            assert_eq!(after(at, step(at, happening)), [at], "{happening:?}");
        }
    }

    #[test]
    fn nothing_stays_where_others_or_the_kernel_cannot_reach_it() {
        for (at, happening) in each() {
            let reachable: &[At] = match happening {
                Happening::KernelOnly(_) | Happening::PassedOn => {
                    &[At::Kernel, At::Shadow, At::Over, At::Lost]
                }
                Happening::BrokerEnds => &[At::Kernel, At::Shadow, At::Lost],
                Happening::Forked => &[At::Kernel, At::Shadow, At::Parent, At::Lost],
                Happening::QueuesGo => &[At::Kernel, At::Shadow, At::Parent, At::Routing, At::Over, At::Lost],
                Happening::Unsuited | Happening::Strayed | Happening::ChildAsks => &PLACES,
            };
            let ends = after(at, step(at, happening));
            assert!(ends.iter().all(|end| reachable.contains(end)), "{at:?}, {happening:?}: {ends:?}");
        }
    }

    #[test]
    fn a_connection_is_lost_only_with_the_way_to_its_peer() {
        let loses = |(at, happening): &(At, Happening)| step(*at, *happening) == Step::Lose;
        for (at, happening) in each().filter(loses) {
            assert!(matches!(happening, Happening::QueuesGo | Happening::BrokerEnds), "{at:?}");
        }
    }

    #[test]
    fn what_need_not_move_is_never_lost_by_moving() {
        for happening in [Happening::Unsuited, Happening::Strayed] {
            assert!(PLACES.into_iter().all(|at| after(at, step(at, happening)).contains(&at)));
        }
    }

    #[test]
    fn a_parent_is_asked_for_its_connections_only() {
        for (at, happening) in each().filter(|(at, happening)| step(*at, *happening) == Step::AskParent) {
            assert_eq!(at, At::Parent, "{happening:?}");
        }
    }
}
