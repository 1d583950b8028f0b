//! Where files are, from the environment alone.

use crate::env_vars;
use std::path::PathBuf;

/// Data directory of the server when run by root.
const SYSTEM_DATA_DIR: &str = "/var/lib/warren";

/// Reads one environment variable; empty counts as unset.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of this process.
pub(crate) fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The data directory: what was asked for, else the environment's, else the usual one for this user.
pub(crate) fn data_dir(asked: Option<PathBuf>, env: Env<'_>, root: bool) -> PathBuf {
    asked.or_else(|| env(env_vars::WARREN_DATA_DIR).map(PathBuf::from)).unwrap_or_else(|| {
        match home_dir(env, env_vars::XDG_DATA_HOME, ".local/share") {
            Some(dir) if !root => dir.join("warren"),
            _ => PathBuf::from(SYSTEM_DATA_DIR),
        }
    })
}

/// The user's configuration file.
pub(crate) fn config_file(env: Env<'_>) -> Option<PathBuf> {
    home_dir(env, env_vars::XDG_CONFIG_HOME, ".config").map(|dir| dir.join("warren/config.toml"))
}

/// Whether this process has the rights of root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn home_dir(env: Env<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    env(variable).map(PathBuf::from).or_else(|| env(env_vars::HOME).map(|home| PathBuf::from(home).join(below_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(name: &str) -> Option<String> {
        (name == env_vars::HOME).then(|| "/home/ann".to_owned())
    }

    #[test]
    fn a_user_and_root_have_their_own_places() {
        assert_eq!(data_dir(None, &home, false), PathBuf::from("/home/ann/.local/share/warren"));
        assert_eq!(data_dir(None, &home, true), PathBuf::from("/var/lib/warren"));
        assert_eq!(data_dir(None, &|_| None, false), PathBuf::from("/var/lib/warren"));
        assert_eq!(config_file(&home), Some(PathBuf::from("/home/ann/.config/warren/config.toml")));
        assert_eq!(config_file(&|_| None), None);
    }

    #[test]
    fn what_is_asked_for_wins() {
        let env = |name: &str| (name == env_vars::WARREN_DATA_DIR).then(|| "/env".to_owned());
        assert_eq!(data_dir(None, &env, true), PathBuf::from("/env"));
        assert_eq!(data_dir(Some("/flag".into()), &env, true), PathBuf::from("/flag"));
    }
}
