use super::account::Account;
use super::program::STAND_IN_DIR;
use super::{Command, Defaults, STRING_LEN_MAX, StartError, Wiring};
use std::collections::BTreeMap;
use std::ffi::CString;

/// `PATH` of an image that sets none.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of a command. What the caller gives wins over the sandbox's, and that over what follows from the user,
/// unless the caller named the user.
pub(super) fn environment<'a>(
    defaults: &'a Defaults,
    command: &Command<'a>,
    account: &'a Account,
) -> BTreeMap<&'a str, &'a str> {
    let follows_user = [("HOME", account.home.as_str()), ("USER", &account.name), ("LOGNAME", &account.name)];
    let mut env = BTreeMap::from([("PATH", PATH_DEFAULT), ("HOSTNAME", &defaults.hostname)]);
    if matches!(command.wiring, Wiring::Terminal(_)) {
        env.insert("TERM", "xterm-256color");
    }
    let sandbox = defaults.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    if command.user.is_some() {
        env.extend(sandbox.chain(follows_user));
    } else {
        env.extend(follows_user);
        env.extend(sandbox);
    }
    env.extend(command.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    env
}

/// The environment as the kernel takes it, with the stand-ins at the end of `PATH` where they are needed.
pub(super) fn to_strings(env: &BTreeMap<&str, &str>, stand_ins: bool) -> Result<Vec<CString>, StartError> {
    env.iter()
        .map(|(&name, &value)| {
            if name.is_empty() || name.contains('=') {
                return Err(StartError::EnvName(name.to_owned()));
            }
            let text = match name {
                "PATH" if stand_ins && !value.is_empty() => format!("{name}={value}:{STAND_IN_DIR}"),
                _ => format!("{name}={value}"),
            };
            if text.len() > STRING_LEN_MAX {
                return Err(StartError::EnvTooLong { name: name.to_owned(), len: text.len() });
            }
            CString::new(text).map_err(|_| StartError::Nul(format!("environment variable {name}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Account {
        Account { name: "root".into(), uid: 0, gid: 0, groups: vec![], home: "/root".into() }
    }

    fn built(sandbox: &[(&str, &str)], call: &[(&str, &str)], user: Option<&str>) -> BTreeMap<String, String> {
        let owned = |list: &[(&str, &str)]| list.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        let defaults = Defaults { env: owned(sandbox), hostname: "box".into(), ..Defaults::default() };
        let env = owned(call);
        let wiring = Wiring::Pipes { stdin: false };
        let command = Command { program: "x", args: &[], env: &env, cwd: None, user, wiring };
        let account = root();
        let env = environment(&defaults, &command, &account);
        env.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    }

    #[test]
    fn an_empty_sandbox_has_what_docker_gives() {
        let env = built(&[], &[], None);
        assert_eq!(env["PATH"], PATH_DEFAULT);
        assert_eq!((&env["HOME"][..], &env["USER"][..], &env["LOGNAME"][..]), ("/root", "root", "root"));
        assert_eq!(env["HOSTNAME"], "box");
    }

    #[test]
    fn the_call_wins_over_the_sandbox_over_the_user() {
        assert_eq!(built(&[("HOME", "/image")], &[], None)["HOME"], "/image");
        assert_eq!(built(&[("HOME", "/image")], &[], Some("root"))["HOME"], "/root");
        assert_eq!(built(&[("HOME", "/image")], &[("HOME", "/call")], Some("root"))["HOME"], "/call");
        assert_eq!(built(&[("PATH", "/only")], &[], None)["PATH"], "/only");
    }

    #[test]
    fn stand_ins_come_last() {
        let strings = to_strings(&BTreeMap::from([("PATH", "/bin")]), true).unwrap();
        assert_eq!(strings[0].to_str().unwrap(), format!("PATH=/bin:{STAND_IN_DIR}"));
    }

    #[test]
    fn what_the_kernel_cannot_take_is_named() {
        let long = "x".repeat(STRING_LEN_MAX);
        assert!(matches!(to_strings(&BTreeMap::from([("A", &long[..])]), false), Err(StartError::EnvTooLong { .. })));
        assert!(matches!(to_strings(&BTreeMap::from([("A=B", "")]), false), Err(StartError::EnvName(_))));
        assert!(matches!(to_strings(&BTreeMap::from([("A", "x\0y")]), false), Err(StartError::Nul(_))));
        let quotes = "{\"a\": \"b'c\"}\n".repeat(1000);
        assert!(to_strings(&BTreeMap::from([("A", &quotes[..])]), false).is_ok());
    }
}
