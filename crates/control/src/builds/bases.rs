//! The images that a Dockerfile builds on: whose they are and what they are called, settled before anything is built. They come from the
//! node's own store, so that a build needs no login of its own and what is here is not fetched again.

use super::dockerfile;
use super::fault::Fault;
use crate::auth::hash_key;
use crate::context::Context;
use crate::credential::image_access;
use crate::images::{self, Owner};
use crate::store::{BuildRow, StoreError};
use warren_model::ImageAccess;
use warren_model::reference::Reference;
use warren_proto::node::{BuildBase, BuildOrder};

/// Repository of names that Docker takes, for references that it does not.
const RENAMED: &str = "warren-base";

/// The order with the bases of its Dockerfile, whose text this is; refused if the build's user may not use one of them.
pub(super) async fn settle(cx: &Context, build: &BuildRow, order: BuildOrder, text: &str) -> Result<BuildOrder, Fault> {
    let gone = || Fault::new("internal", "the user who asked for the build is gone");
    let user = cx.store.user_get(&build.user_id).await?.ok_or_else(gone)?;
    let (mut bases, mut words) = (Vec::new(), Vec::new());
    for base in dockerfile::bases(text, &order.args, &cx.config.arch) {
        let refused = |e: crate::api::ApiError| Fault::new(e.code().as_str(), format!("FROM {}", e.text()));
        let (image, access) = match images::resolve(cx, &user, &base.image).await.map_err(refused)? {
            Some(pinned) => (pinned.name, ImageAccess::default()),
            // A user's id is no registry's namespace: parsed as it was above.
            None => (base.image.clone(), access(cx, build, &base.image).await?),
        };
        let name = docker_name(&base.image);
        if name != base.image {
            words.extend(base.at.into_iter().map(|at| (at, name.clone())));
        }
        bases.push(BuildBase { name, image, access });
    }
    let text = (!words.is_empty()).then(|| dockerfile::with_words(text, words));
    Ok(BuildOrder { bases, text, ..order })
}

/// What a build's owner may fetch from the registry of a reference.
pub(super) async fn access(cx: &Context, build: &BuildRow, reference: &str) -> Result<ImageAccess, StoreError> {
    match &build.owner {
        Owner::User(_) => image_access(cx, &build.user_id, None, reference).await,
        Owner::Team(team_id) => image_access(cx, &build.user_id, Some(team_id), reference).await,
        // What becomes everybody's is fetched as everybody could.
        Owner::Platform => Ok(ImageAccess::default()),
    }
}

/// The name that an image can have in Docker: its own, but for references by digest, which lead to what a registry gave, and for
/// spellings that only we know.
fn docker_name(image: &str) -> String {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b'/' | b':');
    match Reference::parse(image) {
        Ok(reference) if reference.digest().is_none() && image.bytes().all(plain) => image.to_owned(),
        _ => format!("{RENAMED}:{}", hash_key(image)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_docker_takes_stay() {
        for image in ["debian", "debian:12", "prime/alice/app:v1", "u123/app:v1", "localhost:5000/a/b:c", "team-c1/x"] {
            assert_eq!(docker_name(image), image);
        }
        let digest = format!("debian@sha256:{}", "a".repeat(64));
        for image in [digest.as_str(), "team-Ab/x:v1", "[::1]:5000/a:b"] {
            let name = docker_name(image);
            assert!(name.starts_with("warren-base:") && name.len() == "warren-base:".len() + 64, "{name}");
            assert_ne!(name, docker_name("debian@sha256:other"));
        }
    }
}
