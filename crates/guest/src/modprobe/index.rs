/// The text of `modules.dep`: `FILE: FILE...`, each file with what must be loaded before it, nearest first.
pub(super) struct Index<'a>(&'a str);

impl<'a> Index<'a> {
    pub(super) fn new(modules_dep: &'a str) -> Self {
        Self(modules_dep)
    }

    /// The files to load for a module, in order; `None` if there is no such module.
    pub(super) fn files_of(&self, module: &str) -> Option<Vec<&'a str>> {
        self.0.lines().find_map(|line| {
            let (file, needed) = line.split_once(':')?;
            if name_of(file) != module {
                return None;
            }
            let mut files: Vec<&str> = needed.split_ascii_whitespace().rev().collect();
            files.push(file);
            Some(files)
        })
    }
}

/// The modules whose alias pattern matches `name`, from the text of `modules.alias`: `alias PATTERN MODULE`.
pub(super) fn aliased<'a>(modules_alias: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let name = normal(name);
    modules_alias.lines().filter_map(move |line| {
        let mut words = line.strip_prefix("alias ")?.split_ascii_whitespace();
        let (pattern, module) = (words.next()?, words.next()?);
        matches(normal(pattern).as_bytes(), name.as_bytes()).then_some(module)
    })
}

/// Hyphens and underscores are the same in names of modules, except inside brackets of patterns.
pub(super) fn normal(name: &str) -> String {
    let mut inside = false;
    let convert = |letter| {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        if letter == '-' && !inside { '_' } else { letter }
    };
    name.chars().map(convert).collect()
}

/// Whether a module is among those of the kernel itself, from the text of `modules.builtin`: a file a line.
pub(super) fn is_listed(modules_builtin: &str, module: &str) -> bool {
    modules_builtin.lines().any(|file| name_of(file) == module)
}

fn name_of(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    normal(base.split_once(".ko").map_or(base, |(name, _)| name))
}

/// Shell patterns: `*`, `?`, `[a-z]`. Linear in the name for each star, no recursion.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
                continue;
            }
            None if n == name.len() => return true,
            None => None,
            Some(_) => name.get(n).and_then(|&byte| one(&pattern[p..], byte)),
        };
        match (step, retry) {
            (Some(len), _) => {
                p += len;
                n += 1;
            }
            (None, Some((star, at))) if at < name.len() => {
                retry = Some((star, at + 1));
                (p, n) = (star + 1, at + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Length of the pattern's first element, if it matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => {
            let end = set.iter().position(|&b| b == b']')?;
            let mut rest = &set[..end];
            while let Some((&low, tail)) = rest.split_first() {
                let (high, tail) = match tail {
                    [b'-', high, tail @ ..] => (*high, tail),
                    _ => (low, tail),
                };
                if (low..=high).contains(&byte) {
                    return Some(end + 2);
                }
                rest = tail;
            }
            None
        }
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEP: &str = "kernel/fs/overlayfs/overlay.ko:\n\
                       kernel/net/nf-tables.ko.xz: kernel/net/nfnetlink.ko kernel/lib/libcrc32c.ko\n";
    const ALIAS: &str = "# comment\nalias fs-overlay overlay\nalias pci:v00001AF4d*sv*bc[0-9A]* virtio_x\nalias net-pf-16-proto-12 nfnetlink\n";

    #[test]
    fn built_in_modules_are_known_by_name() {
        let text = "kernel/fs/ext4/ext4.ko\nkernel/arch/x86/platform/intel/iosf_mbi.ko\n";
        assert!(is_listed(text, "ext4") && is_listed(text, "iosf_mbi") && !is_listed(text, "ext"));
    }

    #[test]
    fn dependencies_come_first() {
        let index = Index::new(DEP);
        assert_eq!(index.files_of("overlay").unwrap(), ["kernel/fs/overlayfs/overlay.ko"]);
        let files = ["kernel/lib/libcrc32c.ko", "kernel/net/nfnetlink.ko", "kernel/net/nf-tables.ko.xz"];
        assert_eq!(index.files_of(&normal("nf-tables")).unwrap(), files);
        assert_eq!(index.files_of("nothing"), None);
    }

    #[test]
    fn aliases_are_patterns() {
        let find = |name| aliased(ALIAS, name).collect::<Vec<_>>();
        assert_eq!(find("fs-overlay"), ["overlay"]);
        assert_eq!(find("net-pf-16-proto-12"), ["nfnetlink"]);
        assert_eq!(find("pci:v00001AF4d00001000sv1bcAsc"), ["virtio_x"]);
        assert!(find("pci:v00001AF4d00001000sv1bcFsc").is_empty());
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("**b", "ab", true),
            ("a?", "a", false),
            ("[ab]x", "bx", true),
            ("[a-", "a", false),
            ("", "a", false),
            ("a*b*c", "aXbYbZc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn foreign_patterns_end(pattern in "[ab*?\\[\\]-]{0,12}", name in "[ab]{0,12}") {
            matches(pattern.as_bytes(), name.as_bytes());
        }
    }
}
