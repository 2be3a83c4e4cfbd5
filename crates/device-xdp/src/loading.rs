//! Loading BPF programs, and attaching the steering program.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Map, MapError};
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::error::{causes, chain, map_error};
use crate::netdev::Interface;
use crate::{AttachMode, SteeringOptions, XdpError, syscalls};

/// Compiled from `bpf/steer.bpf.c` by the build script.
static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// The program's name there, and in the kernel.
pub(crate) const STEERING: &str = "sidestep_steer";
/// The same for packets that may come in several frames. The kernel keeps fifteen letters of a name.
const STEERING_CHAINS: &str = "sidestep_steer2";
/// From this version of Linux on, generic mode does all that is wanted of it: packets in several frames (6.9), and two sockets of one queue that
/// receive at a time, which earlier ones corrupt the fill ring with.
pub(crate) const GENERIC_SINCE: (u32, u32) = (6, 15);

/// The maps of the program, as `bpf/maps.bpf.h` names them.
const MAPS: [&str; 10] = [
    "ports",
    "claims",
    "kernel_flows",
    "misdirected",
    "xsks",
    "sharers",
    "shared_flows",
    "reopening",
    "outcomes",
    "owners",
];
/// How long it is tried to load the program while the kernel is made to stop: programs lose patience with a broker after some seconds.
const LOADING_MAX: Duration = Duration::from_secs(1);

/// The maps, and the program that is to be loaded on them. Maps that have names in `directory` are taken from there; others are made, and
/// get names if there is a directory.
pub(crate) fn open_object(directory: Option<&Path>) -> Result<Ebpf, XdpError> {
    syscalls::raise_memlock_limit();
    let mut loader = loader();
    if let Some(directory) = directory {
        for name in MAPS {
            loader.map_pin_path(name, directory.join(name));
        }
    }
    let secret = RandomState::new().hash_one(0);
    loader.override_global("secret", &secret, true);
    loader.load(OBJECT).map_err(|error| load_error(&error))
}

/// A loader that does not know the kernel's types (BTF): our programs use none of them. aya reads them, some megabytes, for each loader, which takes
/// longer than the kernel does to verify the steering program; so it is made where it cannot find them.
fn loader() -> EbpfLoader<'static> {
    let without_types = || {
        let _ = syscalls::find_no_files(); // Then it takes longer.
        EbpfLoader::new()
    };
    let thread = thread::Builder::new().name("loader".to_owned()).spawn(without_types);
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
}

/// The maps of another object, and its program, which is to be loaded.
pub(crate) fn open_other(object: &[u8]) -> Result<Ebpf, XdpError> {
    syscalls::raise_memlock_limit();
    loader().load(object).map_err(|error| load_error(&error))
}

/// Whether a packet may come in several frames.
pub(crate) fn has_chains(mode: AttachMode) -> bool {
    mode == AttachMode::Generic && syscalls::kernel_version() >= GENERIC_SINCE
}

/// The program for this mode.
pub(crate) fn program(object: &mut Ebpf, mode: AttachMode) -> Result<&mut Xdp, XdpError> {
    let name = if has_chains(mode) { STEERING_CHAINS } else { STEERING };
    let program = object.program_mut(name).expect("the object holds the program");
    program.try_into().map_err(|error: ProgramError| load_error(&error))
}

pub(crate) fn load_program(object: &mut Ebpf, mode: AttachMode) -> Result<&Xdp, XdpError> {
    let program = program(object, mode)?;
    // Where both modes have the same one, it is loaded when the second is tried.
    if program.fd().is_err() {
        load(|| program.load())?;
    }
    Ok(program)
}

/// Has the kernel verify and take the program. Verifying ends with EAGAIN when a signal comes to the thread: signals wait until it is
/// done, lest they come more often than it takes. For others that make the kernel stop it is tried again.
pub(crate) fn load(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), XdpError> {
    let began = Instant::now();
    loop {
        match syscalls::with_signals_blocked(&mut load) {
            Err(error) if refusal(&error) == Some(libc::EAGAIN) && began.elapsed() < LOADING_MAX => {}
            outcome => return outcome.map_err(|error| load_error(&error)),
        }
    }
}

