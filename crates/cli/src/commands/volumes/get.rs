use super::team;
use super::view::VolumeView;
use crate::args::VolumeArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Shows one volume.
pub(super) async fn run(context: &Context, args: &VolumeArgs) -> Result<Exit, Failure> {
    let team_id = team(context, &args.owner);
    let found = context.api.get_volume(&args.name, team_id.as_deref()).await;
    let volume = found.map_err(|error| Failure::from(error).about(&args.name))?;
    context.printer.show(&VolumeView { volume })?;
    Ok(Exit::Success)
}
