//! DPDK's environment abstraction layer (EAL): memory, threads and buses of a process. It starts once and never ends.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use crate::{DpdkError, PortName, ffi};

/// Free huge pages of less than this are left alone: the tables of some queues need more than a few MiB.
const HUGE_MIN_KIB: u64 = 128 << 10;

/// The port that EAL was started with.
static STARTED: Mutex<Option<PortName>> = Mutex::new(None);

/// Octets of EAL's own memory where there are no huge pages, in MiB: rings and tables. Packets lie in memory of ours.
const SMALL_PAGES_MIB: &str = "256";

/// Starts EAL with `port`, or finds that it was.
pub(crate) fn start(port: &PortName, further: &[String]) -> Result<(), DpdkError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*started {
        Some(before) if before == port => return Ok(()),
        Some(_) => return Err(DpdkError::StartedBefore(port.to_string())),
        None => {}
    }
    // EAL pins its caller to the core that it calls main. Ours is not to be.
    let cores = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let arguments = arguments(port, further, &cores);
    let answer = init(&arguments);
    let _ = rustix::thread::sched_setaffinity(None, &cores);
    ffi::checked(answer).map_err(|source| DpdkError::Eal { arguments, source })?;
    *started = Some(port.clone());
    Ok(())
}

fn arguments(port: &PortName, further: &[String], cores: &rustix::thread::CpuSet) -> Vec<String> {
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| cores.is_set(core)).unwrap_or(0);
    // One core: EAL makes a thread for each, and we have our own.
    let mut arguments = ["--no-telemetry", "--iova-mode=va", "-l"].map(str::to_owned).to_vec();
    arguments.push(first.to_string());
    // No files, so that several processes do not meet.
    let memory: &[&str] = match has_huge_pages() {
        true => &["--in-memory"],
        false => &["--no-shconf", "--no-huge", "-m", SMALL_PAGES_MIB],
    };
    arguments.extend(memory.iter().map(|&word| word.to_owned()));
    arguments.extend(port.eal_option());
    if port.is_virtual() {
        arguments.push("--no-pci".to_owned());
    }
    arguments.extend_from_slice(further);
    arguments
}

/// Whether so much memory is free in huge pages that EAL can do with them.
fn has_huge_pages() -> bool {
    let Ok(sizes) = std::fs::read_dir("/sys/kernel/mm/hugepages") else { return false };
    // Directories are called hugepages-2048kB.
    let free_kib = |size: std::fs::DirEntry| -> Option<u64> {
        let name = size.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        Some(kib * free.trim().parse::<u64>().ok()?)
    };
    sizes.flatten().filter_map(free_kib).sum::<u64>() >= HUGE_MIN_KIB
}

fn init(arguments: &[String]) -> c_int {
    let words = ["sidestep"].into_iter().chain(arguments.iter().map(String::as_str));
    // EAL keeps pointers to its arguments: they are never freed.
    let words = words.map(|word| CString::new(word).unwrap_or_default().into_raw());
    let mut pointers: Vec<*mut c_char> = words.collect();
    let count = pointers.len() as c_int; // Some twenty.
    pointers.push(std::ptr::null_mut());
    // SAFETY: as main's arguments: `count` terminated strings and a null pointer, all of them leaked.
    unsafe { ffi::shim_eal_init(count, pointers.leak().as_mut_ptr()) }
}
