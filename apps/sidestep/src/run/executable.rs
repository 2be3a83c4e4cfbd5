//! The program's file, and what prevents preloading a library into it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Octets that are read of a file: headers, and the program headers, which linkers put after them.
const HEAD: usize = 4096;
/// Scripts that interpret each other, at most: the kernel ends beyond by ELOOP (`exec_binprm`).
const SCRIPTS_MAX: usize = 5;
/// How ELF files begin.
const ELF: &[u8] = b"\x7fELF";
/// What the path of musl's dynamic linker has in it: /lib/ld-musl-x86_64.so.1.
const MUSL: &[u8] = b"/ld-musl-";

/// How a program passes the C library by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnCalls {
    Go,
    Waits,
}

impl fmt::Display for OwnCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnCalls::Go => "it is a Go program, which makes its own system calls",
            OwnCalls::Waits => {
                "it waits at epoll instances by system calls of its own, as Rust's rustix makes them"
            }
        })
    }
}

/// A program that can be executed.
#[derive(Debug)]
pub(super) struct Executable {
    path: PathBuf,
}

/// The file that the kernel executes, and its beginning.
struct Image {
    path: PathBuf,
    head: Vec<u8>,
    /// Octets of the whole file.
    len: u64,
}

/// Why a program cannot be executed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotFound {
    #[error("{0}: command not found")]
    Missing(String),
    #[error("{0}: no such file")]
    NoFile(String),
    #[error("{0}: not an executable file")]
    NotExecutable(String),
    #[error("{0}: its first line names {1:?} as what interprets it, which is not there")]
    NoInterpreter(String, String),
}

/// Why the dynamic linker would not load our library into the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Static,
    OtherMachine,
    Privileged,
    Musl,
    NoInterpreter(PathBuf),
    ManyInterpreters,
    Unreadable(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Static => {
                f.write_str("it is statically linked, so no library can intercept its calls")
            }
            Obstacle::OtherMachine => f.write_str("it is built for another architecture than Sidestep"),
            Obstacle::Privileged => f.write_str(
                "it is setuid, setgid or has file capabilities, and the dynamic linker preloads no library into such programs",
            ),
            Obstacle::Musl => f.write_str(
                "it is linked against musl, and Sidestep's library against the GNU C library: one process cannot have both",
            ),
            Obstacle::NoInterpreter(path) => write!(f, "{} is not there, which interprets it", path.display()),
            Obstacle::ManyInterpreters => write!(
                f,
                "it is a script that is interpreted by scripts, more than {SCRIPTS_MAX} or in a circle: the kernel does not execute it"
            ),
            Obstacle::Unreadable(error) => write!(f, "its file cannot be read: {error}"),
        }
    }
}

impl Executable {
    /// Finds a program as execvp(3) does.
    pub(super) fn find(name: &OsStr) -> Result<Executable, NotFound> {
        let told = || name.to_string_lossy().into_owned();
        if name.as_bytes().contains(&b'/') {
            return match fs::metadata(name) {
                Err(_) => Err(NotFound::NoFile(told())),
                Ok(metadata) if is_executable(&metadata) => Ok(Executable { path: name.into() }),
                Ok(_) => Err(NotFound::NotExecutable(told())),
            };
        }
        let folders = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        let mut present = env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .filter(|path| path.is_file())
            .peekable();
        let found_some = present.peek().is_some();
        match present.find(|path| fs::metadata(path).is_ok_and(|metadata| is_executable(&metadata))) {
            Some(path) => Ok(Executable { path }),
            None if found_some => Err(NotFound::NotExecutable(told())),
            None => Err(NotFound::Missing(told())),
        }
    }

