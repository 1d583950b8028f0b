//! Names and tags that images get: pure.

use warren_model::reference::{Reference, Source, Version};

/// Digits of a digest that stand in a tag made of it.
const DIGEST_DIGITS: usize = 16;
/// Namespace that Docker Hub adds to plain names.
const HUB_LIBRARY: &str = "library/";

/// Where the image of a source goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) tag: String,
    /// Whether it comes from Docker Hub: then it is the platform's.
    pub(crate) is_hub: bool,
    /// Whether the source names a digest beside the tag, so that the tag may lead elsewhere than its registry says.
    pub(crate) is_fixed: bool,
}

/// The destination of a source, as the public client derives it: Docker Hub's and the platform's images keep their namespace, others
/// the last word of their name.
pub(crate) fn of_source(source: &str, platform: bool) -> Result<Destination, String> {
    let reference = Reference::parse(source).map_err(|bad| bad.to_string())?;
    let is_hub = match reference.source() {
        Source::DockerHub => true,
        Source::Registry(_) => false,
        Source::Owned { .. } => {
            return Err("a source must be in a registry; use `images update` to move an image".into());
        }
    };
    let repository = reference.repository();
    let plain = repository.strip_prefix(HUB_LIBRARY).unwrap_or(repository);
    let name = match (is_hub, platform) {
        (true, _) => plain,
        (false, true) => repository,
        (false, false) => repository.rsplit('/').next().unwrap_or(repository),
    };
    let beside = tag_beside_digest(source);
    let tag = match (reference.version(), beside) {
        (Version::Tag(tag), _) => tag.clone(),
        (Version::Digest(_), Some(tag)) => tag.to_owned(),
        (Version::Digest(digest), None) => format!("sha256-{}", &digest.hex()[..DIGEST_DIGITS]),
    };
    checked(name, &tag, is_hub || platform)?;
    Ok(Destination { name: name.to_owned(), tag, is_hub, is_fixed: beside.is_some() })
}

/// The tag of `name:tag@digest`, which the digest makes meaningless for a pull.
fn tag_beside_digest(source: &str) -> Option<&str> {
    let (name, _) = source.split_once('@')?;
    let last = name.rsplit('/').next()?;
    last.split_once(':').map(|(_, tag)| tag)
}

/// Says what is wrong with a name and a tag. Only the platform's images have a namespace.
pub(crate) fn checked(name: &str, tag: &str, platform: bool) -> Result<(), String> {
    let problem = |bad: String| format!("{name}:{tag}: {bad}");
    let prefix = if platform { "docker.io/" } else { "prime/x/" };
    let reference = Reference::parse(&format!("{prefix}{name}:{tag}")).map_err(|bad| problem(bad.to_string()))?;
    if !platform {
        return Ok(());
    }
    // As a user would write it, it must not read as something else.
    let read = Reference::parse(&format!("{name}:{tag}")).map_err(|bad| problem(bad.to_string()))?;
    match read == reference {
        true => Ok(()),
        false => {
            Err(problem("an image of the platform must not look like an image of an owner or of a registry".into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_public_client_derives_it() {
        let digest = format!("sha256:0123456789abcdef{}", "0".repeat(48));
        let cases = [
            ("ubuntu", false, "ubuntu", "latest"),
            ("library/ubuntu:22.04", false, "ubuntu", "22.04"),
            ("docker.io/grafana/grafana:11", false, "grafana/grafana", "11"),
            ("ghcr.io/org/app:v1", false, "app", "v1"),
            ("ghcr.io/org/app:v1", true, "org/app", "v1"),
            ("localhost:5000/a/b", false, "b", "latest"),
            ("quay.io/a/b@DIGEST", false, "b", "sha256-0123456789abcdef"),
            ("quay.io/a/b:v2@DIGEST", false, "b", "v2"),
        ];
        for (source, platform, name, tag) in cases {
            let source = source.replace("DIGEST", &digest);
            let got = of_source(&source, platform).unwrap();
            assert_eq!((got.name.as_str(), got.tag.as_str()), (name, tag), "{source}");
        }
        for bad in ["", "prime/alice/app:v1", "prime/_artifact/sha256-0:1", "ghcr.io/org/app:", "a b"] {
            assert!(of_source(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_owners_may_give() {
        assert!(checked("my-app_2", "v1.0.0", false).is_ok());
        for (name, tag) in
            [("My", "v1"), ("a/b", "v1"), ("", "v1"), ("a", ""), ("a", "v 1"), ("a@b", "v1"), ("a:b", "c")]
        {
            assert!(checked(name, tag, false).is_err(), "{name}:{tag}");
        }
        assert!(checked("org/app", "v1", true).is_ok());
        for name in ["prime/alice/app", "team-c1/app", "ghcr.io/app"] {
            assert!(checked(name, "v1", true).is_err(), "{name}");
        }
    }
}
