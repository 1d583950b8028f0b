//! `warren volumes ...`.

mod create;
mod delete;
mod get;
mod list;
mod publish;
mod view;

use super::Context;
use crate::args::{OwnerArgs, VolumesCommand};
use crate::failure::{Exit, Failure};

/// Runs one of the commands.
pub(crate) async fn dispatch(context: &Context, command: VolumesCommand) -> Result<Exit, Failure> {
    match command {
        VolumesCommand::Create(args) => create::run(context, args).await,
        VolumesCommand::List(args) => list::run(context, &args).await,
        VolumesCommand::Get(args) => get::run(context, &args).await,
        VolumesCommand::Publish(args) => publish::run(context, args).await,
        VolumesCommand::Delete(args) => delete::run(context, args).await,
    }
}

/// The team that is meant: the one that was named, or that of the settings.
fn team(context: &Context, args: &OwnerArgs) -> Option<String> {
    args.team.clone().or_else(|| context.team_id.clone())
}
