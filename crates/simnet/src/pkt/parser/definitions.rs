//! Names that the command line or the script defines: `-D NAME=value`, `--define=NAME=value`.

use std::collections::BTreeMap;

/// Names and the text that each stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definitions(BTreeMap<String, String>);

impl Definitions {
    /// Takes `NAME=value`; `None` if there is no name or no `=`.
    pub fn define(&mut self, text: &str) -> Option<()> {
        let (name, value) = text.split_once('=')?;
        let name = name.trim();
        let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_word.then(|| self.0.insert(name.to_owned(), value.trim().to_owned()))?;
        Some(())
    }

    /// What `name` stands for.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}
