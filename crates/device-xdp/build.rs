//! Compiles the programs for the kernel with clang, into objects that the crate embeds.

use std::env;
use std::path::Path;
use std::process::Command;

const PROGRAMS: [&str; 2] = ["steer", "accept_queue"];

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    PROGRAMS.into_iter().for_each(compile);
}

fn compile(program: &str) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let source = format!("bpf/{program}.bpf.c");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = Path::new(&out).join(format!("{program}.bpf.o"));
    let target = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    // Debian keeps <asm/types.h>, which the kernel's headers include, in a folder per architecture.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let status = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", target, "-mcpu=v3", "-c", &source, "-o"])
        .arg(&object)
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .status();
    match status {
        Ok(status) if status.success() => (),
        Ok(status) => panic!(
            "{clang} could not compile {source} ({status}); it needs the kernel's and libbpf's headers: on Debian, \
             `apt-get install clang libbpf-dev linux-libc-dev`"
        ),
        Err(error) => panic!(
            "programs for the kernel are compiled by clang, which did not start ({clang}: {error}): on Debian, \
             `apt-get install clang libbpf-dev`, or name another clang in the environment variable CLANG"
        ),
    }
}
