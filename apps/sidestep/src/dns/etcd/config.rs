//! `[etcd]`: where the keys are, who may read them, and what their zones have.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use dns_transfer::{AccessList, Keys};
use dns_wire::NameBuf;

use crate::dns::config::ConfigError;
use crate::dns::config_file::EtcdTable;
use crate::dns::peer::Peer;
use crate::dns::transfers::{access_list, file_name, own_peers};

const PREFIX: &str = "/sidestep/dns/";
/// A port that etcd has by itself.
const PORT: u16 = 2379;

/// What the names of files end with in which zones are kept. No file of an owner, a secondary or another program ends so.
const KEPT_ENDING: &str = ".etcd-zone";

/// Where zones come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdSpec {
    /// Members of the cluster, as URIs, in the order in which they are asked.
    pub(crate) endpoints: Vec<String>,
    /// What all keys begin with; it ends in a slash.
    pub(crate) prefix: String,
    /// Where zones are kept over a restart.
    pub(crate) directory: Option<PathBuf>,
    /// A user, and the file with the password.
    pub(super) login: Option<(String, PathBuf)>,
    pub(super) tls: Option<TlsSpec>,
    /// Where the keys are of zones that are signed.
    pub(crate) keys: Option<PathBuf>,
    /// Whether a key is made if there is none.
    pub(super) makes_keys: bool,
    /// Who may transfer these zones, in place of those who may transfer all.
    pub(crate) allow_transfer: Option<AccessList>,
    /// Who hears of new versions, in place of those who hear of all.
    pub(crate) notify: Option<Vec<Peer>>,
}

/// Files of certificates, which are read for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsSpec {
    /// Whom to trust, in place of the system's.
    pub(super) ca: Option<PathBuf>,
    /// Who we are.
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    /// The name in the members' certificates, in place of that in the endpoint.
    pub(super) server_name: Option<String>,
}

impl EtcdSpec {
    /// Checks the table. Relative paths start at `directory`.
    pub(crate) fn resolve(table: &EtcdTable, keys: &Keys, directory: &Path) -> anyhow::Result<EtcdSpec> {
        let path = |file: &Option<PathBuf>| file.as_ref().map(|file| directory.join(file));
        let tls = TlsSpec {
            ca: path(&table.ca),
            certificate: path(&table.certificate),
            key: path(&table.key),
            server_name: table.server_name.clone(),
        };
        if tls.certificate.is_some() != tls.key.is_some() {
            bail!("certificate and key: expected both, or none");
        }
        let has_options = tls != TlsSpec::default();
        let endpoints = table.endpoints.iter().map(|text| endpoint(text, has_options));
        let endpoints: Vec<String> = endpoints.collect::<Result<_, _>>()?;
        let by_tls = endpoints.iter().filter(|endpoint| endpoint.starts_with("https:")).count();
        if endpoints.is_empty() {
            bail!("endpoints: none is named, expected at least one, such as \"http://127.0.0.1:{PORT}\"");
        }
        if (by_tls != 0 && by_tls != endpoints.len()) || (by_tls == 0 && has_options) {
            bail!("endpoints: expected https in all of them, as there are certificates, or in none");
        }
        let login = match (&table.user, &table.password_file) {
            (Some(user), Some(file)) => Some((user.clone(), directory.join(file))),
            (None, None) => None,
            _ => bail!("user and password-file: expected both, or none"),
        };
        if table.keys.is_some() && table.directory.is_none() {
            bail!("keys: expected directory beside it: signed versions go on from those that are kept there");
        }
        let allow_transfer = table.allow_transfer.as_deref();
        Ok(EtcdSpec {
            endpoints,
            prefix: prefix(table.prefix.as_deref().unwrap_or(PREFIX))?,
            directory: path(&table.directory),
            login,
            tls: (by_tls > 0).then_some(tls),
            keys: path(&table.keys),
            makes_keys: table.new_keys,
            allow_transfer: allow_transfer
                .map(|texts| access_list("allow-transfer", texts, keys))
                .transpose()?,
            notify: own_peers(table.notify.as_deref(), keys).context("notify")?,
        })
    }

    /// The file in which a zone is kept.
    pub(super) fn file_of(&self, origin: &NameBuf) -> Option<PathBuf> {
        let name = file_name(origin);
        let name = name.strip_suffix(".zone").unwrap_or(&name);
        Some(self.directory.as_ref()?.join(format!("{name}{KEPT_ENDING}")))
    }

    /// Refuses to keep zones where another zone has its file: what has left etcd is removed there.
    pub(crate) fn refuse_files_of_others<'f>(
        &self,
        files: impl Iterator<Item = &'f Path>,
    ) -> anyhow::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let own = real(directory);
        let is_ours =
            |file: &Path| is_kept_name(file) && file.parent().is_some_and(|parent| real(parent) == own);
        for file in files {
            if is_ours(file) || is_ours(&real(file)) {
                bail!(
                    "etcd: directory: {} is the file of another zone: files there that end with {KEPT_ENDING} are those of zones from etcd",
                    file.display()
                );
            }
        }
        Ok(())
    }

    /// The file with the password.
    pub(crate) fn password_file(&self) -> Option<&Path> {
        self.login.as_ref().map(|(_, file)| &**file)
    }

    /// All files that a connection needs.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let tls = self.tls.iter().flat_map(|tls| [&tls.ca, &tls.certificate, &tls.key]);
        tls.flatten().map(PathBuf::as_path).chain(self.password_file())
    }
}

