//! What a caller of `modprobe` wants. Pure.

/// Options that change nothing here: there is no blacklist, no log but stderr, and nothing is said without a fault.
const WITHOUT_EFFECT: [&str; 6] = ["b", "s", "v", "use-blacklist", "syslog", "verbose"];

/// Modules to load.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Names or aliases.
    pub(super) modules: Vec<String>,
    /// Parameters of the one module.
    pub(super) parameters: String,
    /// Whether a module that does not exist is no news.
    pub(super) quiet: bool,
}

impl Asked {
    /// Reads the arguments as kmod's `modprobe` does; answers the option that it does not know.
    pub(super) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut words = Vec::new();
        let (mut all, mut options) = (false, true);
        for arg in args {
            if !options || !arg.starts_with('-') {
                words.push(arg);
                continue;
            }
            let letters = || arg[1..].chars().map(String::from).collect();
            let named: Vec<String> = arg.strip_prefix("--").map_or_else(letters, |name| vec![name.to_owned()]);
            for option in &named {
                match option.as_str() {
                    "" => options = false,
                    "a" | "all" => all = true,
                    "q" | "quiet" => asked.quiet = true,
                    known if WITHOUT_EFFECT.contains(&known) => {}
                    _ => return Err(arg),
                }
            }
        }
        if !all && words.len() > 1 {
            asked.parameters = words.split_off(1).join(" ");
        }
        asked.modules = words;
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<(Vec<String>, String, bool), String> {
        let asked = Asked::parse(line.split_whitespace().map(str::to_owned))?;
        Ok((asked.modules, asked.parameters, asked.quiet))
    }

    #[test]
    fn callers_in_use_are_understood() {
        let modules = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse("-q -- net-pf-16"), Ok((modules(&["net-pf-16"]), String::new(), true)));
        assert_eq!(parse("-va bridge br_netfilter"), Ok((modules(&["bridge", "br_netfilter"]), String::new(), false)));
        assert_eq!(parse("-abq drm"), Ok((modules(&["drm"]), String::new(), true)));
        assert_eq!(
            parse("loop max_loop=8 hw_queue_depth=9"),
            Ok((modules(&["loop"]), "max_loop=8 hw_queue_depth=9".into(), false))
        );
        assert_eq!(parse("--all --quiet"), Ok((vec![], String::new(), true)));
    }

    #[test]
    fn an_unknown_option_is_answered() {
        assert_eq!(parse("-r loop"), Err("-r".into()));
        assert_eq!(parse("-aqr loop"), Err("-aqr".into()));
        assert_eq!(parse("--show-depends loop"), Err("--show-depends".into()));
        assert_eq!(parse("-- -r"), Ok((vec!["-r".into()], String::new(), false)));
    }
}
