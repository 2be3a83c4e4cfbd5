//! `sidestep gun` as a generator of benchmarks.

use lab::{Lab, LabError, Questions, SERVER_V4, Side, sidestep_binary};
use serde_json::Value;

/// The largest load that a server carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// Answers a second.
    pub rate: f64,
    /// What keeps it there: `server`, `generator`, `connections` or `answers`.
    pub limit: String,
    /// Whether every answer was whole, and without an error: others cost a server less.
    pub whole: bool,
}

/// Searches the largest load of questions that the server of a laboratory carries, from the client's core.
///
/// # Errors
/// The generator fails, or no load was carried.
pub fn knee(lab: &Lab, questions: &Questions, options: &[&str]) -> Result<Knee, LabError> {
    let names = questions.file.display().to_string();
    let words = ["gun", "dns", SERVER_V4, "--names", &names, "--order", "random"];
    let search = ["--find-knee", "--step", "1s", "--json", "-"];
    let program = sidestep_binary().display().to_string();
    let report = lab.run_in(Side::Client, &program, &[&words[..], &search, options].concat())?;
    read(&report).ok_or(LabError::Report { field: "knee", report })
}

fn read(report: &str) -> Option<Knee> {
    let report: Value = serde_json::from_str(report).ok()?;
    let knee = &report["knee"];
    Some(Knee {
        rate: knee["carried"].as_f64()?,
        limit: knee["limit"].as_str()?.to_owned(),
        whole: report["loads"].as_array()?.iter().all(is_whole),
    })
}

/// NOERROR is 0.
fn is_whole(load: &Value) -> bool {
    let has_errors = load["rcodes"].as_object().is_some_and(|codes| codes.keys().any(|code| code != "0"));
    !has_errors && load["counts"]["truncated"].as_u64().unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_load_that_was_carried_is_none() {
        let found = read(r#"{ "knee": { "carried": 64000, "limit": "server" }, "loads": [] }"#);
        assert_eq!(found, Some(Knee { rate: 64000.0, limit: "server".to_owned(), whole: true }));
        assert_eq!(read(r#"{ "knee": { "carried": null, "limit": "server" } }"#), None);
        assert_eq!(read("an error"), None);
    }

    #[test]
    fn answers_that_are_cut_or_errors_are_not_whole() {
        let whole = |load: &str| {
            let report = format!(r#"{{ "knee": {{ "carried": 1, "limit": "server" }}, "loads": [{load}] }}"#);
            read(&report).unwrap().whole
        };
        assert!(whole(r#"{ "counts": { "truncated": 0 }, "rcodes": { "0": 9 } }"#));
        assert!(!whole(r#"{ "counts": { "truncated": 1 }, "rcodes": { "0": 9 } }"#));
        assert!(!whole(r#"{ "counts": { "truncated": 0 }, "rcodes": { "0": 9, "23": 1 } }"#));
    }
}
