//! Compiles the shim around DPDK's inline functions, with the flags that pkg-config(1) has for libdpdk.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=shim");
    if env::var_os("CARGO_FEATURE_DPDK").is_none() {
        return;
    }
    let mut build = cc::Build::new();
    build.file("shim/shim.c").flag("-std=gnu11").warnings_into_errors(true);
    for flag in pkg_config("--cflags") {
        // Others' headers: their warnings are not ours.
        match flag.strip_prefix("-I") {
            Some(folder) => build.flag("-isystem").flag(folder),
            None => build.flag(&flag),
        };
    }
    build.compile("sidestep_dpdk_shim");
    for flag in pkg_config("--libs") {
        match flag.strip_prefix("-l") {
            Some(library) => println!("cargo::rustc-link-lib={library}"),
            None => println!("cargo::rustc-link-arg={flag}"),
        }
    }
}

fn pkg_config(what: &str) -> Vec<String> {
    let output = Command::new("pkg-config").args([what, "libdpdk"]).output();
    let output = output.ok().filter(|output| output.status.success()).unwrap_or_else(|| {
        panic!("the feature dpdk needs libdpdk 22.11 or later and pkg-config: on Debian, `apt-get install libdpdk-dev pkg-config`")
    });
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}
