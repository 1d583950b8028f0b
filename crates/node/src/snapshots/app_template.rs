//! Which start may an app template stand for? Pure.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use warren_model::SandboxSpec;

/// Names all that a sandbox's first state depends on, its image by its digest; `None` for one that no template can stand for.
///
/// A start command has its environment in its memory, so that of the template must be the same, and no secret may be among it. Without
/// one, nothing of the user's has run yet. What is made for one owner serves nobody else.
pub(crate) fn key(spec: &SandboxSpec, image_digest: &str) -> Option<String> {
    let started = spec.start_command.as_ref();
    // Volumes are devices, which no snapshot has.
    if !spec.uses_templates || !spec.volumes.is_empty() || (started.is_some() && !spec.secrets.is_empty()) {
        return None;
    }
    let env = started.map(|_| &spec.env);
    let parts = (&spec.image_access.owner, image_digest, started, env, spec.shape, spec.disk_mib);
    let text = serde_json::to_vec(&parts).ok()?;
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(&text) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Some(hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::egress::EgressPolicy;
    use warren_model::{Shape, StartCommand};

    fn spec() -> SandboxSpec {
        SandboxSpec {
            name: "a".into(),
            image: "i:1".into(),
            snapshot: None,
            image_access: Default::default(),
            shape: Shape { vcpus: 1, memory_mib: 512 },
            disk_mib: 1024,
            timeout: None,
            idle_timeout: None,
            idle_pauses: false,
            resumes_by_itself: false,
            uses_templates: true,
            env: Default::default(),
            secrets: Default::default(),
            start_command: Some(StartCommand { executable: "serve".into(), args: vec!["-p".into()] }),
            egress: EgressPolicy::open(),
            labels: Vec::new(),
            volumes: Vec::new(),
        }
    }

    #[test]
    fn what_does_not_show_in_the_first_state_does_not_count() {
        let base = key(&spec(), "sha256:1");
        let same = SandboxSpec { name: "b".into(), labels: vec!["l".into()], image: "other:tag".into(), ..spec() };
        assert_eq!(key(&same, "sha256:1"), base);
        type Change = fn(&mut SandboxSpec);
        let changes: [Change; 6] = [
            |s| s.shape.vcpus = 2,
            |s| s.disk_mib = 2048,
            |s| drop(s.env.insert("A".into(), "1".into())),
            |s| s.image_access.owner = "user:2".into(),
            |s| s.start_command = None,
            |s| s.uses_templates = false,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = spec();
            change(&mut other);
            assert_ne!(key(&other, "sha256:1"), base, "change {number}");
        }
        assert_ne!(key(&spec(), "sha256:2"), base);
    }

    #[test]
    fn secrets_and_environment_matter_to_what_has_started_alone() {
        let secrets = || [("K".to_owned(), "v".to_owned())].into();
        assert_eq!(key(&SandboxSpec { secrets: secrets(), ..spec() }, "d"), None);
        let plain = SandboxSpec { start_command: None, ..spec() };
        let with = SandboxSpec { secrets: secrets(), env: [("A".to_owned(), "1".to_owned())].into(), ..plain.clone() };
        assert_eq!(key(&with, "d"), key(&plain, "d"));
    }
}
