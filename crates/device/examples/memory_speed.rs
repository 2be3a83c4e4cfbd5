//! Frames a second through a memory pair: `cargo run --release -p device --example memory_speed`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use device::memory::{Config, MemoryDevice, pair};
use device::{Burst, Device};

const NOW: clock::Instant = clock::Instant::ZERO;
const COUNT: u64 = 20_000_000;

fn main() {
    let ends = || {
        let (mut left, mut right) = pair(&Config::default());
        (left.remove(0), right.remove(0))
    };
    let (left, right) = ends();
    println!("one thread, there and back in the same frame: {:.1} M frames/s", one_thread(left, right));
    let (left, right) = ends();
    println!("two threads, one way: {:.1} M frames/s", two_threads(left, right));
}

/// One core does the work of both ends.
fn one_thread(mut left: MemoryDevice, mut right: MemoryDevice) -> f64 {
    let start = Instant::now();
    let mut moved = 0;
    while moved < COUNT {
        fill(&mut left);
        let mut burst = Burst::new();
        right.rx_burst(&mut burst, NOW);
        moved += right.tx_burst(&mut burst, NOW) as u64;
        left.rx_burst(&mut burst, NOW);
        moved += burst.len() as u64;
        burst.drain(..).for_each(|frame| left.release(frame));
    }
    millions(start)
}

fn two_threads(mut left: MemoryDevice, mut right: MemoryDevice) -> f64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fill(&mut left);
            }
        });
        let start = Instant::now();
        let mut moved = 0;
        while moved < COUNT {
            let mut burst = Burst::new();
            moved += right.rx_burst(&mut burst, NOW) as u64;
            burst.drain(..).for_each(|frame| right.release(frame));
        }
        stop.store(true, Ordering::Relaxed);
        millions(start)
    })
}

/// Sends a burst of small frames, as far as there is room.
fn fill(device: &mut MemoryDevice) {
    let mut burst = Burst::new();
    while !burst.is_full()
        && let Some(mut frame) = device.alloc()
    {
        frame.set_len(64);
        burst.push(frame);
    }
    device.tx_burst(&mut burst, NOW);
    burst.drain(..).for_each(|frame| device.release(frame));
}

fn millions(start: Instant) -> f64 {
    COUNT as f64 / start.elapsed().as_secs_f64() / 1e6
}
