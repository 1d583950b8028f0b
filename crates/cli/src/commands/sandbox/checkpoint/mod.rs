//! `warren sandbox checkpoint ...`.

mod create;
mod delete;
mod restore;
mod view;

pub(crate) use create::until_settled;

use crate::args::CheckpointCommand;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use view::{CheckpointView, CheckpointsView};

/// Runs one of the commands.
pub(super) async fn dispatch(context: &Context, command: CheckpointCommand) -> Result<Exit, Failure> {
    match command {
        CheckpointCommand::Create(args) => create::run(context, args).await,
        CheckpointCommand::List(args) => list(context, &args.id).await,
        CheckpointCommand::Get(args) => get(context, &args.id).await,
        CheckpointCommand::Restore(args) => restore::run(context, args).await,
        CheckpointCommand::Delete(args) => delete::run(context, args).await,
    }
}

async fn list(context: &Context, sandbox: &str) -> Result<Exit, Failure> {
    let list = context.api.list_checkpoints(sandbox).await.map_err(|error| Failure::from(error).about(sandbox))?;
    context.printer.show(&CheckpointsView { list, now_ms: crate::commands::now_ms() })?;
    Ok(Exit::Success)
}

async fn get(context: &Context, id: &str) -> Result<Exit, Failure> {
    let checkpoint = context.api.get_checkpoint(id).await.map_err(|error| Failure::from(error).about(id))?;
    context.printer.show(&CheckpointView { checkpoint })?;
    Ok(Exit::Success)
}
