//! Looks at what is to be built and begins it. Ends at shutdown, between two effects.

use super::fault::Fault;
use super::machine::{Event, State};
use super::plan::{Action, Open, plan};
use super::{artifacts, builder, run};
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::build_of;
use crate::reconcile::driver::chain;
use crate::store::{BuildRow, Moved, StoreError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Longest time between two looks, milliseconds.
const LOOK_EVERY_MS: u64 = 5_000;
/// A build that was interrupted by restarts so often is given up.
const ATTEMPTS_MAX: u64 = 3;
/// How long builds that are over can be asked for, milliseconds (7 days).
const ENDED_KEPT_MS: u64 = 7 * 24 * 3600 * 1000;

/// Drives builds until shutdown.
pub(crate) async fn drive(cx: Arc<Context>) {
    while let Err(error) = remove_rest(&cx).await {
        tracing::error!(error = chain(&error), "what builds of the last run left is not removed; will try again");
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
    }
    loop {
        if let Err(error) = turn(&cx).await {
            tracing::error!(error = chain(&error), "builds not looked at; will try again");
        }
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = cx.builds.nudge.notified() => {}
            () = sleep(Duration::from_millis(LOOK_EVERY_MS)) => {}
        }
    }
}

/// Takes up what the last run of the server left: whoever worked on it is gone. To be called before anything new can begin.
pub(crate) async fn recover(cx: &Context) -> Result<(), StoreError> {
    let now = now_ms();
    let open = cx.store.builds_open().await?;
    for build in &open {
        match build.state {
            State::Uploading => drop(cx.store.build_move(&build.id, Event::UploadBroke, now, |_| {}).await?),
            State::Building if build.attempts < ATTEMPTS_MAX => {
                cx.store.build_move(&build.id, Event::Requeue, now, |_| {}).await?;
            }
            State::Building => {
                let text = format!("the server was restarted during each of {ATTEMPTS_MAX} attempts");
                run::fail(cx, &build.id, &Fault::new("build_interrupted", text)).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Ends the builders of the last run, and removes what builds left that are over or unknown.
async fn remove_rest(cx: &Context) -> Result<(), StoreError> {
    builder::end_all(cx).await?;
    let mut ids = cx.builds.files.all().await.unwrap_or_default();
    let names = cx.node.images().await.unwrap_or_default();
    ids.extend(names.iter().filter_map(|record| build_of(&record.reference)).map(str::to_owned));
    // Read last: a build is in the store before it has a folder.
    let open: HashSet<String> = cx.store.builds_open().await?.into_iter().map(|build| build.id).collect();
    for id in ids.difference(&open) {
        run::settle(cx, id).await;
        if cx.store.build_get(id).await?.is_none() {
            forget_files(cx, id).await;
        }
    }
    Ok(())
}

async fn turn(cx: &Arc<Context>) -> Result<(), StoreError> {
    let builds = cx.store.builds_open().await?;
    let abstracts: Vec<Open> = builds.iter().map(abstracted).collect();
    for action in plan(&abstracts, cx.config.builds_at_once, now_ms()) {
        match action {
            Action::Pick(id) => begin(cx, &id).await?,
            Action::Expire(id) => {
                let text = "the context was not uploaded and started in time";
                run::fail(cx, &id, &Fault::new("upload_expired", text)).await?;
                run::settle(cx, &id).await;
            }
        }
    }
    artifacts::sweep(cx).await?;
    for id in cx.store.builds_ended_before(now_ms().saturating_sub(ENDED_KEPT_MS)).await? {
        forget_files(cx, &id).await;
        cx.store.build_drop(&id).await?;
    }
    Ok(())
}

fn abstracted(build: &BuildRow) -> Open {
    Open { id: build.id.clone(), owner: build.owner.clone(), state: build.state, upload_by_ms: build.upload_by_ms }
}

async fn begin(cx: &Arc<Context>, id: &str) -> Result<(), StoreError> {
    let cancel = CancellationToken::new();
    // Known before the store says that it is under way: a cancel after that finds it.
    cx.builds.running().insert(id.to_owned(), cancel.clone());
    let Moved::To(build) = cx.store.build_move(id, Event::Pick, now_ms(), |_| {}).await? else {
        cx.builds.running().remove(id);
        return Ok(());
    };
    let cx2 = cx.clone();
    cx.tasks.spawn(async move {
        if let Err(error) = run::run(&cx2, &build, &cancel).await {
            tracing::error!(
                build = build.id,
                error = chain(&error),
                "what became of a build is not stored; the next start takes it up"
            );
        }
        cx2.builds.running().remove(&build.id);
        cx2.builds.nudge();
    });
    Ok(())
}

async fn forget_files(cx: &Context, id: &str) {
    if let Err(error) = cx.builds.files.remove(id).await {
        tracing::warn!(build = id, error = chain(&error), "files of a build not removed");
    }
}
