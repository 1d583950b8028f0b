//! What was meant: flag, then environment, then file, then default.

use crate::args::{GlobalArgs, OutputFormat};
use crate::env_vars as vars;
use crate::failure::Failure;
use crate::places::{self, Env};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Where a server listens if nobody says otherwise.
const URL_DEFAULT: &str = "http://127.0.0.1:8700";
/// Largest configuration or key file that is read, bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Everything that a client command needs to know of its surroundings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Server, without a trailing slash or `/api/v1`.
    pub(crate) url: String,
    /// Key; `None` is told to the user when the server refuses.
    pub(crate) api_key: Option<String>,
    /// Authority to trust beside the system's.
    pub(crate) ca_cert: Option<PathBuf>,
    /// Team of the environment or the file; a flag of the command wins.
    pub(crate) team_id: Option<String>,
    /// Form of the answer.
    pub(crate) output: OutputFormat,
    /// Ids only, no progress.
    pub(crate) quiet: bool,
}

/// `~/.config/warren/config.toml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ConfigFile {
    url: Option<String>,
    api_key: Option<String>,
    ca_cert: Option<PathBuf>,
    team_id: Option<String>,
}

/// Why the settings could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a valid configuration: {message}", path.display())]
    BadFile { path: PathBuf, message: String },
    #[error("`{url}` is not a server URL")]
    BadUrl { url: String },
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        let hint = match &error {
            SettingsError::Read { .. } => "check the file's permissions",
            SettingsError::BadFile { .. } => "known keys: url, api-key, ca-cert, team-id",
            SettingsError::BadUrl { .. } => "write it as http://HOST:PORT or https://HOST:PORT",
        };
        Failure::new(error.to_string()).hint(hint)
    }
}

impl Settings {
    /// Reads the environment and the files of this process.
    pub(crate) fn load(global: &GlobalArgs) -> Result<Self, SettingsError> {
        let env: Env<'_> = &places::process_env;
        let file = match places::config_file(env) {
            Some(path) => read_config(&path)?,
            None => ConfigFile::default(),
        };
        let mut settings = Self::resolve(global, env, file)?;
        if settings.api_key.is_none() && is_local_url(&settings.url) {
            settings.api_key = local_key(&places::data_dir(None, env, places::is_root()))?;
        }
        Ok(settings)
    }

    /// Flag, environment, file, default, in this order; reads nothing.
    pub(crate) fn resolve(global: &GlobalArgs, env: Env<'_>, file: ConfigFile) -> Result<Self, SettingsError> {
        let first = |flag: &Option<String>, names: &[&str], file: Option<String>| {
            flag.clone().or_else(|| names.iter().find_map(|name| env(name))).or(file)
        };
        let url = first(&global.url, &[vars::WARREN_URL, vars::PRIME_API_BASE_URL], file.url);
        Ok(Self {
            url: normal_url(&url.unwrap_or_else(|| URL_DEFAULT.to_owned()))?,
            api_key: first(&global.api_key, &[vars::WARREN_API_KEY, vars::PRIME_API_KEY], file.api_key),
            ca_cert: global.ca_cert.clone().or_else(|| env(vars::WARREN_CA_CERT).map(PathBuf::from)).or(file.ca_cert),
            team_id: first(&None, &[vars::PRIME_TEAM_ID], file.team_id),
            output: global.output,
            quiet: global.quiet,
        })
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        is_local_url(&self.url)
    }
}

/// The URL as the `prime` clients take it: a trailing slash or `/api/v1` does not matter.
fn normal_url(text: &str) -> Result<String, SettingsError> {
    let bad = || SettingsError::BadUrl { url: text.to_owned() };
    let parsed = reqwest::Url::parse(text).map_err(|_| bad())?;
    let plain = parsed.query().is_none() && parsed.fragment().is_none();
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() || !plain {
        return Err(bad());
    }
    let trimmed = text.trim_end_matches('/');
    Ok(trimmed.strip_suffix("/api/v1").unwrap_or(trimmed).trim_end_matches('/').to_owned())
}

fn is_local_url(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|parsed| parsed.host_str().map(str::to_owned));
    matches!(host.as_deref(), Some("127.0.0.1" | "localhost" | "[::1]"))
}

