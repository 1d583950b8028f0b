use super::error::ServeError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use warren_image::{Config, RegistryConfig};
use warren_model::Login;

/// Where the file is if nobody says otherwise, in the data directory.
pub(super) const FILE_DEFAULT: &str = "registries.toml";
/// Largest such file, bytes.
const FILE_LEN_MAX: u64 = 1 << 20;
/// Rights of a file that others than its owner have.
const OTHERS: u32 = 0o077;

/// The file `registries.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    mirrors: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    credentials: BTreeMap<String, LoginEntry>,
    /// Whether a tag that is known here serves while its registry cannot be reached.
    #[serde(default = "yes")]
    offline_ok: bool,
    /// Longest time that one request waits in all while its registry limits the rate of requests, seconds.
    rate_limit_wait_secs: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginEntry {
    user: String,
    password: String,
}

fn yes() -> bool {
    true
}

/// How registries are reached. A file that was asked for must be there; the default one may be.
pub(super) fn load(asked: Option<&Path>, data_dir: &Path) -> Result<Config, ServeError> {
    let path = asked.map_or_else(|| data_dir.join(FILE_DEFAULT), Path::to_owned);
    let bad = |problem: String| ServeError::Registries { path: path.clone(), problem };
    match read(&path) {
        Ok(text) => parse(&text).map_err(bad),
        Err(error) if error.kind() == io::ErrorKind::NotFound && asked.is_none() => parse("").map_err(bad),
        Err(error) => Err(bad(error.to_string())),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.permissions().mode() & OTHERS != 0 {
        tracing::warn!(path = %path.display(), "others can read the passwords in it: chmod 600");
    }
    let mut text = String::new();
    file.take(FILE_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> Result<Config, String> {
    // The message alone: a quoted line could be one with a password.
    let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let login = |(host, login): (String, LoginEntry)| (host, Login { user: login.user, password: login.password });
    let credentials = file.credentials.into_iter().map(login).collect();
    let mut registry = RegistryConfig { mirrors: file.mirrors, credentials, ..Default::default() };
    if let Some(secs) = file.rate_limit_wait_secs {
        registry.rate_wait_max = Duration::from_secs(secs);
    }
    Ok(Config { registry, offline_ok: file.offline_ok, ..Default::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_and_logins_are_read() {
        let text = r#"
            offline-ok = false
            [mirrors]
            "docker.io" = ["https://mirror.example"]
            [credentials."ghcr.io"]
            user = "ann"
            password = "secret"
        "#;
        let config = parse(text).expect("parses");
        assert_eq!(config.registry.mirrors["docker.io"], ["https://mirror.example"]);
        assert_eq!(config.registry.credentials["ghcr.io"].user, "ann");
        assert!(!config.offline_ok);
    }

    #[test]
    fn a_mistake_is_told_without_the_password() {
        let message = parse("[credentials.\"x\"]\nuser = \"a\"\npasword = \"secret\"").map(drop).expect_err("refused");
        assert!(message.contains("pasword") && !message.contains("secret"), "{message}");
    }

    #[test]
    fn the_default_file_may_be_missing_and_one_asked_for_may_not() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(load(None, dir.path()).expect("defaults").offline_ok);
        assert!(load(Some(&dir.path().join("x")), dir.path()).is_err());
    }
}
