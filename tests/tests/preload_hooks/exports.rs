//! No variant of a hooked function is forgotten, and nothing else is visible: against the C library that is here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::library;

/// What a program can do with descriptors, each with all names that the C library has for it.
const FAMILIES: &str = "socket bind listen accept accept4 connect close close_range closefrom shutdown \
    read readv preadv2 write writev pwritev2 send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg sendfile splice \
    epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 poll ppoll select pselect \
    getsockname getpeername getsockopt setsockopt sockatmark fcntl ioctl dup dup2 dup3 \
    _Fork vfork execve execv execvp execvpe execl execle execlp fexecve execveat posix_spawn posix_spawnp system popen _exit \
    posix_spawn_file_actions_adddup2 clone pthread_cancel pthread_setcanceltype bindresvport \
    sigaction signal sysv_signal sigset siginterrupt fdopen fclose freopen dprintf vdprintf syscall";

/// Functions that were asked for and that the C library's own are right for; `hooks` says why.
const LEFT_ALONE: &str = "fork pread pwrite preadv pwritev isfdtype exit quick_exit";

/// A function of the C library: where it is, and whether only its own parts may use it.
struct Function {
    address: String,
    private: bool,
}

/// The functions that `library` offers.
fn functions(library: &Path) -> BTreeMap<String, Function> {
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm comes with cc");
    let listing = String::from_utf8(output.stdout).unwrap();
    let entries = listing.lines().filter_map(|line| {
        let mut columns = line.split_whitespace();
        let (address, kind, name) = (columns.next()?, columns.next()?, columns.next()?);
        let (name, version) = name.split_once('@').unwrap_or((name, ""));
        let function = Function { address: address.to_owned(), private: version.contains("PRIVATE") };
        "TWi".contains(kind).then(|| (name.to_owned(), function))
    });
    entries.collect()
}

/// The C library that programs get here.
fn c_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path =
        maps.lines().filter_map(|line| line.split_whitespace().last()).find(|path| path.contains("/libc.so"));
    PathBuf::from(path.expect("this test is a program with the C library"))
}

#[test]
fn every_family_is_hooked_under_all_its_names() {
    let (theirs, ours) = (functions(&c_library()), functions(&library::library()));
    let mut missing = BTreeSet::new();
    for family in FAMILIES.split_whitespace() {
        let address = &theirs.get(family).unwrap_or_else(|| panic!("the C library has no {family}")).address;
        let checked = [format!("__{family}_chk"), format!("{family}64")];
        for (name, function) in &theirs {
            let alias = function.address == *address || checked.contains(name);
            if alias && !function.private && !ours.contains_key(name) {
                missing.insert(name.clone());
            }
        }
    }
    assert!(missing.is_empty(), "not hooked: {missing:?}");
}

#[test]
fn only_functions_of_the_c_library_are_visible() {
    let (theirs, ours) = (functions(&c_library()), functions(&library::library()));
    let added: Vec<_> = ours.keys().filter(|name| !theirs.contains_key(*name)).collect();
    assert!(added.is_empty(), "{added:?}");
    let needless: Vec<_> = LEFT_ALONE.split_whitespace().filter(|name| ours.contains_key(*name)).collect();
    assert!(needless.is_empty(), "{needless:?}");
}
