//! How programs are treated, by their names.

use broker::protocol::Profile;
use clap::ValueEnum;
use serde::Deserialize;

/// What is known of programs.
const TABLE: &str = include_str!("profiles.toml");

/// Profiles that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    /// All that can be accelerated.
    Default,
    /// What others connect to; connections that the program makes are the kernel's.
    Servers,
    /// Nothing.
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

/// The profile that was asked for, or else the one that goes with a program; the error is why all of it is left to the kernel.
pub(super) fn choose(asked: Option<Name>, program: &str) -> Result<Profile, String> {
    match asked {
        Some(Name::Default) => Ok(profile("default", true, None)),
        Some(Name::Servers) => Ok(profile("servers", false, Some("--profile servers".to_owned()))),
        Some(Name::Kernel) => Err("--profile kernel".to_owned()),
        None => match table().kernel.into_iter().find(|left| left.programs.iter().any(|it| it == program)) {
            Some(left) => Err(format!("{} (--profile default accelerates it all the same)", left.reason)),
            None => Ok(profile("default", true, None)),
        },
    }
}

fn profile(name: &str, outgoing: bool, reason: Option<String>) -> Profile {
    Profile { name: name.to_owned(), listeners: true, outgoing, udp: true, reason }
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
        assert!(choose(None, "nginx").is_ok());
        assert!(choose(Some(Name::Kernel), "nginx").is_err());
    }
}
