//! The corpora of this crate's fuzz targets: named histories of clients, and how they are replayed.
//!
//! After a change of a named case: `SIDESTEP_WRITE_CORPUS=1 cargo test -p broker`.

use std::path::PathBuf;
use std::{env, fs};

use broker::protocol::{Request, ToBroker, encode};

/// A history and what it is kept for.
pub(crate) type Case = (&'static str, Vec<u8>);

/// The files of a target; others may lie beside those of its named cases.
pub(crate) struct Corpus {
    /// The target's name.
    pub(crate) name: &'static str,
    /// The target.
    pub(crate) fuzz: fn(&[u8]),
    /// The source of the named files.
    pub(crate) cases: Vec<Case>,
}

impl Corpus {
    /// Replays every file.
    pub(crate) fn replay(&self) {
        let mut replayed = 0;
        for file in fs::read_dir(self.directory()).unwrap() {
            (self.fuzz)(&fs::read(file.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed >= self.cases.len(), "only {replayed} files");
    }

    /// Checks that the named cases are in their files, or writes them.
    pub(crate) fn check_files(&self) {
        for (name, history) in &self.cases {
            let path = self.directory().join(name);
            if env::var_os("SIDESTEP_WRITE_CORPUS").is_some() {
                fs::create_dir_all(self.directory()).unwrap();
                fs::write(&path, history).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), *history, "{name} differs from its file");
        }
    }

    /// Replays `rounds` changes of each case: what a fuzzer does first.
    pub(crate) fn replay_changed(&self, rounds: usize) {
        let rounds =
            env::var("SIDESTEP_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(rounds);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for (_, history) in self.cases.iter().filter(|(_, history)| !history.is_empty()) {
            for _ in 0..rounds {
                (self.fuzz)(&random.change(history));
            }
        }
    }

    fn directory(&self) -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", self.name].iter().collect()
    }
}

/// An xorshift generator: the same changes every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// `history` with some octets changed, added or taken out.
    fn change(&mut self, history: &[u8]) -> Vec<u8> {
        let mut changed = history.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(changed.len());
            match self.below(3) {
                0 => changed[at] = self.below(256) as u8,
                1 => changed.insert(at, self.below(256) as u8),
                _ => drop(changed.splice(at..changed.len().min(at + self.below(8)), [])),
            }
            if changed.is_empty() {
                changed.push(0);
            }
        }
        changed
    }
}

/// A message of these octets, with what `socket` stands for.
pub(crate) fn text(client: u8, socket: u8, octets: &[u8]) -> Vec<u8> {
    let [low, high] = (octets.len() as u16).to_le_bytes();
    [&[client, socket, low, high], octets].concat()
}

/// A request, with what `socket` stands for.
pub(crate) fn say_with(client: u8, socket: u8, request: Request) -> Vec<u8> {
    text(client, socket, &encode(&ToBroker { id: 1, request }).unwrap())
}

/// A request.
pub(crate) fn say(client: u8, request: Request) -> Vec<u8> {
    say_with(client, 0, request)
}
