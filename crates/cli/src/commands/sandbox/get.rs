use super::view::DetailView;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Shows everything of one sandbox.
pub(super) async fn run(context: &Context, id: &str) -> Result<Exit, Failure> {
    let sandbox = context.api.get_sandbox(id).await.map_err(|error| Failure::from(error).about(id))?;
    context.printer.show(&DetailView { sandbox })?;
    Ok(Exit::Success)
}
