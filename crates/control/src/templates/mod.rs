//! App templates: made in a sandbox of the owner, kept as a snapshot that the node offers to every create like it.
//!
//! ```text
//!  MAKING ──ready, taken──► READY ──not used──► IDLE
//!    │  ▲                     │                   │
//!    │  └── other machine ────┘                   │
//!    │  └── next look after a create like it ─────┘
//!    └── did not get ready ──► FAILED
//! ```
//! The row says what is to be done before it is done; a start of the server takes MAKING up from its beginning.

mod driver;
mod make;

pub(crate) use driver::drive;

use crate::clock::now_ms;
use crate::context::Context;
use crate::store::{SandboxRow, StoreError, TemplateRow};
use warren_proto::http::{CreateSandbox, TemplateState};

/// Templates that are made at once.
pub(crate) const AT_ONCE_MAX: usize = 4;
/// A template of the server itself that failed is tried again after this time, milliseconds.
const TRY_AGAIN_MS: u64 = 600_000;
/// Time within which a template of the server itself must be ready, milliseconds.
const READY_WITHIN_MS: u64 = 300_000;

/// Asks for a template to be let go; the driver does it.
pub(crate) async fn delete(cx: &Context, mut row: TemplateRow) -> Result<(), StoreError> {
    row.state = TemplateState::Deleting;
    cx.store.template_update(&row).await?;
    cx.templates_nudge.notify_one();
    Ok(())
}

/// Has a template for creates like `request` if there is none; `ready` says when it may be taken.
pub(crate) async fn ensure(
    cx: &Context,
    user_id: &str,
    request: &CreateSandbox,
    ready: Vec<String>,
) -> Result<(), StoreError> {
    let all = cx.store.templates_all().await?;
    match all.into_iter().find(|row| row.user_id == user_id && row.request.start_command == request.start_command) {
        Some(row) if row.state == TemplateState::Idle || failed_long_ago(&row) => rebuild(cx, row).await.map(drop),
        Some(_) => Ok(()),
        None => {
            let now = now_ms();
            let row = TemplateRow {
                id: format!("t-{user_id}"),
                user_id: user_id.to_owned(),
                team_id: None,
                name: request.name.clone(),
                request: CreateSandbox { idle_timeout_minutes: None, ..request.clone() },
                ready: Some(ready),
                ready_within_ms: READY_WITHIN_MS,
                state: TemplateState::Making,
                sandbox_id: None,
                snapshot_id: None,
                image_digest: None,
                error: None,
                created_at_ms: now,
                updated_at_ms: now,
                used_at_ms: now,
            };
            cx.store.template_insert(&row).await?;
            cx.templates_nudge.notify_one();
            Ok(())
        }
    }
}

fn failed_long_ago(row: &TemplateRow) -> bool {
    row.state == TemplateState::Failed && now_ms().saturating_sub(row.updated_at_ms) > TRY_AGAIN_MS
}

/// Has those made again that were dropped for lack of use, if a create would have gone on from them.
pub(crate) async fn wake(cx: &Context, created: &SandboxRow) -> Result<(), StoreError> {
    let of_owner = |row: &TemplateRow| match &row.team_id {
        Some(_) => row.team_id == created.team_id,
        None => created.team_id.is_none() && row.user_id == created.user_id,
    };
    let alike = |row: &TemplateRow| {
        let (a, b) = (&row.request, &created.request);
        a.docker_image == b.docker_image && a.start_command == b.start_command && a.disk_gb() == b.disk_gb()
    };
    for row in cx.store.templates_all().await? {
        if row.state == TemplateState::Idle && of_owner(&row) && alike(&row) {
            rebuild(cx, row).await?;
        }
    }
    Ok(())
}

/// Asks for a template to be made anew; the one that there is serves until then.
pub(crate) async fn rebuild(cx: &Context, mut row: TemplateRow) -> Result<TemplateRow, StoreError> {
    row.state = TemplateState::Making;
    row.error = None;
    row.updated_at_ms = now_ms();
    cx.store.template_update(&row).await?;
    cx.templates_nudge.notify_one();
    Ok(row)
}