    /// The same, unless it is a script whose interpreter is not there.
    pub(super) fn find_whole(name: &OsStr) -> Result<Executable, NotFound> {
        let program = Executable::find(name)?;
        match program.image() {
            Err(Obstacle::NoInterpreter(path)) => Err(NotFound::NoInterpreter(
                name.to_string_lossy().into_owned(),
                path.to_string_lossy().into_owned(),
            )),
            _ => Ok(program),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the file, which selects the profile.
    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or("the program")
    }

    /// What prevents preloading our library into the program or its interpreter.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        match self.image() {
            Ok(image) => elf_obstacle(&image.head, image.len),
            Err(obstacle) => Some(obstacle),
        }
    }

    /// The program that interprets it, if it is a script.
    pub(super) fn interpreter(&self) -> Option<PathBuf> {
        self.image().ok().map(|image| image.path).filter(|path| *path != self.path)
    }

    /// Which system calls it, or what interprets it, makes itself, past the C library and past us.
    pub(super) fn own_calls(&self) -> Option<OwnCalls> {
        let image = self.image().ok()?;
        if has_go_note(&image.head) {
            return Some(OwnCalls::Go);
        }
        let file = File::open(&image.path).ok()?;
        own_calls::waits_by_itself(&file).then_some(OwnCalls::Waits)
    }

    /// Whether it is, or is interpreted by, something that is neither ELF nor a script: the kernel executes it by a rule of binfmt_misc only.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(self.image(), Ok(image) if !image.head.starts_with(ELF))
    }

    /// The file that the kernel executes in the end.
    fn image(&self) -> Result<Image, Obstacle> {
        let mut path = self.path.clone();
        for _ in 0..=SCRIPTS_MAX {
            let (head, len) = read_head(&path).map_err(|error| match error.kind() {
                ErrorKind::NotFound if path != self.path => Obstacle::NoInterpreter(path.clone()),
                _ => Obstacle::Unreadable(error.to_string()),
            })?;
            match interpreter(&head) {
                Some(next) => path = next,
                // The kernel raises privileges by this file alone: those of a script do nothing.
                None if is_privileged(&path) => return Err(Obstacle::Privileged),
                None => return Ok(Image { path, head, len }),
            }
        }
        Err(Obstacle::ManyInterpreters)
    }
}

/// Whether a file is a Go program. Go makes its system calls itself, past the C library and past us.
pub(crate) fn is_go(path: &Path) -> bool {
    read_head(path).is_ok_and(|(head, _)| has_go_note(&head))
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

/// The beginning of a file, and how long it is.
fn read_head(path: &Path) -> std::io::Result<(Vec<u8>, u64)> {
    let mut head = Vec::with_capacity(HEAD);
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    file.take(HEAD as u64).read_to_end(&mut head)?;
    Ok((head, len))
}

/// Whether executing the file raises privileges (`AT_SECURE`, ld.so(8)).
fn is_privileged(path: &Path) -> bool {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2000;
    let Ok(metadata) = fs::metadata(path) else { return false };
    let mode = metadata.mode();
    let other_user = mode & SETUID != 0 && metadata.uid() != rustix::process::geteuid().as_raw();
    let other_group = mode & SETGID != 0 && metadata.gid() != rustix::process::getegid().as_raw();
    let mut capabilities = [0u8; 64];
    let raised = !rustix::process::geteuid().is_root()
        && rustix::fs::getxattr(path, "security.capability", &mut capabilities[..]).is_ok();
    other_user || other_group || raised
}

/// The interpreter that a script names in its first line.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&octet| octet == b'\n').next()?;
    let mut words = line.split(|&octet| octet == b' ' || octet == b'\t').filter(|word| !word.is_empty());
    let named = Path::new(OsStr::from_bytes(words.next()?)).to_owned();
    // `#!/usr/bin/env python3`: the program that env executes counts.
    if named.file_name() != Some(OsStr::new("env")) {
        return Some(named);
    }
    let words: Vec<&[u8]> = words.collect();
    let is_program = |word: &&&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
    let program = words.iter().find(is_program).map(|word| OsStr::from_bytes(word));
    match program.map(|program| (program, Executable::find(program))) {
        Some((_, Ok(program))) => Some(program.path),
        // Behind options it may be the value of one.
        Some((program, Err(_))) if words.len() == 1 => Some(program.into()),
        _ => Some(named),
    }
}

/// Reads an ELF header of 64 bits, little-endian (elf(5)): is there an interpreter, the dynamic linker? The kernel judges files that
/// are not ELF. Of a file of `len` octets.
fn elf_obstacle(head: &[u8], len: u64) -> Option<Obstacle> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    const PT_INTERP: u64 = 3;
    let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    if !head.starts_with(ELF) {
        return None;
    }
    if head.get(4) != Some(&CLASS_64)
        || head.get(5) != Some(&LITTLE_ENDIAN)
        || number(head, 18, 2) != Some(machine)
    {
        return Some(Obstacle::OtherMachine);
    }
    let whole = program_headers(head).filter(|entries| entries.iter().all(|entry| is_in(head, *entry, len)));
    let Some(entries) = whole else { return Some(Obstacle::Unreadable("it is cut short".to_owned())) };
    let Some(linker) = entries.into_iter().find(|entry| number(head, *entry, 4) == Some(PT_INTERP)) else {
        return Some(Obstacle::Static);
    };
    let place = |field| usize::try_from(number(head, linker + field, 8)?).ok();
    let path = place(8).zip(place(32)).and_then(|(at, len)| head.get(at..)?.get(..len)).unwrap_or_default();
    path.windows(MUSL.len()).any(|part| part == MUSL).then_some(Obstacle::Musl)
}

