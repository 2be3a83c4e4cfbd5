//! `query-log = "FILE"`, or a table `[query-log]`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::dns::config::ConfigError;

/// What the user wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryLogOption(QueryLogTable);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct QueryLogTable {
    /// File to write to; a relative path starts at the configuration file's directory.
    file: Option<PathBuf>,
    /// Unix socket of a program that takes dnstap.
    socket: Option<PathBuf>,
    /// `json` or `dnstap`.
    format: Option<String>,
    /// One answer of so many.
    sample: Option<u64>,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryLogSpec {
    pub(super) place: Place,
    pub(super) form: Form,
    pub(super) sample: u32,
}

/// Where answers go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Socket(PathBuf),
}

/// What they look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Dnstap,
}

impl QueryLogSpec {
    /// The file that is written, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => Some(path),
            Place::Socket(_) => None,
        }
    }
}

impl Place {
    pub(super) fn path(&self) -> &Path {
        match self {
            Place::File(path) | Place::Socket(path) => path,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

impl QueryLogOption {
    /// Checks it. Relative paths start at `directory`.
    pub(crate) fn resolve(&self, directory: &Path) -> Result<QueryLogSpec, ConfigError> {
        let table = &self.0;
        let form =
            |option, value: &str, expected| ConfigError::Form { option, value: value.to_owned(), expected };
        let place = match (&table.file, &table.socket) {
            (Some(file), None) => Place::File(directory.join(file)),
            (None, Some(socket)) => Place::Socket(directory.join(socket)),
            (Some(_), Some(socket)) => {
                let expected = "for a log that has a file already: name one of them";
                return Err(form("query-log.socket", &socket.display().to_string(), expected));
            }
            (None, None) => return Err(form("query-log", "", "either a file or a socket: name one of them")),
        };
        let is_socket = matches!(place, Place::Socket(_));
        let form = match table.format.as_deref() {
            Some("json") if is_socket => {
                return Err(form("query-log.format", "json", "what a socket takes: expected \"dnstap\""));
            }
            Some("json") => Form::Json,
            Some("dnstap") => Form::Dnstap,
            Some(other) => return Err(form("query-log.format", other, "\"json\" or \"dnstap\"")),
            None if is_socket => Form::Dnstap,
            None => Form::Json,
        };
        let (value, max) = (table.sample.unwrap_or(1), 1_000_000);
        let sample = u32::try_from(value)
            .ok()
            .filter(|sample| (1..=max).contains(sample))
            .ok_or(ConfigError::Range { option: "query-log.sample", value, min: 1, max: max.into() })?;
        Ok(QueryLogSpec { place, form, sample })
    }
}

impl<'de> Deserialize<'de> for QueryLogOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<QueryLogOption, D::Error> {
        struct FileOrTable;
        impl<'de> Visitor<'de> for FileOrTable {
            type Value = QueryLogTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file, or a table with `file` or `socket`")
            }

            fn visit_str<E>(self, path: &str) -> Result<QueryLogTable, E> {
                Ok(QueryLogTable { file: Some(path.into()), ..QueryLogTable::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QueryLogTable, A::Error> {
                QueryLogTable::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(FileOrTable).map(QueryLogOption)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct File {
        query_log: QueryLogOption,
    }

    fn resolved(text: &str) -> Result<QueryLogSpec, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        file.query_log.resolve(Path::new("/etc")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_alone_gets_json_and_a_socket_dnstap() {
        let spec = |place, form, sample| Ok(QueryLogSpec { place, form, sample });
        let file = || Place::File("/etc/q".into());
        assert_eq!(resolved("query-log = \"q\""), spec(file(), Form::Json, 1));
        assert_eq!(resolved("[query-log]\nfile = \"q\"\nsample = 100"), spec(file(), Form::Json, 100));
        assert_eq!(resolved("[query-log]\nfile = \"q\"\nformat = \"dnstap\""), spec(file(), Form::Dnstap, 1));
        let socket = Place::Socket("/run/s".into());
        assert_eq!(resolved("[query-log]\nsocket = \"/run/s\""), spec(socket, Form::Dnstap, 1));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, said) in [
            ("[query-log]\nsample = 2", "name one of them"),
            ("[query-log]\nfile = \"q\"\nsocket = \"s\"", "name one of them"),
            ("[query-log]\nsocket = \"s\"\nformat = \"json\"", "expected \"dnstap\""),
            ("[query-log]\nfile = \"q\"\nformat = \"text\"", "\"json\" or \"dnstap\""),
            ("[query-log]\nfile = \"q\"\nsample = 0", "expected 1 to 1000000"),
            ("[query-log]\npath = \"q\"", "unknown field `path`"),
            ("query-log = 7", "a file, or a table"),
        ] {
            let error = resolved(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
