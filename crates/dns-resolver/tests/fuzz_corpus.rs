//! Replays the corpus of the fuzz target `dns_resolver`, whole and with each input changed a little.

use std::path::Path;

use dns_resolver::{Random, fuzz_resolver};

#[test]
fn the_corpus_replays() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns_resolver");
    let mut random = Random::new([3; 16]);
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("an entry").path();
        if !path.is_file() {
            continue;
        }
        let data = std::fs::read(&path).expect("an input");
        fuzz_resolver(&data);
        count += 1;
        for _ in 0..200 {
            let mut changed = data.clone();
            for _ in 0..=random.below(8) {
                let at = random.below(changed.len() as u64) as usize;
                changed[at] = random.draw() as u8;
            }
            fuzz_resolver(&changed);
        }
    }
    assert!(count >= 10, "{count} inputs");
}
