//! `sidestep gun` as a generator of benchmarks.

use lab::{Lab, LabError, Questions, SERVER_V4, Side, sidestep_binary};
use serde_json::Value;

/// The largest load that a server carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// Answers a second.
    pub rate: f64,
    /// What keeps it there: `server` or `generator`.
    pub limit: String,
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
    Some(Knee { rate: knee["carried"].as_f64()?, limit: knee["limit"].as_str()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_load_that_was_carried_is_none() {
        let found = read(r#"{ "knee": { "carried": 64000, "limit": "server" }, "loads": [] }"#);
        assert_eq!(found, Some(Knee { rate: 64000.0, limit: "server".to_owned() }));
        assert_eq!(read(r#"{ "knee": { "carried": null, "limit": "server" } }"#), None);
        assert_eq!(read("an error"), None);
    }
}