fn read_config(path: &Path) -> Result<ConfigFile, SettingsError> {
    let Some(text) = read_small(path)? else { return Ok(ConfigFile::default()) };
    toml::from_str(&text)
        .map_err(|error| SettingsError::BadFile { path: path.to_owned(), message: error.message().to_owned() })
}

/// The key that a server on this machine left in its data directory, if this user may read it.
fn local_key(data_dir: &Path) -> Result<Option<String>, SettingsError> {
    let text = match read_small(&data_dir.join("api-key")) {
        // Another user's server: its key is not ours to have, and asking for one is the better answer.
        Err(SettingsError::Read { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => None,
        other => other?,
    };
    Ok(text.map(|text| text.trim().to_owned()).filter(|key| !key.is_empty()))
}

fn read_small(path: &Path) -> Result<Option<String>, SettingsError> {
    use std::io::Read as _;
    let failed = |source| SettingsError::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(FILE_LEN_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> ConfigFile {
        ConfigFile {
            url: Some("https://file/".into()),
            api_key: Some("file-key".into()),
            ca_cert: Some("/file.pem".into()),
            team_id: Some("file-team".into()),
        }
    }

    fn resolve(flag: Option<&str>, env: &[(&str, &str)], file: ConfigFile) -> Settings {
        let global = GlobalArgs { url: flag.map(str::to_owned), ..GlobalArgs::default() };
        let look = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Settings::resolve(&global, &look, file).expect("resolves")
    }

    #[test]
    fn flag_then_environment_then_file_then_default() {
        let env = [(vars::PRIME_API_BASE_URL, "http://prime"), (vars::WARREN_URL, "http://warren")];
        assert_eq!(resolve(Some("http://flag"), &env, file()).url, "http://flag");
        assert_eq!(resolve(None, &env, file()).url, "http://warren");
        assert_eq!(resolve(None, &env[..1], file()).url, "http://prime");
        assert_eq!(resolve(None, &[], file()).url, "https://file");
        assert_eq!(resolve(None, &[], ConfigFile::default()).url, URL_DEFAULT);
    }

    #[test]
    fn keys_and_teams_have_the_same_order() {
        let env = [(vars::PRIME_API_KEY, "prime"), (vars::WARREN_API_KEY, "warren"), (vars::PRIME_TEAM_ID, "t")];
        let settings = resolve(None, &env, file());
        assert_eq!((settings.api_key.as_deref(), settings.team_id.as_deref()), (Some("warren"), Some("t")));
        assert_eq!(resolve(None, &[], file()).api_key.as_deref(), Some("file-key"));
        assert_eq!(resolve(None, &[], ConfigFile::default()).api_key, None);
    }

    #[test]
    fn urls_are_taken_as_the_prime_clients_take_them() {
        for text in ["http://h:1/p", "http://h:1/p/", "http://h:1/p/api/v1", "http://h:1/p/api/v1/"] {
            assert_eq!(normal_url(text).expect("a URL"), "http://h:1/p");
        }
        for bad in ["h:1", "ftp://h", "", "http://", "http://h?x=1", "http://h#x"] {
            assert!(normal_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for url in ["http://127.0.0.1:8700", "https://localhost", "http://[::1]:1"] {
            assert!(is_local_url(url), "{url}");
        }
        for url in ["http://127.0.0.1.example.org", "http://10.0.0.1"] {
            assert!(!is_local_url(url), "{url}");
        }
    }

    #[test]
    fn files_are_read_if_there_and_understood() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.toml");
        assert_eq!(read_config(&path).expect("absent is empty"), ConfigFile::default());
        std::fs::write(&path, "url = 'http://x'\napi-key = 'k'\n").expect("written");
        assert_eq!(read_config(&path).expect("read").api_key.as_deref(), Some("k"));
        std::fs::write(&path, "ulr = 'http://x'\n").expect("written");
        assert!(matches!(read_config(&path), Err(SettingsError::BadFile { .. })));
        std::fs::write(dir.path().join("api-key"), "secret\n").expect("written");
        assert_eq!(local_key(dir.path()).expect("read").as_deref(), Some("secret"));
    }
}
