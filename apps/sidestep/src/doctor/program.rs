//! Facts about a program: what `sidestep run` decides, and its running processes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ::doctor::{Known, Process, Program};

use super::machine::{numbered, read};
use crate::run::judge;

/// Octets of a file that are searched for a library's name.
const SEARCHED_MAX: u64 = 256 << 20;
/// What the kernel does not execute.
const FOREIGN: &str = "neither an ELF file nor a script whose first line names its interpreter (#!/bin/sh): the kernel executes it \
                       only if binfmt_misc has a rule for it";
/// The library of filters.
const SECCOMP: &[u8] = b"libseccomp.so";
/// The variable by which a program finds its broker.
const BROKER: &str = broker::protocol::ENVIRONMENT;

pub(super) fn look(name: &OsStr) -> Program {
    let told = name.to_string_lossy().into_owned();
    let judgement = match judge(name) {
        Ok(judgement) if judgement.is_foreign => return nothing_to_run(format!("{told}: {FOREIGN}"), told),
        Ok(judgement) => judgement,
        Err(error) => return nothing_to_run(error.to_string(), told),
    };
    let image = judgement.interpreter.as_ref().unwrap_or(&judgement.path);
    // Processes of a script's interpreter are others' as well.
    let running = if judgement.interpreter.is_none() { processes_of(&judgement.path) } else { Vec::new() };
    Program {
        name: told,
        path: Known::Is(judgement.path.display().to_string()),
        names_seccomp: contains(image, SECCOMP).into(),
        running,
        interpreter: judgement.interpreter.map(|path| path.display().to_string()),
        obstacle: judgement.obstacle.map(|obstacle| obstacle.to_string()),
        own_calls: judgement.own_calls.map(|own_calls| own_calls.to_string()),
        profile: judgement.profile.map(|profile| profile.name).into(),
        library: judgement.library.map(|path| path.display().to_string()).into(),
    }
}

fn nothing_to_run(because: String, name: String) -> Program {
    Program { name, path: Known::Not(because), ..Program::default() }
}

/// Whether a file has some octets in it.
fn contains(path: &Path, wanted: &[u8]) -> std::io::Result<bool> {
    let mut file = File::open(path)?.take(SEARCHED_MAX);
    let mut buffer = vec![0; 1 << 20];
    let mut kept = 0;
    loop {
        let read = file.read(&mut buffer[kept..])?;
        if read == 0 {
            return Ok(false);
        }
        let filled = kept + read;
        if buffer[..filled].windows(wanted.len()).any(|window| window == wanted) {
            return Ok(true);
        }
        kept = filled.min(wanted.len() - 1);
        buffer.copy_within(filled - kept..filled, 0);
    }
}

/// The processes that execute a file, as far as this user may see them. A container has a file of its own at the same path.
fn processes_of(path: &Path) -> Vec<Process> {
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let Some(wanted) = file(path) else { return Vec::new() };
    let is_same = |pid: &u32| file(Path::new(&format!("/proc/{pid}/exe"))) == Some(wanted);
    numbered("/proc", "").into_iter().filter(is_same).filter_map(process).collect()
}

fn process(pid: u32) -> Option<Process> {
    let status = read(format!("/proc/{pid}/status")).get()?.clone();
    let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_broker =
        |variable: &[u8]| variable.strip_prefix(BROKER.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
    Some(Process {
        pid,
        is_confined: fields.get("Seccomp").is_some_and(|mode| mode.trim() == "2"),
        is_accelerated: environment.split(|octet| *octet == 0).any(is_broker),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_judged_as_run_judges_it() {
        let shell = look(OsStr::new("sh"));
        assert!(shell.path.get().is_some() && shell.obstacle.is_none() && shell.own_calls.is_none());
        assert_eq!(shell.profile, Known::Is("default".to_owned()));
        let missing = look(OsStr::new("no-such-program"));
        assert_eq!(missing.path, Known::Not("no-such-program: command not found".to_owned()));
    }

    #[test]
    fn what_the_kernel_does_not_execute_is_not_said_to_be_accelerated() {
        let path = std::env::temp_dir().join(format!("sidestep-doctor-foreign-{}", std::process::id()));
        fs::write(&path, "echo hello\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let Known::Not(because) = look(path.as_os_str()).path else {
            panic!("it is executed by shells only")
        };
        assert!(because.contains("binfmt_misc"), "{because}");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn octets_are_found_across_the_parts_that_are_read() {
        let path = std::env::temp_dir().join(format!("sidestep-doctor-{}", std::process::id()));
        let mut octets = vec![b'x'; (1 << 20) - 5];
        octets.extend(SECCOMP);
        fs::write(&path, &octets).unwrap();
        assert!(contains(&path, SECCOMP).unwrap());
        fs::write(&path, &octets[..octets.len() - 1]).unwrap();
        assert!(!contains(&path, SECCOMP).unwrap());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn processes_are_told_apart_by_their_files_and_not_by_their_paths() {
        let directory = std::env::temp_dir().join(format!("sidestep-doctor-same-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (first, second) = (directory.join("first"), directory.join("second"));
        fs::copy("/bin/sleep", &first).unwrap();
        fs::hard_link(&first, &second).unwrap();
        let mut child = std::process::Command::new(&first).arg("60").spawn().unwrap();
        let is_found = |path: &Path| processes_of(path).iter().any(|process| process.pid == child.id());
        let found = is_found(&second);
        // Another file at the path that the process was begun by.
        fs::copy("/bin/sleep", directory.join("new")).unwrap();
        fs::rename(directory.join("new"), &first).unwrap();
        let of_another = is_found(&first);
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(directory).unwrap();
        assert_eq!((found, of_another), (true, false));
    }

    #[test]
    fn this_process_is_found_by_its_file() {
        let own = std::env::current_exe().unwrap();
        assert!(processes_of(&own).iter().any(|process| process.pid == std::process::id()));
    }
}
