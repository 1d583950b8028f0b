use super::view::BuildsView;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Shows the pulls and conversions under way.
pub(super) async fn run(context: &Context) -> Result<Exit, Failure> {
    let builds = context.api.image_builds().await?.builds;
    context.printer.show(&BuildsView { builds })?;
    Ok(Exit::Success)
}
