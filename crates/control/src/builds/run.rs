//! One build from its turn to its end.

use super::fault::Fault;
use super::machine::Event;
use super::{artifacts, bases, builder};
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::build_name;
use crate::reconcile::driver::chain;
use crate::store::{BuildRow, StoreError};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use warren_model::SandboxId;
use warren_proto::node::{BuildOrder, ImageRecord};

/// Longest build of a Dockerfile once its builder runs, seconds; also the longest pull of a source.
const BUILD_SECS_MAX: u64 = 30 * 60;
/// Longest message that is kept, bytes.
const MESSAGE_LEN_MAX: usize = 4096;

/// Why a build stops without a result of its own.
enum Stopped {
    /// The server ends; the next start takes it up again.
    Server,
    /// The store says that it is cancelled.
    Cancelled,
    /// It failed.
    Failed(Fault),
}

impl<E: Into<Fault>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped::Failed(error.into())
    }
}

/// Does the build and writes down what became of it.
pub(super) async fn run(cx: &Context, build: &BuildRow, cancel: &CancellationToken) -> Result<(), StoreError> {
    let made = match &build.source {
        Some(source) => pull(cx, build, source, cancel).await,
        None => in_builder(cx, build, cancel).await,
    };
    let ended = match made {
        Ok(record) => artifacts::publish(cx, build, &record).await,
        Err(Stopped::Server) => return Ok(()),
        Err(Stopped::Cancelled) => Ok(()),
        Err(Stopped::Failed(fault)) => Err(fault),
    };
    if let Err(fault) = ended {
        fail(cx, &build.id, &fault).await?;
    }
    settle(cx, &build.id).await;
    Ok(())
}

/// Ends a build without an image.
pub(super) async fn fail(cx: &Context, id: &str, fault: &Fault) -> Result<(), StoreError> {
    tracing::info!(build = id, code = fault.code, "build failed");
    let message: String = fault.message.chars().take(MESSAGE_LEN_MAX).collect();
    let also = |row: &mut BuildRow| {
        row.error_code = Some(fault.code.clone());
        row.error_message = Some(format!("{message} ({})", fault.code));
    };
    cx.store.build_move(id, Event::Fail, now_ms(), also).await.map(drop)
}

/// Removes what only a build that is under way needs. What fails here is found by the next start.
pub(super) async fn settle(cx: &Context, id: &str) {
    if let Err(error) = cx.builds.files.settle(id).await {
        tracing::warn!(build = id, error = chain(&error), "files of a build not removed");
    }
    // Sources have no such name.
    let _ = cx.node.remove_image(&build_name(id)).await;
}

async fn pull(
    cx: &Context,
    build: &BuildRow,
    source: &str,
    cancel: &CancellationToken,
) -> Result<ImageRecord, Stopped> {
    let access = bases::access(cx, build, source).await?;
    let limit = Duration::from_secs(BUILD_SECS_MAX);
    tokio::select! {
        biased;
        // What the node has begun goes on there and is of use to others.
        () = cx.stop.cancelled() => Err(Stopped::Server),
        () = cancel.cancelled() => Err(Stopped::Cancelled),
        pulled = timeout(limit, cx.node.pull_image(source, &access)) => match pulled {
            Ok(pulled) => Ok(pulled?),
            Err(_) => Err(timed_out().into()),
        },
    }
}

async fn in_builder(cx: &Context, build: &BuildRow, cancel: &CancellationToken) -> Result<ImageRecord, Stopped> {
    let (mut id, is_new) = builder::claim(cx, &build.owner).await?;
    let mut made = attempt(cx, build, &id, cancel).await;
    if matches!(made, Err(Stopped::Failed(_))) && !is_new && !builder::is_live(cx, &id).await? {
        // It was ended for having waited too long, just when it was chosen.
        id = builder::claim(cx, &build.owner).await?.0;
        made = attempt(cx, build, &id, cancel).await;
    }
    match &made {
        // The Dockerfile was at fault, or nothing: the layers so far are worth keeping.
        Ok(_) => builder::give_back(cx, &build.owner, id).await?,
        Err(Stopped::Failed(fault)) if fault.is_authors() => builder::give_back(cx, &build.owner, id).await?,
        Err(_) => builder::end(cx, &id).await?,
    }
    made
}

async fn attempt(
    cx: &Context,
    build: &BuildRow,
    id: &SandboxId,
    cancel: &CancellationToken,
) -> Result<ImageRecord, Stopped> {
    tokio::select! {
        biased;
        () = cx.stop.cancelled() => return Err(Stopped::Server),
        () = cancel.cancelled() => return Err(Stopped::Cancelled),
        ready = builder::ready(cx, id) => ready?,
    }
    let files = &cx.builds.files;
    let order = BuildOrder {
        context: files.context(&build.id),
        dockerfile: build.dockerfile.clone().unwrap_or_default(),
        args: build.build_args.clone(),
        log: files.log(&build.id),
        archive: files.archive(&build.id),
        name: build_name(&build.id),
        text: None,
        bases: Vec::new(),
    };
    let building = async {
        let text = cx.node.open_build(id, &order).await?;
        let order = bases::settle(cx, build, order, &text).await?;
        Ok::<_, Fault>(cx.node.build_image(id, order).await?)
    };
    tokio::pin!(building);
    let stopped = tokio::select! {
        biased;
        () = cx.stop.cancelled() => return Err(Stopped::Server),
        () = cancel.cancelled() => Stopped::Cancelled,
        built = timeout(Duration::from_secs(BUILD_SECS_MAX), &mut building) => match built {
            Ok(built) => return Ok(built?),
            Err(_) => timed_out().into(),
        },
    };
    // With its builder, the build ends by itself: nothing is cut off in the middle. Once its result was on its way in, that takes the
    // time of an import, and the name that it gets is removed after that.
    builder::end(cx, id).await?;
    tokio::select! {
        () = cx.stop.cancelled() => return Err(Stopped::Server),
        _ = building => {}
    }
    Err(stopped)
}

fn timed_out() -> Fault {
    Fault::new("build_timed_out", format!("the build did not end within {} minutes", BUILD_SECS_MAX / 60))
}
