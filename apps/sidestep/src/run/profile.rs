//! Profiles: what `sidestep run` accelerates of a program.

use broker::protocol::Profile;
use clap::ValueEnum;
use serde::Deserialize;

/// Programs that run on the kernel unless the user asks otherwise, and why.
const TABLE: &str = include_str!("profiles.toml");

/// The profiles of `--profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// Everything that can be accelerated, but connections that the kernel serves better: with large transfers, or with a thread each that sleeps in them.
    Default,
    /// Everything that can be accelerated.
    Accelerate,
    /// Listeners and UDP sockets; connections that the program makes run on the kernel.
    Servers,
    /// Nothing: the program runs on the kernel.
    Kernel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kernel: Vec<Left>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Left {
    programs: Vec<String>,
    reason: String,
}

/// The profile that the user asked for, or the one of the program. The error says why the whole program runs on the kernel.
pub(super) fn choose(asked: Option<Name>, program: &str) -> Result<Profile, String> {
    match asked {
        Some(Name::Default) => Ok(profile("default", true, None)),
        Some(Name::Accelerate) => Ok(Profile { leaves_unsuited: false, ..profile("accelerate", true, None) }),
        Some(Name::Servers) => Ok(profile("servers", false, Some("--profile servers".to_owned()))),
        Some(Name::Kernel) => Err("--profile kernel".to_owned()),
        None => match table().kernel.into_iter().find(|left| left.programs.iter().any(|it| it == program)) {
            Some(left) => Err(format!("{} (--profile default accelerates it anyway)", left.reason)),
            None => Ok(profile("default", true, None)),
        },
    }
}

fn profile(name: &str, outgoing: bool, reason: Option<String>) -> Profile {
    Profile { name: name.to_owned(), listeners: true, outgoing, udp: true, leaves_unsuited: true, reason }
}

fn table() -> Table {
    toml::from_str(TABLE).expect("a test reads the table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_table_is_left_to_the_kernel_unless_asked_otherwise() {
        assert!(choose(None, "sshd").unwrap_err().contains("each connection"));
        assert!(choose(Some(Name::Default), "sshd").is_ok());
        assert!(choose(None, "nginx").is_ok() && choose(None, "apache2").is_ok());
        assert!(choose(Some(Name::Kernel), "nginx").is_err());
    }
}