/// Whether what a program header has the kernel load is in a file of `len` octets.
fn is_in(head: &[u8], entry: usize, len: u64) -> bool {
    const PT_LOAD: u64 = 1;
    let end = || number(head, entry + 8, 8)?.checked_add(number(head, entry + 32, 8)?);
    number(head, entry, 4) != Some(PT_LOAD) || end().is_some_and(|end| end <= len)
}

/// Where the program headers of an ELF file of 64 bits begin (elf(5)).
fn program_headers(head: &[u8]) -> Option<Vec<usize>> {
    let (table, size, count) = (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?);
    (0..count).map(|entry| usize::try_from(table.checked_add(entry * size)?).ok()).collect()
}

/// Whether an ELF file of 64 bits has the note in which Go's linker names the build (`NT_GO_BUILD_ID`). It is within the first page.
fn has_go_note(head: &[u8]) -> bool {
    const PT_NOTE: u64 = 4;
    const GO_BUILD_ID: &[u8] = b"\x04\0\0\0Go\0\0"; // The note's type, and its owner.
    /// The length of the owner's name, the length of the description, and the two above.
    const LEN: usize = 16;
    let is_note = |entry: &usize| number(head, *entry, 4) == Some(PT_NOTE);
    let notes = program_headers(head).into_iter().flatten().filter(is_note);
    head.starts_with(ELF)
        && notes.into_iter().any(|entry| {
            let place = |field| usize::try_from(number(head, entry + field, 8)?).ok();
            let (Some(at), Some(len)) = (place(8), place(32)) else { return false };
            let segment = head.get(at..).map(|rest| &rest[..len.min(rest.len())]);
            segment.is_some_and(|octets| octets.windows(LEN).step_by(4).any(|it| it[8..] == *GO_BUILD_ID))
        })
}

