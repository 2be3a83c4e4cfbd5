//! Replays the corpus of the fuzz target `zone_text`.

mod common;

use common::workspace;
use dns_zone::text::fuzz_zone_text;

#[test]
fn the_corpus_of_zone_text_passes() {
    let mut count = 0;
    for entry in std::fs::read_dir(workspace().join("fuzz/corpus/zone_text")).unwrap() {
        fuzz_zone_text(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 40, "only {count} files");
}
