//! What a call costs that is hooked and is the kernel's all the same.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use bench::processor::busy_shares;
use lab::programs::{Program, Ready};
use lab::{Lab, LabError};

use crate::Measurement;
use crate::scenarios::Serving;

/// What this program is called with to make the calls itself.
pub(crate) const CALLS: &str = "--calls";
/// Calls that are timed at a time.
const BATCH: u32 = 10_000;
/// Times that a batch is timed: the fastest counts, which nobody has disturbed.
const BATCHES: u32 = 200;

/// Runs this program as the one that makes the calls.
pub(crate) fn measure(lab: &Lab, serving: Serving, _seconds: u32) -> Result<Measurement, LabError> {
    let own = std::env::current_exe().expect("the system knows what it runs");
    let program = Program::new("calls", &own.display().to_string()).argument(CALLS).ready(Ready::AtOnce);
    let mut running = serving.start(lab, &program)?;
    let (status, busy) = busy_shares(|| running.process.wait(Duration::from_secs(60)));
    let status = status?;
    let output = running.process.output();
    let line = output.lines().find_map(|line| line.strip_prefix("mean "));
    let value = line.and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
    eprintln!("  {}", output.replace('\n', ", "));
    Ok(Measurement { value, errors: u64::from(!status.success()), busy })
}

/// Times calls of the C library on descriptors that are not accelerated, and prints the nanoseconds of each kind and their mean.
pub(crate) fn call() {
    let mut sink = File::options().write(true).open("/dev/null").expect("it is there");
    let mut source = File::open("/dev/null").expect("it is there");
    let socket = UnixDatagram::unbound().expect("sockets of the kernel are to be had");
    socket.set_nonblocking(true).expect("it is a socket");
    let mut octet = [0];
    let kinds = [
        ("write", fastest(|| drop(sink.write(&octet)))),
        ("read", fastest(|| drop(source.read(&mut octet)))),
        ("recv, nothing there", fastest(|| drop(socket.recv(&mut [0])))),
        ("getsockopt", fastest(|| drop(socket.take_error()))),
    ];
    for (kind, ns) in kinds {
        println!("{kind} {ns:.1} ns");
    }
    println!("mean {:.2}", kinds.iter().map(|(_, ns)| ns).sum::<f64>() / kinds.len() as f64);
}

fn fastest(mut call: impl FnMut()) -> f64 {
    let batch = |_| {
        let began = Instant::now();
        (0..BATCH).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / f64::from(BATCH)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}
