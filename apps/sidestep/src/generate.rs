//! `sidestep generate`: man pages and completions from the definitions of the command line, for packages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

/// The options of `generate`; what it does stands at the command itself.
#[derive(Args, Clone, Debug)]
pub(crate) struct Generate {
    /// Directory to write to. It gets `man` and `completions`.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

/// Writes the files of `command`.
pub(crate) fn generate(options: &Generate, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let [man, completions] = ["man", "completions"].map(|name| options.directory.join(name));
    for directory in [&man, &completions] {
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    clap_mangen::generate_to(command.clone(), &man).context("writing man pages")?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        let name = command.get_name().to_owned();
        clap_complete::generate_to(shell, &mut command, name, &completions).context("writing completions")?;
    }
    Ok(ExitCode::SUCCESS)
}
