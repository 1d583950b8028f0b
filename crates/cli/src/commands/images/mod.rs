//! `warren images ...`.

mod build;
mod builds;
mod gc;
mod import;
mod list;
mod making;
mod pull;
mod pulls;
mod remove;
mod view;

pub(crate) use making::{Waits, build_text};

use super::Context;
use crate::args::ImagesCommand;
use crate::failure::{Exit, Failure};

/// Runs one of the commands.
pub(crate) async fn dispatch(context: &Context, command: ImagesCommand) -> Result<Exit, Failure> {
    match command {
        ImagesCommand::Pull(args) => pull::run(context, &args.reference).await,
        ImagesCommand::Import(args) => import::run(context, &args.path, &args.name).await,
        ImagesCommand::List => list::run(context).await,
        ImagesCommand::Pulls => pulls::run(context).await,
        ImagesCommand::Build(args) => build::run(context, args).await,
        ImagesCommand::Builds => builds::list(context).await,
        ImagesCommand::BuildLogs(args) => builds::logs(context, &args.id).await,
        ImagesCommand::BuildCancel(args) => builds::cancel(context, &args.id).await,
        ImagesCommand::Remove(args) => remove::run(context, &args.references).await,
        ImagesCommand::Gc(args) => gc::run(context, &args).await,
    }
}
