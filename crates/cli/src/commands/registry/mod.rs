//! `warren registry ...`.

mod add;
mod check_image;
mod list;
mod password;
mod remove;
mod view;

use super::Context;
use crate::args::{OwnerArgs, RegistryCommand};
use crate::failure::{Exit, Failure};

/// Runs one of the commands.
pub(crate) async fn dispatch(context: &Context, command: RegistryCommand) -> Result<Exit, Failure> {
    match command {
        RegistryCommand::Add(args) => add::run(context, args).await,
        RegistryCommand::List(args) => list::run(context, &args).await,
        RegistryCommand::Remove(args) => remove::run(context, args).await,
        RegistryCommand::CheckImage(args) => check_image::run(context, args).await,
    }
}

/// The team that is meant: the one that was named, or that of the settings.
fn team(context: &Context, args: &OwnerArgs) -> Option<String> {
    args.team.clone().or_else(|| context.team_id.clone())
}
