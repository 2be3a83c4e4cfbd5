//! C programs go through all calls and print what each came to.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::library::{With, scratch};

/// How a program is compiled: checked calls (`__read_chk` and the like) take the place of others with `_FORTIFY_SOURCE`.
const VARIANTS: [(&str, &[&str]); 2] = [("plain", &["-O1"]), ("checked", &["-O2", "-D_FORTIFY_SOURCE=2"])];

#[test]
fn transfers_over_tcp_are_the_same() {
    assert_same("transfer");
}

#[test]
fn datagrams_and_passed_descriptors_are_the_same() {
    assert_same("datagrams");
}

#[test]
fn waiting_is_the_same() {
    assert_same("waiting");
}

#[test]
fn mistakes_are_answered_the_same() {
    assert_same("mistakes");
}

#[test]
fn signals_are_the_same() {
    assert_same("signals");
}

#[test]
fn processes_are_the_same() {
    assert_same("processes");
}

#[test]
fn streams_are_the_same() {
    assert_same("streams");
}

#[test]
fn threads_are_the_same() {
    assert_same("threads");
}

#[test]
fn threads_that_are_cancelled_are_the_same() {
    assert_same("cancelled");
}

#[test]
fn programs_that_choose_their_system_calls_are_the_same() {
    assert_same("confined");
    assert_same("confined_amid");
}

/// Runs `name` without the library and in all ways with it, and compares.
fn assert_same(name: &str) {
    for (variant, flags) in VARIANTS {
        let program = compile(name, variant, flags);
        let expected = report(With::Nothing, &program);
        assert!(
            expected.lines().count() > 10 && expected.ends_with("exit status: 0\n"),
            "{name}: {expected}"
        );
        for with in [With::Library, With::LostBroker, With::Mirror] {
            let found = report(with, &program);
            let differing = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
            assert!(expected == found, "{name}, {variant}, {with:?}: {differing:#?}\n{found}");
        }
    }
}

fn report(with: With, program: &Path) -> String {
    let output = with.output(program, &[]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}{}\n", output.status)
}

pub(crate) fn compile(name: &str, variant: &str, flags: &[&str]) -> PathBuf {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload_hooks/programs").join(format!("{name}.c"));
    let program = scratch().join(format!("{name}-{variant}"));
    // The warnings are about the mistakes that the programs make on purpose.
    let status =
        Command::new("cc").args(flags).args(["-w", "-pthread", "-o"]).arg(&program).arg(&source).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "cc {}: {status:?}", source.display());
    program
}

/// As PHP loads its extensions: they would accept by the kernel what the program has claimed.
#[test]
fn a_library_that_is_to_prefer_its_own_symbols_calls_ours_all_the_same() {
    let library = compile("plugin", "library", &["-shared", "-fPIC"]);
    let program = compile("plugin", "program", &[]);
    let whose = |with: With| {
        let output = with.output(&program, &[&library.display().to_string()]);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(whose(With::Mirror), "libmirror.so");
    assert_eq!(whose(With::Library), whose(With::Nothing), "without a broker nothing is done");
}
