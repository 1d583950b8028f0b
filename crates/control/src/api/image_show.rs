//! Tags and builds as the public API shows them.

use crate::auth::Caller;
use crate::images::Owner;
use crate::store::{BuildRow, ImageRow};
use warren_proto::http::{ArtifactType, BuildAccepted, BuildState, BuildStatus, ImageItem, Timestamp, Visibility};

/// The reference as this caller would write it.
pub(super) fn reference(caller: &Caller, owner: &Owner, name: &str, tag: &str) -> String {
    let is_own = matches!(owner, Owner::User(id) if *id == caller.user.id);
    owner.reference(is_own.then_some(caller.user.slug.as_str()), name, tag)
}

/// A build that was accepted, without an upload.
pub(super) fn accepted(caller: &Caller, row: &BuildRow, visibility: Visibility) -> BuildAccepted {
    BuildAccepted {
        build_id: row.id.clone(),
        build_ids: vec![row.id.clone()],
        upload_url: None,
        expires_in: None,
        full_image_path: reference(caller, &row.owner, &row.name, &row.tag),
        visibility,
    }
}

/// Where a build is.
pub(super) fn state(caller: &Caller, row: BuildRow) -> BuildState {
    BuildState {
        status: row.state.status(),
        error_code: row.error_code,
        error_message: row.error_message,
        full_image_path: reference(caller, &row.owner, &row.name, &row.tag),
        source_image: row.source,
        digest: row.digest,
        created_at: Timestamp::from_ms(row.created_at_ms),
        started_at: row.started_at_ms.map(Timestamp::from_ms),
        completed_at: row.ended_at_ms.map(Timestamp::from_ms),
        id: row.id,
    }
}

/// The rows of a list for one tag: what it leads to, and the last build if that is not what made it.
pub(super) fn items(caller: &Caller, row: &ImageRow, build: Option<&BuildRow>) -> Vec<ImageItem> {
    let full = reference(caller, &row.owner, &row.name, &row.tag);
    let (owner_type, team_id) = row.owner.kind();
    let item = ImageItem {
        id: row.id.clone(),
        artifact_type: ArtifactType::VmSandbox,
        image_name: row.name.clone(),
        image_tag: row.tag.clone(),
        status: BuildStatus::Completed,
        display_ref: full.clone(),
        full_image_path: full,
        error_message: None,
        size_bytes: row.size_bytes,
        digest: row.digest.clone(),
        visibility: row.visibility,
        created_at: Timestamp::from_ms(row.created_at_ms),
        started_at: None,
        completed_at: row.pushed_at_ms.map(Timestamp::from_ms),
        pushed_at: row.pushed_at_ms.map(Timestamp::from_ms),
        team_id,
        owner_type,
    };
    let mut items = Vec::new();
    if let Some(build) = build.filter(|build| build.state.status() != BuildStatus::Completed) {
        items.push(ImageItem {
            id: build.id.clone(),
            status: build.state.status(),
            error_message: build.error_message.clone(),
            size_bytes: None,
            digest: None,
            created_at: Timestamp::from_ms(build.created_at_ms),
            started_at: build.started_at_ms.map(Timestamp::from_ms),
            completed_at: build.ended_at_ms.map(Timestamp::from_ms),
            pushed_at: None,
            ..item.clone()
        });
    }
    if row.digest.is_some() {
        items.push(item);
    }
    items
}
