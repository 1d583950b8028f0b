//! One template, from a sandbox to a snapshot that is offered.

use crate::builds::BUILDER_USER_ID;
use crate::clock::now_ms;
use crate::context::Context;
use crate::credential::image_access;
use crate::images;
use crate::quota::Quota;
use crate::random;
use crate::reconcile::{deleted, dispatch};
use crate::store::{Durability, NewSandbox, SandboxRow, StoreError, TemplateRow};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use warren_model::{SandboxId, SandboxSpec, SnapshotId, Status};
use warren_proto::http::{CreateSandbox, TemplateState};

/// Longest wait for the sandbox to run, seconds: its image may be large, the node full.
const RUNS_WITHIN_SECS: u64 = 1800;
/// Longest run of the command that says whether it is ready.
const READY_RUN_MAX: Duration = Duration::from_secs(30);
/// Pause between two such runs.
const READY_PAUSE: Duration = Duration::from_millis(250);
/// Label of the sandboxes that templates are made in.
const LABEL: &str = "warren:template";

/// Why it was not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum MakeError {
    /// What it stands for does not work.
    #[error("{0}")]
    Unfit(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes it, and writes down how far it is before each step. What an attempt before has left is ended first.
pub(super) async fn make(cx: &Context, row: &mut TemplateRow) -> Result<(), MakeError> {
    clear(cx, row).await?;
    let id = begin(cx, row).await?;
    let made = in_sandbox(cx, row, &id).await;
    // Whatever became of it, nothing is left to do in the sandbox.
    end(cx, &id).await?;
    row.sandbox_id = None;
    let (snapshot, digest) = made?;
    let before = row.snapshot_id.replace(snapshot);
    row.image_digest = Some(digest);
    row.state = TemplateState::Ready;
    row.error = None;
    row.updated_at_ms = now_ms();
    row.used_at_ms = now_ms();
    cx.store.template_update(row).await?;
    if let Some(before) = before {
        drop_snapshot(cx, &before).await;
    }
    Ok(())
}

/// Ends what an attempt left.
async fn clear(cx: &Context, row: &mut TemplateRow) -> Result<(), StoreError> {
    if let Some(id) = row.sandbox_id.take() {
        end(cx, &id).await?;
    }
    Ok(())
}

/// Lets go all that there is of a template.
pub(super) async fn let_go(cx: &Context, row: &mut TemplateRow) -> Result<(), StoreError> {
    clear(cx, row).await?;
    if let Some(snapshot) = row.snapshot_id.take() {
        drop_snapshot(cx, &snapshot).await;
    }
    Ok(())
}

async fn drop_snapshot(cx: &Context, id: &SnapshotId) {
    // One that stays has no row, and is found by the next look at the node's snapshots.
    if let Err(error) = cx.node.delete_snapshot(id).await {
        tracing::warn!(snapshot = %id, %error, "the snapshot of a template was not let go; will try again");
    }
}

/// Has the sandbox made, and writes down which it is.
async fn begin(cx: &Context, row: &mut TemplateRow) -> Result<SandboxId, MakeError> {
    let unfit = |error: &dyn std::fmt::Display| MakeError::Unfit(error.to_string());
    let request = CreateSandbox {
        name: format!("template {}", row.name),
        labels: vec![LABEL.to_owned()],
        timeout_minutes: -1,
        // Not from a template before it.
        advanced_configs: Some([("template".to_owned(), false.into())].into_iter().collect()),
        ..row.request.clone()
    };
    let spec = SandboxSpec::try_from(&request).map_err(|e| unfit(&e))?;
    let id = SandboxId::from_bits(random::bits().map_err(|e| unfit(&e))?);
    row.sandbox_id = Some(id.clone());
    row.updated_at_ms = now_ms();
    cx.store.template_update(row).await?;
    // What its image leads to is not let go before the row is there, which needs it.
    let turn = cx.builds.pins.read().await;
    let pinned = match row.user_id.as_str() {
        // The server's own image has no owner.
        BUILDER_USER_ID => None,
        user_id => {
            let user = cx.store.user_get(user_id).await?;
            let user = user.ok_or_else(|| MakeError::Unfit("its owner is gone".to_owned()))?;
            images::resolve(cx, &user, &spec.image).await.map_err(|error| MakeError::Unfit(error.text()))?
        }
    };
    let asked = SandboxRow::asked(id, row.user_id.clone(), row.team_id.clone(), request, spec.egress, now_ms());
    let (node_image, image_digest) = pinned.map(|pinned| (pinned.name, pinned.digest)).unzip();
    let new = NewSandbox {
        row: SandboxRow { node_image, image_digest, ..asked },
        idempotency: None,
        key_hash: String::new(),
        vcpus: spec.shape.vcpus,
        quota: Quota::default(),
    };
    cx.store.sandbox_insert(&new).await?;
    drop(turn);
    let _begun = cx.underway.begin(&new.row.id);
    // A full node takes it later: it is in the queue with all others.
    dispatch::create(cx, &new.row).await?;
    Ok(new.row.id)
}

/// Waits until it is ready, and takes the snapshot. The snapshot, offered, and the image's digest.
async fn in_sandbox(cx: &Context, row: &TemplateRow, id: &SandboxId) -> Result<(SnapshotId, String), MakeError> {
    let digest = runs(cx, id).await?;
    if let Some(argv) = &row.ready {
        ready(cx, row, id, argv).await?;
    }
    let unfit = |error: &dyn std::fmt::Display| MakeError::Unfit(error.to_string());
    let snapshot = SnapshotId::from_bits(random::bits().map_err(|e| unfit(&e))?);
    // No plan must take it for one that nobody asked for.
    let _begun = cx.snapshots_underway.begin(&snapshot);
    cx.node.snapshot(id, &snapshot).await.map_err(|e| unfit(&e))?;
    let mut spec = SandboxSpec::try_from(&row.request).map_err(|e| unfit(&e))?;
    spec.image_access = image_access(cx, &row.user_id, row.team_id.as_deref(), &spec.image).await?;
    match cx.node.offer_template(&snapshot, &spec).await {
        Ok(()) => {
            // Known before the plan may look: it is let go if the template is not written.
            let with = TemplateRow { snapshot_id: Some(snapshot.clone()), ..row.clone() };
            cx.store.template_update(&with).await?;
            Ok((snapshot, digest))
        }
        Err(error) => {
            drop_snapshot(cx, &snapshot).await;
            Err(unfit(&error))
        }
    }
}

/// Waits until the sandbox runs; the digest of its image.
async fn runs(cx: &Context, id: &SandboxId) -> Result<String, MakeError> {
    let deadline = Instant::now() + Duration::from_secs(RUNS_WITHIN_SECS);
    let waiter = cx.changes.listen(vec![id.clone()]);
    loop {
        match cx.store.sandbox_get(id).await? {
            Some(row) if row.status == Status::Running => return Ok(row.image_digest.unwrap_or_default()),
            Some(row) if row.is_live() => {}
            ended => {
                let why = ended.and_then(|row| row.error_message.or(row.termination_reason)).unwrap_or_default();
                return Err(MakeError::Unfit(format!("the sandbox that it is made in did not start: {why}")));
            }
        }
        if !waiter.changed(deadline).await {
            return Err(MakeError::Unfit(format!(
                "the sandbox that it is made in did not run within {RUNS_WITHIN_SECS} s"
            )));
        }
    }
}

/// Runs the command until it exits with 0.
async fn ready(cx: &Context, row: &TemplateRow, id: &SandboxId, argv: &[String]) -> Result<(), MakeError> {
    let deadline = Instant::now() + Duration::from_millis(row.ready_within_ms);
    loop {
        let last = match cx.node.run_command(id, argv.to_vec(), READY_RUN_MAX).await {
            Ok(0) => return Ok(()),
            Ok(code) => format!("exit code {code}"),
            Err(error) => error.to_string(),
        };
        let gone = !cx.store.sandbox_get(id).await?.is_some_and(|row| row.is_live());
        if gone || Instant::now() >= deadline {
            let within = row.ready_within_ms / 1000;
            let what = if gone {
                "the sandbox ended before it was ready".to_owned()
            } else {
                format!("not ready within {within} s")
            };
            let logs = cx.node.logs(id).await.unwrap_or_default();
            let logs: String = logs.chars().rev().take(1000).collect::<Vec<_>>().into_iter().rev().collect();
            return Err(MakeError::Unfit(format!("{what}; last: {last}; output of the start command:\n{logs}")));
        }
        sleep(READY_PAUSE).await;
    }
}

/// Ends the sandbox. The intent is durable before; what fails on the node is repeated by the reconciler.
async fn end(cx: &Context, id: &SandboxId) -> Result<(), StoreError> {
    let now = now_ms();
    cx.store.sandbox_update(id, Durability::Power, now, |row| deleted(row, now)).await?;
    cx.changes.tell(id);
    let _begun = cx.underway.begin(id);
    dispatch::terminate(cx, id).await
}
