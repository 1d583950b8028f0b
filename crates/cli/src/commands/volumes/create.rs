use super::team;
use super::view::VolumeView;
use crate::args::VolumeArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use warren_proto::http::NewVolume;

/// Makes an empty volume.
pub(super) async fn run(context: &Context, args: VolumeArgs) -> Result<Exit, Failure> {
    let new = NewVolume { team_id: team(context, &args.owner), name: args.name };
    let volume = context.api.create_volume(&new).await.map_err(|error| Failure::from(error).about(&new.name))?;
    context.printer.show(&VolumeView { volume })?;
    Ok(Exit::Success)
}
