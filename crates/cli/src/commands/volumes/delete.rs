use super::team;
use crate::args::VolumesArgs;
use crate::commands::Context;
use crate::commands::removed::RemovedView;
use crate::failure::{Exit, Failure};
use crate::printer::say;

/// Deletes volumes; fails if one of them could not be deleted, after having tried them all.
pub(super) async fn run(context: &Context, args: VolumesArgs) -> Result<Exit, Failure> {
    let team_id = team(context, &args.owner);
    let mut removed = RemovedView::default();
    let mut exit = Exit::Success;
    for name in args.names {
        match context.api.delete_volume(&name, team_id.as_deref()).await {
            Ok(()) => removed.add(name, ""),
            Err(error) => {
                Failure::from(error).about(&name).lines().iter().for_each(|line| say(line));
                exit = Exit::Failure;
            }
        }
    }
    context.printer.show(&removed)?;
    Ok(exit)
}
