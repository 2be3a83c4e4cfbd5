//! What writers, readers and incidents tell each other: versions, faults, and that it is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Faults after which nothing new is learnt.
const FAULTS_MAX: usize = 30;

/// The versions of one zone.
pub(crate) struct Ledger {
    versions: Mutex<Versions>,
    /// Large transactions that somebody has ordered and the writer has not begun.
    pub(crate) burst: AtomicU64,
}

struct Versions {
    current: u32,
    sums: HashMap<u32, u64>,
    /// When each version was replaced.
    replaced: HashMap<u32, Instant>,
}

impl Ledger {
    pub(crate) fn new(serial: u32, sum: u64) -> Ledger {
        let versions = Versions { current: serial, sums: [(serial, sum)].into(), replaced: HashMap::new() };
        Ledger { versions: Mutex::new(versions), burst: AtomicU64::new(0) }
    }

    /// A version that may be seen from now on.
    pub(crate) fn announce(&self, serial: u32, sum: u64) {
        self.versions().sums.insert(serial, sum);
    }

    /// The primary has it.
    pub(crate) fn publish(&self, serial: u32) {
        let mut versions = self.versions();
        let old = versions.current;
        versions.replaced.insert(old, Instant::now());
        versions.current = serial;
    }

    pub(crate) fn current(&self) -> u32 {
        self.versions().current
    }

    /// The sum of a version; none if nobody has written it.
    pub(crate) fn sum(&self, serial: u32) -> Option<u64> {
        self.versions().sums.get(&serial).copied()
    }

    /// How long ago a version was replaced.
    pub(crate) fn age(&self, serial: u32) -> Duration {
        self.versions().replaced.get(&serial).map_or(Duration::ZERO, Instant::elapsed)
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was wrong, and whether all have to stop.
pub(crate) struct Run {
    began: Instant,
    faults: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Run {
    pub(crate) fn new() -> Run {
        Run { began: Instant::now(), faults: Mutex::new(Vec::new()), is_over: AtomicBool::new(false) }
    }

    pub(crate) fn say(&self, text: &str) {
        println!("transfers: {:4} s: {text}", self.began.elapsed().as_secs());
    }

    pub(crate) fn fault(&self, text: String) {
        self.say(&format!("FAULT: {text}"));
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(text);
        if faults.len() >= FAULTS_MAX {
            self.end();
        }
    }

    pub(crate) fn faults(&self) -> usize {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Sleeps, or less if it is over.
    pub(crate) fn sleep(&self, span: Duration) {
        let deadline = Instant::now() + span;
        while !self.is_over() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50).min(deadline - Instant::now().min(deadline)));
        }
    }
}