/// Loads the program and attaches it in the mode that is asked for, or else in the first one that the interface takes: driver mode comes first.
pub(crate) fn attach_program(
    object: &mut Ebpf,
    interface: &Interface,
    options: SteeringOptions,
) -> Result<(OwnedFd, AttachMode), XdpError> {
    let modes: &[AttachMode] = match options.mode {
        Some(AttachMode::Native) => &[AttachMode::Native],
        Some(AttachMode::Generic) => &[AttachMode::Generic],
        None if interface.hands_programs_down() => &[AttachMode::Generic],
        None => &[AttachMode::Native, AttachMode::Generic],
    };
    let mut refusals = Vec::new();
    for &mode in modes {
        match attach_in(object, interface, mode)? {
            Ok(link) => return Ok((link, mode)),
            Err(refusal) => {
                if let Some(present) = program_present(&refusal, interface) {
                    return Err(present);
                }
                refusals.push((mode, refusal));
            }
        }
    }
    Err(no_mode_left(interface, refusals))
}

/// What the kernel says to the program in this mode; an error of ours if it cannot be loaded.
fn attach_in(
    object: &mut Ebpf,
    interface: &Interface,
    mode: AttachMode,
) -> Result<io::Result<OwnedFd>, XdpError> {
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    let flags = match mode {
        AttachMode::Native => XDP_FLAGS_DRV_MODE,
        AttachMode::Generic => XDP_FLAGS_SKB_MODE,
    };
    let program = load_program(object, mode)?.fd().map_err(|error| load_error(&error))?.as_fd();
    Ok(syscalls::attach_xdp(program, interface.index, flags))
}

fn no_mode_left(interface: &Interface, refusals: Vec<(AttachMode, io::Error)>) -> XdpError {
    let mut answers = [AttachMode::Native, AttachMode::Generic].map(|_| io::Error::other("not asked for"));
    for (mode, refusal) in refusals {
        answers[usize::from(mode == AttachMode::Generic)] = refusal;
    }
    let [native, generic] = answers;
    let is_forbidden = |refusal: &io::Error| refusal.raw_os_error() == Some(libc::EPERM);
    if is_forbidden(&native) || is_forbidden(&generic) {
        let source = if is_forbidden(&generic) { generic } else { native };
        return XdpError::NotPermitted { operation: "attaching an XDP program", source };
    }
    XdpError::Attach { interface: interface.name.clone(), native, generic }
}

/// Whether that is why the interface takes none. EBUSY: a program in the same mode; EEXIST: one in the other mode, or one at an
/// interface above this one, such as its bridge.
fn program_present(refusal: &io::Error, interface: &Interface) -> Option<XdpError> {
    if !matches!(refusal.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) {
        return None;
    }
    let id = match interface.xdp_program() {
        Ok(Some(id)) => id,
        Ok(None) => return None,
        Err(_) => 0,
    };
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let program =
        programs.filter(|info| info.id() == id).find_map(|info| info.name_as_str().map(str::to_owned));
    let (interface, program) = (interface.name.clone(), program.unwrap_or_default());
    Some(XdpError::ProgramPresent { interface, program, id })
}

pub(crate) fn typed<T: TryFrom<Map, Error = MapError>>(
    object: &mut Ebpf,
    name: &'static str,
) -> Result<T, XdpError> {
    let map = object.take_map(name).expect("the object defines the map");
    T::try_from(map).map_err(map_error(name))
}

/// The error number that is the cause of an error, if one is.
fn refusal(error: &(dyn Error + 'static)) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
}

/// Tells "not permitted" from "not possible".
pub(crate) fn load_error(error: &(dyn Error + 'static)) -> XdpError {
    match refusal(error) {
        Some(errno @ (libc::EPERM | libc::EACCES)) if !is_verifier(error) => XdpError::NotPermitted {
            operation: "loading a BPF program",
            source: io::Error::from_raw_os_error(errno),
        },
        _ => XdpError::Load(chain(error)),
    }
}

/// The verifier refuses a program with EACCES too, but says why.
fn is_verifier(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| match cause.downcast_ref::<ProgramError>() {
        Some(ProgramError::LoadError { verifier_log, .. }) => !verifier_log.to_string().is_empty(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_loaded_once_for_both_modes_if_they_have_the_same() {
        if !lab::require_root_and_xdp() {
            return;
        }
        let mut object = open_object(None).unwrap();
        for mode in [AttachMode::Native, AttachMode::Native, AttachMode::Generic] {
            load_program(&mut object, mode).unwrap();
        }
    }
}