/// Whether a file has the name of one in which a zone is kept.
pub(super) fn is_kept_name(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_encoded_bytes().ends_with(KEPT_ENDING.as_bytes()))
}

/// `ADDRESS`, `NAME`, both with or without a port, and with `http://` or `https://` in front or without.
fn endpoint(text: &str, by_tls: bool) -> Result<String, ConfigError> {
    let form = || ConfigError::Form {
        option: "etcd.endpoints",
        value: text.to_owned(),
        expected: "an endpoint of etcd, such as http://192.0.2.1:2379 or https://etcd-1.example.net:2379",
    };
    let (scheme, host) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), host)) => (scheme, host),
        Some(_) => return Err(form()),
        None => (if by_tls { "https" } else { "http" }, text),
    };
    let host = host.strip_suffix('/').unwrap_or(host);
    let has_port = |host: &str| host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{PORT}"),
        Err(_) if has_port(host) => host.to_owned(),
        Err(_) => format!("{host}:{PORT}"),
    };
    let uri = format!("{scheme}://{with_port}");
    let parsed: http::Uri = uri.parse().map_err(|_| form())?;
    let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@']);
    if is_host && parsed.host().is_some_and(|host| !host.is_empty()) { Ok(uri) } else { Err(form()) }
}

fn prefix(text: &str) -> Result<String, ConfigError> {
    if text.is_empty() || text.len() > 1000 {
        let value = text.chars().take(40).collect();
        return Err(ConfigError::Form { option: "etcd.prefix", value, expected: "1 to 1000 octets" });
    }
    Ok(format!("{}/", text.strip_suffix('/').unwrap_or(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> anyhow::Result<EtcdSpec> {
        EtcdSpec::resolve(&toml::from_str(text).unwrap(), &Keys::default(), Path::new("/nowhere"))
    }

    fn error(text: &str) -> String {
        format!("{:#}", resolve(text).unwrap_err())
    }

    #[test]
    fn endpoints_are_names_and_addresses_with_and_without_ports() {
        let text = "endpoints = [\"192.0.2.1\", \"http://::1\", \"[::1]:5\", \"http://etcd.example:7/\"]";
        let spec = resolve(text).unwrap();
        let expected = ["192.0.2.1:2379", "[::1]:2379", "[::1]:5", "etcd.example:7"];
        assert_eq!(spec.endpoints, expected.map(|host| format!("http://{host}")));
        assert_eq!((spec.prefix.as_str(), spec.tls), (PREFIX, None));
        for wrong in ["ftp://a", "", "http://", "a b", "http://a/b", "http://a?b", "http://u@a", ":1"] {
            assert!(error(&format!("endpoints = [\"{wrong}\"]")).contains("is not an endpoint"), "{wrong}");
        }
        assert!(error("endpoints = []").contains("none is named"));
    }

    #[test]
    fn a_prefix_ends_in_a_slash() {
        let of = |text: &str| resolve(&format!("endpoints = [\"a\"]\nprefix = \"{text}\"")).unwrap().prefix;
        assert_eq!([of("/dns"), of("/dns/"), of("dns")], ["/dns/", "/dns/", "dns/"]);
        assert!(error("endpoints = [\"a\"]\nprefix = \"\"").starts_with("etcd.prefix: \"\" is not"));
    }

    #[test]
    fn certificates_mean_tls_and_go_with_nothing_else() {
        let spec = resolve("endpoints = [\"a\"]\nca = \"ca.pem\"").unwrap();
        assert_eq!(spec.endpoints, ["https://a:2379"]);
        assert_eq!(spec.files().collect::<Vec<_>>(), [Path::new("/nowhere/ca.pem")]);
        assert_eq!(resolve("endpoints = [\"https://a\"]").unwrap().tls, Some(TlsSpec::default()));
        assert!(error("endpoints = [\"http://a\"]\nca = \"ca.pem\"").contains("expected https"));
        assert!(error("endpoints = [\"http://a\", \"https://b\"]").contains("expected https"));
        assert!(error("endpoints = [\"a\"]\nkey = \"k\"").contains("certificate and key"));
    }

    #[test]
    fn zones_are_kept_in_files_of_a_name_that_no_other_zone_may_have_there() {
        let spec = resolve("endpoints = [\"a\"]\ndirectory = \"kept\"").unwrap();
        let name = |text: &str| NameBuf::from_text(text.as_bytes(), None).unwrap();
        for origin in ["example.org.", "zone.", "."] {
            let file = spec.file_of(&name(origin)).unwrap();
            assert!(file.starts_with("/nowhere/kept") && is_kept_name(&file), "{}", file.display());
        }
        let refused = |file: &str| spec.refuse_files_of_others([Path::new(file)].into_iter()).is_err();
        assert!(refused("/nowhere/kept/example.org.etcd-zone"));
        assert!(!refused("/nowhere/kept/example.org.zone") && !refused("/nowhere/example.org.etcd-zone"));
    }

    #[test]
    fn a_user_has_a_password_and_signing_a_directory() {
        let spec = resolve("endpoints = [\"a\"]\nuser = \"dns\"\npassword-file = \"p\"").unwrap();
        assert_eq!(spec.password_file(), Some(Path::new("/nowhere/p")));
        assert!(error("endpoints = [\"a\"]\nuser = \"dns\"").contains("password-file"));
        assert!(error("endpoints = [\"a\"]\nkeys = \"k\"").contains("expected directory"));
    }
}
