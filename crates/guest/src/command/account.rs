/// Who a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name, or the number where there is no such account.
    pub name: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home folder.
    pub home: String,
}

/// The user cannot be run as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUser {
    /// Not in `/etc/passwd`, and no number.
    #[error("unknown user {0:?}: there is no such account in /etc/passwd")]
    User(String),
    /// Not in `/etc/group`, and no number.
    #[error("unknown group {0:?}: there is no such group in /etc/group")]
    Group(String),
}

impl Account {
    /// Resolves `name`, `uid`, `name:group` or `uid:gid` against the texts of `/etc/passwd` and `/etc/group`. A number needs no
    /// account; it then has group 0 and home `/`. With a group named, the account's supplementary groups do not apply.
    pub fn resolve(wanted: &str, passwd: &str, group: &str) -> Result<Account, BadUser> {
        let (user, wanted_group) = match wanted.split_once(':') {
            Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
            None => (wanted, None),
        };
        let mut account = find_user(user, passwd).ok_or_else(|| BadUser::User(user.to_owned()))?;
        match wanted_group {
            Some(wanted) => {
                account.gid = find_group(wanted, group).ok_or_else(|| BadUser::Group(wanted.to_owned()))?;
            }
            None => account.groups = groups_of(&account.name, group),
        }
        Ok(account)
    }
}

fn find_user(wanted: &str, passwd: &str) -> Option<Account> {
    let number = wanted.parse::<u32>().ok();
    let parse = |line: &str| {
        let mut fields = line.split(':');
        let (name, uid, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        let home = fields.nth(1).filter(|home| !home.is_empty()).unwrap_or("/");
        Some(Account { name: name.to_owned(), uid, gid, groups: Vec::new(), home: home.to_owned() })
    };
    let named = |line: &&str| line.split(':').next() == Some(wanted);
    if let Some(account) = passwd.lines().filter(named).find_map(parse) {
        return Some(account);
    }
    let uid = number.or_else(|| (wanted == "root" || wanted.is_empty()).then_some(0))?;
    let known = passwd.lines().filter_map(parse).find(|account| account.uid == uid);
    Some(known.unwrap_or_else(|| {
        let name = if uid == 0 { "root".to_owned() } else { uid.to_string() };
        Account { name, uid, gid: 0, groups: Vec::new(), home: "/".to_owned() }
    }))
}

/// `(name, gid, members)` of each line.
fn group_lines(group: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?, fields.next().unwrap_or("")))
    })
}

fn find_group(wanted: &str, group: &str) -> Option<u32> {
    let named = group_lines(group).find(|(name, ..)| *name == wanted).map(|(_, gid, _)| gid);
    named.or_else(|| wanted.parse().ok())
}

fn groups_of(user: &str, group: &str) -> Vec<u32> {
    group_lines(group).filter(|(.., members)| members.split(',').any(|m| m == user)).map(|(_, gid, _)| gid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\napp:x:1000:1001::/home/app:/bin/sh\nbad line\n7:x:9:9::/seven:\n";
    const GROUP: &str = "root:x:0:\nadm:x:4:app,root\ndocker:x:998:other,app\nstaff:x:50:\n";

    fn resolve(wanted: &str) -> Result<(String, u32, u32, Vec<u32>, String), BadUser> {
        Account::resolve(wanted, PASSWD, GROUP).map(|a| (a.name, a.uid, a.gid, a.groups, a.home))
    }

    #[test]
    fn names_have_their_groups_and_home() {
        assert_eq!(resolve("app").unwrap(), ("app".into(), 1000, 1001, vec![4, 998], "/home/app".into()));
        assert_eq!(resolve("1000").unwrap(), ("app".into(), 1000, 1001, vec![4, 998], "/home/app".into()));
        assert_eq!(resolve("").unwrap(), ("root".into(), 0, 0, vec![4], "/root".into()));
    }

    #[test]
    fn a_name_wins_over_a_number() {
        assert_eq!(resolve("7").unwrap(), ("7".into(), 9, 9, vec![], "/seven".into()));
    }

    #[test]
    fn a_named_group_replaces_all_groups() {
        assert_eq!(resolve("app:staff").unwrap(), ("app".into(), 1000, 50, vec![], "/home/app".into()));
        assert_eq!(resolve("12345:77").unwrap(), ("12345".into(), 12345, 77, vec![], "/".into()));
    }

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(resolve("nobody"), Err(BadUser::User("nobody".into())));
        assert_eq!(resolve("app:nogroup"), Err(BadUser::Group("nogroup".into())));
    }

    #[test]
    fn an_image_without_accounts_has_root() {
        let root = Account::resolve("root", "", "").unwrap();
        assert_eq!((root.uid, root.gid, root.home.as_str()), (0, 0, "/"));
    }

    proptest! {
        #[test]
        fn foreign_files_never_panic(wanted in ".{0,20}", passwd in "[a-z0-9:,\n]{0,200}", group in "[a-z0-9:,\n]{0,200}") {
            let _ = Account::resolve(&wanted, &passwd, &group);
        }
    }
}
