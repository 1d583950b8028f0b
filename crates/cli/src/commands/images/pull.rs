use super::making::watched;
use super::view::ImageView;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Makes an image ready to boot.
pub(super) async fn run(context: &Context, reference: &str) -> Result<Exit, Failure> {
    let image = watched(context, reference, || context.api.pull_image(reference, context.team_id.as_deref())).await;
    let image = image.map_err(|error| Failure::from(error).about(reference))?;
    context.printer.show(&ImageView { image })?;
    Ok(Exit::Success)
}
