//! Names of ours on the node. They are owned names, which no registry is ever asked for, of owners that cannot be.

use warren_proto::node::is_checkpoint_image;

/// Before the digest of a pinned artifact.
const PINS: &str = "prime/_artifact/";
/// Before the id of a build whose result has no tag yet.
const BUILDS: &str = "prime/_build/";
/// What volumes lie on; the node makes those names.
const VOLUMES: &str = "prime/_volume/";
/// The one tag of such a name.
const TAG: &str = ":1";

/// Name on the node that keeps the bytes of `digest`.
pub(crate) fn pin_name(digest: &str) -> String {
    format!("{PINS}{}{TAG}", digest.replace(':', "-"))
}

/// Name on the node of what a build made, until it is pinned.
pub(crate) fn build_name(build_id: &str) -> String {
    format!("{BUILDS}{build_id}{TAG}")
}

/// The build whose result has this name.
pub(crate) fn build_of(name: &str) -> Option<&str> {
    name.strip_prefix(BUILDS)?.strip_suffix(TAG)
}

/// Whether a name of the node is one of these.
pub(crate) fn is_reserved(name: &str) -> bool {
    [PINS, BUILDS, VOLUMES].iter().any(|prefix| name.starts_with(prefix)) || is_checkpoint_image(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::reference::Reference;

    #[test]
    fn names_are_references_without_a_registry() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for name in [pin_name(&digest), build_name("babc")] {
            let reference = Reference::parse(&name).unwrap();
            assert_eq!((reference.to_string(), reference.registry()), (name.clone(), None));
            assert!(is_reserved(&name));
        }
        assert_eq!((build_of(&build_name("b1")), build_of("debian:12")), (Some("b1"), None));
        assert!(!is_reserved("prime/_server/builder:1") && !is_reserved("prime/alice/app:1"));
    }
}
