//! `warren snapshot ...`, and `warren sandbox snapshot`.

mod view;

use super::removed::RemovedView;
use super::{Context, now_ms, sandbox};
use crate::args::{SnapshotCommand, SnapshotListArgs, TakeArgs};
use crate::client::ForkOf;
use crate::failure::{Exit, Failure};
use crate::printer::{Progress, say};
use view::{SnapshotView, SnapshotsView};

/// Runs one of the commands.
pub(crate) async fn dispatch(context: &Context, command: SnapshotCommand) -> Result<Exit, Failure> {
    match command {
        SnapshotCommand::List(args) => list(context, args).await,
        SnapshotCommand::Get(args) => get(context, &args.id).await,
        SnapshotCommand::Fork(args) => {
            let id = args.id.clone();
            sandbox::fork(context, ForkOf::Snapshot(&id), args).await
        }
        SnapshotCommand::Delete(args) => delete(context, &args.ids).await,
    }
}

/// Takes a snapshot of a running sandbox.
pub(super) async fn take(context: &Context, args: TakeArgs) -> Result<Exit, Failure> {
    let text = format!("taking a snapshot of {}", args.id);
    let taken = Progress::during(&context.printer, &text, context.api.take_snapshot(&args.id, args.name)).await;
    let snapshot = taken.map_err(|error| Failure::from(error).about(&args.id))?;
    context.printer.show(&SnapshotView::taken(snapshot))?;
    Ok(Exit::Success)
}

async fn list(context: &Context, args: SnapshotListArgs) -> Result<Exit, Failure> {
    let found = match &args.sandbox {
        Some(id) => context.api.snapshots_of(id).await.map_err(|error| Failure::from(error).about(id))?,
        None => context.api.snapshots(args.team_id.as_ref().or(context.team_id.as_ref()).map(String::as_str)).await?,
    };
    context.printer.show(&SnapshotsView { snapshots: found.snapshots, now_ms: now_ms() })?;
    Ok(Exit::Success)
}

async fn get(context: &Context, id: &str) -> Result<Exit, Failure> {
    let snapshot = context.api.snapshot(id).await.map_err(|error| Failure::from(error).about(id))?;
    context.printer.show(&SnapshotView::whole(snapshot))?;
    Ok(Exit::Success)
}

/// Deletes snapshots; fails if one of them could not be deleted, after having tried them all.
async fn delete(context: &Context, ids: &[String]) -> Result<Exit, Failure> {
    let mut removed = RemovedView::default();
    let mut exit = Exit::Success;
    for id in ids {
        match context.api.delete_snapshot(id).await {
            Ok(_) => removed.add(id.clone(), ""),
            Err(error) => {
                Failure::from(error).about(id).lines().iter().for_each(|line| say(line));
                exit = Exit::Failure;
            }
        }
    }
    context.printer.show(&removed)?;
    Ok(exit)
}
