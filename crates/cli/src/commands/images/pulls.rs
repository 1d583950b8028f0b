use super::view::PullsView;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Shows the pulls and conversions under way.
pub(super) async fn run(context: &Context) -> Result<Exit, Failure> {
    let builds = context.api.image_builds().await?.builds;
    context.printer.show(&PullsView { builds })?;
    Ok(Exit::Success)
}
