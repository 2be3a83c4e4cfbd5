//! The probes: a plan and a judge each.

mod clock;
mod flush;
mod identity;
mod integrity;
mod latency;
mod presence;
mod selection;
mod service;
mod stale;
mod ttl;
mod who;

use dns_wire::Name;

use crate::authority::{Behaviour, Nonce, Servers, Spec};
use crate::checks::Finding;
use crate::plan::{Options, Planner};
use crate::transcript::Transcript;

/// A probe.
#[derive(Clone, Copy)]
pub struct Probe {
    /// What users call it.
    pub name: &'static str,
    /// What it finds out.
    pub purpose: &'static str,
    /// Its questions wait for data to expire: an authority could come and go in between.
    waits: bool,
    /// Makes its questions.
    plan: fn(&mut Planner<'_>),
    /// Reads what became of them.
    judge: fn(&Transcript<'_>) -> Vec<Finding>,
}

impl Probe {
    /// Its questions, and those that show whether the resolver reaches the authority.
    pub fn plan(&self, planner: &mut Planner<'_>) {
        (self.plan)(planner);
        presence::plan(planner, self.waits);
    }

    /// What the transcript shows. Where the resolver does not serve this host at all, nothing is judged but that; where a clock was set, neither.
    #[must_use]
    pub fn findings(&self, transcript: &Transcript<'_>) -> Vec<Finding> {
        clock::judged(service::judged((self.judge)(transcript), transcript), transcript)
    }
}

/// Whether the authority's clock, or this host's, was set during a probe: it is to be read again before the next one.
#[must_use]
pub fn is_clock_set(transcript: &Transcript<'_>) -> bool {
    clock::set_before(transcript).is_some()
}

/// What a resolver takes for dead after a probe, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Nothing.
    None,
    /// Servers that were silent while others answered.
    Servers,
    /// All of the zone's servers.
    Zone,
}

impl Probe {
    /// What the probe leaves behind: those that leave less should run earlier, as later ones see it.
    #[must_use]
    pub fn harm(&self, options: &Options) -> Harm {
        let target = (std::net::Ipv4Addr::LOCALHOST, 53).into();
        let mut planner = Planner::new(Name::ROOT, target, options, Nonce(0), 0);
        self.plan(&mut planner);
        let of_name = |spec: Spec| {
            let is_silent = spec.phases.iter().any(|phase| phase.behaviour == Behaviour::Silent);
            match spec.servers {
                _ if is_silent => Harm::Zone,
                Servers::Alike => Harm::None,
                Servers::Apart | Servers::Lossy => Harm::Servers,
            }
        };
        let steps = planner.finish();
        let specs =
            steps.iter().filter_map(|step| step.question.name.as_name().labels().find_map(Spec::parse));
        specs.map(of_name).max().unwrap_or(Harm::None)
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Probe").field(&self.name).finish()
    }
}

/// All of them, in the order of the report.
pub static ALL: [Probe; 8] = [
    Probe {
        name: "stale",
        purpose: "expired data while the authority is up, slow or down",
        waits: true,
        plan: stale::plan,
        judge: stale::judge,
    },
    Probe {
        name: "flush",
        purpose: "what makes a resolver with expired data look again",
        waits: true,
        plan: flush::plan,
        judge: flush::judge,
    },
    Probe {
        name: "ttl",
        purpose: "caps and counting of TTLs",
        waits: true,
        plan: ttl::plan,
        judge: ttl::judge,
    },
    Probe {
        name: "who",
        purpose: "who asks the authority, and for which clients",
        waits: false,
        plan: who::plan,
        judge: who::judge,
    },
    Probe {
        name: "selection",
        purpose: "which of a zone's servers it asks",
        waits: false,
        plan: selection::plan,
        judge: selection::judge,
    },
    Probe {
        name: "identity",
        purpose: "what it says it is, and what it behaves like",
        waits: false,
        plan: identity::plan,
        judge: identity::judge,
    },
    Probe {
        name: "integrity",
        purpose: "changed answers, validation, guessable queries, transports",
        waits: false,
        plan: integrity::plan,
        judge: integrity::judge,
    },
    Probe {
        name: "latency",
        purpose: "how long answers take",
        waits: false,
        plan: latency::plan,
        judge: latency::judge,
    },
];

/// The probe of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Probe> {
    ALL.iter().find(|probe| probe.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Condition;

    #[test]
    fn a_probe_with_silent_names_harms_those_behind_it() {
        let options = Options { conditions: Condition::of_servers(2), ..Options::default() };
        let harmful = |harm| {
            let own = ALL.iter().filter(|probe| probe.harm(&options) == harm);
            own.map(|probe| probe.name).collect::<Vec<_>>()
        };
        assert_eq!(harmful(Harm::Zone), ["stale", "identity"]);
        assert_eq!(harmful(Harm::Servers), ["selection"]);
    }
}
