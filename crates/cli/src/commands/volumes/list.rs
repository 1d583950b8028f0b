use super::team;
use super::view::VolumesView;
use crate::args::VolumeListArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Shows a page of volumes.
pub(super) async fn run(context: &Context, args: &VolumeListArgs) -> Result<Exit, Failure> {
    let team_id = team(context, &args.owner);
    let list = context.api.list_volumes(args.page, args.num, team_id.as_deref()).await?;
    context.printer.show(&VolumesView { list })?;
    Ok(Exit::Success)
}
