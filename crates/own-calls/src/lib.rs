//! Programs that wait for their sockets by system calls of their own.
//!
//! `sidestep run` sees what a program asks the C library for. Some programs open their sockets by the C library and wait for them past it: those in
//! Rust that use `rustix` for epoll(7) make these system calls by instructions in their own code. They would never
//! learn of what comes for their sockets on our stack. So they are recognised by their file, and left to the kernel.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use memchr::memmem::Finder;
use object::elf::PF_X;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ReadCache, SegmentFlags};

/// The C library's functions that wait at epoll instances.
const WAITS: [&[u8]; 3] = [b"epoll_wait", b"epoll_pwait", b"epoll_pwait2"];
/// Octets of a program that are looked at at once.
const PIECE: usize = 1 << 18;

/// Whether a program makes the system calls that wait at epoll instances itself, and never asks the C library to. False if it is not ELF, or cannot
/// be read.
pub fn waits_by_itself(program: &File) -> bool {
    let cache = ReadCache::new(program);
    let Ok(elf) = ElfFile64::<Endianness, _>::parse(&cache) else { return false };
    let asks = elf.imports().is_ok_and(|imports| imports.iter().any(|import| WAITS.contains(&import.name())));
    let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0);
    let code = elf.segments().filter(|segment| is_code(segment.flags())).map(|segment| segment.file_range());
    !asks && code.into_iter().any(|(at, len)| has_waits(program, at, len))
}

/// Looks through a part of a file, which may be large.
fn has_waits(program: &File, mut at: u64, len: u64) -> bool {
    let end = at.saturating_add(len);
    let mut piece = vec![0; PIECE];
    let instruction = Finder::new(&machine::SYSCALL);
    while at < end {
        let wanted = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
        if program.read_exact_at(&mut piece[..wanted], at).is_err() {
            return false;
        }
        let read = &piece[..wanted];
        if instruction.find_iter(read).any(|place| machine::is_wait(&read[..place])) {
            return true;
        }
        // What precedes an instruction at the beginning of the next piece is at the end of this one.
        at += if wanted < PIECE { wanted } else { PIECE - machine::BEFORE } as u64;
    }
    false
}

#[cfg(target_arch = "x86_64")]
mod machine {
    /// `syscall`.
    pub(super) const SYSCALL: [u8; 2] = [0x0f, 0x05];
    /// The number is loaded within so many octets before: the instructions between load up to six arguments.
    pub(super) const BEFORE: usize = 64;
    /// epoll_wait, epoll_pwait and epoll_pwait2.
    const NUMBERS: [u32; 3] = [232, 281, 441];

    fn number(load: &[u8]) -> u32 {
        u32::from_le_bytes([load[1], load[2], load[3], load[4]])
    }

    /// Whether these octets, which precede the instruction, load the number of a call that waits.
    pub(super) fn is_wait(before: &[u8]) -> bool {
        let near = &before[before.len().saturating_sub(BEFORE)..];
        // `mov REGISTER, NUMBER`, in both encodings: a compiler may keep the number in another register than that of the call.
        let is_load = |it: &[u8]| (0xb8..=0xc7).contains(&it[0]) && NUMBERS.contains(&number(it));
        near.windows(5).any(is_load)
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    /// `svc #0`.
    pub(super) const SYSCALL: [u8; 4] = [0x01, 0, 0, 0xd4];
    /// The number is loaded within so many octets before.
    pub(super) const BEFORE: usize = 64;
    /// `mov x8, NUMBER` and `mov w8, NUMBER`: the numbers of epoll_pwait and epoll_pwait2.
    const LOADS: [u32; 4] =
        [load(0xd280_0008, 22), load(0xd280_0008, 441), load(0x5280_0008, 22), load(0x5280_0008, 441)];

    const fn load(instruction: u32, number: u32) -> u32 {
        instruction | number << 5
    }

    /// Whether these octets, which precede the instruction, load the number of a call that waits.
    pub(super) fn is_wait(before: &[u8]) -> bool {
        let near = &before[before.len().saturating_sub(BEFORE)..];
        near.windows(4).any(|it| LOADS.contains(&u32::from_le_bytes([it[0], it[1], it[2], it[3]])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program of this test has the call, as it makes it.
    #[test]
    fn a_program_that_waits_past_the_c_library_is_found() {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::with_capacity(1);
        rustix::event::epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&now)).unwrap();
        assert!(waits_by_itself(&File::open("/proc/self/exe").unwrap()));
    }

    #[test]
    fn programs_that_ask_the_c_library_or_do_not_wait_are_not() {
        for program in ["/bin/sh", "/usr/bin/env", "/etc/passwd", "/dev/null"] {
            assert!(!waits_by_itself(&File::open(program).unwrap()), "{program}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_call_that_spans_two_pieces_is_found() {
        let path = std::env::temp_dir().join(format!("sidestep-own-calls-{}", std::process::id()));
        for distance in [0, 1, 30, 60] {
            let mut octets = vec![0x90; 2 * PIECE];
            let at = PIECE - 20;
            octets[at..at + 5].copy_from_slice(&[0xb8, 0x19, 1, 0, 0]);
            let call = at + 5 + distance.min(machine::BEFORE - 5);
            octets[call..call + 2].copy_from_slice(&machine::SYSCALL);
            std::fs::write(&path, &octets).unwrap();
            let file = File::open(&path).unwrap();
            assert!(has_waits(&file, 0, 2 * PIECE as u64), "{distance}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