/// A little-endian number of up to eight octets.
fn number(octets: &[u8], at: usize, len: usize) -> Option<u64> {
    let octets = octets.get(at..at.checked_add(len)?)?;
    Some(octets.iter().rev().fold(0, |number, &octet| number << 8 | u64::from(octet)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        assert_eq!(Executable::find(OsStr::new("sh")).unwrap().name(), "sh");
        assert!(matches!(Executable::find(OsStr::new("no-such-program")), Err(NotFound::Missing(_))));
        assert!(matches!(Executable::find(OsStr::new("/etc/passwd")), Err(NotFound::NotExecutable(_))));
        assert!(matches!(Executable::find(OsStr::new("/etc")), Err(NotFound::NotExecutable(_))));
    }

    #[test]
    fn nothing_stands_in_the_way_of_what_is_linked_dynamically() {
        assert_eq!(Executable::find(OsStr::new("sh")).unwrap().obstacle(), None);
    }

    #[test]
    fn a_static_program_is_known_by_its_lack_of_an_interpreter() {
        let mut head = vec![0; 128];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18] = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        head[32] = 64; // program headers behind the header
        head[54] = 56;
        head[56] = 1;
        assert_eq!(elf_obstacle(&head, 128), Some(Obstacle::Static));
        head[64] = 3; // PT_INTERP
        assert_eq!(elf_obstacle(&head, 128), None);
        head[4] = 1; // 32 bits
        assert_eq!(elf_obstacle(&head, 128), Some(Obstacle::OtherMachine));
    }

    #[test]
    fn a_program_that_is_cut_short_is_known_by_what_is_to_be_loaded() {
        let program = std::env::current_exe().unwrap();
        let (head, len) = read_head(&program).unwrap();
        assert_eq!(elf_obstacle(&head, len), None);
        assert_eq!(elf_obstacle(&head, 5000), Some(Obstacle::Unreadable("it is cut short".to_owned())));
    }

    #[test]
    fn scripts_that_interpret_each_other_without_end_are_not_executed() {
        let path = env::temp_dir().join(format!("sidestep-circle-{}", std::process::id()));
        fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        let script = Executable { path: path.clone() };
        assert_eq!(script.obstacle(), Some(Obstacle::ManyInterpreters));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_go_program_is_known_by_its_note() {
        let mut head = vec![0; 192];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64; // program headers behind the header
        head[54] = 56;
        head[56] = 1;
        head[64] = 4; // PT_NOTE
        head[64 + 8] = 120; // where
        head[64 + 32] = 64; // how long
        let note =
            |kind: u8, owner: &[u8; 4]| [&[4, 0, 0, 0, 8, 0, 0, 0, kind, 0, 0, 0], &owner[..]].concat();
        head[120..136].copy_from_slice(&note(3, b"GNU\0"));
        assert!(!has_go_note(&head));
        head[144..160].copy_from_slice(&note(4, b"Go\0\0"));
        assert!(has_go_note(&head));
        head[64 + 32] = 24;
        assert!(!has_go_note(&head), "it is behind the notes");
        head.truncate(100);
        assert!(!has_go_note(&head));
    }

    #[test]
    fn the_interpreter_of_a_script_is_what_counts() {
        assert_eq!(interpreter(b"#! /bin/sh -e\nexit"), Some(PathBuf::from("/bin/sh")));
        let by_env = interpreter(b"#!/usr/bin/env -S LANG=C sh\n").unwrap();
        assert_eq!(by_env.file_name(), Some(OsStr::new("sh")));
        assert_eq!(interpreter(b"\x7fELF"), None);
        let unknown = interpreter(b"#!/usr/bin/env no-such-program\n").unwrap();
        assert_eq!(unknown, Path::new("no-such-program"), "env would not find it, either");
        let by_option = interpreter(b"#!/usr/bin/env -u NAME no-such-program\n").unwrap();
        assert_eq!(by_option, Path::new("/usr/bin/env"), "who knows what NAME is");
    }

    /// An executable file with this in it, in a directory of its own.
    fn file(name: &str, octets: &[u8], mode: u32) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sidestep-executable-{name}-{}", std::process::id()));
        fs::write(&path, octets).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_script_without_its_interpreter_cannot_be_started() {
        let script = file("bad", b"#!/no/such/shell -e\n", 0o755);
        let error = Executable::find_whole(script.as_os_str()).unwrap_err().to_string();
        assert!(error.contains("names \"/no/such/shell\" as what interprets it"), "{error}");
        fs::write(&script, b"#!/bin/sh\r\n").unwrap();
        let error = Executable::find_whole(script.as_os_str()).unwrap_err().to_string();
        assert!(error.contains("names \"/bin/sh\\r\""), "a line's end of Windows shows: {error}");
        fs::write(&script, b"#!/bin/sh\n").unwrap();
        assert!(Executable::find_whole(script.as_os_str()).is_ok());
        fs::remove_file(script).unwrap();
        let error = Executable::find(OsStr::new("/no/such/program")).unwrap_err().to_string();
        assert_eq!(error, "/no/such/program: no such file");
    }

    #[test]
    fn what_is_neither_elf_nor_a_script_is_foreign() {
        let is_foreign = |octets: &[u8]| {
            let path = file("foreign", octets, 0o755);
            let is_foreign = Executable::find(path.as_os_str()).unwrap().is_foreign();
            fs::remove_file(path).unwrap();
            is_foreign
        };
        assert!(is_foreign(b"echo hello\n") && is_foreign(b""));
        assert!(!is_foreign(b"#!/bin/sh\n") && !is_foreign(b"\x7fELF"));
    }

    #[test]
    fn privileges_of_a_script_do_nothing() {
        // Setgid of a group that is not ours: root may set it, and others are in no position to test it.
        let script = file("setgid", b"#!/bin/sh\n", 0o755);
        if std::os::unix::fs::chown(&script, None, Some(65_534)).is_ok() {
            fs::set_permissions(&script, fs::Permissions::from_mode(0o2755)).unwrap();
            assert!(is_privileged(&script));
            assert_eq!(Executable::find(script.as_os_str()).unwrap().obstacle(), None);
        }
        fs::remove_file(script).unwrap();
    }

    #[test]
    fn a_program_of_musl_is_known_by_its_dynamic_linker() {
        let with_linker = |path: &[u8]| {
            let mut head = vec![0; 192];
            head[..6].copy_from_slice(b"\x7fELF\x02\x01");
            head[18] = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
            (head[32], head[54], head[56]) = (64, 56, 1);
            head[64] = 3; // PT_INTERP
            (head[64 + 8], head[64 + 32]) = (120, path.len() as u8);
            head[120..120 + path.len()].copy_from_slice(path);
            elf_obstacle(&head, u64::MAX)
        };
        assert_eq!(with_linker(b"/lib/ld-musl-x86_64.so.1\0"), Some(Obstacle::Musl));
        assert_eq!(with_linker(b"/lib64/ld-linux-x86-64.so.2\0"), None);
    }
}
