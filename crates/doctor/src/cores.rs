//! Lists of cores, or queues, as the kernel writes them: `0-3,6`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Numbers in ascending order, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CoreList(Vec<u32>);

/// More cores than any machine has: a longer list is a mistake.
const CORES_MAX: u32 = 1 << 16;

impl CoreList {
    /// The numbers.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `core` is among them.
    pub fn contains(&self, core: u32) -> bool {
        self.0.binary_search(&core).is_ok()
    }
}

impl FromIterator<u32> for CoreList {
    fn from_iter<I: IntoIterator<Item = u32>>(cores: I) -> CoreList {
        let mut cores: Vec<u32> = cores.into_iter().collect();
        cores.sort_unstable();
        cores.dedup();
        CoreList(cores)
    }
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreList, String> {
        let wrong = || format!("{text:?} is no list of numbers such as 0-3,6");
        let mut cores = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| wrong())?;
            let last: u32 = last.trim().parse().map_err(|_| wrong())?;
            if first > last || last >= CORES_MAX {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        Ok(cores.into_iter().collect())
    }
}

impl TryFrom<String> for CoreList {
    type Error = String;

    fn try_from(text: String) -> Result<CoreList, String> {
        text.parse()
    }
}

impl From<CoreList> for String {
    fn from(cores: CoreList) -> String {
        cores.to_string()
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(core, expected)| **core == *expected).count();
            let last = rest[run - 1];
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            (rest, separator) = (&rest[run..], ",");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_and_writes_as_the_kernels() {
        for text in ["", "0", "0-3", "0-3,6", "1,3,5-6"] {
            assert_eq!(text.parse::<CoreList>().unwrap().to_string(), text);
        }
        assert_eq!("3,0-1,2\n".parse::<CoreList>().unwrap().to_string(), "0-3");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["x", "3-1", "0-4294967295", "-1", "1-"] {
            assert!(text.parse::<CoreList>().is_err(), "{text}");
        }
    }
}
