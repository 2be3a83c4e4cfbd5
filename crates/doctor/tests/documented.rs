//! docs/instruments.md says of every finding what it is about.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/instruments.md");
    let text = fs::read_to_string(path).unwrap();
    let table = text.split("### Findings").nth(1).unwrap().split("\n##").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

#[test]
fn every_finding_is_documented_and_no_other() {
    let ids: BTreeSet<String> = doctor::topics().map(|topic| topic.id.to_owned()).collect();
    assert_eq!(documented(), ids);
}

#[test]
fn no_two_findings_have_one_name() {
    let all = doctor::topics().count();
    let ids: BTreeSet<&str> = doctor::topics().map(|topic| topic.id).collect();
    assert_eq!(ids.len(), all);
}
