//! Looks at all templates and does what is to be done; a few are made at once. Ends at shutdown.

use super::make::{self, MakeError};
use crate::builds::BUILDER_USER_ID;
use crate::clock::now_ms;
use crate::context::Context;
use crate::images;
use crate::reconcile::driver::chain;
use crate::store::{StoreError, TemplateRow};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use warren_proto::http::TemplateState;

/// Longest time between two looks, milliseconds.
const LOOK_EVERY_MS: u64 = 10_000;
/// A template that no create went on from for so long is dropped, milliseconds (14 days).
const UNUSED_KEPT_MS: u64 = 14 * 24 * 3600 * 1000;
/// Longest error that is kept, bytes.
const ERROR_LEN_MAX: usize = 4096;

/// Drives templates until shutdown.
pub(crate) async fn drive(cx: Arc<Context>) {
    loop {
        let turn = tokio::select! {
            // What is being made is taken up by the next start.
            () = cx.stop.cancelled() => return,
            turn = turn(&cx) => turn,
        };
        if let Err(error) = turn {
            tracing::error!(error = chain(&error), "templates not looked at; will try again");
        }
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = cx.templates_nudge.notified() => {}
            () = sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
    }
}

async fn turn(cx: &Arc<Context>) -> Result<(), StoreError> {
    let usable: HashMap<_, _> = cx.node.snapshots().await.into_iter().map(|info| (info.id, info.usable)).collect();
    for mut row in cx.store.templates_all().await? {
        // One that is being made is looked at again after that.
        let Some(begun) = cx.templates_underway.try_begin(&row.id) else { continue };
        if row.state == TemplateState::Ready {
            let fit = row.snapshot_id.as_ref().and_then(|id| usable.get(id)).copied().unwrap_or(false);
            look(cx, &mut row, fit).await?;
        }
        match row.state {
            TemplateState::Making => {
                let cx2 = cx.clone();
                cx.tasks.spawn(async move {
                    let made = tokio::select! {
                        () = cx2.stop.cancelled() => Ok(()),
                        made = made(&cx2, row) => made,
                    };
                    if let Err(error) = made {
                        tracing::error!(error = chain(&error), "how a template was made is not stored; will try again");
                    }
                    drop(begun);
                    cx2.templates_nudge.notify_one();
                });
            }
            TemplateState::Deleting => {
                make::let_go(cx, &mut row).await?;
                cx.store.template_delete(&row.id).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a ready one is still what it should be.
async fn look(cx: &Context, row: &mut TemplateRow, fit: bool) -> Result<(), StoreError> {
    if let Some(snapshot) = &row.snapshot_id
        && let Some(used) = cx.store.template_used_at_ms(snapshot).await?
        && used > row.used_at_ms
    {
        // Its sandboxes are forgotten before it is.
        row.used_at_ms = used;
        cx.store.template_update(row).await?;
    }
    let unused = now_ms().saturating_sub(row.used_at_ms) > UNUSED_KEPT_MS;
    if unused {
        tracing::info!(template = row.id, "no sandbox went on from this template for long; dropping it");
        make::let_go(cx, row).await?;
        row.state = TemplateState::Idle;
    } else if !fit || moved(cx, row).await {
        tracing::info!(template = row.id, fit, "this template is out of date; making it anew");
        row.state = TemplateState::Making;
    } else {
        return Ok(());
    }
    row.updated_at_ms = now_ms();
    cx.store.template_update(row).await
}

/// Whether its image's name leads elsewhere by now, as far as it is known here.
async fn moved(cx: &Context, row: &TemplateRow) -> bool {
    let (Some(reference), Some(digest)) = (&row.request.docker_image, &row.image_digest) else { return false };
    if digest.is_empty() || row.user_id == BUILDER_USER_ID {
        return false;
    }
    let Ok(Some(user)) = cx.store.user_get(&row.user_id).await else { return false };
    match images::resolve(cx, &user, reference).await {
        Ok(Some(pinned)) => return pinned.digest != *digest,
        Ok(None) => {}
        Err(_) => return false,
    }
    let Ok(parsed) = warren_model::reference::Reference::parse(reference) else { return false };
    let name = parsed.to_string();
    let images = cx.node.images().await.unwrap_or_default();
    images.iter().any(|image| image.reference == name && image.digest != *digest)
}

async fn made(cx: &Context, row: TemplateRow) -> Result<(), StoreError> {
    // A few at once; the semaphore is never closed.
    let _turn = cx.templates_at_once.acquire().await;
    let Some(mut row) = cx.store.template_get(&row.id).await?.filter(|row| row.state == TemplateState::Making) else {
        return Ok(());
    };
    match make::make(cx, &mut row).await {
        Ok(()) => {
            tracing::info!(template = row.id, "template made");
            Ok(())
        }
        Err(MakeError::Store(error)) => Err(error),
        Err(MakeError::Unfit(problem)) => {
            tracing::warn!(template = row.id, problem, "template not made");
            row.state = TemplateState::Failed;
            row.error = Some(problem.chars().take(ERROR_LEN_MAX).collect());
            row.updated_at_ms = now_ms();
            cx.store.template_update(&row).await
        }
    }
}
