//! Names of ours on the node. Nobody may use them in references.

/// Namespace of pinned artifacts.
const PINS: &str = "warren/artifact";
/// Namespace of results of builds that have no tag yet.
const BUILDS: &str = "warren/build";

/// Name on the node that keeps the bytes of `digest`.
pub(crate) fn pin_name(digest: &str) -> String {
    format!("{PINS}:{}", digest.replace(':', "-"))
}

/// Name on the node of what a build made, until it is pinned.
pub(crate) fn build_name(build_id: &str) -> String {
    format!("{BUILDS}:{build_id}")
}

/// Whether a name of the node is one of these.
pub(crate) fn is_reserved(name: &str) -> bool {
    let repository = name.split(['@', ':']).next().unwrap_or_default();
    [PINS, BUILDS].contains(&repository)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::reference::Reference;

    #[test]
    fn names_are_references_and_known_again() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for name in [pin_name(&digest), build_name("babc")] {
            assert_eq!(Reference::parse(&name).unwrap().to_string(), name);
            assert!(is_reserved(&name));
        }
        assert!(!is_reserved("warren/builder:1") && !is_reserved("debian:12"));
    }
}
